"""Every predicted row beside its measurement, with the error and a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.sizing.cases import ALL, MEMORY_MANY, Case, Kind, Store
from bench.sizing.constants import (
    SEND_WRITES,
    Measured,
    MemoryCosts,
    NotMeasured,
    case_figures,
    solve,
    writes_of,
)
from bench.sizing.queueing import Saturated

MAX_ERROR: Final = 0.25
"""Error from which on a row counts as missed."""

DISTURBED_SHARE: Final = 0.1
"""Share of the core used by other programs, or taken by the host, from which on it is the reason for a miss."""

MEGABYTE: Final = 1e6


@dataclass(frozen=True, slots=True)
class Prediction:
    """One figure of a case: predicted and measured. `disturbed`: share of the core that others used meanwhile."""

    case: str
    figure: str
    predicted: float
    measured: float
    disturbed: float = 0.0

    @property
    def error(self) -> float:
        """The predicted value above the measured one, as a share of the measured one."""
        return self.predicted / self.measured - 1

    @property
    def verdict(self) -> str:
        """Returns `yes`, or `MISSED` with the reason as far as the measurement shows one."""
        if abs(self.error) < MAX_ERROR:
            return "yes"
        if self.disturbed > DISTURBED_SHARE:
            return f"MISSED: other programs had {self.disturbed:.0%} of the core"
        return "MISSED: the model lacks an effect; the core was not disturbed"


def predictions(measured: Measured) -> Iterator[Prediction]:
    """Yields all rows that were measured and have their constants, in the order of the cases."""
    for case in ALL:
        if not case.constant and case.name in measured:
            try:
                yield from _case_predictions(measured, case)
            except (NotMeasured, Saturated):  # a constant is missing: `missing` reports it
                continue
    yield from _stores(measured)
    yield from _memory(measured)


def missing(measured: Measured) -> list[str]:
    """Returns why predicted cases have no row: they or their constants were not measured, or they saturate."""
    reasons = []
    for case in ALL:
        if not case.constant:
            try:
                case_figures(measured, case)
                solve(measured, case)
            except (NotMeasured, Saturated) as error:
                reasons.append(f"{case.name}: {error}")
    return reasons


def _case_predictions(measured: Measured, case: Case) -> Iterator[Prediction]:
    found, solution = case_figures(measured, case), solve(measured, case)
    others = found.get("others", 0.0)
    if case.kind is not Kind.PACED:
        yield Prediction(case.name, "per second", solution.rate, found["rate"], others)
    if case.kind is not Kind.BURST:
        yield Prediction(case.name, "p50, ms", solution.latency * 1e3, found["p50"], others)
        commits = writes_of(case.kind, case.worker) / solution.batch
        yield Prediction(case.name, "commits each", commits, found["commits"], others)
    if case.kind is Kind.SEND and "nats_messages" in found and not case.worker:
        yield Prediction(case.name, "NATS messages each", SEND_WRITES, found["nats_messages"], others)


def _stores(measured: Measured) -> Iterator[Prediction]:
    """Compares the stores at the same load."""
    cases = [Case(Kind.SEND, 16, store=store) for store in Store]
    try:
        sqlite, postgres = (solve(measured, case).rate for case in cases)
        figures = [case_figures(measured, case) for case in cases]
    except NotMeasured:
        return
    ratio = figures[0]["rate"] / figures[1]["rate"]
    others = max(one.get("others", 0.0) for one in figures)
    yield Prediction("SQLite / PostgreSQL, 1 server, 16 callers", "ratio of rates", sqlite / postgres, ratio, others)


def _memory(measured: Measured) -> Iterator[Prediction]:
    try:
        costs = MemoryCosts.of(measured)
    except NotMeasured:
        return
    for step in MEMORY_MANY:
        if step.name in measured:
            value = measured[step.name]["value"]
            yield Prediction(step.name, "MB", costs.total(step) / MEGABYTE, value / MEGABYTE)
