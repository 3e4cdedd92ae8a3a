"""Medians of a machine whose constants are known: 1 ms of a send, 0.5 ms of a commit, 0.3 ms without CPU."""

from __future__ import annotations

from bench.sizing.cases import (
    ALL,
    MEMORY_FEW,
    MEMORY_IDLE,
    MEMORY_MANY,
    SOME_CALLERS,
    SOME_STREAMS,
    Case,
    Kind,
    Worker,
)

UNIT_US, COMMIT_US, DELAY_US, CALLER_US = 1_000.0, 500.0, 300.0, 100.0


def measured() -> dict[str, dict[str, float]]:
    """Returns the fields of every case."""
    found = {case.name: _figures(case) for case in ALL}
    for name, value in zip(
        (MEMORY_IDLE, *(step.name for step in (*MEMORY_FEW, *MEMORY_MANY))),
        (95e6, 97e6, 104.5e6, 110.5e6, 107e6, 157e6),
        strict=True,
    ):
        found[name] = {"value": value}
    return found


def _figures(case: Case) -> dict[str, float]:
    alone = case.callers <= case.servers
    writes = 1.04 if case.kind is Kind.PACED else 3.0 if case.worker is Worker.ON_STORE else 2.0
    some = (case.kind, case.callers) in ((Kind.SEND, SOME_CALLERS), (Kind.PACED, SOME_STREAMS))
    commits = writes if alone else writes / (2 if some else 8)
    factor = 1 + (case.servers - 1) / 10
    cpu = (UNIT_US / (10 if case.kind in (Kind.PACED, Kind.BURST) else 1) + commits * COMMIT_US) * factor
    waits = writes if case.kind is Kind.SEND else 1
    more = {Worker.NONE: 0.0, Worker.ON_STORE: 2_000.0, Worker.CONNECTED: 500.0}[case.worker]
    return {
        "rate": 50.0 * case.callers if case.kind is Kind.PACED else 1e6 / cpu,
        "p50": (cpu + more + waits * DELAY_US + CALLER_US) / 1e3,
        "load_us": CALLER_US,
        "servers": 0.7 * cpu,
        "workers": more,
        "postgres": 0.25 * cpu,
        "nats": 0.05 * cpu,
        "commits": commits,
        "wal": 4_500.0,
        "stored": 3_100.0,
        "to_nats": 600.0,
        "nats_messages": writes,
    }
