"""Taking tasks away, in steps small enough that no append waits for one.

First the task's own row goes, with whatever else mentions it: from that commit on it is not there for anybody, and
whoever runs it is refused (ABSENT). Then its log, messages and artifacts go, so many rows at a time. What is left to
do is written down (`leaving`), so a crash in between delays an erasure and no more; the receipt counts what is gone.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.names import Owner
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.maintenance import PURGE_REASON, ErasureCounts, ErasureReceipt, TaskSelection, task_ids_digest
from dragoman.stores.postgres import blobs, pushes, tables, task_tables
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.hot import quota_counters
from dragoman.stores.postgres.hot.quota_counters import TaskRowKey
from dragoman.stores.postgres.hot.transaction import ADD_TO_TOTALS
from dragoman.stores.postgres.maintenance import task_selection
from dragoman.stores.postgres.maintenance.task_selection import selected_owners
from dragoman.stores.postgres.rows import TABLE_RECORD_COLUMNS, PostgresBulkStatement, record_from_row

CONTEXT_TABLES: Final[tuple[tuple[str, str], ...]] = (
    ("context_state", "owner = $1 AND context = $2"),
    ("conversations", "owner = $1 AND context = $2"),
    ("participants", "host = $1 AND context = $2"),
)
"""(table, where) for rows of a conversation; the arguments are its owner's number and the context. They go with the
context's last task, or when the context is erased."""

PRINCIPAL_TABLES: Final[tuple[tuple[str, str], ...]] = (
    ("totals", "owner = $1"),
    ("idempotency", "owner = $1"),
    ("participants", "owner = $1"),
)
"""(table, where) for rows of a principal; the argument is its number. They go when all of a principal is erased."""

TASK_CLEANUPS: Final = (
    task_tables.clear_task_keys,
    task_tables.remove_open_task,
    blobs.release_blobs,
    pushes.delete_pushes_of_task,
    task_tables.delete_usage,
)
"""Called for each task with the connection and its place."""

ERASURE_STEP_ROWS: Final = 512
ERASURE_STEP_BYTES: Final = 4 * 1024 * 1024
"""Rows, and about how many bytes, that one commit takes away."""

ABANDONED_AFTER_MS: Final = 60_000
"""Milliseconds after which an erasure on which nobody works is completed by others."""

_CONTENT_TABLES: Final = (
    ("log", ("first",), "count", "length(data)"),
    ("messages", ("number",), "1", "length(data) + length(envelope)"),
    ("artifacts", ("artifact",), "1", "length(head)"),
    ("chunks", ("artifact", "sequence"), "1", "length(data)"),
)
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
_INSERT_QUEUED_TASK: Final = "INSERT INTO leaving (receipt, id, owner, task) VALUES ($1, $2, $3, $4)"
_SELECT_QUEUED_TASKS: Final = f"""
SELECT id, owner, task FROM leaving WHERE receipt = $1 AND (id, owner, task) > ($2, $3, $4)
ORDER BY id, owner, task LIMIT {ERASURE_STEP_ROWS}
"""
_LOCK_RECEIPT: Final = "SELECT 1 FROM receipts WHERE receipt = $1 FOR UPDATE"
_OTHER_TASK_IN_CONTEXT: Final = "SELECT 1 FROM tasks WHERE visible AND owner = $1 AND context = $2 LIMIT 1"
_FINISH_RECEIPT: Final = (
    "UPDATE receipts SET digest = $2, ended = greatest(began, $3) WHERE receipt = $1 AND digest = ''"
)
_DELETE_QUEUED_TASKS: Final = f"""
DELETE FROM leaving WHERE (receipt, id, owner, task) IN
    (SELECT receipt, id, owner, task FROM leaving WHERE receipt = $1 LIMIT {ERASURE_STEP_ROWS})
"""
_SELECT_UNFINISHED: Final = f"""
SELECT r.receipt FROM receipts r
WHERE r.receipt IN (SELECT receipt FROM receipts WHERE digest = '' UNION SELECT receipt FROM leaving)
    AND (r.receipt = ANY ($1::bigint[]) OR r.touched < $2::bigint - {ABANDONED_AFTER_MS}) ORDER BY r.receipt
"""
_SELECT_RECEIPT: Final = """
SELECT receipt, reason, selection, began, ended, tasks, events, messages, artifacts, chunks, bytes, digest
FROM receipts
"""

QueuedTask = tuple[str, int, bytes]
"""A row of `leaving`: id, owner and key of a task."""

QUEUE_START: Final[QueuedTask] = ("", -1, b"")


async def delete_task_records(
    connection: Connection,
    number: int,
    selection: TaskSelection,
    records: Sequence[TaskRecord],
    now: int,
    reason: str,
    counter_slot: int,
) -> tuple[int, list[TaskRecord]]:
    """Takes away the rows of those of these tasks that are still meant. Gives the receipt's number, and those tasks.

    `number` is 0 as long as nothing was taken: the receipt begins with the first.
    """
    refs = {(head.ref.owner.scope, head.ref.owner.principal, head.ref.key) for head in records}
    taken: list[tuple[TaskRowKey, TaskRecord]] = []
    for scope, principal, owner, key, *row in await _LOCK_TASKS.fetch(connection, sorted(refs)):
        head = record_from_row(TaskRef(Owner(scope, principal), key), row)
        if selection.matches(head, now):
            taken.append(((owner, key), head))
    if not taken:
        return number, []
    if not number:
        number = await connection.fetchval(_INSERT_RECEIPT, reason, str(selection), now)
    await quota_counters.record_erasures(connection, counter_slot, taken)
    totals: Counter[tuple[int, str, int]] = Counter()
    for place, head in taken:
        await connection.execute("DELETE FROM tasks WHERE owner = $1 AND task = $2", *place)
        await connection.execute(_INSERT_QUEUED_TASK, number, head.id, *place)
        for release in TASK_CLEANUPS:
            await release(connection, place)
        totals[place[0], head.agent, head.state] -= head.visible
    await ADD_TO_TOTALS.run(connection, sorted((*key, counter_slot, count) for key, count in totals.items() if count))
    for owner, context in sorted({(place[0], head.context) for place, head in taken}):
        if not await connection.fetchval(_OTHER_TASK_IN_CONTEXT, owner, context):
            await _delete_context(connection, owner, context)
    await _add_counts(connection, number, ErasureCounts(tasks=len(taken)), now)
    return number, [head for _, head in taken]


async def delete_task_content(connection: Connection, number: int, after: QueuedTask, now: int) -> QueuedTask | None:
    """Takes away the next rows of what this receipt's tasks left. Gives where to go on from; None when all is gone."""
    await connection.execute(_LOCK_RECEIPT, number)  # two who complete an erasure count each row once
    lefts = await connection.fetch(_SELECT_QUEUED_TASKS, number, *after)
    removed, rows, size = [0, 0, 0, 0], ERASURE_STEP_ROWS, ERASURE_STEP_BYTES
    for left in lefts:
        for at, content in enumerate(_CONTENT_TABLES):
            amount, used, freed, empty = await _delete_rows(connection, content, (left[1], left[2]), rows, size)
            removed[at] += amount
            rows, size = rows - used, size - freed
            if not empty:
                break
        else:
            after, rows = (left[0], left[1], left[2]), rows - 1
        if rows <= 0 or size <= 0:
            break
    events, messages, artifacts, chunks = removed
    await _add_counts(
        connection, number, ErasureCounts(0, events, messages, artifacts, chunks, ERASURE_STEP_BYTES - size), now
    )
    return after if lefts else None


async def _delete_rows(
    connection: Connection,
    content_table: tuple[str, Sequence[str], str, str],
    row_key: TaskRowKey,
    max_rows: int,
    max_bytes: int,
) -> tuple[int, int, int, bool]:
    """Takes away rows of one task in one table, within the limits (but one at least).

    Gives what they counted, their number, their bytes, and whether none is left.
    """
    table, columns, amount, length = content_table
    names = ", ".join(columns)
    sql = f"SELECT {amount}, {length}, {names} FROM {table} WHERE owner = $1 AND task = $2 ORDER BY {names} LIMIT $3"
    found = await connection.fetch(sql, *row_key, max(max_rows, 1) + 1)
    if not found:
        return 0, 0, 0, True
    used = counted = freed = 0
    for row in found[: max(max_rows, 1)]:
        used, counted, freed = used + 1, counted + row[0], freed + row[1]
        if freed >= max_bytes:
            break
    marks = ", ".join(f"${at}" for at in range(3, 3 + len(columns)))
    last = tuple(found[used - 1])[2:]
    await connection.execute(
        f"DELETE FROM {table} WHERE owner = $1 AND task = $2 AND ({names}) <= ({marks})", *row_key, *last
    )
    return counted, used, freed, used == len(found)


async def finish_receipt(connection: Connection, number: int, ids_digest: str, now: int) -> bool:
    """Ends a receipt, and forgets the ids it was made of, some at a time. True when none is left."""
    await connection.execute(_FINISH_RECEIPT, number, ids_digest, now)
    forgotten = await connection.execute(_DELETE_QUEUED_TASKS, number)
    return int(forgotten.rpartition(" ")[2]) < ERASURE_STEP_ROWS


async def delete_context_or_principal(connection: Connection, selection: TaskSelection) -> None:
    """What belongs to a whole context or principal, and to no task. Only while nobody else writes: batches are decided
    by the numbers of owners."""
    if selection.covers_principal:
        await tables.delete_revoked_api_keys(connection, selection.principal)
        await tables.anonymize_audit_entries(connection, selection.principal)
        await quota_counters.delete_empty_counters(connection, selection.principal)
    for owner in await selected_owners(connection, selection):
        if selection.covers_context:
            await _delete_context(connection, owner, selection.context)
        elif not await connection.fetchval("SELECT 1 FROM tasks WHERE owner = $1 LIMIT 1", owner):
            for table, where in PRINCIPAL_TABLES:
                await connection.execute(f"DELETE FROM {table} WHERE {where}", owner)
            await connection.execute("DELETE FROM owners WHERE owner = $1", owner)


async def digest_of_queued_ids(connection: Connection, number: int) -> str:
    """The digest of the ids that a receipt is about, as long as they are still there."""
    rows = await connection.fetch("SELECT id FROM leaving WHERE receipt = $1 ORDER BY id", number)
    return task_ids_digest(row[0] for row in rows)


async def unfinished_receipts(connection: Connection, own_receipts: Collection[int], now: int) -> list[int]:
    """Receipts of erasures that an impatient caller cut short, who are our `own`, or a crash of another process."""
    return [row[0] for row in await connection.fetch(_SELECT_UNFINISHED, list(own_receipts), now)]


async def last_receipts(connection: Connection, limit: int) -> list[ErasureReceipt]:
    """The last receipts, newest first."""
    return [
        _receipt_from_row(row)
        for row in await connection.fetch(f"{_SELECT_RECEIPT} ORDER BY receipt DESC LIMIT $1", limit)
    ]


async def read_receipt(connection: Connection, number: int) -> ErasureReceipt:
    return _receipt_from_row(await connection.fetchrow(f"{_SELECT_RECEIPT} WHERE receipt = $1", number))


def _receipt_from_row(row: Sequence[Any]) -> ErasureReceipt:
    number, reason, selection, began, ended, *counts, proof = row
    return ErasureReceipt(number, reason, selection, began, ended, ErasureCounts(*counts), proof)


async def _add_counts(connection: Connection, number: int, counts: ErasureCounts, now: int) -> None:
    values = counts.tasks, counts.events, counts.messages, counts.artifacts, counts.chunks, counts.bytes
    await connection.execute(_ADD_TO_RECEIPT, number, *values, now)


async def _delete_context(connection: Connection, owner: int, context: str) -> None:
    for table, where in CONTEXT_TABLES:
        await connection.execute(f"DELETE FROM {table} WHERE {where}", owner, context)


class PostgresEraser:
    """What `dragoman.ports.Store` says about selections."""

    def __init__(self, database: Database, counter_slot: int) -> None:
        self._database = database
        self._counter_slot = counter_slot
        self._lock = asyncio.Lock()
        self._own_receipts: set[int] = set()
        """Receipts that were begun here and are not complete. Others may be somebody's who works on them now."""

    async def select(self, selection: TaskSelection) -> AsyncGenerator[list[TaskRecord], None]:
        async with aclosing(self._select(selection, await self._now())) as pages:
            async for heads in pages:
                yield heads

    async def measure(self, selection: TaskSelection) -> ErasureCounts:
        total = ErasureCounts()
        async with aclosing(self._select(selection, await self._now())) as pages:
            async for heads in pages:
                total += await self._database.read_snapshot(task_selection.measure, heads)
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
            now, number, left = await self._now(), 0, sys.maxsize if limit is None else limit
            async with aclosing(self._select(selection, now)) as pages:
                async for heads in pages:
                    number, taken = await self._database.write(
                        delete_task_records, number, selection, heads[:left], now, reason, self._counter_slot
                    )
                    if taken:
                        self._own_receipts.add(number)
                    if on_erased is not None and taken:
                        on_erased(taken)
                    left -= len(taken)
                    if left <= 0:
                        break
            receipt = await self._finish(number) if number else None
            if selection.covers_context or selection.covers_principal:
                await self._database.write_exclusively(delete_context_or_principal, selection)
        return receipt or ErasureReceipt(0, reason, str(selection), now, now, ErasureCounts(), task_ids_digest(()))

    async def resume(self) -> list[ErasureReceipt]:
        async with self._lock:
            return await self._resume()

    async def receipts(self, limit: int) -> list[ErasureReceipt]:
        return await self._database.read(last_receipts, limit)

    async def inactive_states(self) -> list[tuple[str, int]]:
        return await self._database.read(task_selection.inactive_states)

    async def _now(self) -> int:
        return await self._database.read(self._database.now)

    async def _select(self, selection: TaskSelection, now: int) -> AsyncGenerator[list[TaskRecord], None]:
        for place in await self._database.read(task_selection.task_ranges, selection, now):
            at = None
            while True:
                heads, at = await self._database.read(task_selection.read_page, place, at)
                if meant := [head for head in heads if selection.matches(head, now)]:
                    yield meant
                if at is None:
                    break

    async def _resume(self) -> list[ErasureReceipt]:
        numbers = await self._database.read(unfinished_receipts, self._own_receipts, await self._now())
        return [await self._finish(number) for number in numbers]

    async def _finish(self, number: int) -> ErasureReceipt:
        place: QueuedTask | None = QUEUE_START
        while place is not None:
            place = await self._database.write(delete_task_content, number, place, await self._now())
        proof = await self._database.read(digest_of_queued_ids, number)
        while not await self._database.write(finish_receipt, number, proof, await self._now()):
            pass
        self._own_receipts.discard(number)
        return await self._database.read(read_receipt, number)
