"""The quotas of histories with operators, and what their checker is told of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.chaos.history import Entry
from tests.simulation.memory.database import MemoryDatabase, TaskRows

from dragoman.core.access.identity import Identity
from dragoman.core.limits.quotas import Quotas
from dragoman.core.task import states

LIMITED_AGENT: Final = "direct"
LIVE_TASKS: Final = 2
"""The live tasks that a principal may have with that agent."""
RATED_AGENT: Final = "rated"
STARTS_PER_MINUTE: Final = 6
"""The turns of that agent that a principal may begin in a minute at one server, and at once."""
REQUESTS_PER_SECOND: Final = 5
QUEUED_BYTES: Final = 40_000

QUOTAS: Final = Quotas(
    configured={"requests_per_second": REQUESTS_PER_SECOND, "queued_bytes": QUEUED_BYTES},
    agents={LIMITED_AGENT: {"live_tasks": LIVE_TASKS}, RATED_AGENT: {"starts_per_minute": STARTS_PER_MINUTE}},
)
HEAVY: Final = Identity("bob")
"""A principal that sends more than its quotas of rates and bytes allow, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Entry):
    """A send is on its way to a process."""

    op: int
    process: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited(Entry):
    """The error of a send that a quota rejected."""

    op: int
    limit: str
    maximum: str
    retry_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested(Entry):
    """A process has counted a request. `retry_after`: 0 if it was within the rate."""

    process: str
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(Entry):
    """The messages of `HEAVY` that no turn has read, after a change of one of its tasks: how many, and their bytes."""

    messages: int
    size: int


def note_queue(database: MemoryDatabase, add: Callable[[Entry], None], now: Callable[[], float]) -> None:
    """Notes the queue of `HEAVY` after each change of its tasks."""

    def note(changed: TaskRows) -> None:
        if changed.record.principal != HEAVY.principal:
            return
        sizes = [
            row.size
            for rows in database.tasks.values()
            if rows.record.principal == HEAVY.principal and rows.record.state not in states.TERMINAL
            for row in rows.messages[rows.record.last_delivered :]
            if row.size
        ]
        add(Queued(at=now(), messages=len(sizes), size=sum(sizes)))

    database.on_append = note
