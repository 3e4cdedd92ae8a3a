"""SQL statements that erase tasks, in the order of `stores.shared.erasure`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Collection, Sequence
from typing import Final

from asyncpg import Connection

from dragoman.core.names import Owner
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.maintenance import ErasureCounts, ErasureReceipt, TaskSelection, task_ids_digest
from dragoman.extensions.postgres import blobs, daily_usage, pushes, tables, task_tables
from dragoman.extensions.postgres.database import Database
from dragoman.extensions.postgres.hot import quota_counters
from dragoman.extensions.postgres.hot.quota_counters import TaskRowKey
from dragoman.extensions.postgres.hot.transaction import ADD_TO_TOTALS
from dragoman.extensions.postgres.maintenance import task_selection
from dragoman.extensions.postgres.maintenance.task_selection import selected_owners
from dragoman.extensions.postgres.rows import TABLE_RECORD_COLUMNS, PostgresBulkStatement, record_from_row
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

CONTEXT_TABLES: Final[tuple[tuple[str, str], ...]] = (("context_state", "owner = $1 AND context = $2"),)
"""(table, where) for rows of a context; the arguments are its owner's number and the context. They are deleted with the
context's last task, or when the context is erased."""

PRINCIPAL_TABLES: Final[tuple[tuple[str, str], ...]] = (
    ("totals", "owner = $1"),
    ("idempotency", "owner = $1"),
)
"""(table, where) for rows of a principal; the argument is its number. They are deleted when all of a principal is
erased."""

TASK_CLEANUPS: Final = (
    task_tables.clear_task_keys,
    blobs.release_blobs,
    pushes.delete_pushes_of_task,
    task_tables.delete_usage,
)
"""Called for each task with the connection and its row key."""

ABANDONED_AFTER_MS: Final = 60_000
"""Milliseconds without progress after which other processes complete an erasure."""

_LOCK_TASKS: Final = PostgresBulkStatement(
    f"SELECT o.scope, o.principal, t.owner, t.task, {TABLE_RECORD_COLUMNS} FROM {{rows}}"
    " JOIN owners o ON o.scope = r.scope AND o.principal = r.principal"
    " JOIN tasks t ON t.owner = o.owner AND t.task = r.task ORDER BY o.scope, o.principal, t.task FOR UPDATE OF t",
    "tty",
    "scope, principal, task",
)
_INSERT_RECEIPT: Final = (
    "INSERT INTO receipts (reason, selection, began, touched) VALUES ($1, $2, $3, $3) RETURNING receipt"
)
_ADD_TO_RECEIPT: Final = """
UPDATE receipts SET tasks = tasks + $2, events = events + $3, messages = messages + $4, artifacts = artifacts + $5,
    chunks = chunks + $6, bytes = bytes + $7, touched = greatest(touched, $8)
WHERE receipt = $1
"""
_INSERT_QUEUED_TASK: Final = "INSERT INTO erasure_queue (receipt, id, owner, task) VALUES ($1, $2, $3, $4)"
_SELECT_QUEUED_TASKS: Final = f"""
SELECT id, owner, task FROM erasure_queue WHERE receipt = $1 AND (id, owner, task) > ($2, $3, $4)
ORDER BY id, owner, task LIMIT {ERASURE_STEP_ROWS}
"""
_LOCK_RECEIPT: Final = "SELECT 1 FROM receipts WHERE receipt = $1 FOR UPDATE"
_OTHER_TASK_IN_CONTEXT: Final = "SELECT 1 FROM tasks WHERE visible AND owner = $1 AND context = $2 LIMIT 1"
_FINISH_RECEIPT: Final = (
    "UPDATE receipts SET digest = $2, ended = greatest(began, $3) WHERE receipt = $1 AND digest = ''"
)
_DELETE_QUEUED_TASKS: Final = f"""
DELETE FROM erasure_queue WHERE (receipt, id, owner, task) IN
    (SELECT receipt, id, owner, task FROM erasure_queue WHERE receipt = $1 LIMIT {ERASURE_STEP_ROWS})
"""
_SELECT_UNFINISHED: Final = f"""
SELECT r.receipt FROM receipts r
WHERE r.receipt IN (SELECT receipt FROM receipts WHERE digest = '' UNION SELECT receipt FROM erasure_queue)
    AND (r.receipt = ANY ($1::bigint[]) OR r.touched < $2::bigint - {ABANDONED_AFTER_MS}) ORDER BY r.receipt
"""
_SELECT_RECEIPT: Final = """
SELECT receipt, reason, selection, began, ended, tasks, events, messages, artifacts, chunks, bytes, digest
FROM receipts
"""


async def delete_task_records(
    connection: Connection,
    number: int,
    selection: TaskSelection,
    records: Sequence[TaskRecord],
    now: int,
    reason: str,
    counter_slot: int,
) -> tuple[int, list[TaskRecord]]:
    """See `ErasureStatements.delete_task_records`. counter_slot: whose counters this process adds to."""
    refs = {(ref.owner.scope, ref.owner.principal, ref.key) for ref in (record.ref for record in records)}
    erased: list[tuple[TaskRowKey, TaskRecord]] = []
    for scope, principal, owner, key, *row in await _LOCK_TASKS.fetch(connection, sorted(refs)):
        record = record_from_row(TaskRef(Owner(scope, principal), key), row)
        if selection.matches(record, now):
            erased.append(((owner, key), record))
    if not erased:
        return number, []
    if not number:
        number = await connection.fetchval(_INSERT_RECEIPT, reason, str(selection), now)
    await quota_counters.record_erasures(connection, counter_slot, erased)
    totals: Counter[tuple[int, str, int]] = Counter()
    for row_key, record in erased:
        await connection.execute("DELETE FROM tasks WHERE owner = $1 AND task = $2", *row_key)
        await connection.execute(_INSERT_QUEUED_TASK, number, record.id, *row_key)
        for clean_up in TASK_CLEANUPS:
            await clean_up(connection, row_key)
        totals[row_key[0], record.agent, record.state] -= record.visible
    await ADD_TO_TOTALS.run(connection, sorted((*key, counter_slot, count) for key, count in totals.items() if count))
    for owner, context in sorted({(row_key[0], record.context) for row_key, record in erased}):
        if not await connection.fetchval(_OTHER_TASK_IN_CONTEXT, owner, context):
            await _delete_context(connection, owner, context)
    await _add_counts(connection, number, ErasureCounts(tasks=len(erased)), now)
    return number, [record for _, record in erased]


async def delete_task_content(connection: Connection, number: int, after: QueuedTask, now: int) -> QueuedTask | None:
    """See `ErasureStatements.delete_task_content`."""
    await connection.execute(_LOCK_RECEIPT, number)  # two processes that complete an erasure count each row once
    queued = await connection.fetch(_SELECT_QUEUED_TASKS, number, *after)
    removed, max_rows, max_bytes = [0] * len(CONTENT_TABLES), ERASURE_STEP_ROWS, ERASURE_STEP_BYTES
    for id, owner, key in queued:
        for at, table in enumerate(CONTENT_TABLES):
            amount, used, freed, empty = await _delete_rows(connection, table, (owner, key), max_rows, max_bytes)
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
    await _add_counts(connection, number, ErasureCounts(0, events, messages, artifacts, chunks, freed), now)
    return after if queued else None


async def _delete_rows(
    connection: Connection,
    content_table: tuple[str, Sequence[str], str, str],
    row_key: TaskRowKey,
    max_rows: int,
    max_bytes: int,
) -> tuple[int, int, int, bool]:
    """Deletes rows of one task in one table, within the limits but at least one.

    Returns what they counted, their number, their bytes, and whether none is left.
    """
    table, columns, amount, length = content_table
    names = ", ".join(columns)
    sql = f"SELECT {amount}, {length}, {names} FROM {table} WHERE owner = $1 AND task = $2 ORDER BY {names} LIMIT $3"
    found = await connection.fetch(sql, *row_key, max(max_rows, 1) + 1)
    if not found:
        return 0, 0, 0, True
    used, counted, freed = count_fitting_rows(found[: max(max_rows, 1)], max_bytes)
    marks = ", ".join(f"${at}" for at in range(3, 3 + len(columns)))
    last = tuple(found[used - 1])[2:]
    await connection.execute(
        f"DELETE FROM {table} WHERE owner = $1 AND task = $2 AND ({names}) <= ({marks})", *row_key, *last
    )
    return counted, used, freed, used == len(found)


async def finish_receipt(connection: Connection, number: int, ids_digest: str, now: int) -> bool:
    """See `ErasureStatements.finish_receipt`."""
    await connection.execute(_FINISH_RECEIPT, number, ids_digest, now)
    status = await connection.execute(_DELETE_QUEUED_TASKS, number)
    return int(status.rpartition(" ")[2]) < ERASURE_STEP_ROWS


async def delete_context_or_principal(connection: Connection, selection: TaskSelection) -> None:
    """See `ErasureStatements.delete_context_or_principal`.

    Only in an exclusive transaction: batches are decided by the numbers of owners.
    """
    if selection.covers_principal:
        await tables.delete_revoked_api_keys(connection, selection.principal)
        await tables.anonymize_audit_entries(connection, selection.principal)
        await quota_counters.delete_empty_counters(connection, selection.principal)
    if selection.covers_owners:
        await daily_usage.erase_principal(connection, selection.principal, selection.scope)
    for owner in await selected_owners(connection, selection):
        if selection.covers_context:
            await _delete_context(connection, owner, selection.context)
        elif not await connection.fetchval("SELECT 1 FROM tasks WHERE owner = $1 LIMIT 1", owner):
            for table, where in PRINCIPAL_TABLES:
                await connection.execute(f"DELETE FROM {table} WHERE {where}", owner)
            await connection.execute("DELETE FROM owners WHERE owner = $1", owner)


async def digest_of_queued_ids(connection: Connection, number: int) -> str:
    """See `ErasureStatements.digest_of_queued_ids`."""
    rows = await connection.fetch("SELECT id FROM erasure_queue WHERE receipt = $1 ORDER BY id", number)
    return task_ids_digest(row[0] for row in rows)


async def unfinished_receipts(connection: Connection, own_receipts: Collection[int], now: int) -> list[int]:
    """Receipts of interrupted erasures: those of this process, and those that other processes abandoned."""
    return [row[0] for row in await connection.fetch(_SELECT_UNFINISHED, list(own_receipts), now)]


async def last_receipts(connection: Connection, limit: int) -> list[ErasureReceipt]:
    """See `ErasureStatements.last_receipts`."""
    return [
        receipt_from_row(row)
        for row in await connection.fetch(f"{_SELECT_RECEIPT} ORDER BY receipt DESC LIMIT $1", limit)
    ]


async def read_receipt(connection: Connection, number: int) -> ErasureReceipt:
    return receipt_from_row(await connection.fetchrow(f"{_SELECT_RECEIPT} WHERE receipt = $1", number))


async def _add_counts(connection: Connection, number: int, counts: ErasureCounts, now: int) -> None:
    values = counts.tasks, counts.events, counts.messages, counts.artifacts, counts.chunks, counts.bytes
    await connection.execute(_ADD_TO_RECEIPT, number, *values, now)


async def _delete_context(connection: Connection, owner: int, context: str) -> None:
    for table, where in CONTEXT_TABLES:
        await connection.execute(f"DELETE FROM {table} WHERE {where}", owner, context)


class PostgresErasureStatements:
    """Implements `ErasureStatements` on a database that several processes may share."""

    def __init__(self, database: Database, counter_slot: int) -> None:
        self._database = database
        self._counter_slot = counter_slot
        self._own_receipts: set[int] = set()
        """Receipts that this process created and that are not complete. Another process may be working on others."""

    def now(self) -> Awaitable[int]:
        return self._database.read(self._database.now)

    def task_ranges(self, selection: TaskSelection, now: int) -> Awaitable[Sequence[TaskRange]]:
        return self._database.read(task_selection.task_ranges, selection, now)

    def read_page(
        self, task_range: TaskRange, cursor: RangeCursor | None
    ) -> Awaitable[tuple[list[TaskRecord], RangeCursor | None]]:
        return self._database.read(task_selection.read_page, task_range, cursor)

    def measure(self, records: list[TaskRecord]) -> Awaitable[ErasureCounts]:
        return self._database.read_snapshot(task_selection.measure, records)

    async def delete_task_records(
        self, number: int, selection: TaskSelection, records: list[TaskRecord], now: int, reason: str
    ) -> tuple[int, list[TaskRecord]]:
        number, erased = await self._database.write(
            delete_task_records, number, selection, records, now, reason, self._counter_slot
        )
        if erased:
            self._own_receipts.add(number)
        return number, erased

    async def delete_task_content(self, number: int, after: QueuedTask) -> QueuedTask | None:
        return await self._database.write(delete_task_content, number, after, await self.now())

    def digest_of_queued_ids(self, number: int) -> Awaitable[str]:
        return self._database.read(digest_of_queued_ids, number)

    async def finish_receipt(self, number: int, ids_digest: str) -> bool:
        finished = await self._database.write(finish_receipt, number, ids_digest, await self.now())
        if finished:
            self._own_receipts.discard(number)
        return finished

    def delete_context_or_principal(self, selection: TaskSelection) -> Awaitable[None]:
        return self._database.write_exclusively(delete_context_or_principal, selection)

    async def unfinished_receipts(self) -> list[int]:
        return await self._database.read(unfinished_receipts, self._own_receipts, await self.now())

    def last_receipts(self, limit: int) -> Awaitable[list[ErasureReceipt]]:
        return self._database.read(last_receipts, limit)

    def read_receipt(self, number: int) -> Awaitable[ErasureReceipt]:
        return self._database.read(read_receipt, number)

    def inactive_states(self) -> Awaitable[list[tuple[str, int]]]:
        return self._database.read(task_selection.inactive_states)
