"""Locks tasks, and writes the tables beside a task: context state, shared contexts, idempotency keys, usage.

Another process may have erased an owner: its number is cached only where a statement checks it (`KnownTasks`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

from asyncpg import Connection

from dragoman.core.limits.quotas import MAX_DELEGATION_DEPTH, MAX_USAGE, Usage, UsageReport, usage_metadata
from dragoman.core.names import Owner
from dragoman.core.task.log import (
    CHANGED,
    IDEMPOTENCY_KEY_TTL_MS,
    AppendRejected,
    ContextState,
    DuplicateKey,
    KeyRecord,
    TaskRecord,
    TaskRef,
    is_key_expired,
)
from dragoman.core.task.projection import merge_metadata
from dragoman.extensions.postgres.database import SQL_NOW
from dragoman.extensions.postgres.hot.quota_counters import (
    JOIN_UNREAD_MESSAGES,
    TaskRowKey,
    UnreadMessages,
    read_unread_messages,
    unread_messages,
)
from dragoman.extensions.postgres.rows import PostgresBulkStatement, escape, insert_statement
from dragoman.stores.shared.rows import TABLE_RECORD_COLUMNS, record_from_row, records_with_owners

NO_OWNER: Final = -1
"""Matches no owner's number."""

# Rows are locked one by one, in the order of the arguments.
_LOCK_TASKS: Final = PostgresBulkStatement(
    f"SELECT {SQL_NOW.format('$6')}, r.scope, r.principal, o.owner, m.*, h.* FROM {{rows}}"
    " LEFT JOIN owners o ON o.scope = r.scope AND o.principal = r.principal"
    f" LEFT JOIN LATERAL (SELECT t.task, {TABLE_RECORD_COLUMNS} FROM tasks t"
    " WHERE t.owner = o.owner AND t.task = r.task AND t.task {own} FOR UPDATE) h ON true"
    f" {JOIN_UNREAD_MESSAGES.format('h', 'AND m.task {own}')}",
    "tty",
    "scope, principal, task",
)
_SELECT_OWNER_NUMBER: Final = "SELECT owner FROM owners WHERE scope = $1 AND principal = $2"
_INSERT_OWNERS: Final = insert_statement("owners", "tt", "scope, principal", "ON CONFLICT DO NOTHING")
_SELECT_OWNER_NUMBERS: Final = PostgresBulkStatement(
    "SELECT o.scope, o.principal, o.owner FROM {rows} JOIN owners o ON o.scope = r.scope AND o.principal = r.principal",
    "tt",
    "scope, principal",
)


@dataclass(slots=True)
class LockedTasks:
    """The store's time, owner numbers (NO_OWNER for unknown owners), and existing tasks: their records and messages."""

    now: int = 0
    owner_numbers: dict[Owner, int] = field(default_factory=dict)
    records: dict[TaskRef, TaskRecord] = field(default_factory=dict)
    unread: dict[TaskRowKey, UnreadMessages] = field(default_factory=dict)


async def lock_tasks(
    connection: Connection, tasks: Collection[TaskRef], new_owners: Collection[Owner], fixed_now: int | None
) -> LockedTasks:
    """Locks these tasks and reads their records. Owners of `new_owners` get a number if they have none."""
    found = LockedTasks()
    rows: set[tuple[Any, ...]] = {(ref.owner.scope, ref.owner.principal, ref.key) for ref in tasks}
    other = next((ref.key for ref in tasks), b"")  # of another owner: no task of the new one has that key
    rows |= {(*owner, other) for owner in {*new_owners} - {ref.owner for ref in tasks}}
    late: list[tuple[int, bytes, int]] = []  # tasks that got a message while this waited for their locks
    for now, scope, principal, number, numbers, sizes, senders, key, *row in await _LOCK_TASKS.fetch(
        connection, sorted(rows, key=itemgetter(2, 0, 1)), fixed_now
    ):
        owner = Owner(scope, principal)
        found.now = now
        found.owner_numbers[owner] = NO_OWNER if number is None else number
        if key is not None:
            ref = TaskRef(owner, key)
            record = found.records[ref] = record_from_row(ref, row)
            found.unread[number, key] = unread_messages(numbers, sizes, senders)
            if record.last_received > (after := min(record.last_completed, record.last_delivered)) and (
                record.last_received not in (numbers or ())
            ):
                late.append((number, key, after))
    found.unread |= await read_unread_messages(connection, late)
    if missing := sorted(
        (owner.scope, owner.principal) for owner in new_owners if found.owner_numbers[owner] == NO_OWNER
    ):
        await _INSERT_OWNERS.run(connection, missing)
        for scope, principal, number in await _SELECT_OWNER_NUMBERS.fetch(connection, missing):
            found.owner_numbers[Owner(scope, principal)] = number
    return found


async def owner_number(connection: Connection, owner: Owner) -> int:
    """An owner's number; NO_OWNER for an unknown one."""
    found: int | None = await connection.fetchval(_SELECT_OWNER_NUMBER, owner.scope, owner.principal)
    return NO_OWNER if found is None else found


_SELECT_CONTEXT_VERSION: Final = "SELECT version FROM context_state WHERE owner = $1 AND agent = $2 AND context = $3"
_UPSERT_CONTEXT_STATE: Final = """
INSERT INTO context_state (owner, agent, context, version, data) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, agent, context) DO UPDATE SET version = excluded.version, data = excluded.data
"""


async def write_context_state(connection: Connection, owner: int, record: TaskRecord, state: ContextState) -> None:
    """Writes the state. Raises AppendRejected (CHANGED) when it was written since it was read (optimistic locking)."""
    version = await connection.fetchval(_SELECT_CONTEXT_VERSION, owner, record.agent, record.context)
    if state.version != (version or 0) + 1:
        raise AppendRejected(CHANGED, record)
    await connection.execute(_UPSERT_CONTEXT_STATE, owner, record.agent, record.context, state.version, state.data)


KeyName = tuple[int, str, str]
"""The number of a key's owner, its agent, and its text."""


class UsedKey(NamedTuple):
    """The use of a key. `task_owner`, `number`: the task's owner and its number, unless it is the key's owner."""

    digest: bytes
    task: bytes | None
    reply: bytes | None
    first: int
    created: int
    task_owner: Owner | None
    number: int | None


UsedKeys = dict[KeyName, UsedKey]

_SELECT_KEYS: Final = PostgresBulkStatement(
    "SELECT i.owner, i.agent, i.key, i.digest, i.task, i.reply, i.first, i.created, o.scope, o.principal, i.task_owner"
    " FROM {rows} JOIN idempotency i ON i.owner = r.owner AND i.agent = r.agent AND i.key = r.key"
    " LEFT JOIN owners o ON o.owner = i.task_owner",
    "itt",
    "owner, agent, key",
)
_UPSERT_KEYS: Final = insert_statement(
    "idempotency",
    "ittyyyiii",
    "owner, agent, key, digest, task, reply, first, created, task_owner",
    "ON CONFLICT (owner, agent, key) DO UPDATE SET digest = excluded.digest, task = excluded.task,"
    " reply = excluded.reply, first = excluded.first, created = excluded.created, task_owner = excluded.task_owner",
)
UPSERT_ALIAS: Final = """
INSERT INTO aliases (owner, agent, id, task) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner, agent, id) DO UPDATE SET task = excluded.task
"""
_KEYS_OF_TASK: Final = ("owner = $1 AND task = $2 AND task_owner IS NULL", "task_owner = $1 AND task = $2")
"""Keys of a task: of its owner, and of principals of its scope that share it."""


async def find_keys(connection: Connection, names: Sequence[KeyName]) -> UsedKeys:
    """The uses of these keys."""
    rows = await _SELECT_KEYS.fetch(connection, names)
    found: UsedKeys = {}
    for owner, agent, key, digest, task, reply, first, created, scope, principal, number in rows:
        task_owner = None if scope is None else Owner(scope, principal)
        found[owner, agent, key] = UsedKey(digest, task, reply, first, created, task_owner, number)
    return found


def check_key(used_keys: Mapping[KeyName, UsedKey], name: KeyName, owner: Owner, now: int) -> None:
    """Raises DuplicateKey if a key of `owner` was used and has not expired; its catcher compares the digests."""
    used = used_keys.get(name)
    if used is None or is_key_expired(used.created, now):
        return
    task = TaskRef(used.task_owner or owner, used.task) if used.task else None
    raise DuplicateKey(KeyRecord(used.digest, task, used.reply or b"", used.first))


async def record_keys(connection: Connection, used_keys: Mapping[KeyName, UsedKey]) -> None:
    """Records what keys were used for."""
    await _UPSERT_KEYS.run(
        connection, [(*name, *what[:5], what.number) for name, what in sorted(used_keys.items(), key=_key_name)]
    )


def with_reply(used_key: UsedKey, reply: bytes) -> UsedKey:
    """A key of a discarded task, as the rest of its batch sees it."""
    return used_key._replace(reply=reply) if reply else used_key._replace(created=-IDEMPOTENCY_KEY_TTL_MS)


async def clear_task_keys(connection: Connection, row_key: TaskRowKey) -> None:
    """Makes the keys of an erased task answer NOT_FOUND until they expire, and removes stored replies."""
    for condition in _KEYS_OF_TASK:
        await connection.execute(
            f"UPDATE idempotency SET task = NULL, reply = NULL, task_owner = NULL WHERE {condition}", *row_key
        )


async def delete_alias(connection: Connection, row_key: TaskRowKey) -> None:
    """Deletes the alias of a task that is deleted."""
    await connection.execute("DELETE FROM aliases WHERE owner = $1 AND task = $2", *row_key)


async def record_reply(connection: Connection, row_key: TaskRowKey, reply: bytes) -> None:
    """Records the Message that was sent instead of a task. Without a reply the key may be reused."""
    for condition in _KEYS_OF_TASK:
        if reply:
            await connection.execute(f"UPDATE idempotency SET reply = $3 WHERE {condition}", *row_key, reply)
        else:
            await connection.execute(f"DELETE FROM idempotency WHERE {condition}", *row_key)


def _key_name(item: tuple[KeyName, UsedKey]) -> KeyName:
    return item[0]


_ADD_USAGE: Final = f"""
INSERT INTO usage (owner, task, key, tokens, cost) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, task, key) DO UPDATE SET tokens = least(usage.tokens + excluded.tokens, {MAX_USAGE}),
    cost = least(usage.cost + excluded.cost, {MAX_USAGE}) WHERE usage.key = ''
"""
_ADD_DELEGATED_USAGE: Final = f"""
INSERT INTO delegated_usage (owner, task, tokens, cost) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner, task) DO UPDATE SET tokens = least(delegated_usage.tokens + excluded.tokens, {MAX_USAGE}),
    cost = least(delegated_usage.cost + excluded.cost, {MAX_USAGE})
"""
SELECT_USAGE: Final = """
SELECT tokens, cost, 0 AS is_delegated FROM usage u WHERE u.owner = $1 AND u.task = $2
UNION ALL SELECT tokens, cost, 1 FROM delegated_usage u WHERE u.owner = $1 AND u.task = $2
"""
_INSERT_PARENT: Final = "INSERT INTO parents (owner, task, parent) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
_SELECT_PARENT: Final = "SELECT parent FROM parents WHERE owner = $1 AND task = $2"
_SELECT_DELEGATED: Final = f"""
SELECT o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS}
FROM owners o JOIN parents p ON p.owner = o.owner JOIN tasks t ON t.owner = p.owner AND t.task = p.task
WHERE o.scope = $1 AND o.principal = $2 AND p.parent = $3 ORDER BY p.task LIMIT $4
"""
_SELECT_METADATA: Final = "SELECT metadata FROM tasks WHERE owner = $1 AND task = $2"
_UPDATE_METADATA: Final = "UPDATE tasks SET metadata = $3 WHERE owner = $1 AND task = $2"
_DELETE_USAGE: Final = (
    "DELETE FROM usage WHERE owner = $1 AND task = $2",
    "DELETE FROM delegated_usage WHERE owner = $1 AND task = $2",
    "DELETE FROM parents WHERE owner = $1 AND task = $2",
    "DELETE FROM parents WHERE owner = $1 AND parent = $2",
)

DelegatedUsage = dict[TaskRowKey, tuple[int, int]]
"""Tokens and cost that the delegated tasks of a task used in one batch."""


async def add_parent(connection: Connection, row_key: TaskRowKey, parent: bytes) -> None:
    """Records that a task was delegated by another one."""
    await connection.execute(_INSERT_PARENT, *row_key, parent)


async def delegated_tasks(connection: Connection, ref: TaskRef, limit: int) -> list[TaskRecord]:
    """The first tasks that a task delegated, in the order of their creation."""
    return records_with_owners(await connection.fetch(_SELECT_DELEGATED, *ref.owner, ref.key, limit))


async def record_usage(
    connection: Connection, row_key: TaskRowKey, report: UsageReport, delegated: DelegatedUsage
) -> tuple[Usage, bool]:
    """Counts a report, and adds it to `delegated` for the ancestors.

    Returns the task's new sum, and whether the report counted.
    """
    status = await connection.execute(_ADD_USAGE, *row_key, escape(report.key), report.tokens, report.cost)
    is_counted = status == "INSERT 0 1"
    if is_counted and report.has_amount:
        async for ancestor in _ancestors(connection, row_key):
            tokens, cost = delegated.get(ancestor, (0, 0))
            delegated[ancestor] = min(tokens + report.tokens, MAX_USAGE), min(cost + report.cost, MAX_USAGE)
    if usage := Usage.total(await connection.fetch(SELECT_USAGE, *row_key)):
        await merge_task_metadata(connection, row_key, usage_metadata(usage))
    return usage, is_counted


async def merge_task_metadata(connection: Connection, row_key: TaskRowKey, update: bytes) -> None:
    """Merges a serialized Struct into the metadata of a task by key."""
    metadata = await connection.fetchval(_SELECT_METADATA, *row_key)
    await connection.execute(_UPDATE_METADATA, *row_key, merge_metadata(metadata or b"", update))


async def add_delegated_usage(connection: Connection, delegated: DelegatedUsage) -> None:
    """Adds the usage of delegated tasks to their ancestors."""
    for row_key, amounts in sorted(delegated.items()):
        await connection.execute(_ADD_DELEGATED_USAGE, *row_key, *amounts)


async def delete_usage(connection: Connection, row_key: TaskRowKey) -> None:
    """For a task that is deleted. Its ancestors keep what it used."""
    for statement in _DELETE_USAGE:
        await connection.execute(statement, *row_key)


async def _ancestors(connection: Connection, row_key: TaskRowKey) -> AsyncIterator[TaskRowKey]:
    """The tasks by which a task was delegated, from its parent up."""
    owner, key = row_key
    for _ in range(MAX_DELEGATION_DEPTH):
        key = await connection.fetchval(_SELECT_PARENT, owner, key)
        if key is None:
            return
        yield owner, key
