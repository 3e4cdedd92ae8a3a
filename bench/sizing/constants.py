"""Constants of the model from measured cases of one server, and the prediction of every other case.

`Measured` has the medians of each case over all rounds. The cost of a commit is the difference between a case in which
a few writes share a commit and one in which many do. Nothing is fitted to a predicted case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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

CLAIM_COMMITS: Final = 1
"""A process with `--role worker` claims each task by a commit of its own."""

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


def demand(measured: Measured, kind: Kind, store: Store = Store.POSTGRES) -> Demand:
    """Returns the demand of a send, or of a paced chunk, on one server. Raises NotMeasured."""
    callers = (SOME_STREAMS, MANY_STREAMS) if kind is Kind.PACED else (SOME_CALLERS, MANY_CALLERS)
    few, some, many = (case_figures(measured, Case(kind, number, store=store)) for number in (FEW_CALLERS, *callers))
    split = Split.of(some, many, cpu)
    writes = SEND_WRITES if kind is Kind.SEND else 1 + SEND_WRITES / CHUNKS_PER_STREAM
    waits = SEND_WRITES if kind is Kind.SEND else 1  # a chunk's reader waits for one write
    caller = many["load_us"] * MICRO
    delay = max((few["p50"] * MILLI - cpu(few) / core_share(few) - caller) / waits, 0.0)
    full = case_figures(measured, Case(Kind.SEND, MANY_CALLERS, store=store))
    return Demand(split.unit, split.commit, delay, caller, writes, SEND_WRITES / full["commits"])


def slowdown(measured: Measured, kind: Kind, servers: int) -> float:
    """Returns the factor of CPU times when processes alternate on one core, from one caller or stream of each server.

    A process that runs again finds the caches with the data of the others.
    """
    if servers == 1:
        return 1.0
    each = case_figures(measured, Case(kind, FEW_CALLERS * servers, servers))
    return max(cpu(each) / cpu(case_figures(measured, Case(kind, FEW_CALLERS))), 1.0)


def send_demand(measured: Measured, case: Case) -> Demand:
    """Returns the demand of a send in a case, with the share of its worker and of cold caches. Raises NotMeasured."""
    plain = demand(measured, Kind.SEND, case.store).slowed(slowdown(measured, Kind.SEND, case.servers))
    if not case.worker:
        return plain
    with_worker = case_figures(measured, Case(Kind.SEND, FEW_CALLERS, worker=case.worker, constant=True))
    without = case_figures(measured, Case(Kind.SEND, FEW_CALLERS))
    return replace(plain, unit=plain.unit + max(cpu(with_worker) - cpu(without), 0.0))


def solve(measured: Measured, case: Case) -> Solution:
    """Returns the predicted steady state of a case, with the share of the core that it had, if it was measured.

    Raises NotMeasured, Saturated.
    """
    share = core_share(measured.get(case.name, {}))
    if case.kind is Kind.PACED:
        one = case_figures(measured, Case(Kind.PACED, FEW_CALLERS))
        return solve_open(demand(measured, Kind.PACED).slowed(1 / share), case.callers * one["rate"])
    if case.kind is Kind.BURST:
        one = case_figures(measured, Case(Kind.BURST, BURST_STREAMS))
        rate = one["rate"] / core_share(one) * share / slowdown(measured, Kind.BURST, case.servers)
        return Solution(rate, 0.0, 1 / one["commits"], rate * cpu(one))
    return solve_closed(send_demand(measured, case).slowed(1 / share), case.callers, case.servers)


def commits_per_unit(measured: Measured, case: Case, solution: Solution) -> float:
    """Returns the predicted commits of one unit. Raises NotMeasured."""
    writes = demand(measured, case.kind, case.store).writes
    shared = writes / solution.batch
    if case.worker is not Worker.ON_STORE:
        return shared
    return shared + CLAIM_COMMITS


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
