"""SQL statements that erase tasks, in the order of `stores.shared.erasure`.

What is deleted is overwritten with zeros, not only unlinked.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import ErasureCounts, ErasureReceipt, TaskSelection, task_ids_digest
from dragoman.stores.shared.erasure import (
    CONTENT_TABLES,
    ERASURE_STEP_BYTES,
    ERASURE_STEP_ROWS,
    QueuedTask,
    RangeCursor,
    TaskRange,
    count_fitting_rows,
    receipt_from_row,
)
from dragoman.stores.sqlite import daily_usage, pushes, reads, tables, task_tables
from dragoman.stores.sqlite.blobs import release_blobs
from dragoman.stores.sqlite.hot.rows import record_from_row
from dragoman.stores.sqlite.hot.transaction import ADD_TO_TOTALS, SELECT_RECORD
from dragoman.stores.sqlite.hot.writer import SqliteWriter
from dragoman.stores.sqlite.maintenance import task_selection
from dragoman.stores.sqlite.maintenance.task_selection import selected_owners
from dragoman.stores.sqlite.reads import owner_number

CONTEXT_TABLES: Final[tuple[tuple[str, str], ...]] = (("context_state", "owner = ? AND context = ?"),)
"""(table, where) for rows of a context; `?` are its owner's number and the context. They are deleted with the context's
last task, or when the context is erased."""

PRINCIPAL_TABLES: Final[tuple[tuple[str, str], ...]] = (
    ("totals", "owner = ?"),
    ("idempotency", "owner = ?"),
)
"""(table, where) for rows of a principal; `?` is its number. They are deleted when all of a principal is erased."""

TASK_CLEANUPS: Final[tuple[Callable[[sqlite3.Connection, int, bytes], object], ...]] = (
    task_tables.clear_task_keys,
    release_blobs,
    pushes.delete_pushes_of_task,
    task_tables.delete_usage,
)
"""Called for each task with the connection, its owner's number and its key."""

_INSERT_RECEIPT: Final = "INSERT INTO receipts (reason, selection, began) VALUES (?, ?, ?)"
_ADD_TO_RECEIPT: Final = """
UPDATE receipts SET tasks = tasks + ?, events = events + ?, messages = messages + ?, artifacts = artifacts + ?,
    chunks = chunks + ?, bytes = bytes + ?
WHERE receipt = ?
"""
_SELECT_QUEUED_TASKS: Final = """
SELECT id, owner, task FROM erasure_queue WHERE receipt = ? AND (id, owner, task) > (?, ?, ?) ORDER BY id, owner, task
"""
_OTHER_TASK_IN_CONTEXT: Final = "SELECT 1 FROM tasks WHERE visible AND owner = ? AND context = ? LIMIT 1"
_DELETE_QUEUED_TASKS: Final = """
DELETE FROM erasure_queue WHERE (receipt, id, owner, task) IN
    (SELECT receipt, id, owner, task FROM erasure_queue WHERE receipt = ? LIMIT ?)
"""
_SELECT_UNFINISHED: Final = (
    "SELECT receipt FROM receipts WHERE digest = '' UNION SELECT receipt FROM erasure_queue ORDER BY 1"
)
_SELECT_RECEIPT: Final = """
SELECT receipt, reason, selection, began, ended, tasks, events, messages, artifacts, chunks, bytes, digest
FROM receipts
"""


def delete_task_records(
    connection: sqlite3.Connection,
    number: int,
    selection: TaskSelection,
    records: Iterable[TaskRecord],
    now: int,
    reason: str,
) -> tuple[int, list[TaskRecord]]:
    """See `ErasureStatements.delete_task_records`."""
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
    erased: list[TaskRecord] = []
    totals: Counter[tuple[int, str, int]] = Counter()
    contexts: set[tuple[int, str]] = set()
    for selected in records:
        owner, key = owner_number(connection, selected.ref.owner), selected.ref.key
        row = connection.execute(SELECT_RECORD, (owner, key)).fetchone()
        record = record_from_row(selected.ref, row) if row else None
        if owner is None or record is None or not selection.matches(record, now):
            continue
        if not number:
            number = connection.execute(_INSERT_RECEIPT, (reason, str(selection), now)).lastrowid or 0
        connection.execute("DELETE FROM tasks WHERE owner = ? AND task = ?", (owner, key))
        connection.execute(
            "INSERT INTO erasure_queue (receipt, id, owner, task) VALUES (?, ?, ?, ?)", (number, record.id, owner, key)
        )
        for clean_up in TASK_CLEANUPS:
            clean_up(connection, owner, key)
        totals[owner, record.agent, record.state] -= record.visible
        contexts.add((owner, record.context))
        erased.append(record)
    ADD_TO_TOTALS.run(connection, [(*key, count) for key, count in totals.items() if count])
    for context in contexts:
        if not connection.execute(_OTHER_TASK_IN_CONTEXT, context).fetchone():
            _delete_context(connection, context)
    if erased:
        _add_counts(connection, number, ErasureCounts(tasks=len(erased)))
    return number, erased


def delete_task_content(connection: sqlite3.Connection, number: int, after: QueuedTask) -> QueuedTask | None:
    """See `ErasureStatements.delete_task_content`."""
    queued = connection.execute(_SELECT_QUEUED_TASKS, (number, *after)).fetchmany(ERASURE_STEP_ROWS)
    removed, max_rows, max_bytes = [0] * len(CONTENT_TABLES), ERASURE_STEP_ROWS, ERASURE_STEP_BYTES
    with _secure_delete(connection):
        for task in queued:
            for at, table in enumerate(CONTENT_TABLES):
                amount, used, freed, empty = _delete_rows(connection, table, task[1:], max_rows, max_bytes)
                removed[at] += amount
                max_rows, max_bytes = max_rows - used, max_bytes - freed
                if not empty:
                    break
            else:
                after, max_rows = task, max_rows - 1
            if max_rows <= 0 or max_bytes <= 0:
                break
    events, messages, artifacts, chunks, _ = removed
    freed = ERASURE_STEP_BYTES - max_bytes
    _add_counts(connection, number, ErasureCounts(0, events, messages, artifacts, chunks, freed))
    return after if queued else None


def _delete_rows(
    connection: sqlite3.Connection,
    content_table: tuple[str, Sequence[str], str, str],
    row_key: Sequence[object],
    max_rows: int,
    max_bytes: int,
) -> tuple[int, int, int, bool]:
    """Deletes rows of one task in one table, within the limits but at least one.

    Returns what they counted, their number, their bytes, and whether none is left.
    """
    table, columns, amount, length = content_table
    names = ", ".join(columns)
    sql = f"SELECT {amount}, {length}, {names} FROM {table} WHERE owner = ? AND task = ? ORDER BY {names} LIMIT ?"
    found = connection.execute(sql, (*row_key, max(max_rows, 1) + 1)).fetchall()
    if not found:
        return 0, 0, 0, True
    used, counted, freed = count_fitting_rows(found[: max(max_rows, 1)], max_bytes)
    marks = ", ".join("?" * len(columns))
    last = found[used - 1][2:]
    connection.execute(
        f"DELETE FROM {table} WHERE owner = ? AND task = ? AND ({names}) <= ({marks})", (*row_key, *last)
    )
    return counted, used, freed, used == len(found)


def finish_receipt(connection: sqlite3.Connection, number: int, ids_digest: str, now: int) -> bool:
    """See `ErasureStatements.finish_receipt`."""
    connection.execute(
        "UPDATE receipts SET digest = ?, ended = max(began, ?) WHERE receipt = ? AND digest = ''",
        (ids_digest, now, number),
    )
    with _secure_delete(connection):
        return connection.execute(_DELETE_QUEUED_TASKS, (number, ERASURE_STEP_ROWS)).rowcount < ERASURE_STEP_ROWS


def delete_context_or_principal(connection: sqlite3.Connection, selection: TaskSelection) -> bool:
    """See `ErasureStatements.delete_context_or_principal`. True when a principal's number may be reused."""
    numbers = selected_owners(connection, selection) if selection.covers_context or selection.covers_owners else []
    with _secure_delete(connection):
        if selection.covers_principal:
            tables.delete_revoked_api_keys(connection, selection.principal)
            tables.anonymize_audit_entries(connection, selection.principal)
        if selection.covers_owners:
            daily_usage.erase_principal(connection, selection.principal, selection.scope)
        for owner in numbers:
            if selection.covers_context:
                _delete_context(connection, (owner, selection.context))
            elif not connection.execute("SELECT 1 FROM tasks WHERE owner = ? LIMIT 1", (owner,)).fetchone():
                for table, where in PRINCIPAL_TABLES:
                    connection.execute(f"DELETE FROM {table} WHERE {where}", (owner,))
                connection.execute("DELETE FROM owners WHERE owner = ?", (owner,))
    return bool(numbers) and selection.covers_owners


def digest_of_queued_ids(connection: sqlite3.Connection, number: int) -> str:
    """See `ErasureStatements.digest_of_queued_ids`."""
    sql = "SELECT id FROM erasure_queue WHERE receipt = ? ORDER BY id"
    return task_ids_digest(row[0] for row in connection.execute(sql, (number,)))


def unfinished_receipts(connection: sqlite3.Connection) -> list[int]:
    """See `ErasureStatements.unfinished_receipts`."""
    return [number for (number,) in connection.execute(_SELECT_UNFINISHED)]


def last_receipts(connection: sqlite3.Connection, limit: int) -> list[ErasureReceipt]:
    """See `ErasureStatements.last_receipts`."""
    rows = connection.execute(f"{_SELECT_RECEIPT} ORDER BY receipt DESC LIMIT ?", (limit,))
    return [receipt_from_row(row) for row in rows]


def read_receipt(connection: sqlite3.Connection, number: int) -> ErasureReceipt:
    return receipt_from_row(connection.execute(f"{_SELECT_RECEIPT} WHERE receipt = ?", (number,)).fetchone())


def _add_counts(connection: sqlite3.Connection, number: int, counts: ErasureCounts) -> None:
    values = (counts.tasks, counts.events, counts.messages, counts.artifacts, counts.chunks, counts.bytes)
    connection.execute(_ADD_TO_RECEIPT, (*values, number))


def _delete_context(connection: sqlite3.Connection, context: tuple[int, str]) -> None:
    for table, where in CONTEXT_TABLES:
        connection.execute(f"DELETE FROM {table} WHERE {where}", context)


@contextmanager
def _secure_delete(connection: sqlite3.Connection) -> Iterator[None]:
    """Fills what is deleted with zeros; otherwise it would stay readable in free pages of the file."""
    (before,) = connection.execute("PRAGMA secure_delete").fetchone()
    connection.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA secure_delete = {before}")


T = TypeVar("T")

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments."""


class SqliteErasureStatements:
    """Implements `ErasureStatements`: reads on the readers, writes as low-priority work of the writer."""

    def __init__(self, read: Read, writer: SqliteWriter, clock: Callable[[], int]) -> None:
        self._read = read
        self._writer = writer
        self._clock = clock

    async def now(self) -> int:
        return self._clock()

    def task_ranges(self, selection: TaskSelection, now: int) -> Awaitable[Sequence[TaskRange]]:
        return self._read(task_selection.task_ranges, selection, now)

    def read_page(
        self, task_range: TaskRange, cursor: RangeCursor | None
    ) -> Awaitable[tuple[list[TaskRecord], RangeCursor | None]]:
        return self._read(task_selection.read_page, task_range, cursor)

    def measure(self, records: list[TaskRecord]) -> Awaitable[ErasureCounts]:
        return self._read(task_selection.measure, records)

    def delete_task_records(
        self, number: int, selection: TaskSelection, records: list[TaskRecord], now: int, reason: str
    ) -> Awaitable[tuple[int, list[TaskRecord]]]:
        def delete(connection: sqlite3.Connection) -> tuple[int, list[TaskRecord]]:
            receipt, erased = delete_task_records(connection, number, selection, records, now, reason)
            for record in erased:
                owner = reads.owner_number(connection, record.ref.owner)
                assert owner is not None, "the task existed"
                self._writer.quota_counters.record_erasure(connection, owner, record)
            return receipt, erased

        return self._write(delete)

    def delete_task_content(self, number: int, after: QueuedTask) -> Awaitable[QueuedTask | None]:
        return self._write(delete_task_content, number, after)

    def digest_of_queued_ids(self, number: int) -> Awaitable[str]:
        return self._read(digest_of_queued_ids, number)

    def finish_receipt(self, number: int, ids_digest: str) -> Awaitable[bool]:
        return self._write(finish_receipt, number, ids_digest, self._clock())

    def delete_context_or_principal(self, selection: TaskSelection) -> Awaitable[None]:
        def delete(connection: sqlite3.Connection) -> None:
            if delete_context_or_principal(connection, selection):
                self._writer.clear_owner_numbers()
                self._writer.quota_counters.clear()

        return self._write(delete)

    def unfinished_receipts(self) -> Awaitable[list[int]]:
        return self._read(unfinished_receipts)

    def last_receipts(self, limit: int) -> Awaitable[list[ErasureReceipt]]:
        return self._read(last_receipts, limit)

    def read_receipt(self, number: int) -> Awaitable[ErasureReceipt]:
        return self._read(read_receipt, number)

    def inactive_states(self) -> Awaitable[list[tuple[str, int]]]:
        return self._read(task_selection.inactive_states)

    def _write(self, job: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return self._writer.submit(lambda connection: job(connection, *arguments), low_priority=True)
