"""Erases tasks from PostgreSQL, in the order of `stores.shared.erasure`. Several processes may erase at a time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from asyncpg import Connection, LockNotAvailableError, UndefinedTableError

from dragoman.core.errors import Unavailable
from dragoman.core.names import Owner
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.maintenance import ErasureCounts, ErasureReceipt, TaskSelection
from dragoman.extensions.postgres import blobs, daily_usage, pushes, task_tables
from dragoman.extensions.postgres.database import Database
from dragoman.extensions.postgres.errors import has_cause
from dragoman.extensions.postgres.hot import quota_counters
from dragoman.extensions.postgres.hot.quota_counters import TaskRowKey
from dragoman.extensions.postgres.hot.transaction import ADD_TO_TOTALS
from dragoman.extensions.postgres.maintenance import partitions
from dragoman.extensions.postgres.queries import PostgresQueryRunner, run_query
from dragoman.extensions.postgres.rows import PostgresBulkStatement
from dragoman.stores.shared.erasure import (
    Eraser,
    QueuedTask,
    SelectionSql,
    TaskRange,
    add_to_receipt,
    delete_context_or_principal,
    delete_empty_contexts,
    measure_blobs,
    stored_receipts,
)
from dragoman.stores.shared.errors import StoreFault
from dragoman.stores.shared.queries import Query, change
from dragoman.stores.shared.rows import TABLE_RECORD_COLUMNS, record_from_row

log = logging.getLogger("dragoman.retention")

# Two indexes: one has the tasks that callers see, the other those that are not visible yet.
SELECTION: Final = SelectionSql(
    by_id="SELECT owner, task FROM tasks WHERE task = ?2 UNION SELECT owner, task FROM aliases WHERE id = ?1",
    of_context=(("t.visible", ""), ("NOT t.visible", "")),
    blob_size="length(b.content)",
)

TASK_CLEANUPS: Final = (
    task_tables.clear_task_keys,
    task_tables.delete_alias,
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
    " JOIN tasks t ON t.owner = o.owner AND t.task = r.task AND t.task {own} ORDER BY t.task FOR UPDATE OF t",
    "tty",
    "scope, principal, task",
)
_INSERT_RECEIPT: Final = (
    "INSERT INTO receipts (reason, selection, began, touched) VALUES ($1, $2, $3, $3) RETURNING receipt"
)
_TOUCH_RECEIPT: Final = "UPDATE receipts SET touched = greatest(touched, ?2) WHERE receipt = ?1"
_INSERT_QUEUED_TASK: Final = "INSERT INTO erasure_queue (receipt, id, owner, task) VALUES ($1, $2, $3, $4)"
_SELECT_UNFINISHED: Final = f"""
SELECT r.receipt FROM receipts r
WHERE r.receipt IN (SELECT receipt FROM receipts WHERE digest = '' UNION SELECT receipt FROM erasure_queue)
    AND (r.receipt = ANY ($1::bigint[]) OR r.touched < $2::bigint - {ABANDONED_AFTER_MS}) ORDER BY r.receipt
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
    """See `Eraser`. counter_slot: whose counters this process adds to."""
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
    counts = await run_query(connection, measure_blobs(SELECTION, [record for _, record in erased]))
    totals: Counter[tuple[int, str, int]] = Counter()
    for row_key, record in erased:
        await connection.execute("DELETE FROM tasks WHERE owner = $1 AND task = $2", *row_key)
        await connection.execute(_INSERT_QUEUED_TASK, number, record.id, *row_key)
        for clean_up in TASK_CLEANUPS:
            await clean_up(connection, row_key)
        totals[row_key[0], record.agent, record.state] -= record.visible
    await ADD_TO_TOTALS.run(connection, sorted((*key, counter_slot, count) for key, count in totals.items() if count))
    contexts = sorted({(row_key[0], record.context) for row_key, record in erased})
    await run_query(connection, delete_empty_contexts(SELECTION, contexts))
    await run_query(connection, change(_TOUCH_RECEIPT, number, now))
    await run_query(connection, add_to_receipt(number, counts + ErasureCounts(tasks=len(erased))))
    return number, [record for _, record in erased]


async def erase_context_or_principal(connection: Connection, selection: TaskSelection) -> None:
    """Only in an exclusive transaction: batches are decided by the numbers of owners."""
    if selection.covers_principal:
        await quota_counters.delete_empty_counters(connection, selection.principal)
    if selection.covers_owners:
        await daily_usage.erase_principal(connection, selection.principal, selection.scope)
    await run_query(connection, delete_context_or_principal(selection))


async def unfinished_receipts(connection: Connection, own_receipts: Collection[int], now: int) -> list[int]:
    """Receipts of interrupted erasures: those of this process, and those that other processes abandoned."""
    return [row[0] for row in await connection.fetch(_SELECT_UNFINISHED, list(own_receipts), now)]


class PostgresEraser(Eraser):
    """Erases from a database that several processes may share."""

    def __init__(self, database: Database, counter_slot: int, after_erasure: Callable[[], Awaitable[None]]) -> None:
        super().__init__(PostgresQueryRunner(database), SELECTION, after_erasure)
        self._database = database
        self._counter_slot = counter_slot
        self._own_receipts: set[int] = set()
        """Receipts that this process created and that are not complete. Another process may be working on others."""

    async def _delete_task_records(
        self, number: int, selection: TaskSelection, records: list[TaskRecord], now: int, reason: str
    ) -> tuple[int, list[TaskRecord]]:
        number, erased = await self._database.write(
            delete_task_records, number, selection, records, now, reason, self._counter_slot
        )
        if erased:
            self._own_receipts.add(number)
        return number, erased

    async def _delete_context_or_principal(self, selection: TaskSelection) -> None:
        await self._database.write_exclusively(erase_context_or_principal, selection)

    async def _ranges(self, selection: TaskSelection, now: int) -> list[TaskRange]:
        ranges = await super()._ranges(selection, now)
        if not selection.by_retention:
            return ranges
        found = await self._database.read(partitions.partitions)
        if not (waiting := [one for one in found if one.awaits_drop(selection.older_than, now)]):
            return ranges
        first, end = map(partitions.key_literal, (waiting[0].keys[0], waiting[-1].keys[1]))
        others = f"(t.task < {first} OR t.task >= {end})"
        return [replace(one, where=f"{one.where} AND {others}") for one in ranges]

    async def resume(self, age: Callable[[str, int], int] | None = None) -> list[ErasureReceipt]:
        receipts = await super().resume()
        if age is None:
            return receipts
        async with self._lock:
            for partition in await self._database.read(partitions.partitions):
                try:
                    number = await partitions.drop_expired(self._database, partition, age, self._counter_slot)
                except (Unavailable, StoreFault) as error:
                    if has_cause(error, UndefinedTableError):  # another server has dropped it
                        continue
                    if not has_cause(error, LockNotAvailableError):
                        raise
                    log.warning("another session locks a table, perhaps a dump: an expired partition stays for now")
                    break
                receipts += await self._runner.read(stored_receipts, "WHERE receipt = ?1", number)
        return receipts

    async def _unfinished_receipts(self) -> list[int]:
        return await self._database.read(unfinished_receipts, self._own_receipts, await self._runner.now())

    def _delete_content(self, number: int, after: QueuedTask, now: int) -> Query[QueuedTask | None]:
        # It locks the receipt, too: two processes that complete an erasure count each row once.
        yield from change(_TOUCH_RECEIPT, number, now)
        return (yield from super()._delete_content(number, after, now))

    async def _finish(self, number: int) -> ErasureReceipt:
        receipt = await super()._finish(number)
        self._own_receipts.discard(number)
        return receipt
