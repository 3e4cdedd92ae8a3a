"""`make simulate`: plays histories of random seeds on simulated time, and checks each.

    make simulate HISTORIES=2000            # random seeds, and 500 each with called agents and with operators
    make simulate SEED=12 HISTORIES=500     # seeds 12 to 511
    make simulate SEED="called 12"          # one with called agents
    make simulate SEED="operated 12"        # one with operators
    python -m tests.simulation.run --seed 12 --show    # one history, printed

A failing seed is printed with its problems, and the first one shrunk, with its history and its plan. `--show` prints
the history of a good one, too.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tests.simulation.history import simulate
from tests.simulation.kinds import SHARES, any_plan_of, prefix_of
from tests.simulation.plan import plan_to_json
from tests.simulation.processes import Played, play_all
from tests.simulation.shrink import shrink

REPORT_SECONDS: Final = 30.0


class Totals:
    """Adds up what was played."""

    def __init__(self) -> None:
        self.histories = self.operations = self.failed = 0
        self.simulated_seconds = self.cpu_seconds = 0.0
        self._began = time.perf_counter()

    def add(self, played: Played) -> None:
        """Adds some histories."""
        self.histories += played.histories
        self.operations += played.operations
        self.simulated_seconds += played.simulated_seconds
        self.cpu_seconds += played.cpu_seconds
        self.failed += len(played.problems)

    def __str__(self) -> str:
        seconds = time.perf_counter() - self._began
        return (
            f"{self.histories} histories, {self.operations} operations, {self.simulated_seconds:.0f} simulated seconds"
            f" in {seconds:.1f} s ({self.histories / seconds:.0f} histories/s,"
            f" {self.histories / self.cpu_seconds:.0f} of one core)"
        )


def show(seed: str) -> int:
    """Prints one history. Returns 1 if it is bad."""
    outcome = simulate(any_plan_of(seed))
    print(outcome.text)
    print(f"simulate: SEED={seed}: {'FAILED' if outcome.problems else 'ok'}")
    return 1 if outcome.problems else 0


def shrunk(seed: str) -> str:
    """Shrinks the failing history of a seed. Returns what is left of it, and its plan."""
    outcome = shrink(simulate(any_plan_of(seed)))
    return f"{outcome.text}\n{plan_to_json(outcome.plan)}"


def report(shares: Iterable[Played], describe: Callable[[str], str]) -> Totals:
    """Prints the problems of each failing seed, and the description of the first one. Returns what was played."""
    totals, described, reported = Totals(), False, time.monotonic()
    for played in shares:
        totals.add(played)
        for seed, problems in played.problems.items():
            print(f"simulate: SEED={seed}: " + "\n    ".join(problems), flush=True)
            if not described:
                described = True
                print(describe(seed), flush=True)
        if time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            print(f"simulate: {totals}, {totals.failed} failed so far", flush=True)
    return totals


def play_and_report(prefix: str, first: int, count: int, processes: int) -> int:
    """Plays histories of one kind, and prints what is wrong. Returns how many are bad."""
    print(f"simulate: {count} histories from SEED={prefix}{first}", flush=True)
    totals = report(play_all(first, count, processes, prefix), shrunk)
    print(f"simulate: {totals}: {f'{totals.failed} FAILED' if totals.failed else 'ok'}")
    return totals.failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays histories, and prints what is wrong. Returns 1 if anything was."""
    parser = argparse.ArgumentParser(description="plays histories on simulated time")
    parser.add_argument("--seed", default="", help="of the first history, such as 12, `called 12` or `operated 12`")
    parser.add_argument("--histories", type=int, default=None, help="how many: 1000, or 1 with --seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at a time; one per core")
    parser.add_argument("--show", action="store_true", help="print the history of --seed")
    options = parser.parse_args(arguments)
    if options.show:
        if not options.seed:
            parser.error("--show needs --seed")
        return show(options.seed)
    if options.seed:
        prefix = prefix_of(options.seed)
        first = int(options.seed.removeprefix(prefix))
        return 1 if play_and_report(prefix, first, options.histories or 1, options.processes) else 0
    first, count = secrets.randbelow(10**9), options.histories or 1000
    counts = {prefix: max(1, count // share) for prefix, share in SHARES.items()}
    failed = sum(play_and_report(prefix, first, number, options.processes) for prefix, number in counts.items())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
