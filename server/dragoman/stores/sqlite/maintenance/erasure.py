"""Taking tasks away, in steps small enough that no append waits for one.

First the task's own row goes, with whatever else mentions it: from that commit on it is not there for anybody, and
whoever runs it is refused (ABSENT). Then its log, messages and artifacts go, so many rows at a time, overwritten and
not only unlinked. What is left to do is written down (`leaving`), so a crash in between delays an erasure and no
more; the receipt counts what is really gone.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Final, TypeVar

from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import PURGE_REASON, ErasureCounts, ErasureReceipt, TaskSelection, task_ids_digest
from dragoman.stores.sqlite import pushes, reads, tables, task_tables
from dragoman.stores.sqlite.blobs import release_blobs
from dragoman.stores.sqlite.hot.transaction import ADD_TO_TOTALS, SELECT_RECORD, record_from_row
from dragoman.stores.sqlite.hot.writer import SqliteWriter
from dragoman.stores.sqlite.maintenance import task_selection
from dragoman.stores.sqlite.maintenance.task_selection import selected_owners
from dragoman.stores.sqlite.reads import owner_number

# What other tables hold of a task ---------------------------------------------------------------------------------

CONTEXT_TABLES: Final[tuple[tuple[str, str], ...]] = (
    ("context_state", "owner = ? AND context = ?"),
    ("conversations", "owner = ? AND context = ?"),
    ("participants", "host = ? AND context = ?"),
)
"""(table, where) for rows of a conversation; `?` are its owner's number and the context. They go with the context's
last task, or when the context is erased."""

PRINCIPAL_TABLES: Final[tuple[tuple[str, str], ...]] = (
    ("totals", "owner = ?"),
    ("idempotency", "owner = ?"),
    ("participants", "owner = ?"),
)
"""(table, where) for rows of a principal; `?` is its number. They go when all of a principal is erased."""

TASK_CLEANUPS: Final[tuple[Callable[[sqlite3.Connection, int, bytes], object], ...]] = (
    task_tables.clear_task_keys,
    task_tables.remove_open_task,
    release_blobs,
    pushes.delete_pushes_of_task,
    task_tables.delete_usage,
)
"""Called for each task with the connection, its owner's number and its key."""

# -------------------------------------------------------------------------------------------------------------------

ERASURE_STEP_ROWS: Final = 512
ERASURE_STEP_BYTES: Final = 4 * 1024 * 1024
"""Rows, and about how many bytes, that one commit takes away."""

_CONTENT_TABLES: Final = (
    ("log", ("first",), "count", "length(data)"),
    ("messages", ("number",), "1", "length(data) + length(envelope)"),
    ("artifacts", ("artifact",), "1", "length(head)"),
    ("chunks", ("artifact", "sequence"), "1", "length(data)"),
)
_INSERT_RECEIPT: Final = "INSERT INTO receipts (reason, selection, began) VALUES (?, ?, ?)"
_ADD_TO_RECEIPT: Final = """
UPDATE receipts SET tasks = tasks + ?, events = events + ?, messages = messages + ?, artifacts = artifacts + ?,
    chunks = chunks + ?, bytes = bytes + ?
WHERE receipt = ?
"""
_SELECT_QUEUED_TASKS: Final = """
SELECT id, owner, task FROM leaving WHERE receipt = ? AND (id, owner, task) > (?, ?, ?) ORDER BY id, owner, task
"""
_OTHER_TASK_IN_CONTEXT: Final = "SELECT 1 FROM tasks WHERE visible AND owner = ? AND context = ? LIMIT 1"
_DELETE_QUEUED_TASKS: Final = """
DELETE FROM leaving WHERE (receipt, id, owner, task) IN
    (SELECT receipt, id, owner, task FROM leaving WHERE receipt = ? LIMIT ?)
"""
_SELECT_UNFINISHED: Final = (
    "SELECT receipt FROM receipts WHERE digest = '' UNION SELECT receipt FROM leaving ORDER BY 1"
)
_SELECT_RECEIPT: Final = """
SELECT receipt, reason, selection, began, ended, tasks, events, messages, artifacts, chunks, bytes, digest
FROM receipts
"""

QueuedTask = tuple[str, int, bytes]
"""A row of `leaving`: id, owner and key of a task."""

QUEUE_START: Final[QueuedTask] = ("", -1, b"")


def delete_task_records(
    connection: sqlite3.Connection,
    number: int,
    selection: TaskSelection,
    records: Iterable[TaskRecord],
    now: int,
    reason: str,
) -> tuple[int, list[TaskRecord]]:
    """Takes away the rows of those of these tasks that are still meant. Gives the receipt's number, and those tasks.

    `number` is 0 as long as nothing was taken: the receipt begins with the first.
    """
    with _secure_delete(connection):
        return _delete_task_records(connection, number, selection, records, now, reason)


def _delete_task_records(
    connection: sqlite3.Connection,
    number: int,
    selection: TaskSelection,
    records: Iterable[TaskRecord],
    now: int,
    reason: str,
) -> tuple[int, list[TaskRecord]]:
    taken: list[TaskRecord] = []
    totals: Counter[tuple[int, str, int]] = Counter()
    contexts: set[tuple[int, str]] = set()
    for found in records:
        owner, key = owner_number(connection, found.ref.owner), found.ref.key
        row = connection.execute(SELECT_RECORD, (owner, key)).fetchone()
        head = record_from_row(found.ref, row) if row else None
        if owner is None or head is None or not selection.matches(head, now):
            continue
        if not number:
            number = connection.execute(_INSERT_RECEIPT, (reason, str(selection), now)).lastrowid or 0
        connection.execute("DELETE FROM tasks WHERE owner = ? AND task = ?", (owner, key))
        connection.execute(
            "INSERT INTO leaving (receipt, id, owner, task) VALUES (?, ?, ?, ?)", (number, head.id, owner, key)
        )
        for release in TASK_CLEANUPS:
            release(connection, owner, key)
        totals[owner, head.agent, head.state] -= head.visible
        contexts.add((owner, head.context))
        taken.append(head)
    connection.executemany(ADD_TO_TOTALS, [(*key, count) for key, count in totals.items() if count])
    for context in contexts:
        if not connection.execute(_OTHER_TASK_IN_CONTEXT, context).fetchone():
            _delete_context(connection, context)
    if taken:
        _add_counts(connection, number, ErasureCounts(tasks=len(taken)))
    return number, taken


def delete_task_content(connection: sqlite3.Connection, number: int, after: QueuedTask) -> QueuedTask | None:
    """Takes away the next rows of what this receipt's tasks left. Gives where to go on from; None when all is gone."""
    lefts = connection.execute(_SELECT_QUEUED_TASKS, (number, *after)).fetchmany(ERASURE_STEP_ROWS)
    removed, rows, size = [0, 0, 0, 0], ERASURE_STEP_ROWS, ERASURE_STEP_BYTES
    with _secure_delete(connection):
        for left in lefts:
            for at, content in enumerate(_CONTENT_TABLES):
                amount, used, freed, empty = _delete_rows(connection, content, left[1:], rows, size)
                removed[at] += amount
                rows, size = rows - used, size - freed
                if not empty:
                    break
            else:
                after, rows = left, rows - 1
            if rows <= 0 or size <= 0:
                break
    events, messages, artifacts, chunks = removed
    _add_counts(connection, number, ErasureCounts(0, events, messages, artifacts, chunks, ERASURE_STEP_BYTES - size))
    return after if lefts else None


def _delete_rows(
    connection: sqlite3.Connection,
    content_table: tuple[str, Sequence[str], str, str],
    row_key: Sequence[object],
    max_rows: int,
    max_bytes: int,
) -> tuple[int, int, int, bool]:
    """Takes away rows of one task in one table, within the limits (but one at least).

    Gives what they counted, their number, their bytes, and whether none is left.
    """
    table, columns, amount, length = content_table
    names = ", ".join(columns)
    sql = f"SELECT {amount}, {length}, {names} FROM {table} WHERE owner = ? AND task = ? ORDER BY {names} LIMIT ?"
    found = connection.execute(sql, (*row_key, max(max_rows, 1) + 1)).fetchall()
    if not found:
        return 0, 0, 0, True
    used = counted = freed = 0
    for row in found[: max(max_rows, 1)]:
        used, counted, freed = used + 1, counted + row[0], freed + row[1]
        if freed >= max_bytes:
            break
    marks = ", ".join("?" * len(columns))
    last = found[used - 1][2:]
    connection.execute(
        f"DELETE FROM {table} WHERE owner = ? AND task = ? AND ({names}) <= ({marks})", (*row_key, *last)
    )
    return counted, used, freed, used == len(found)


def finish_receipt(connection: sqlite3.Connection, number: int, ids_digest: str, now: int) -> bool:
    """Ends a receipt, and forgets the ids it was made of, some at a time. True when none is left."""
    connection.execute(
        "UPDATE receipts SET digest = ?, ended = max(began, ?) WHERE receipt = ? AND digest = ''",
        (ids_digest, now, number),
    )
    with _secure_delete(connection):
        return connection.execute(_DELETE_QUEUED_TASKS, (number, ERASURE_STEP_ROWS)).rowcount < ERASURE_STEP_ROWS


def delete_context_or_principal(connection: sqlite3.Connection, selection: TaskSelection) -> bool:
    """What belongs to a whole context or principal, and to no task. True when a principal's number is free again."""
    numbers = selected_owners(connection, selection) if selection.covers_context or selection.covers_principal else []
    with _secure_delete(connection):
        if selection.covers_principal:
            tables.delete_revoked_api_keys(connection, selection.principal)
            tables.anonymize_audit_entries(connection, selection.principal)
        for owner in numbers:
            if selection.covers_context:
                _delete_context(connection, (owner, selection.context))
            elif not connection.execute("SELECT 1 FROM tasks WHERE owner = ? LIMIT 1", (owner,)).fetchone():
                for table, where in PRINCIPAL_TABLES:
                    connection.execute(f"DELETE FROM {table} WHERE {where}", (owner,))
                connection.execute("DELETE FROM owners WHERE owner = ?", (owner,))
    return bool(numbers) and selection.covers_principal


def digest_of_queued_ids(connection: sqlite3.Connection, number: int) -> str:
    """The digest of the ids that a receipt is about, as long as they are still there."""
    sql = "SELECT id FROM leaving WHERE receipt = ? ORDER BY id"
    return task_ids_digest(row[0] for row in connection.execute(sql, (number,)))


def unfinished_receipts(connection: sqlite3.Connection) -> list[int]:
    """Receipts of erasures that a crash or an impatient caller cut short."""
    return [number for (number,) in connection.execute(_SELECT_UNFINISHED)]


def last_receipts(connection: sqlite3.Connection, limit: int) -> list[ErasureReceipt]:
    """The last receipts, newest first."""
    rows = connection.execute(f"{_SELECT_RECEIPT} ORDER BY receipt DESC LIMIT ?", (limit,))
    return [_receipt_from_row(row) for row in rows]


def read_receipt(connection: sqlite3.Connection, number: int) -> ErasureReceipt:
    return _receipt_from_row(connection.execute(f"{_SELECT_RECEIPT} WHERE receipt = ?", (number,)).fetchone())


def _receipt_from_row(row: tuple[Any, ...]) -> ErasureReceipt:
    number, reason, selection, began, ended, *counts, proof = row
    return ErasureReceipt(number, reason, selection, began, ended, ErasureCounts(*counts), proof)


def _add_counts(connection: sqlite3.Connection, number: int, counts: ErasureCounts) -> None:
    values = (counts.tasks, counts.events, counts.messages, counts.artifacts, counts.chunks, counts.bytes)
    connection.execute(_ADD_TO_RECEIPT, (*values, number))


def _delete_context(connection: sqlite3.Connection, context: tuple[int, str]) -> None:
    for table, where in CONTEXT_TABLES:
        connection.execute(f"DELETE FROM {table} WHERE {where}", context)


@contextmanager
def _secure_delete(connection: sqlite3.Connection) -> Iterator[None]:
    """What is deleted meanwhile is filled with zeros; otherwise it would stay readable in free pages of the file."""
    (before,) = connection.execute("PRAGMA secure_delete").fetchone()
    connection.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA secure_delete = {before}")


T = TypeVar("T")

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments."""


class SqliteEraser:
    """What `dragoman.ports.Store` says about selections, on one SQLite file. One erasure at a time."""

    def __init__(self, read: Read, writer: SqliteWriter, clock: Callable[[], int]) -> None:
        self._read = read
        self._writer = writer
        self._clock = clock
        self._lock = asyncio.Lock()

    async def select(self, selection: TaskSelection) -> AsyncGenerator[list[TaskRecord], None]:
        async with aclosing(self._select(selection, self._clock())) as pages:
            async for heads in pages:
                yield heads

    async def measure(self, selection: TaskSelection) -> ErasureCounts:
        total = ErasureCounts()
        async with aclosing(self._select(selection, self._clock())) as pages:
            async for heads in pages:
                total += await self._read(task_selection.measure, heads)
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
            await self._resume()
            now, number, left = self._clock(), 0, sys.maxsize if limit is None else limit
            async with aclosing(self._select(selection, now)) as pages:
                async for heads in pages:
                    number, taken = await self._delete_task_records(number, selection, heads[:left], now, reason)
                    if on_erased is not None and taken:
                        on_erased(taken)
                    left -= len(taken)
                    if left <= 0:
                        break
            receipt = await self._finish(number) if number else None
            if selection.covers_context or selection.covers_principal:
                await self._write_low_priority(self._delete_context_or_principal, selection)
        return receipt or ErasureReceipt(0, reason, str(selection), now, now, ErasureCounts(), task_ids_digest(()))

    async def resume(self) -> list[ErasureReceipt]:
        async with self._lock:
            return await self._resume()

    async def receipts(self, limit: int) -> list[ErasureReceipt]:
        found: list[ErasureReceipt] = await self._read(last_receipts, limit)
        return found

    async def inactive_states(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = await self._read(task_selection.inactive_states)
        return found

    async def _select(self, selection: TaskSelection, now: int) -> AsyncGenerator[list[TaskRecord], None]:
        for place in await self._read(task_selection.task_ranges, selection, now):
            at = None
            while True:
                heads, at = await self._read(task_selection.read_page, place, at)
                if meant := [head for head in heads if selection.matches(head, now)]:
                    yield meant
                if at is None:
                    break

    async def _resume(self) -> list[ErasureReceipt]:
        return [await self._finish(number) for number in await self._read(unfinished_receipts)]

    async def _finish(self, number: int) -> ErasureReceipt:
        place: QueuedTask | None = QUEUE_START
        while place is not None:
            place = await self._write_low_priority(delete_task_content, number, place)
        proof = await self._read(digest_of_queued_ids, number)
        while not await self._write_low_priority(finish_receipt, number, proof, self._clock()):
            pass
        receipt: ErasureReceipt = await self._read(read_receipt, number)
        return receipt

    async def _delete_task_records(self, *arguments: Any) -> tuple[int, list[TaskRecord]]:
        def fence(connection: Any) -> tuple[int, list[TaskRecord]]:
            number, taken = delete_task_records(connection, *arguments)
            for head in taken:
                owner = reads.owner_number(connection, head.ref.owner)
                assert owner is not None, "the task was there"
                self._writer.quota_counters.record_erasure(connection, owner, head)
            return number, taken

        return await self._write_low_priority(fence)

    def _delete_context_or_principal(self, connection: Any, selection: TaskSelection) -> None:
        if delete_context_or_principal(connection, selection):
            self._writer.clear_owner_numbers()
            self._writer.quota_counters.clear()

    def _write_low_priority(self, job: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return self._writer.submit(lambda connection: job(connection, *arguments), low_priority=True)
