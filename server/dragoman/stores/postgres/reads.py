"""Reading: each function is one consistent look, and touches only the rows it returns.

A Task is the join of framed rows: identity, status, artifacts, history, metadata (fields 1 to 6 of
`lf.a2a.v1.Task`), in that order, without parsing any of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from asyncpg import Connection

from dragoman.core import frames
from dragoman.core.log import ContextState, Cut, Event, Head, TaskRef
from dragoman.core.names import Owner, key_of
from dragoman.core.plan import status_bytes
from dragoman.core.stored import artifacts_of, state_of, unframed
from dragoman.ports import Conversation, Snapshot, StoredMessage
from dragoman.stores.postgres import contexts, joining
from dragoman.stores.postgres.database import NOW
from dragoman.stores.postgres.heads import COLUMNS, WIDTH, head_of, with_owners
from dragoman.stores.postgres.owners import NOBODY, number_of
from dragoman.stores.postgres.rows import Statement

SAID: Final = """
(SELECT m.data FROM messages m WHERE m.owner = t.owner AND m.task = t.task AND m.number = t.status_message)
"""
HISTORY: Final = """
ARRAY(SELECT m.data FROM messages m WHERE m.owner = t.owner AND m.task = t.task AND m.number <> t.status_message
    ORDER BY m.number DESC LIMIT {})
"""
CHUNKS: Final = """
LEFT JOIN LATERAL (
    SELECT array_agg(a.number ORDER BY a.number, c.sequence) AS numbers,
        array_agg(a.head ORDER BY a.number, c.sequence) AS heads,
        array_agg(c.text ORDER BY a.number, c.sequence) AS texts,
        array_agg(c.data ORDER BY a.number, c.sequence) AS datas
    FROM (SELECT a.artifact, a.head, row_number() OVER (ORDER BY a.position, a.artifact) AS number
        FROM artifacts a WHERE a.owner = t.owner AND a.task = t.task) a
    JOIN chunks c ON c.owner = t.owner AND c.task = t.task AND c.artifact = a.artifact
) x ON {}
"""
TASK: Final = f"{COLUMNS}, t.metadata, {SAID} AS said, {HISTORY} AS history, x.numbers, x.heads, x.texts, x.datas"
"""A Task of `tasks t`, with CHUNKS joined; `{{}}` is for how many messages."""

_OWN: Final = "FROM owners o JOIN tasks t ON t.owner = o.owner"
_READ: Final = f"""
SELECT {TASK.format("$4")} {_OWN} {CHUNKS.format("$5")} WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3
"""
_FIND: Final = f"""
SELECT o.scope, o.principal, t.task, {COLUMNS} {_OWN}
WHERE o.scope = $1 AND o.principal = $2 AND t.agent = $3 AND t.id = $4 AND t.visible
    AND (t.task = $5 OR t.alias) ORDER BY t.alias LIMIT 1
"""
_GET: Final = f"""
SELECT {TASK.format("$6")}, t.task {_OWN} {CHUNKS.format("$7")}
WHERE o.scope = $1 AND o.principal = $2 AND t.agent = $3 AND t.id = $4 AND t.visible
    AND (t.task = $5 OR t.alias) ORDER BY t.alias LIMIT 1
"""
_HEAD: Final = f"""
SELECT o.scope, o.principal, t.task, {COLUMNS} {_OWN} WHERE t.owner = $1 AND t.task = $2 AND t.visible
    AND t.agent = $3 AND t.id = $4
"""
_LOCATE: Final = f"""
SELECT o.scope, o.principal, t.task, {COLUMNS} {_OWN}
WHERE t.id = $1 AND (t.task = $2 OR t.alias) ORDER BY o.owner, t.task
"""
_EVENTS: Final = """
SELECT first, count, ends, data FROM (
    SELECT l.first, l.count, l.ends, l.data, sum(l.count) OVER (ORDER BY l.first) - l.count AS before FROM (
        SELECT * FROM log WHERE owner = $1 AND task = $2 AND first >= (
            SELECT max(first) FROM log WHERE owner = $1 AND task = $2 AND first <= $3)
        ORDER BY first LIMIT $4 + 1) l) counted
WHERE before <= $4 ORDER BY first
"""
_OLDEST: Final = f"""
SELECT (SELECT min(first) FROM log l WHERE l.owner = t.owner AND l.task = t.task) {_OWN}
WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3
"""
_THERE: Final = f"SELECT t.owner {_OWN} WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3"
_CONVERSATION: Final = f"""
SELECT {COLUMNS}, t.memory {_OWN} WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3
"""
_MESSAGES: Final = f"""
SELECT m.number, m.role, m.data, m.envelope, m.sender {_OWN} JOIN messages m ON m.owner = t.owner AND m.task = t.task
WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3 AND m.number > $4 ORDER BY m.number
"""
_ENVELOPE: Final = f"""
SELECT m.envelope {_OWN} JOIN messages m ON m.owner = t.owner AND m.task = t.task
WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3 AND m.number = $4
"""
_VERSIONS: Final = Statement(
    "SELECT t.task, t.last FROM {rows} JOIN owners o ON o.scope = r.scope AND o.principal = r.principal"
    " JOIN tasks t ON t.owner = o.owner AND t.task = r.task",
    "tty",
    "scope, principal, task",
)
_ORPHANS: Final = f"""
SELECT o.scope, o.principal, t.task, {COLUMNS} FROM tasks t JOIN owners o ON o.owner = t.owner
WHERE t.session > 0 AND t.session <> $1
    AND t.session NOT IN (SELECT session FROM sessions WHERE expires > CASE WHEN $4 THEN {NOW.format("$2")} ELSE 0 END)
LIMIT $3
"""


def _place(ref: TaskRef) -> tuple[str, str, bytes]:
    return ref.owner.scope, ref.owner.principal, ref.key


async def find(connection: Connection, owner: Owner, agent: str, task_id: str, joined: bool) -> Head | None:
    key = key_of(task_id)
    rows = await connection.fetch(_FIND, owner.scope, owner.principal, agent, task_id, key)
    if not rows and joined and (number := await number_of(connection, owner)) != NOBODY:
        place = await joining.find(connection, number, agent, key, task_id)
        rows = await connection.fetch(_HEAD, *place, agent, task_id)
    return with_owners(rows)[0] if rows else None


async def get(
    connection: Connection, owner: Owner, agent: str, task_id: str, joined: bool, history: int | None
) -> Snapshot | None:
    row = await connection.fetchrow(_GET, owner.scope, owner.principal, agent, task_id, key_of(task_id), history, True)
    if row is not None:
        head = head_of(TaskRef(owner, row[-1]), row)
        return Snapshot(head, task_bytes(head, row))
    shared = await find(connection, owner, agent, task_id, True) if joined else None
    return await read(connection, shared.ref, history, True) if shared else None


async def locate(connection: Connection, task_id: str) -> list[Head]:
    return with_owners(await connection.fetch(_LOCATE, task_id, key_of(task_id)))


async def read(connection: Connection, ref: TaskRef, history: int | None, artifacts: bool) -> Snapshot | None:
    row = await connection.fetchrow(_READ, *_place(ref), history, artifacts)
    if row is None:
        return None
    head = head_of(ref, row)
    return Snapshot(head, task_bytes(head, row))


def task_bytes(head: Head, row: Sequence[Any]) -> bytes:
    """The serialized Task in a row of TASK."""
    metadata, said, history, numbers, heads, texts, datas = row[WIDTH : WIDTH + 7]
    parts = [frames.text(1, head.id), frames.text(2, head.context), status_bytes(head, said or b"")]
    if numbers:
        parts += artifacts_of(zip(numbers, heads, texts, datas, strict=True))
    parts += reversed(history)
    parts.append(frames.submessage(6, metadata))
    return b"".join(parts)


async def events(connection: Connection, ref: TaskRef, after: int, limit: int) -> list[Event]:
    owner = await connection.fetchval(_THERE, *_place(ref))
    if owner is None:
        return []
    rows = await connection.fetch(_EVENTS, owner, ref.key, after + 1, limit)
    if not rows:
        if begins := await oldest(connection, ref):
            raise Cut(begins)
        return []
    found: list[Event] = []
    for first, count, ends, data in rows:
        if first + count - 1 > after:
            for sequence, payload in enumerate(frames.undelimited(data), first):
                if sequence > after:
                    found.append(Event(sequence, payload, state_of(payload)))
            found[-1].ends = ends
        if len(found) >= limit:
            break
    return found


async def oldest(connection: Connection, ref: TaskRef) -> int:
    return await connection.fetchval(_OLDEST, *_place(ref)) or 0


async def conversation(connection: Connection, ref: TaskRef, after: int) -> Conversation | None:
    row = await connection.fetchrow(_CONVERSATION, *_place(ref))
    if row is None:
        return None
    messages = [
        StoredMessage(number, role, unframed(data), envelope, sender)
        for number, role, data, envelope, sender in await connection.fetch(_MESSAGES, *_place(ref), after)
    ]
    return Conversation(head_of(ref, row), messages, row[-1])


async def envelope(connection: Connection, ref: TaskRef, number: int) -> bytes:
    found = await connection.fetchval(_ENVELOPE, *_place(ref), number)
    return bytes(found or b"")


async def context(connection: Connection, owner: Owner, agent: str, name: str) -> ContextState:
    return await contexts.read(connection, await number_of(connection, owner), agent, name)


async def versions(connection: Connection, tasks: Collection[TaskRef]) -> dict[bytes, int]:
    rows = await _VERSIONS.fetch(connection, [_place(ref) for ref in tasks])
    return {row[0]: row[1] for row in rows}


async def orphans(connection: Connection, session: int, at: int | None, limit: int, expired: bool) -> list[Head]:
    return with_owners(await connection.fetch(_ORPHANS, session, at, limit, expired))
