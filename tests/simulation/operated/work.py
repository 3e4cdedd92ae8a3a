"""Counts what the store writes and reads for each task, for the checker of constant cost (G9)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.memory.database import MemoryDatabase, TaskRows

from dragoman.core.task.contents import ResponseBudget
from dragoman.core.task.log import Event, TaskRef
from dragoman.core.task.plan import Plan
from dragoman.ports import TaskMessages, TaskSnapshot


class Work(NamedTuple):
    """Rows and bytes that were written, with so many `events`, or read. `sequence`: of the last event then."""

    sequence: int
    events: int
    rows: int
    size: int


class TaskWork:
    """What was done for one task."""

    def __init__(self) -> None:
        self.work: list[Work] = []
        """All but reads of its log."""
        self.log_reads: Counter[int] = Counter()
        """How often each event was read from its log."""


class MeteredDatabase(MemoryDatabase):
    """The rows of a store, with a note of each write and read of them."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.work: defaultdict[str, TaskWork] = defaultdict(TaskWork)
        """By the id of the task."""

    def _note(self, rows: TaskRows, count: int, size: int, events: int = 0) -> None:
        self.work[rows.record.id].work.append(Work(rows.record.last_sequence, events, count, size))

    def _write(self, planned: Plan, now: int) -> None:
        super()._write(planned, now)
        change = planned.change
        written = [
            *(event.data for event in planned.events),
            *(row.data for row in planned.messages),
            *(row.data for row in planned.artifacts),
            *(step.result for step in change.steps),
            change.task_state or b"",
        ]
        self._note(self.tasks[planned.record.ref], len(written), sum(map(len, written)), len(planned.events))

    def snapshot(self, rows: TaskRows, history: int | None, artifacts: bool, budget: ResponseBudget) -> TaskSnapshot:
        found = super().snapshot(rows, history, artifacts, budget)
        chunks = sum(len(chunks) for _, chunks in rows.artifacts.values()) if artifacts else 0
        self._note(rows, 1 + chunks + (0 if history == 0 else len(rows.messages)), len(found.task))
        return found

    def events(self, ref: TaskRef, after: int, limit: int) -> list[Event]:
        found = super().events(ref, after, limit)
        if ref in self.tasks:
            self.work[self.tasks[ref].record.id].log_reads.update(event.sequence for event in found)
        return found

    def messages(self, ref: TaskRef, after: int) -> TaskMessages | None:
        found = super().messages(ref, after)
        if found is not None:
            size = sum(len(one.message) for one in found.messages) + len(found.task_state)
            self._note(self.tasks[ref], 1 + len(found.messages), size)
        return found
