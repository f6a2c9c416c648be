"""What terminal and report say of latency: which rows their tables have, and what a reader must know beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.experiment.number_formats import duration
from loadtest.experiment.sentences import qualified

__all__ = ["goodput_sentence", "latency_rows", "latency_sentences"]

_ROWS = {
    "TTFT from planned": "ttft_s",
    "TTFT from sent": "ttft_from_sent_s",
    "ITL": "itl_s",
    "between chunks": "inter_chunk_s",
    "TPOT": "tpot_s",
    "E2E from planned": "e2e_s",
    "E2E from sent": "e2e_from_sent_s",
    "transit from gen": "transit_s",
    "send lateness": "lateness_s",
    "held back by the cap": "held_s",
}


def latency_rows(client: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(label, key of ``client``) of every row there is; the one between chunks where it is not the ITL's again."""
    one_token_chunks = client.get("tokens") == client.get("chunks")
    return [
        (label, key)
        for label, key in _ROWS.items()
        if client.get(key) and not (key == "inter_chunk_s" and one_token_chunks)
    ]


def latency_sentences(client: Mapping[str, Any], state: str) -> list[str]:
    """What the cap did or a closed loop can't see, then the goodput; ``state`` is the verdict's."""
    concurrency, goodput = client.get("concurrency"), goodput_sentence(client.get("goodput"), state)
    found = []
    if concurrency is not None and concurrency["closed_loop"]:
        found.append(
            f"Closed loop, {concurrency['max']:,} requests under way: each was planned for the moment in which a slot "
            "was free. A slow server gets fewer requests, so the queue that users at a steady rate would make never "
            "forms and is in no latency here (coordinated omission)."
        )
    elif concurrency is not None:
        found.append(_cap_sentence(client, concurrency["max"]))
    return [*found, goodput] if goodput else found


def _cap_sentence(client: Mapping[str, Any], cap: int) -> str:
    held, streams = client["held_s"], client["streams"]
    if held["n"]:
        text = (
            f"The cap of {cap:,} requests under way held {held['n']:,} of {streams['started']:,} back, by "
            f"{duration(held['p50'])} at p50, {duration(held['p99'])} at p99, {duration(held['max'])} at most. Latency "
            "from planned has that wait, latency from sent and the send lateness have not."
        )
    else:
        text = f"The cap of {cap:,} requests under way held none back."
    unsent = streams.get("unsent")
    return f"{text} {unsent:,} that were due got no slot before the end, and were never sent." if unsent else text


def goodput_sentence(goodput: Mapping[str, Any] | None, state: str) -> str | None:
    """Share within the limits with its interval, the rate, and what the others missed; None without limits."""
    if goodput is None:
        return None
    limits = " and ".join(
        f"{_LIMITS[name]} within {limit:,g} ms" for name, limit in goodput["limits"].items() if limit is not None
    )
    if goodput["share"] is None:
        return f"Goodput ({limits}): no stream to judge by."
    low, high = goodput["ci95"]
    rate = goodput["requests_per_s"]
    text = (
        f"Goodput: {goodput['share'] * 100:.1f} % [{low * 100:.1f}, {high * 100:.1f}] of {goodput['of']:,} streams "
        f"kept {limits}{'' if rate is None else f'; {rate:,.2f} requests/s'}"
    )
    missed = ", ".join(f"{_MISSED.get(what, what)} {n:,}" for what, n in goodput["missed"].items() if n)
    return qualified(f"{text}. Missed: {missed}." if missed else f"{text}.", state)


_LIMITS = {"ttft_ms": "TTFT from planned", "itl_ms": "mean ITL", "e2e_ms": "E2E from planned"}
_MISSED = {"ttft": "TTFT", "itl": "ITL", "e2e": "E2E", "unsent": "never sent"}
