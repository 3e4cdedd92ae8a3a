"""Constants of the model from measured cases, and the prediction of every other case.

`Measured` has the medians of each case over all rounds. The cost of a commit is the difference between a case in which
a few writes share a commit and one in which many do. Nothing is fitted to a predicted case: only the share of the core
that was left for it is taken from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bench.sizing.cases import (
    BURST_STREAMS,
    CHUNKS_PER_STREAM,
    FEW_CALLERS,
    MANY_CALLERS,
    MANY_STREAMS,
    MEMORY_FEW,
    MEMORY_IDLE,
    SOME_CALLERS,
    SOME_STREAMS,
    Case,
    Kind,
    Memory,
    Store,
    Worker,
)
from bench.sizing.queueing import Demand, Solution, solve_closed, solve_open

Figures = Mapping[str, float]
Measured = Mapping[str, Figures]
"""Fields of each case by its name. CPU in µs per unit, `p50` in ms, `rate` per second; memory in bytes as `value`."""

PARTS: Final = ("servers", "workers", "postgres", "nats")
SEND_WRITES: Final = 2
"""A send writes the task with its claim, then the result."""

CLAIM_WRITES: Final = 1
"""A process with `--role worker` claims each task by a write of its own."""

MIN_CORE_SHARE: Final = 0.05

MICRO: Final = 1e-6
MILLI: Final = 1e-3


class NotMeasured(LookupError):
    """A case that a constant needs was not measured. The text names it."""


def case_figures(measured: Measured, case: Case) -> Figures:
    """Returns the fields of a case. Raises NotMeasured."""
    if case.name not in measured:
        raise NotMeasured(f"not measured: {case.name}")
    return measured[case.name]


def cpu(figures: Figures) -> float:
    """Returns the CPU seconds of one unit, of all processes together."""
    return sum(figures.get(part, 0.0) for part in PARTS) * MICRO


def core_share(figures: Figures) -> float:
    """Returns the share of the core that a case had; the rest was used by other programs, or taken by the host."""
    return max(1 - figures.get("others", 0.0), MIN_CORE_SHARE)


@dataclass(frozen=True, slots=True)
class Split:
    """A cost per unit as its two parts: apart from commits, and per commit."""

    unit: float
    commit: float

    @classmethod
    def of(cls, few: Figures, many: Figures, cost: Callable[[Figures], float]) -> Split:
        """Solves cost = unit + commits * commit for two cases. Neither part is below zero, whatever the noise."""
        commits = few["commits"] - many["commits"]
        commit = max((cost(few) - cost(many)) / commits, 0.0) if commits > 0 else 0.0
        commit = min(commit, cost(many) / max(many["commits"], 1e-9))
        return cls(cost(many) - many["commits"] * commit, commit)


def writes_of(kind: Kind, worker: Worker = Worker.NONE) -> float:
    """Returns the writes of one unit. A chunk has its share of those of its stream."""
    if kind is Kind.SEND:
        return SEND_WRITES + (CLAIM_WRITES if worker is Worker.ON_STORE else 0)
    return 1 + SEND_WRITES / CHUNKS_PER_STREAM


def demand(measured: Measured, kind: Kind, store: Store = Store.POSTGRES, worker: Worker = Worker.NONE) -> Demand:
    """Returns the demand of a send, or of a paced chunk, on one server. Raises NotMeasured."""

    def figures(kind: Kind, callers: int) -> Figures:
        return case_figures(measured, Case(kind, callers, store=store, worker=worker))

    callers = (SOME_STREAMS, MANY_STREAMS) if kind is Kind.PACED else (SOME_CALLERS, MANY_CALLERS)
    few, some, many = (figures(kind, number) for number in (FEW_CALLERS, *callers))
    split, caller, writes = Split.of(some, many, cpu), many["load_us"] * MICRO, writes_of(kind, worker)
    waits = writes if kind is Kind.SEND else 1  # a chunk's reader waits for one write
    delay = max((few["p50"] * MILLI - cpu(few) / core_share(few) - caller) / waits, 0.0)
    full_batch = writes_of(Kind.SEND, worker) / figures(Kind.SEND, MANY_CALLERS)["commits"]
    return Demand(split.unit, split.commit, delay, caller, writes, full_batch)


def slowdown(measured: Measured, servers: int) -> float:
    """Returns the factor of CPU times when so many servers are busy on one core, from a burst of one stream each.

    A process that runs again finds the caches with the data of the others. A burst shows it as a load does: each
    process has work all the time, and runs until the kernel lets another one run.
    """
    if servers == 1:
        return 1.0
    each = case_figures(measured, Case(Kind.BURST, FEW_CALLERS * servers, servers))
    return max(cpu(each) / cpu(case_figures(measured, Case(Kind.BURST, FEW_CALLERS))), 1.0)


def solve(measured: Measured, case: Case) -> Solution:
    """Returns the predicted steady state of a case, with the share of the core that it had, if it was measured.

    Raises NotMeasured, Saturated.
    """
    factor = slowdown(measured, case.servers) / core_share(measured.get(case.name, {}))
    if case.kind is Kind.BURST:
        one = case_figures(measured, Case(Kind.BURST, BURST_STREAMS))
        rate = one["rate"] / core_share(one) / factor
        return Solution(rate, 0.0, 1 / one["commits"], rate * cpu(one))
    slowed = demand(measured, case.kind, case.store, case.worker).slowed(factor)
    if case.kind is Kind.PACED:
        one = case_figures(measured, Case(Kind.PACED, FEW_CALLERS))
        return solve_open(slowed, case.callers * one["rate"])
    return solve_closed(slowed, case.callers, case.servers)


@dataclass(frozen=True, slots=True)
class MemoryCosts:
    """Resident bytes of an idle server, and of each waiting task, open stream and running turn."""

    idle: float
    waiting: float
    stream: float
    running: float

    @classmethod
    def of(cls, measured: Measured) -> MemoryCosts:
        """Computes them from few tasks and streams. Raises NotMeasured."""
        names = (MEMORY_IDLE, *(step.name for step in MEMORY_FEW))
        if missing := [name for name in names if name not in measured]:
            raise NotMeasured(f"not measured: {missing[0]}")
        values = [measured[name]["value"] for name in names]
        idle, waiting, streams, running = values
        tasks, opened, turns = MEMORY_FEW[0].waiting, MEMORY_FEW[1].streams, MEMORY_FEW[2].running
        return cls(
            idle,
            max(waiting - idle, 0.0) / tasks,
            max(streams - waiting, 0.0) / opened,
            max(running - streams, 0.0) / turns,
        )

    def total(self, memory: Memory) -> float:
        """Returns the resident bytes of one server with these tasks and streams."""
        return self.idle + self.waiting * memory.waiting + self.stream * memory.streams + self.running * memory.running
