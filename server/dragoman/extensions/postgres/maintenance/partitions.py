"""Partitions of the tables that grow with tasks: ranges of days on which tasks were created.

All of TABLES have the same partitions, and the last one has no end, so that a task always has a place. From a midnight
(UTC) on, new tasks go to a new partition, if the last one has MIN_TASKS and covers a share of the time that the store
keeps. So a small store has one, and a large one some dozens: a statement without a task's key reads an index of each,
and a statement with one locks each table.

Retention drops a partition when all of its tasks have expired. It waits for that for a while (`Partition.awaits_drop`),
and then deletes expired tasks one by one. All changes of partitions are made while no other process writes.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from datetime import date
from typing import Any, Final

from asyncpg import CheckViolationError, Connection, LockNotAvailableError

from dragoman.core.errors import Unavailable
from dragoman.core.names import created_of
from dragoman.core.task import states
from dragoman.core.task.log import IDEMPOTENCY_KEY_TTL_MS
from dragoman.core.task.maintenance import RETENTION_REASON, ErasureCounts
from dragoman.extensions.postgres.database import SQL_NOW, Database
from dragoman.extensions.postgres.errors import has_cause
from dragoman.stores.shared.erasure import CONTENT_TABLES
from dragoman.stores.shared.errors import StoreFault

log = logging.getLogger("dragoman.store")

TABLES: Final = (
    "tasks", "log", "messages", "artifacts", "chunks", "steps", "usage", "delegated_usage", "parents", "pushes",
    "deliveries", "blob_uses",
)  # fmt: skip

DAY_MS: Final = 86_400_000
MIN_TASKS: Final = 100_000
"""Tasks of a partition, at least."""
MAX_SHARE: Final = 16
"""A partition covers this part of the time that the store keeps, at least, and a day."""
LEAD_DAYS: Final = 2
"""A partition begins at the midnight after the next one. From the start of a split on, no task may be created beyond
its end, and a dump that reads a table may delay the split for as long as it runs."""
DROP_DELAY_SHARE: Final = 8
"""Retention waits for the drop of a partition that covers this part of the retention age, at most."""

LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '2s'"
"""How long a change of partitions waits for readers of a table: all that come after it wait, too."""
STEP_TIMEOUT: Final = 3600.0
"""Seconds for a statement that reads a whole partition."""

_SELECT_BOUNDS: Final = """
SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'tasks'::regclass ORDER BY c.relname
"""
_COUNT_CONSTRAINTS: Final = "SELECT count(*) FROM pg_constraint WHERE conrelid = to_regclass($1) AND conname = 'split'"
_BOUNDS: Final = re.compile(r"FOR VALUES FROM \((?:MINVALUE|'\\x(\w+)')\) TO \((?:MAXVALUE|'\\x(\w+)')\)")

ExpiryAge = Callable[[str, int], int]
"""The milliseconds after which a task of an agent in a state is erased; 0 for never."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Tasks from the day `first` to before the day `end`, in days since the epoch. The first one begins at 0, and has
    what is older, too; the last one has no end."""

    first: int
    end: int | None

    def table(self, name: str) -> str:
        """The partition of a table."""
        return f"{name}_{date.fromordinal(_EPOCH + self.first):%Y%m%d}"

    @property
    def bounds(self) -> str:
        """The range in SQL."""
        first = key_literal(first_key(self.first)) if self.first else "MINVALUE"
        return f"FROM ({first}) TO ({'MAXVALUE' if self.end is None else key_literal(first_key(self.end))})"

    @property
    def keys(self) -> tuple[bytes, bytes]:
        """The range of keys of a partition with an end."""
        assert self.end is not None
        return first_key(self.first), first_key(self.end)

    def awaits_drop(self, age: int, now: int) -> bool:
        """Whether tasks that expire at this age are about to be dropped with the partition."""
        if self.end is None or not self.first or (self.end - self.first) * DAY_MS * DROP_DELAY_SHARE > age:
            return False
        return now < (self.end + 1) * DAY_MS + age  # a day for tasks that ended later


_EPOCH: Final = date(1970, 1, 1).toordinal()


def first_key(day: int) -> bytes:
    """The lowest key of a day."""
    return (day * DAY_MS).to_bytes(6, "big")


def key_literal(key: bytes) -> str:
    """A key in SQL, so that the planner knows its partition."""
    return f"'\\x{key.hex()}'::bytea"


async def partitions(connection: Connection) -> list[Partition]:
    """All partitions, the oldest first."""
    found = [_BOUNDS.fullmatch(row[0]) for row in await connection.fetch(_SELECT_BOUNDS)]
    return [Partition(_day(bounds[1]) or 0, _day(bounds[2])) for bounds in found if bounds is not None]


def _day(first_key: str | None) -> int | None:
    return None if first_key is None else int(first_key, 16) // DAY_MS


# Creation -------------------------------------------------------------------------------------------------------------


async def add_partition(database: Database) -> None:
    """Ends the last partition at the midnight after the next one, if it is large enough."""
    try:
        if due := await database.read_snapshot(_due_partition, database.fixed_now):
            await split(database, *due)
        elif last := await database.read(_constrained_partition):  # of a server that was killed: no task may reach it
            await database.write_exclusively(_remove_constraint, last)
    except (Unavailable, StoreFault) as error:
        if not has_cause(error, LockNotAvailableError):
            raise
        log.warning("another session locks a table, perhaps a dump: the next partition begins later")


async def _constrained_partition(connection: Connection) -> Partition | None:
    """The last partition, if it has the constraint of a split."""
    last = (await partitions(connection))[-1]
    return last if await connection.fetchval(_COUNT_CONSTRAINTS, last.table("tasks")) else None


async def _due_partition(connection: Connection, fixed_now: int | None) -> tuple[Partition, int] | None:
    """The last partition, and the day at which it is to end."""
    now = await connection.fetchval(f"SELECT {SQL_NOW.format('$1')}", fixed_now)
    last, day = (await partitions(connection))[-1], now // DAY_MS + LEAD_DAYS
    oldest = await connection.fetchval("SELECT task FROM tasks ORDER BY task LIMIT 1")
    if oldest is None or last.first >= day:
        return None
    kept_since = created_of(oldest) // DAY_MS
    if day - max(last.first, kept_since) < (day - kept_since) // MAX_SHARE:
        return None
    table = last.table("tasks")
    is_large = await connection.fetchval(f"SELECT 1 FROM {table} ORDER BY task OFFSET {MIN_TASKS - 1} LIMIT 1")
    return (last, day) if is_large else None


async def split(database: Database, last: Partition, day: int) -> None:
    """Ends the last partition at a future day, at which another one begins.

    The rows are checked against that end by a constraint, while others read and write.
    """
    try:
        await database.write_exclusively(_constrain, last, day)
        await database.write(_validate, last)
        await database.write_exclusively(_split, last, day)
    except BaseException as error:
        await database.write_exclusively(_remove_constraint, last)
        if has_cause(error, CheckViolationError):
            log.warning("a task has a key of a later day than %s: check the clocks of the servers", day)
            return
        raise


async def _is_last(connection: Connection, last: Partition) -> bool:
    """False after another server has split it."""
    await connection.execute(LOCK_TIMEOUT)
    return last in await partitions(connection)


async def _constrain(connection: Connection, last: Partition, day: int) -> None:
    if await _is_last(connection, last):
        from_first = f"task >= {key_literal(first_key(last.first))} AND " if last.first else ""
        condition = f"task IS NOT NULL AND {from_first}task < {key_literal(first_key(day))}"
        for name in TABLES:
            await connection.execute(
                f"ALTER TABLE {last.table(name)} DROP CONSTRAINT IF EXISTS split,"
                f" ADD CONSTRAINT split CHECK ({condition}) NOT VALID"
            )


async def _validate(connection: Connection, last: Partition) -> None:
    if await _is_last(connection, last):
        for name in TABLES:
            sql = f"ALTER TABLE {last.table(name)} VALIDATE CONSTRAINT split"
            await connection.execute(sql, timeout=STEP_TIMEOUT)


async def _split(connection: Connection, last: Partition, day: int) -> None:
    if not await _is_last(connection, last):
        return
    for name in TABLES:  # another server may have replaced the constraint: rows would be checked while nobody reads
        if not await connection.fetchval(f"{_COUNT_CONSTRAINTS} AND convalidated", last.table(name)):
            return
    ended, new = Partition(last.first, day), Partition(day, None)
    for name in TABLES:
        table = last.table(name)
        await connection.execute(f"ALTER TABLE {name} DETACH PARTITION {table}")
        await connection.execute(f"ALTER TABLE {name} ATTACH PARTITION {table} FOR VALUES {ended.bounds}")
        await connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT split")
        await connection.execute(f"CREATE TABLE {new.table(name)} PARTITION OF {name} FOR VALUES {new.bounds}")
    log.info("tasks created from %s on have partitions of their own", new.table("")[1:])


async def _remove_constraint(connection: Connection, last: Partition) -> None:
    if await _is_last(connection, last):
        for name in TABLES:
            await connection.execute(f"ALTER TABLE {last.table(name)} DROP CONSTRAINT IF EXISTS split")


# Retention ------------------------------------------------------------------------------------------------------------

_LAST_UPDATES: Final = """
WITH RECURSIVE pairs AS (
    (SELECT agent, state FROM {tasks} WHERE state > 2 ORDER BY agent, state LIMIT 1)
    UNION ALL SELECT n.agent, n.state FROM pairs p CROSS JOIN LATERAL (
        SELECT t.agent, t.state FROM {tasks} t WHERE t.state > 2 AND (t.agent, t.state) > (p.agent, p.state)
        ORDER BY t.agent, t.state LIMIT 1) n
) SELECT agent, state, (
    SELECT max(updated) FROM {tasks} t WHERE t.state > 2 AND t.agent = p.agent AND t.state = p.state) FROM pairs p
"""
_IN_USE: Final = """
SELECT EXISTS (SELECT 1 FROM {tasks} WHERE state <= 2) OR EXISTS (SELECT 1 FROM {pushes} WHERE state = 0)
    OR EXISTS (SELECT 1 FROM receipts WHERE digest = '') OR EXISTS (SELECT 1 FROM erasure_queue)
"""
"""Whether tasks have not ended, webhooks have not got all events, or an erasure has rows left to delete."""
_LAST_RECEIPT: Final = "SELECT coalesce(max(receipt), 0) FROM receipts"
_BLOB_BYTES: Final = "SELECT coalesce(sum(length(b.content)), 0)::bigint FROM {blob_uses} u JOIN blobs b USING (hash)"
_BATCH_ROWS: Final = 2000
"""Rows in one commit, while others write."""
_DELETE_EXPIRED_KEYS: Final = f"""
DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency WHERE task >= $1 AND task < $2 AND created < $3 LIMIT {_BATCH_ROWS}))
"""
_DELETE_EMPTY_CONTEXTS: Final = f"""
WITH page AS (
    SELECT owner, agent, context FROM context_state WHERE (owner, agent, context) > ($3, $4, $5)
    ORDER BY owner, agent, context LIMIT {_BATCH_ROWS}
), deleted AS (
    DELETE FROM context_state c USING page p WHERE c.owner = p.owner AND c.agent = p.agent AND c.context = p.context
    AND EXISTS (SELECT 1 FROM {{tasks}} t WHERE t.visible AND t.owner = c.owner AND t.context = c.context)
    AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.visible AND t.owner = c.owner AND t.context = c.context
        AND (t.task < $1 OR t.task >= $2))
) SELECT owner, agent, context FROM page ORDER BY owner, agent, context OFFSET {_BATCH_ROWS - 1}
"""
_REMOVE_FROM_TOTALS: Final = """
INSERT INTO totals (owner, agent, state, slot, tasks)
SELECT owner, agent, state, $1::smallint, -count(*) FROM {tasks} WHERE visible GROUP BY owner, agent, state
ON CONFLICT (owner, agent, state, slot) DO UPDATE SET tasks = totals.tasks + excluded.tasks
"""
_MARK_BLOBS: Final = (
    "UPDATE blobs SET maybe_unused = true WHERE hash IN (SELECT hash FROM {blob_uses}) AND NOT maybe_unused"
)
_REMOVE_MENTIONS: Final = (
    "DELETE FROM aliases WHERE task >= $1 AND task < $2",
    "DELETE FROM parents WHERE parent >= $1 AND parent < $2 AND task >= $1",
    "UPDATE idempotency SET task = NULL, reply = NULL, task_owner = NULL WHERE task >= $1 AND task < $2",
)
_INSERT_RECEIPT: Final = """
INSERT INTO receipts
    (reason, selection, began, touched, ended, tasks, events, messages, artifacts, chunks, bytes, digest)
VALUES ($1, $2, $3, $4, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING receipt
"""


@dataclass(frozen=True, slots=True)
class PartitionContents:
    """The contents of a partition as a receipt has them, and the last receipt before they were counted."""

    counts: ErasureCounts
    digest: str
    last_receipt: int


async def drop_expired(database: Database, partition: Partition, age: ExpiryAge, counter_slot: int) -> int:
    """Drops a partition, if all of its tasks have ended and expired. Returns the number of the receipt, or 0.

    Its tasks are counted, and its conversations and expired keys deleted, while others read and write.
    """
    began = await database.read(database.now)
    if not partition.first or not await database.read(is_expired, partition, age, began):
        return 0
    contents = await database.read_snapshot(_measure, partition)
    await _delete_mentions(database, partition, began)
    now = await database.read(database.now)
    return await database.write_exclusively(_drop, partition, contents, age, began, now, counter_slot)


async def is_expired(connection: Connection, partition: Partition, age: ExpiryAge, now: int) -> bool:
    """Whether all tasks of a partition have ended and expired, and nothing needs one."""
    if partition.end is None or now < (partition.end + 1) * DAY_MS:  # a day: keys have the time of the servers' clocks
        return False
    for agent, state, last_update in await connection.fetch(_in(_LAST_UPDATES, partition)):
        if state not in states.TERMINAL or not 0 < age(agent, state) <= now - last_update:
            return False
    return not await connection.fetchval(_in(_IN_USE, partition))


async def _measure(connection: Connection, partition: Partition) -> PartitionContents:
    last_receipt = await connection.fetchval(_LAST_RECEIPT)
    size = await connection.fetchval(_in(_BLOB_BYTES, partition), timeout=STEP_TIMEOUT)
    amounts = []
    for name, _, amount, length in CONTENT_TABLES:
        sums = f"SELECT coalesce(sum({amount}), 0)::bigint, coalesce(sum({length}), 0)::bigint"
        row = await connection.fetchrow(f"{sums} FROM {partition.table(name)}", timeout=STEP_TIMEOUT)
        amounts.append(row[0])
        size += row[1]
    tasks, hashed = 0, hashlib.sha256()  # as `task_ids_digest`
    sql = f"SELECT id FROM {partition.table('tasks')} ORDER BY id"
    async for row in connection.cursor(sql, prefetch=_BATCH_ROWS, timeout=STEP_TIMEOUT):
        tasks += 1
        hashed.update(row[0].encode() + b"\n")
    events, messages, artifacts, chunks, _ = amounts
    counts = ErasureCounts(tasks, events, messages, artifacts, chunks, size)
    return PartitionContents(counts, hashed.hexdigest(), last_receipt)


async def _delete_mentions(database: Database, partition: Partition, now: int) -> None:
    keys = partition.keys
    while await database.write(_delete_expired_keys, *keys, now - IDEMPOTENCY_KEY_TTL_MS) == _BATCH_ROWS:
        pass
    after: Sequence[Any] | None = (-1, "", "")
    while after is not None:
        after = await database.write(_delete_empty_contexts, partition, after)


async def _delete_expired_keys(connection: Connection, *values: Any) -> int:
    return int((await connection.execute(_DELETE_EXPIRED_KEYS, *values)).rpartition(" ")[2])


async def _delete_empty_contexts(
    connection: Connection, partition: Partition, after: Sequence[Any]
) -> Sequence[Any] | None:
    """Deletes states of conversations whose tasks are all of the partition. Returns the last one that was examined."""
    row = await connection.fetchrow(_in(_DELETE_EMPTY_CONTEXTS, partition), *partition.keys, *after)
    return None if row is None else tuple(row)


async def _drop(
    connection: Connection,
    partition: Partition,
    contents: PartitionContents,
    age: ExpiryAge,
    began: int,
    now: int,
    counter_slot: int,
) -> int:
    await connection.execute(LOCK_TIMEOUT)
    if not await is_expired(connection, partition, age, now):
        return 0
    if await connection.fetchval(_LAST_RECEIPT) != contents.last_receipt:  # some tasks have another receipt
        return 0
    await connection.execute(_in(_REMOVE_FROM_TOTALS, partition), counter_slot)
    await connection.execute(_in(_MARK_BLOBS, partition))
    for sql in _REMOVE_MENTIONS:
        await connection.execute(sql, *partition.keys)
    await connection.execute(f"DROP TABLE {', '.join(map(partition.table, TABLES))}")
    if not contents.counts.tasks:
        return 0
    selection = f"expired, created from {partition.table('')[1:]} on"
    values = RETENTION_REASON, selection, began, now, *astuple(contents.counts), contents.digest
    number: int = await connection.fetchval(_INSERT_RECEIPT, *values)
    return number


def _in(sql: str, partition: Partition) -> str:
    """A statement on the tables of a partition."""
    return sql.format(**{name: partition.table(name) for name in ("tasks", "pushes", "blob_uses")})
