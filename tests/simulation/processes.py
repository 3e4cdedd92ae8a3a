"""Many histories, in several processes."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.simulation.history import Outcome, errors_only, simulate
from tests.simulation.kinds import any_plan_of

HISTORIES_PER_PROCESS: Final = 500
"""Histories after which a process ends. Its garbage goes with it; collecting it took a fifth of the time."""

PRELOADED: Final = (
    __name__,
    "dragoman.agents.upstream.agent",
    "dragoman.agents.upstream.turn",
    "tests.simulation.called.judge",
    "tests.simulation.called.parts",
    "tests.simulation.operated.callers",
    "tests.simulation.operated.judge",
)
"""What all processes share. Each would import the parts of called histories for a second otherwise. Without the extras
they cannot be imported, and are left out."""


@dataclass(frozen=True, slots=True)
class Played:
    """What some histories were in all. `cpu_seconds`: of their process. `problems`: by seed."""

    histories: int
    operations: int
    simulated_seconds: float
    cpu_seconds: float
    problems: dict[str, list[str]]


def histories(first: int, count: int, prefix: str = "") -> Iterator[Outcome]:
    """Plays the histories of these seeds. Collects no garbage: not for many thousands in one process.

    `prefix`: of the seeds, which selects the kind of plans.
    """
    gc.freeze()
    gc.disable()
    try:
        with errors_only(logging.getLogger("dragoman")):
            for number in range(count):
                yield simulate(any_plan_of(f"{prefix}{first + number}"))
    finally:
        gc.enable()
        gc.unfreeze()


def play(seeds: tuple[int, int, str]) -> Played:
    """Plays the histories of a first seed, a count and a prefix."""
    began, operations, seconds = time.process_time(), 0, 0.0
    problems: dict[str, list[str]] = {}
    for outcome in histories(*seeds):
        operations += outcome.plan.operations
        seconds += outcome.seconds
        if outcome.problems:
            problems[outcome.plan.seed] = outcome.problems
    return Played(seeds[1], operations, seconds, time.process_time() - began, problems)


def play_all(first: int, count: int, processes: int, prefix: str = "") -> Iterator[Played]:
    """Plays the histories of these seeds in several processes, a share at a time."""
    share = max(1, min(HISTORIES_PER_PROCESS, -(-count // processes)))
    shares = [(first + done, min(share, count - done), prefix) for done in range(0, count, share)]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    with context.Pool(min(processes, len(shares)), maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(play, shares)
