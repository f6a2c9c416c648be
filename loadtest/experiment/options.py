"""The command line: verbs, options and their checks.  What a verb does is in the module of its name."""

from __future__ import annotations

import argparse

from loadtest.experiment.argument_types import add_policies, positive, workers
from loadtest.experiment.argument_types import at_least_one as _at_least_one
from loadtest.experiment.argument_types import whole as _whole
from loadtest.experiment.fail_if_plan import add_gate_options
from loadtest.experiment.history import add_history
from loadtest.experiment.load_options import add_load_options
from loadtest.experiment.options_capacity import add_capacity

__all__ = ["AT_TOK_S", "BLOCK_DEFAULTS", "parser", "positive"]

AT_TOK_S = 15_400.0
USAGES = ("absent", "null", "final", "continuous")
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 150, 1 << 20
BLOCK_DEFAULTS = {"duration": 84.0, "block": 0.7, "settle": 0.1, "warmup": 4.0, "at_rate": AT_TOK_S, "restarts": 0}
"""Options of `compare` that shape its blocks; an instruction count has none."""

_EPILOG = """\
examples:
  disagg-sim compare                              what does the pre-filter cost?
  disagg-sim compare filter-on my_pkg.mine:policy a policy of your own against it
  disagg-sim compare --set usage=null             the same, with usage null on every chunk
  disagg-sim compare --counter instructions       the same in user instructions, on any box
  disagg-sim run azure-conv --duration 60         one load run
  disagg-sim micro filter-off filter-on           what each costs per chunk, timed alone
  disagg-sim capacity filter-off filter-on        the highest rate that each holds
  disagg-sim profile parse                        where a chunk's microseconds go under a policy
  disagg-sim report runs/compare-...              the report again, from its files

exit codes: 0 done, 1 an error of ours, 2 usage or configuration, 3 the run is void (doctor: every run would be),
4 a --fail-if tripped
"""


def parser() -> argparse.ArgumentParser:
    """The parser of ``disagg-sim``."""
    top = argparse.ArgumentParser(
        prog="disagg-sim",
        description="Will my orchestrator's event loop hold, and what does a change on its per-chunk path cost?",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)

    compare = verbs.add_parser("compare", help="what does one policy cost against another?")
    add_policies(compare)
    _add_run_options(compare, scenario="seed")
    add_gate_options(compare)
    compare.add_argument(
        "--counter",
        choices=("cpu", "instructions"),
        default="cpu",
        help="cpu: time on live streams (default); instructions: user instructions per chunk and per request, under "
        "valgrind at a small rate of its own; repeats within 2 %% on any box",
    )
    compare.add_argument(
        "--engine", default=None, metavar="NAME", help="relay engine of the orchestrator (default: the scenario's)"
    )
    compare.add_argument(
        "--repeats", type=_at_least_one, default=None, metavar="N", help="instructions: count N times, show the spread"
    )
    compare.set_defaults(**BLOCK_DEFAULTS)
    compare.add_argument("--duration", type=positive, metavar="S", help="time in blocks (default 84)")
    compare.add_argument("--block", type=positive, metavar="S", help="length of a block (default 0.7)")
    compare.add_argument("--settle", type=positive, metavar="S", help="dropped after each switch (default 0.1)")
    compare.add_argument("--warmup", type=positive, metavar="S", help="load before blocks (default 4)")
    compare.add_argument("--at-rate", type=positive, metavar="TOK_S", help="rate the core share is stated at")
    compare.add_argument(
        "--restarts",
        type=_whole,
        metavar="N",
        help="measure again after N further starts of every process, and show the spread between starts",
    )

    run = verbs.add_parser("run", help="one load run of a scenario")
    run.add_argument("scenario", metavar="SCENARIO", help="a name (see `disagg-sim scenarios`) or a TOML file")
    _add_run_options(run, scenario=None)
    add_gate_options(run)
    run.add_argument("--duration", type=positive, default=None, metavar="S", help="time in which requests start")
    run.add_argument(
        "--workers",
        type=workers,
        default=1,
        metavar="N",
        help="split the load among N Locust workers and a master (default 1: one process)",
    )
    _add_workers(run)

    add_capacity(verbs.add_parser("capacity", help="which rate does the orchestrator hold?"), _add_topology_options)

    profile = verbs.add_parser("profile", help="where do a chunk's microseconds go? (needs py-spy)")
    profile.add_argument(
        "policy", nargs="?", metavar="POLICY", default="filter-on", help="as for compare; default: filter-on"
    )
    _add_run_options(profile, scenario="seed")
    profile.add_argument("--duration", type=positive, default=20.0, metavar="S", help="time sampled (default 20)")
    profile.add_argument("--warmup", type=positive, default=4.0, metavar="S", help="load before that (default 4)")
    profile.add_argument("--hz", type=_at_least_one, default=100, metavar="N", help="samples a second (default 100)")
    profile.add_argument(
        "--no-native", dest="native", action="store_false", help="without C frames: quicker samples, coarser table"
    )

    doctor = verbs.add_parser("doctor", help="what can this machine certify?")
    doctor.add_argument("--quick", action="store_true", help="leave out the ceiling of fakes and load (20 s)")
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")

    up = verbs.add_parser("up", help="start the topology and stay up")
    _add_topology_options(up, scenario="smoke")
    up.add_argument(
        "--duration", type=positive, default=None, metavar="S", help="end after S seconds (default: Ctrl-C)"
    )
    _add_workers(up)
    up.add_argument("--json", action="store_true", help="print the addresses as JSON")

    report = verbs.add_parser("report", help="rebuild result.json and report.html from a run directory")
    report.add_argument("run_dir", metavar="RUN_DIR")
    report.add_argument("--json", action="store_true", help="print the result as JSON")

    _add_micro(verbs.add_parser("micro", help="what does each policy cost per chunk, timed alone?"))

    add_history(verbs.add_parser("history", help="append runs to a CSV that Apache Otava finds change points in"))

    scenarios = verbs.add_parser("scenarios", help="list the scenarios, or show one")
    scenarios.add_argument("name", nargs="?", metavar="NAME")
    return top


def _add_topology_options(verb: argparse.ArgumentParser, scenario: str | None) -> None:
    if scenario is not None:
        verb.add_argument(
            "--scenario", default=scenario, metavar="NAME|FILE", help=f"scenario or TOML file (default {scenario})"
        )
    verb.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="override a scenario's key"
    )
    verb.add_argument("--seed", type=_whole, default=None, help="seed of everything random")
    verb.add_argument("--out", default=None, metavar="DIR", help="run directory (default runs/VERB-TIME)")
    verb.add_argument("--no-pin", action="store_true", help="do not give the orchestrator a CPU of its own")
    verb.add_argument("--unix", action="store_true", help="orchestrator to ctx and gen over Unix sockets")


def _add_run_options(verb: argparse.ArgumentParser, scenario: str | None) -> None:
    _add_topology_options(verb, scenario)
    verb.add_argument("--rate", type=positive, default=None, metavar="TOK_S", help="tokens per second in total")
    verb.add_argument("--streams", type=_at_least_one, default=None, metavar="N", help="streams of a staggered load")
    add_load_options(verb)
    verb.add_argument("--json", action="store_true", help="print the result as JSON; progress goes to stderr")


def _add_workers(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--orchestrator-workers",
        type=workers,
        default=1,
        metavar="N",
        help="processes of the orchestrator, on one data port (SO_REUSEPORT), each with an operations port (default 1)",
    )


def _add_micro(micro: argparse.ArgumentParser) -> None:
    micro.add_argument(
        "policies", nargs="*", metavar="POLICY", help="built-in name or package.module:callable; default: all built-in"
    )
    micro.add_argument(
        "--sizes", type=_sizes, default=[150, 258, 1024, 4096], metavar="BYTES,...", help="chunk sizes to time"
    )
    micro.add_argument(
        "--usage", type=_usages, default=list(USAGES), metavar="KIND,...", help=f"of {', '.join(USAGES)} (default: all)"
    )
    micro.add_argument("--processes", type=_at_least_one, default=3, metavar="N", help="for each figure (default 3)")
    micro.add_argument("--seed", type=_whole, default=0, help="of the order in which things are timed")
    micro.add_argument("--out", default=None, metavar="DIR", help="run directory (default runs/micro-TIME)")
    micro.add_argument("--no-pin", action="store_true", help="do not give the timed process a CPU of its own")
    micro.add_argument("--json", action="store_true", help="print the result as JSON; progress goes to stderr")


def _sizes(text: str) -> list[int]:
    sizes = [int(part) if part.isdecimal() else 0 for part in text.split(",")]
    if not all(MIN_CHUNK_BYTES <= size <= MAX_CHUNK_BYTES for size in sizes) or len(set(sizes)) < len(sizes):
        allowed = f"different whole numbers from {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES}, separated by commas"
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of sizes in bytes; allowed: {allowed}")
    return sizes


def _usages(text: str) -> list[str]:
    kinds = text.split(",")
    if not set(kinds) <= set(USAGES) or len(set(kinds)) < len(kinds):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of {', '.join(USAGES)}, each at most once")
    return kinds
