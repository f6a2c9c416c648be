"""Where candidates come from: environments of their own under ``.bench`` (``make bench-env``), or this one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

__all__ = ["PROGRAMS", "ROOT", "Environment", "here", "with_all_fds"]

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
_RAISE_FDS = 'ulimit -n "$(ulimit -Hn)"; exec "$@"'


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment ``.bench/NAME``, there or not."""

    name: str

    @property
    def directory(self) -> Path:
        """Where it is."""
        return ROOT / ".bench" / self.name

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.directory / "bin" / "python")

    def missing(self) -> str | None:
        """Why nothing of it can be run and how to get it, or None."""
        if (self.directory / ".installed").exists():
            return None
        log = self.directory.with_suffix(".log")
        if not log.exists():
            return f"no {self._relative}: `make bench-env` makes it"
        errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR")]
        why = errors[0].removeprefix("ERROR: ") if errors else "interrupted"
        return (
            f"`make bench-env` could not make {self._relative} ({why}; all of it in {self._relative}.log): run it again"
        )

    def version_of(self, package: str) -> Callable[[], str]:
        """What tells the version of ``package`` in it, "not installed" if it is not there."""

        def told() -> str:
            where = [str(path) for path in self.directory.glob("lib/python*/site-packages")]
            found = next(iter(distributions(name=package, path=where)), None)
            return "not installed" if found is None else found.version

        return told

    @property
    def _relative(self) -> Path:
        return self.directory.relative_to(ROOT)


def here(package: str) -> Callable[[], str]:
    """What tells the version of ``package`` in the running environment."""

    def told() -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    return told


def with_all_fds(*argv: str, imports_bench: bool = False) -> Sequence[str]:
    """``argv``, run (by exec: one process) with the soft limit of open files at the hard one.

    A stream costs a relay two descriptors, and soft limits of 1,024 are common.  ``imports_bench`` lets a program
    that runs in this environment import this package wherever it is started.
    """
    path = ("/usr/bin/env", f"PYTHONPATH={ROOT}", sys.executable) if imports_bench else ()
    return ("/bin/sh", "-c", _RAISE_FDS, "sh", *path, *argv)
