"""Erases tasks, in steps small enough that no append waits for one.

First a task's row and everything that mentions it are deleted: from that commit on the task does not exist, and appends
of its turn are rejected (ABSENT). Then its log, messages and artifacts are deleted, a limited number of rows at a time.
The queue `erasure_queue` contains the remaining work, so a crash only delays an erasure; the receipt counts the deleted
rows.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from dragoman.core.access.identity import SHARED_PRINCIPAL
from dragoman.core.names import task_key_of
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import PURGE_REASON, ErasureCounts, ErasureReceipt, TaskSelection, task_ids_digest
from dragoman.stores.shared.queries import Query, QueryRunner, change, marks, select, select_first
from dragoman.stores.shared.rows import RECORD_WIDTH, TABLE_RECORD_COLUMNS, records_with_owners
from dragoman.stores.shared.tables import anonymize_audit_entries, delete_revoked_api_keys

# Selection: page by page. A range may contain tasks that do not match: the eraser checks each -------------------------

SELECTION_PAGE_TASKS: Final = 128  # examined in one read

RangeCursor = tuple[Any, ...]  # the sort key of the last task examined

BY_TIME: Final = "t.updated, t.owner, t.task"
BY_KEY: Final = "t.owner, t.task"

_SELECT_PAGE: Final = f"""
SELECT o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS}, {{order}}
FROM tasks t {{index}} {{join}} owners o ON o.owner = t.owner WHERE {{where}}{{after}}
ORDER BY {{order}} LIMIT {SELECTION_PAGE_TASKS}
"""
_NEXT_INACTIVE_STATE: Final = """
SELECT agent, state FROM tasks WHERE {inactive} AND (agent, state) > (?1, ?2) ORDER BY agent, state LIMIT 1
"""
_INACTIVE: Final = "{inactive} AND t.agent = ?1 AND t.state = ?2 AND t.updated <= ?3"
_OF_CONTEXT: Final = "t.owner = ?1 AND t.context = ?2"
_SELECT_OWNERS: Final = (
    "SELECT owner FROM owners WHERE (?1 = '' OR scope = ?1) AND (?2 = '' OR principal = ?2) ORDER BY owner"
)


@dataclass(frozen=True, slots=True)
class TaskRange:
    """Rows of `tasks t` in an order. `index`: the one to use, where a store names one."""

    where: str
    values: tuple[Any, ...]
    order: str = BY_KEY
    index: str = ""


@dataclass(frozen=True, slots=True)
class SelectionSql:
    """The SQL of a store that selects tasks, where stores differ."""

    by_id: str  # selects the owner's number and key of tasks with the id ?1, of which ?2 is the key
    of_context: Sequence[tuple[str, str]]  # conditions and indexes that together find every task of a context
    blob_size: str  # the bytes of a large part: a row of `blobs b`
    inactive: str = "state > 2"  # the condition of the index of tasks that have ended or wait for their caller
    in_context: str = "visible"  # the condition of the index of contexts
    inactive_index: str = ""
    join: str = "JOIN"


def inactive_states(sql: SelectionSql) -> Query[list[tuple[str, int]]]:
    """The pairs of agent and state of tasks that have ended or wait for their caller."""
    found: list[tuple[str, int]] = []
    at: tuple[str, int] = ("", 0)
    while row := (yield from select_first(_NEXT_INACTIVE_STATE.format(inactive=sql.inactive), *at)):
        if (row[0], row[1]) <= at:  # damaged text, which reads as a smaller one
            break
        at = (row[0], row[1])
        found.append(at)
    return found


def selected_owners(selection: TaskSelection) -> Query[list[int]]:
    """The numbers of the owners that a selection covers."""
    rows = yield from select(_SELECT_OWNERS, selection.scope, selection.principal)
    return [row[0] for row in rows]


def task_ranges(sql: SelectionSql, selection: TaskSelection, now: int) -> Query[list[TaskRange]]:
    """Where tasks of the selection are; arguments are numbered from ?1."""
    if selection.task:
        rows = yield from select(sql.by_id, selection.task, task_key_of(selection.task) or b"")
        return [TaskRange("t.owner = ?1 AND t.task = ?2", tuple(row)) for row in rows]
    if selection.context:
        owners = yield from selected_owners(selection)
        return [
            TaskRange(f"{where} AND {_OF_CONTEXT}", (number, selection.context), index=index)
            for number in owners
            for where, index in sql.of_context
        ]
    if selection.principal:  # its own tasks, and those that it shares with others
        own = yield from selected_owners(selection)
        shared = yield from selected_owners(replace(selection, principal=SHARED_PRINCIPAL))
        return [TaskRange("t.owner = ?1", (number,)) for number in dict.fromkeys((*own, *shared))]
    before = now - selection.older_than
    ranges = [
        TaskRange(_INACTIVE.format(inactive=sql.inactive), (agent, state, before), BY_TIME, sql.inactive_index)
        for agent, state in (yield from inactive_states(sql))
        if state in selection.states and selection.agent in ("", agent)
    ]
    if selection.state in (states.SUBMITTED, states.WORKING):  # no index helps here: only operators select these
        ranges.append(TaskRange("t.state = ?1 AND t.updated <= ?2", (selection.state, before)))
    return ranges


def read_page(
    sql: SelectionSql, task_range: TaskRange, cursor: RangeCursor | None
) -> Query[tuple[list[TaskRecord], RangeCursor | None]]:
    """The next tasks of a range, and the next cursor; None at the end."""
    order, after = task_range.order, ""
    if cursor is not None:
        after = f" AND ({order}) > ({marks(len(task_range.values) + 1, len(cursor))})"
    index = f"INDEXED BY {task_range.index}" if task_range.index else ""
    text = _SELECT_PAGE.format(index=index, join=sql.join, where=task_range.where, after=after, order=order)
    rows = yield from select(text, *task_range.values, *(cursor or ()))
    following = tuple(rows[-1])[3 + RECORD_WIDTH :] if len(rows) == SELECTION_PAGE_TASKS else None
    return records_with_owners(rows), following


# Deletion -------------------------------------------------------------------------------------------------------------

ERASURE_STEP_ROWS: Final = 512
ERASURE_STEP_BYTES: Final = 4 * 1024 * 1024
"""Rows, and approximate bytes, that one commit deletes."""

CONTENT_TABLES: Final = (
    ("log", ("first",), "count", "length(data)"),
    ("messages", ("number",), "1", "length(data) + length(envelope)"),
    ("artifacts", ("artifact",), "1", "length(head)"),
    ("chunks", ("artifact", "sequence"), "1", "length(data)"),
    ("steps", ("turn", "name", "number"), "0", "length(result) + length(details)"),
)
"""(table, key columns within a task, amount that a row counts for, bytes of a row), in the order of `ErasureCounts`,
which counts only the bytes of steps."""

_SUMS: Final = ", ".join(
    f"(SELECT coalesce(sum({value}), 0) FROM {table} WHERE task = ?3"
    " AND owner = (SELECT owner FROM owners WHERE scope = ?1 AND principal = ?2))"
    for table, _, *values in CONTENT_TABLES
    for value in values
)
"""The amount and the bytes of a task in each table."""

_SUM_BLOBS: Final = """
SELECT coalesce(sum({size}), 0) FROM owners o JOIN blob_uses u ON u.owner = o.owner JOIN blobs b ON b.hash = u.hash
WHERE o.scope = ?1 AND o.principal = ?2 AND u.task = ?3
"""

QueuedTask = tuple[str, int, bytes]  # a row of `erasure_queue`: id, owner and key of a task

QUEUE_START: Final[QueuedTask] = ("", -1, b"")


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


_ADD_TO_RECEIPT: Final = """
UPDATE receipts SET tasks = tasks + ?2, events = events + ?3, messages = messages + ?4, artifacts = artifacts + ?5,
    chunks = chunks + ?6, bytes = bytes + ?7
WHERE receipt = ?1
"""
_SELECT_QUEUED_TASKS: Final = f"""
SELECT id, owner, task FROM erasure_queue WHERE receipt = ?1 AND (id, owner, task) > (?2, ?3, ?4)
ORDER BY id, owner, task LIMIT {ERASURE_STEP_ROWS}
"""
_OTHER_TASK_IN_CONTEXT: Final = "SELECT 1 FROM tasks WHERE {in_context} AND owner = ?1 AND context = ?2 LIMIT 1"
_FINISH_RECEIPT: Final = """
UPDATE receipts SET digest = ?2, ended = CASE WHEN began > ?3 THEN began ELSE ?3 END WHERE receipt = ?1 AND digest = ''
"""
_DELETE_QUEUED_TASKS: Final = f"""
DELETE FROM erasure_queue WHERE (receipt, id, owner, task) IN
    (SELECT receipt, id, owner, task FROM erasure_queue WHERE receipt = ?1 LIMIT {ERASURE_STEP_ROWS})
"""
_SELECT_RECEIPT: Final = """
SELECT receipt, reason, selection, began, ended, tasks, events, messages, artifacts, chunks, bytes, digest
FROM receipts
"""

PRINCIPAL_TABLES: Final = ("totals", "idempotency", "owners")
"""Tables with rows of an owner, which are deleted when all of a principal is erased."""


def add_to_receipt(number: int, counts: ErasureCounts) -> Query[int]:
    """Adds to the counts of a receipt."""
    return change(_ADD_TO_RECEIPT, number, *astuple(counts))


def delete_empty_contexts(sql: SelectionSql, contexts: Iterable[tuple[int, str]]) -> Query[None]:
    """Deletes the rows of those contexts, by owner and name, that have no other task."""
    for context in contexts:
        if not (yield from select_first(_OTHER_TASK_IN_CONTEXT.format(in_context=sql.in_context), *context)):
            yield from _delete_context(*context)


def _delete_context(owner: int, context: str) -> Query[int]:
    return change("DELETE FROM context_state WHERE owner = ?1 AND context = ?2", owner, context)


def delete_context_or_principal(selection: TaskSelection) -> Query[bool]:
    """Deletes other rows of a context or principal without tasks. True when an owner's number may be reused."""
    if selection.covers_principal:
        yield from delete_revoked_api_keys(selection.principal)
        yield from anonymize_audit_entries(selection.principal)
    owners = yield from selected_owners(selection)
    for owner in owners:
        if selection.covers_context:
            yield from _delete_context(owner, selection.context)
        elif not (yield from select_first("SELECT 1 FROM tasks WHERE owner = ?1 LIMIT 1", owner)):
            for table in PRINCIPAL_TABLES:
                yield from change(f"DELETE FROM {table} WHERE owner = ?1", owner)
    return bool(owners) and selection.covers_owners


def delete_task_content(number: int, after: QueuedTask) -> Query[QueuedTask | None]:
    """Deletes some content of queued tasks after one. Returns the last one that is done; None when all are."""
    queued = yield from select(_SELECT_QUEUED_TASKS, number, *after)
    removed, max_rows, max_bytes = [0] * len(CONTENT_TABLES), ERASURE_STEP_ROWS, ERASURE_STEP_BYTES
    for id, owner, key in queued:
        for at, table in enumerate(CONTENT_TABLES):
            amount, used, freed, empty = yield from _delete_rows(table, (owner, key), max_rows, max_bytes)
            removed[at] += amount
            max_rows, max_bytes = max_rows - used, max_bytes - freed
            if not empty:
                break
        else:
            after, max_rows = (id, owner, key), max_rows - 1
        if max_rows <= 0 or max_bytes <= 0:
            break
    events, messages, artifacts, chunks, _ = removed
    freed = ERASURE_STEP_BYTES - max_bytes
    yield from add_to_receipt(number, ErasureCounts(0, events, messages, artifacts, chunks, freed))
    return after if queued else None


def _delete_rows(
    content_table: tuple[str, Sequence[str], str, str], row_key: tuple[int, bytes], max_rows: int, max_bytes: int
) -> Query[tuple[int, int, int, bool]]:
    """Deletes rows of one task in one table, within the limits but at least one.

    Returns what they counted, their number, their bytes, and whether none is left.
    """
    table, columns, amount, length = content_table
    names = ", ".join(columns)
    sql = f"SELECT {amount}, {length}, {names} FROM {table} WHERE owner = ?1 AND task = ?2 ORDER BY {names} LIMIT ?3"
    found = yield from select(sql, *row_key, max(max_rows, 1) + 1)
    if not found:
        return 0, 0, 0, True
    used, counted, freed = count_fitting_rows(found[: max(max_rows, 1)], max_bytes)
    sql = f"DELETE FROM {table} WHERE owner = ?1 AND task = ?2 AND ({names}) <= ({marks(3, len(columns))})"
    yield from change(sql, *row_key, *tuple(found[used - 1])[2:])
    return counted, used, freed, used == len(found)


def _finish_receipt(number: int, ids_digest: str, now: int) -> Query[bool]:
    """Completes a receipt, and deletes some of its queue. True when the queue is empty."""
    yield from change(_FINISH_RECEIPT, number, ids_digest, now)
    return (yield from change(_DELETE_QUEUED_TASKS, number)) < ERASURE_STEP_ROWS


def measure_blobs(sql: SelectionSql, records: Iterable[TaskRecord]) -> Query[ErasureCounts]:
    """The bytes of the large parts of these tasks. One that several tasks have counts for each of them."""
    size = 0
    for record in records:
        size += (yield from select(_SUM_BLOBS.format(size=sql.blob_size), *record.ref.owner, record.ref.key))[0][0]
    return ErasureCounts(bytes=int(size))


def _measure(sql: SelectionSql, records: Sequence[TaskRecord]) -> Query[ErasureCounts]:
    """Counts the content of these tasks."""
    total = yield from measure_blobs(sql, records)
    for record in records:
        ((*sums,),) = yield from select(f"SELECT {_SUMS}", *record.ref.owner, record.ref.key)
        events, messages, artifacts, chunks, _ = map(int, sums[::2])
        total += ErasureCounts(1, events, messages, artifacts, chunks, sum(map(int, sums[1::2])))
    return total


def stored_receipts(condition: str, value: int) -> Query[list[ErasureReceipt]]:
    rows = yield from select(f"{_SELECT_RECEIPT} {condition}", value)
    return [receipt_from_row(row) for row in rows]


class Eraser(ABC):
    """Implements `dragoman.ports.Erasures`. One erasure at a time. A subclass has what differs between stores."""

    def __init__(self, runner: QueryRunner, sql: SelectionSql, after_erasure: Callable[[], Awaitable[None]]) -> None:
        """after_erasure: deletes what else callers wrote."""
        self._runner = runner
        self._sql = sql
        self._after_erasure = after_erasure
        self._lock = asyncio.Lock()

    @abstractmethod
    async def _delete_task_records(
        self, number: int, selection: TaskSelection, records: list[TaskRecord], now: int, reason: str
    ) -> tuple[int, list[TaskRecord]]:
        """Deletes the rows of those tasks that still match. Returns the receipt's number, and these tasks.

        number: 0 as long as nothing was deleted; the first deletion creates the receipt.
        """

    @abstractmethod
    async def _delete_context_or_principal(self, selection: TaskSelection) -> None:
        """Deletes the rows of a context or principal that belong to no task.

        Rows without a scope stay unless the selection covers all scopes.
        """

    @abstractmethod
    async def _unfinished_receipts(self) -> list[int]:
        """Receipts of erasures that a crash or a canceled call interrupted."""

    async def _ranges(self, selection: TaskSelection, now: int) -> list[TaskRange]:
        return await self._runner.read(task_ranges, self._sql, selection, now)

    def _delete_content(self, number: int, after: QueuedTask, now: int) -> Query[QueuedTask | None]:
        return delete_task_content(number, after)

    async def select(self, selection: TaskSelection, now: int | None = None) -> AsyncGenerator[list[TaskRecord], None]:
        now = await self._runner.now() if now is None else now
        for task_range in await self._ranges(selection, now):
            cursor: RangeCursor | None = None
            while True:
                records, cursor = await self._runner.read(read_page, self._sql, task_range, cursor)
                if matching := [record for record in records if selection.matches(record, now)]:
                    yield matching
                if cursor is None:
                    break

    async def measure(self, selection: TaskSelection) -> ErasureCounts:
        total = ErasureCounts()
        async with aclosing(self.select(selection)) as pages:
            async for records in pages:
                total += await self._runner.read(_measure, self._sql, records)
        return total

    async def erase(
        self,
        selection: TaskSelection,
        *,
        reason: str = PURGE_REASON,
        limit: int | None = None,
        on_erased: Callable[[list[TaskRecord]], None] | None = None,
    ) -> ErasureReceipt:
        async with self._lock:
            now, number, remaining = await self._runner.now(), 0, sys.maxsize if limit is None else limit
            async with aclosing(self.select(selection, now)) as pages:
                async for records in pages:
                    number, erased = await self._delete_task_records(
                        number, selection, records[:remaining], now, reason
                    )
                    if erased and on_erased is not None:
                        on_erased(erased)
                    remaining -= len(erased)
                    if remaining <= 0:
                        break
            receipt = await self._finish(number) if number else None
            if selection.covers_context or selection.covers_owners:
                await self._delete_context_or_principal(selection)
        await self._after_erasure()
        return receipt or ErasureReceipt(0, reason, str(selection), now, now, ErasureCounts(), task_ids_digest(()))

    async def resume(self, age: Callable[[str, int], int] | None = None) -> list[ErasureReceipt]:
        async with self._lock:
            return [await self._finish(number) for number in await self._unfinished_receipts()]

    async def receipts(self, limit: int = 100) -> list[ErasureReceipt]:
        return await self._runner.read(stored_receipts, "ORDER BY receipt DESC LIMIT ?1", limit)

    async def inactive_states(self) -> list[tuple[str, int]]:
        return await self._runner.read(inactive_states, self._sql)

    async def _finish(self, number: int) -> ErasureReceipt:
        """Deletes the rest of a receipt's tasks, and completes it."""
        runner, after = self._runner, QUEUE_START
        while (
            done := await runner.write_low_priority(self._delete_content, number, after, await runner.now())
        ) is not None:
            after = done
        ids = await runner.read(select, "SELECT id FROM erasure_queue WHERE receipt = ?1 ORDER BY id", number)
        digest = task_ids_digest(id for (id,) in ids)
        while not await runner.write_low_priority(_finish_receipt, number, digest, await runner.now()):
            pass
        return (await runner.read(stored_receipts, "WHERE receipt = ?1", number))[0]
