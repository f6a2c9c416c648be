"""``python -m bench.candidates``: which programs can be run here, in what version, and how to get the others."""

from __future__ import annotations

from bench.candidates import clients, gens, relays


def main() -> None:
    """Print one line for each candidate."""
    for candidate in (*relays(), *gens(), *clients()):
        reason = candidate.missing()
        print(f"{candidate.kind:7}{candidate.name:22}{candidate.version() if reason is None else f'missing: {reason}'}")


if __name__ == "__main__":
    main()
