"""The bench's command line."""

from __future__ import annotations

import argparse

from loadtest.experiment.options import positive

__all__ = ["parser"]

DEFAULT_OUT = "docs/benchmarks.md"
_EPILOG = """\
examples:
  python -m bench                            everything; half an hour on a quiet box of two cores
  python -m bench --only nginx,stream+parse  these alone
  python -m bench --from runs/bench-...      the document again, from a run's files

Ctrl-C keeps what was measured; the document then says that it is not whole.
exit codes: 0 done, 1 interrupted or an error of ours, 2 usage
"""


def parser() -> argparse.ArgumentParser:
    """The parser of ``python -m bench``."""
    top = argparse.ArgumentParser(
        prog="python -m bench",
        description="What a token costs in our relay, beside the relays, fakes and load clients that others run.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--passes", type=_at_least_one, default=None, metavar="N", help="interleaved passes (default 3)")
    top.add_argument(
        "--window", type=positive, default=None, metavar="S", help="measured time of each cell, s (default 5)"
    )
    top.add_argument("--only", default="", metavar="NAME,...", help="measure these alone; `--list` names them")
    top.add_argument("--list", action="store_true", help="name what can be measured, and what is missing here")
    top.add_argument("--quick", action="store_true", help="a smoke run at small loads: shows that all works, no speed")
    top.add_argument("--out", default=DEFAULT_OUT, metavar="FILE", help=f"the document (default {DEFAULT_OUT})")
    top.add_argument("--run-dir", default=None, metavar="DIR", help="raw results (default runs/bench-TIME)")
    top.add_argument(
        "--from", dest="run_from", default=None, metavar="RUN_DIR", help="measure nothing; write the document again"
    )
    top.add_argument(
        "--figure",
        type=_figure,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a figure that another command measures, for the table of targets: instructions (user instructions per "
        "chunk, `disagg-sim compare --counter instructions`), mde (percent of cost per chunk, `make compare`)",
    )
    return top


def _at_least_one(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def _figure(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    if name not in ("instructions", "mde"):
        raise argparse.ArgumentTypeError(f"{text!r} names no figure; there are instructions=VALUE and mde=VALUE")
    return name, positive(value)
