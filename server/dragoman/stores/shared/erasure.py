"""Selects tasks for erasure, and erases them in steps small enough that no append waits for one.

A range of a selection may contain tasks that do not match: each task is checked before it is erased. First the task's
row and everything that mentions it are deleted: from that commit on the task does not exist, and appends of its turn
are rejected (ABSENT). Then its log, messages and artifacts are deleted, a limited number of rows at a time. The queue
`leaving` contains the remaining work, so a crash only delays an erasure; the receipt counts the deleted rows.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import PURGE_REASON, ErasureCounts, ErasureReceipt, TaskSelection, task_ids_digest

# Selection ------------------------------------------------------------------------------------------------------------

SELECTION_PAGE_TASKS: Final = 128
"""Tasks examined in one read."""

RangeCursor = tuple[Any, ...]
"""The sort key of the last task examined."""


@dataclass(frozen=True, slots=True)
class TaskRange:
    """Rows of `tasks t` in an order: by status time, or by owner and key."""

    where: str
    values: tuple[Any, ...]
    by_time: bool = False
    index: str = ""
    """The index to use, where a store names one; empty for the database's choice."""

    @property
    def order(self) -> str:
        return "t.updated, t.owner, t.task" if self.by_time else "t.owner, t.task"

    def next_cursor(self, rows: Sequence[Sequence[Any]]) -> RangeCursor | None:
        """After a page of rows that begin with updated, owner, scope, principal and key; None at the end."""
        if len(rows) < SELECTION_PAGE_TASKS:
            return None
        updated, owner, task = rows[-1][0], rows[-1][1], rows[-1][4]
        return (updated, owner, task) if self.by_time else (owner, task)


def inactive_pairs(selection: TaskSelection, pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The pairs of agent and inactive state that the selection covers."""
    return [(agent, state) for agent, state in pairs if state in selection.states and selection.agent in ("", agent)]


def selects_active(selection: TaskSelection) -> bool:
    """Whether the selection covers unfinished tasks. No index helps here: only operators select these."""
    return selection.state in (states.SUBMITTED, states.WORKING)


# Erasure --------------------------------------------------------------------------------------------------------------

ERASURE_STEP_ROWS: Final = 512
ERASURE_STEP_BYTES: Final = 4 * 1024 * 1024
"""Rows, and approximate bytes, that one commit deletes."""

CONTENT_TABLES: Final = (
    ("log", ("first",), "count", "length(data)"),
    ("messages", ("number",), "1", "length(data) + length(envelope)"),
    ("artifacts", ("artifact",), "1", "length(head)"),
    ("chunks", ("artifact", "sequence"), "1", "length(data)"),
    ("steps", ("turn", "name", "number"), "0", "length(result)"),
)
"""(table, key columns within a task, amount that a row counts for, bytes of a row), in the order of `ErasureCounts`,
which counts only the bytes of steps."""

QueuedTask = tuple[str, int, bytes]
"""A row of `leaving`: id, owner and key of a task."""

QUEUE_START: Final[QueuedTask] = ("", -1, b"")

Range = TypeVar("Range")


def count_fitting_rows(rows: Iterable[Sequence[Any]], max_bytes: int) -> tuple[int, int, int]:
    """How many of these rows, which begin with amount and bytes, one step deletes: at least one.

    Returns their number, the sum of their amounts, and their bytes.
    """
    used = counted = freed = 0
    for row in rows:
        used, counted, freed = used + 1, counted + row[0], freed + row[1]
        if freed >= max_bytes:
            break
    return used, counted, freed


def receipt_from_row(row: Sequence[Any]) -> ErasureReceipt:
    """The receipt in a row of number, reason, selection, began, ended, the six counts and the digest."""
    number, reason, selection, began, ended, *counts, digest = row
    return ErasureReceipt(number, reason, selection, began, ended, ErasureCounts(*counts), digest)


class ErasureStatements(Protocol[Range]):
    """The reads and commits that a store provides for its `Eraser`: one for each method."""

    def now(self) -> Awaitable[int]:
        """The store's time in milliseconds."""

    def task_ranges(self, selection: TaskSelection, now: int) -> Awaitable[Sequence[Range]]:
        """Where tasks of the selection are. Not every task in a range has to match."""

    def read_page(
        self, task_range: Range, cursor: RangeCursor | None
    ) -> Awaitable[tuple[list[TaskRecord], RangeCursor | None]]:
        """The next tasks of a range, and the next cursor; None at the end."""

    def measure(self, records: list[TaskRecord]) -> Awaitable[ErasureCounts]:
        """Counts the content of these tasks."""

    def delete_task_records(
        self, number: int, selection: TaskSelection, records: list[TaskRecord], now: int, reason: str
    ) -> Awaitable[tuple[int, list[TaskRecord]]]:
        """Deletes the rows of those tasks that still match. Returns the receipt's number, and these tasks.

        number: 0 as long as nothing was deleted; the first deletion creates the receipt.
        """

    def delete_task_content(self, number: int, after: QueuedTask) -> Awaitable[QueuedTask | None]:
        """Deletes the next rows of this receipt's tasks. Returns where to continue; None when nothing is left."""

    def digest_of_queued_ids(self, number: int) -> Awaitable[str]:
        """The digest of the ids of a receipt's tasks, while they are still queued."""

    def finish_receipt(self, number: int, ids_digest: str) -> Awaitable[bool]:
        """Completes a receipt, and removes some of its tasks from the queue. True when none is left."""

    def delete_context_or_principal(self, selection: TaskSelection) -> Awaitable[None]:
        """Deletes the rows of a context or principal that belong to no task.

        Rows without a scope stay unless the selection covers all scopes.
        """

    def unfinished_receipts(self) -> Awaitable[list[int]]:
        """Receipts of erasures that a crash or a canceled call interrupted."""

    def last_receipts(self, limit: int) -> Awaitable[list[ErasureReceipt]]:
        """The last receipts, newest first."""

    def read_receipt(self, number: int) -> Awaitable[ErasureReceipt]:
        """One receipt."""

    def inactive_states(self) -> Awaitable[list[tuple[str, int]]]:
        """The pairs of agent and state of tasks that have ended or wait for their caller."""


class Eraser(Generic[Range]):
    """Implements `dragoman.ports.Erasures`. One erasure at a time."""

    def __init__(
        self,
        statements: ErasureStatements[Range],
        clear_caches: Callable[[], None] = lambda: None,
        after_erasure: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`clear_caches`: called when tasks have disappeared. `after_erasure`: deletes what else callers wrote."""
        self._statements = statements
        self._clear_caches = clear_caches
        self._after_erasure = after_erasure
        self._lock = asyncio.Lock()

    async def select(self, selection: TaskSelection) -> AsyncGenerator[list[TaskRecord], None]:
        async with aclosing(self._select(selection, await self._statements.now())) as pages:
            async for records in pages:
                yield records

    async def measure(self, selection: TaskSelection) -> ErasureCounts:
        total = ErasureCounts()
        async with aclosing(self._select(selection, await self._statements.now())) as pages:
            async for records in pages:
                total += await self._statements.measure(records)
        return total

    async def erase(
        self,
        selection: TaskSelection,
        *,
        reason: str = PURGE_REASON,
        limit: int | None = None,
        on_erased: Callable[[list[TaskRecord]], None] | None = None,
    ) -> ErasureReceipt:
        statements = self._statements
        async with self._lock:
            now, number, remaining = await statements.now(), 0, sys.maxsize if limit is None else limit
            async with aclosing(self._select(selection, now)) as pages:
                async for records in pages:
                    number, erased = await statements.delete_task_records(
                        number, selection, records[:remaining], now, reason
                    )
                    if erased:
                        self._clear_caches()
                        if on_erased is not None:
                            on_erased(erased)
                    remaining -= len(erased)
                    if remaining <= 0:
                        break
            receipt = await self._finish(number) if number else None
            if selection.covers_context or selection.covers_owners:
                await statements.delete_context_or_principal(selection)
        if self._after_erasure is not None:
            await self._after_erasure()
        return receipt or ErasureReceipt(0, reason, str(selection), now, now, ErasureCounts(), task_ids_digest(()))

    async def resume(self) -> list[ErasureReceipt]:
        """Completes the erasures that were interrupted. Returns their receipts."""
        async with self._lock:
            return [await self._finish(number) for number in await self._statements.unfinished_receipts()]

    async def receipts(self, limit: int = 100) -> list[ErasureReceipt]:
        return await self._statements.last_receipts(limit)

    async def inactive_states(self) -> list[tuple[str, int]]:
        return await self._statements.inactive_states()

    async def _select(self, selection: TaskSelection, now: int) -> AsyncGenerator[list[TaskRecord], None]:
        for task_range in await self._statements.task_ranges(selection, now):
            cursor: RangeCursor | None = None
            while True:
                records, cursor = await self._statements.read_page(task_range, cursor)
                if matching := [record for record in records if selection.matches(record, now)]:
                    yield matching
                if cursor is None:
                    break

    async def _finish(self, number: int) -> ErasureReceipt:
        after: QueuedTask | None = QUEUE_START
        while after is not None:
            after = await self._statements.delete_task_content(number, after)
        digest = await self._statements.digest_of_queued_ids(number)
        while not await self._statements.finish_receipt(number, digest):
            pass
        return await self._statements.read_receipt(number)
