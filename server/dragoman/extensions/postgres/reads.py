"""Reads: each function sees one consistent snapshot, and touches only the rows that it returns.

A Task is the join of stored rows (`core.task.plan.encode_task`), without parsing any of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.counters import AgentBacklog, StoreStats
from dragoman.core.limits.quotas import Usage
from dragoman.core.names import Owner, task_key_of
from dragoman.core.task import frames
from dragoman.core.task.blob_references import LARGE_PART_BYTES
from dragoman.core.task.contents import (
    ArtifactSize,
    ReadRows,
    ResponseBudget,
    RowData,
    RowSize,
    StoredContent,
    fold_artifacts,
    limit_message,
    run_fold_async,
    slices,
    unlimited_budget,
)
from dragoman.core.task.cursors import TaskPage, TaskQuery, sort_key
from dragoman.core.task.log import MAX_READ_EVENT_BYTES, ContextState, Event, LogTruncated, TaskRecord, TaskRef
from dragoman.core.task.plan import encode_task
from dragoman.core.task.projection import event_state, join_artifact_rows, unframe_message
from dragoman.extensions.postgres.database import SQL_NOW
from dragoman.extensions.postgres.rows import PostgresBulkStatement, unescape
from dragoman.extensions.postgres.task_tables import NO_OWNER, SELECT_USAGE, owner_number
from dragoman.ports import AgentTasks, StoredMessage, TaskMessages, TaskSnapshot
from dragoman.stores.shared.rows import RECORD_WIDTH, TABLE_RECORD_COLUMNS, record_from_row, records_with_owners

STATUS_MESSAGE: Final = """
(SELECT m.data FROM messages m WHERE m.owner = t.owner AND m.task = t.task AND m.number = t.status_message)
"""
_HISTORY_ROWS: Final = """
SELECT m.data FROM messages m WHERE m.owner = t.owner AND m.task = t.task AND m.number <> t.status_message
    ORDER BY m.number DESC LIMIT {history}
"""
# `octet_length` of a column reads the row, and none of the pages that hold the rest of a large value.
HISTORY: Final = f"""
CASE WHEN (SELECT coalesce(sum(octet_length(h.data)), 0) FROM ({_HISTORY_ROWS}) h) <= {LARGE_PART_BYTES}
    THEN ARRAY({_HISTORY_ROWS}) END
"""
CHUNKS: Final = f"""
LEFT JOIN LATERAL (
    SELECT sum(octet_length(c.data))::bigint AS size FROM chunks c WHERE c.owner = t.owner AND c.task = t.task
) z ON {{artifacts}}
LEFT JOIN LATERAL (
    SELECT array_agg(a.number ORDER BY a.number, c.sequence) AS numbers,
        array_agg(a.head ORDER BY a.number, c.sequence) AS heads,
        array_agg(c.text ORDER BY a.number, c.sequence) AS texts,
        array_agg(c.data ORDER BY a.number, c.sequence) AS datas
    FROM (SELECT a.artifact, a.head, row_number() OVER (ORDER BY a.position, a.artifact) AS number
        FROM artifacts a WHERE a.owner = t.owner AND a.task = t.task) a
    JOIN chunks c ON c.owner = t.owner AND c.task = t.task AND c.artifact = a.artifact
    WHERE z.size <= {LARGE_PART_BYTES}
) x ON {{artifacts}}
"""
TASK: Final = (
    f"{TABLE_RECORD_COLUMNS}, t.owner, t.metadata, {STATUS_MESSAGE} AS status_message_data, {HISTORY} AS history,"
    " coalesce(z.size, 0) AS size, x.numbers, x.heads, x.texts, x.datas"
)
"""The columns of a Task of `tasks t` with CHUNKS joined. The history is NULL, and there are no chunks, if they are
large: they are read as far as they fit into a response."""
TASK_WIDTH: Final = RECORD_WIDTH + 9

_TASKS_WITH_OWNERS: Final = "FROM owners o JOIN tasks t ON t.owner = o.owner"
_OF_ROW: Final = "JOIN owners o ON o.scope = r.scope AND o.principal = r.principal"
_TASK_OF_ROW: Final = f"{_OF_ROW} JOIN tasks t ON t.owner = o.owner AND t.task = r.task"


def _of_tasks(sql: str, types: str, names: str) -> PostgresBulkStatement:
    """A statement that reads every table in the partitions of the rows' tasks."""
    return PostgresBulkStatement(re.sub(r"(\w+\.task) = \w\.task", r"\g<0> AND \1 {own}", sql), types, names)


_READ: Final = _of_tasks(
    f"SELECT {TASK.format(history='r.history')}, r.place FROM {{rows}} {_TASK_OF_ROW}"
    f" {CHUNKS.format(artifacts='r.artifacts')}",
    "ittyib",
    "place, scope, principal, task, history, artifacts",
)
# The key as an argument, rather than that of a joined row, lets every table be read in one partition.
_OF_ID: Final = "o.scope = $1 AND o.principal = $2 AND t.agent = $3 AND t.id = $4 AND t.task = $5 AND t.visible"
_FIND: Final = f"SELECT o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS} {_TASKS_WITH_OWNERS} WHERE {_OF_ID}"
_GET: Final = f"""
SELECT {TASK.format(history="$6")}, t.task {_TASKS_WITH_OWNERS} {CHUNKS.format(artifacts="$7")} WHERE {_OF_ID}
""".replace("= t.task", "= $5")
_SELECT_ALIAS: Final = """
SELECT a.task FROM owners o JOIN aliases a ON a.owner = o.owner
WHERE o.scope = $1 AND o.principal = $2 AND a.agent = $3 AND a.id = $4
"""
_LOCATE: Final = f"""
SELECT o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS} {_TASKS_WITH_OWNERS}
WHERE t.id = $1 AND t.task = ANY ($2::bytea[]) ORDER BY o.owner, t.task
"""
_EVENTS: Final = """
SELECT first, count, ends, data FROM (
    SELECT l.first, l.count, l.ends, l.data, sum(l.count) OVER (ORDER BY l.first) - l.count AS before,
        sum(octet_length(l.data)) OVER (ORDER BY l.first) - octet_length(l.data) AS bytes_before FROM (
        SELECT * FROM log WHERE owner = $1 AND task = $2 AND first >= (
            SELECT max(first) FROM log WHERE owner = $1 AND task = $2 AND first <= $3)
        ORDER BY first LIMIT $4 + 1) l) counted
WHERE before <= $4 AND bytes_before <= $5 ORDER BY first
"""
_OLDEST: Final = f"""
SELECT (SELECT min(first) FROM log l WHERE l.owner = t.owner AND l.task = t.task) {_TASKS_WITH_OWNERS}
WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3
"""
_SELECT_TASK_OWNER: Final = (
    f"SELECT t.owner {_TASKS_WITH_OWNERS} WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3"
)
_MESSAGES: Final = _of_tasks(
    f"SELECT {TABLE_RECORD_COLUMNS}, r.place, t.metadata, t.agent_state, c.data, c.version,"
    " (SELECT array_agg(ARRAY[u.tokens, u.cost, u.is_delegated])"
    f" FROM ({SELECT_USAGE.replace('$1', 't.owner').replace('$2', 't.task')}) u),"
    f" m.numbers, m.roles, m.datas, m.envelopes, m.senders FROM {{rows}} {_TASK_OF_ROW}"
    " LEFT JOIN context_state c ON c.owner = t.owner AND c.agent = t.agent AND c.context = t.context"
    " LEFT JOIN LATERAL (SELECT array_agg(m.number ORDER BY m.number) AS numbers,"
    " array_agg(m.role ORDER BY m.number) AS roles,"
    " array_agg(m.data ORDER BY m.number) AS datas, array_agg(m.envelope ORDER BY m.number) AS envelopes,"
    " array_agg(m.sender ORDER BY m.number) AS senders FROM messages m"
    " WHERE m.owner = t.owner AND m.task = t.task AND m.number > r.after) m ON true",
    "ittyi",
    "place, scope, principal, task, after",
)
_ENVELOPE: Final = f"""
SELECT m.envelope {_TASKS_WITH_OWNERS} JOIN messages m ON m.owner = t.owner AND m.task = t.task
WHERE o.scope = $1 AND o.principal = $2 AND t.task = $3 AND m.number = $4
"""
_AGENTS_OF: Final = """
SELECT scope, agent, sum(tasks)::bigint, max(changed) AS newest FROM (
    SELECT o.scope, t.agent, t.tasks, (
        SELECT max(n.updated) FROM tasks n WHERE n.owner = t.owner AND n.agent = t.agent AND n.visible) AS changed
    FROM owners o JOIN totals t ON t.owner = o.owner WHERE o.principal = $1 AND t.tasks > 0
) found GROUP BY scope, agent ORDER BY newest DESC, scope, agent
"""
_VERSIONS: Final = _of_tasks(
    f"SELECT t.task, t.last_sequence FROM {{rows}} {_TASK_OF_ROW}",
    "tty",
    "scope, principal, task",
)
_ORPHANS: Final = f"""
SELECT o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS} FROM tasks t JOIN owners o ON o.owner = t.owner
WHERE t.session > 0 AND t.session <> $1
    AND t.session NOT IN (
        SELECT session FROM sessions WHERE expires > CASE WHEN $4 THEN {SQL_NOW.format("$2")} ELSE 0 END)
LIMIT $3
"""


def _task_key(ref: TaskRef) -> tuple[str, str, bytes]:
    return ref.owner.scope, ref.owner.principal, ref.key


async def find(connection: Connection, owner: Owner, agent: str, task_id: str) -> TaskRecord | None:
    row = await _fetch_by_id(connection, _FIND, owner, agent, task_id)
    return records_with_owners([row])[0] if row else None


async def _fetch_by_id(
    connection: Connection, sql: str, owner: Owner, agent: str, task_id: str, *arguments: Any
) -> Sequence[Any] | None:
    """The row of the task with an id, which is the text of its key or an alias."""
    where, row = (*owner, agent, task_id), None
    if key := task_key_of(task_id):
        row = await connection.fetchrow(sql, *where, key, *arguments)
    if row is None and (key := await connection.fetchval(_SELECT_ALIAS, *where)):
        row = await connection.fetchrow(sql, *where, key, *arguments)
    return row


async def keys_of_id(connection: Connection, task_id: str) -> list[bytes]:
    """The keys that tasks with this id may have, of all owners."""
    keys = [row[0] for row in await connection.fetch("SELECT task FROM aliases WHERE id = $1", task_id)]
    return [key, *keys] if (key := task_key_of(task_id)) else keys


async def get(
    connection: Connection,
    owner: Owner,
    agent: str,
    task_id: str,
    history: int | None,
    budget: ResponseBudget | None,
) -> TaskSnapshot | None:
    row = await _fetch_by_id(connection, _GET, owner, agent, task_id, history, True)
    if row is None:
        return None
    record = record_from_row(TaskRef(owner, row[TASK_WIDTH]), row)
    return TaskSnapshot(record, await task_bytes(connection, record, row, history, budget))


async def locate(connection: Connection, task_id: str) -> list[TaskRecord]:
    return records_with_owners(await connection.fetch(_LOCATE, task_id, await keys_of_id(connection, task_id)))


async def read_tasks(
    connection: Connection, keys: Sequence[tuple[TaskRef, int | None, bool]]
) -> list[TaskSnapshot | LargeTask | None]:
    """Tasks with so many messages, and with their artifacts or without."""
    found: list[TaskSnapshot | LargeTask | None] = [None] * len(keys)
    rows = [(place, *_task_key(ref), history, artifacts) for place, (ref, history, artifacts) in enumerate(keys)]
    for row in await _READ.fetch(connection, rows):
        ref, history, _ = keys[row["place"]]
        record = record_from_row(ref, row)
        try:
            found[row["place"]] = TaskSnapshot(record, await task_bytes(connection, record, row, history, None))
        except LargeTask as large:
            found[row["place"]] = large
    return found


async def read(
    connection: Connection, ref: TaskRef, history: int | None, artifacts: bool, budget: ResponseBudget
) -> TaskSnapshot | None:
    for row in await _READ.fetch(connection, [(0, *_task_key(ref), history, artifacts)]):
        record = record_from_row(ref, row)
        return TaskSnapshot(record, await task_bytes(connection, record, row, history, budget))
    return None


class LargeTask(Exception):
    """A task takes several statements, and so a snapshot."""


async def task_bytes(
    connection: Connection, record: TaskRecord, row: Sequence[Any], history: int | None, budget: ResponseBudget | None
) -> bytes:
    """The serialized Task of a row of TASK within a budget. Raises LargeTask if it needs a budget, and has none."""
    owner, metadata, status_message, messages, size, numbers, heads, texts, datas = row[RECORD_WIDTH:TASK_WIDTH]
    status_message, key = status_message or b"", record.ref.key
    if budget is None:
        if messages is None or size > LARGE_PART_BYTES or len(status_message) > LARGE_PART_BYTES:
            raise LargeTask
        budget = unlimited_budget()
    status_message = limit_message(status_message, record.status_message, owner, key, budget)
    parts: list[bytes] = []
    if size > LARGE_PART_BYTES or (size and not budget.take_rows(size)):
        parts += await _large_artifacts(connection, owner, key, budget)
    elif numbers:
        parts += join_artifact_rows(zip(numbers, heads, texts, datas, strict=True))
    if messages is None or not budget.take_rows(sum(map(len, messages))):
        messages = await _large_history(connection, owner, record, history, budget)
    parts += reversed(messages)
    return encode_task(record, status_message, parts, metadata)


_ARTIFACT_SIZES: Final = """
SELECT a.artifact, a.head, c.first, c.size, c.only_text FROM artifacts a CROSS JOIN LATERAL (
    SELECT min(c.sequence) AS first, sum(octet_length(c.data))::bigint AS size, bool_and(c.text) AS only_text
    FROM chunks c WHERE c.owner = a.owner AND c.task = a.task AND c.artifact = a.artifact
) c WHERE a.owner = $1 AND a.task = $2 AND c.first IS NOT NULL ORDER BY a.position, a.artifact
"""
_ROW_SIZES: Final = """
SELECT sequence, text, octet_length(data) FROM chunks
WHERE owner = $1 AND task = $2 AND artifact = $3 AND sequence >= $4 ORDER BY sequence
"""
_ROWS: Final = """
SELECT data FROM chunks WHERE owner = $1 AND task = $2 AND artifact = $3 AND sequence BETWEEN $4 AND $5
ORDER BY sequence
"""
_ROWS_UP_TO: Final = """
SELECT sequence, text, data FROM (
    SELECT c.*, sum(octet_length(c.data)) OVER (ORDER BY c.sequence) - octet_length(c.data) AS before FROM (
        SELECT sequence, text, data FROM chunks
        WHERE owner = $1 AND task = $2 AND artifact = $3 AND sequence >= $4 ORDER BY sequence LIMIT 1024) c
) counted WHERE before < $5 ORDER BY sequence
"""
_MESSAGE_SIZES: Final = """
SELECT number, octet_length(data) FROM messages WHERE owner = $1 AND task = $2 AND number <> $3
ORDER BY number DESC LIMIT $4
"""
_MESSAGE: Final = "SELECT data FROM messages WHERE owner = $1 AND task = $2 AND number = $3"
_MESSAGE_SIZE: Final = "SELECT octet_length(data) FROM messages WHERE owner = $1 AND task = $2 AND number = $3"
_NUMBERED_MESSAGES: Final = """
SELECT number, data FROM messages WHERE owner = $1 AND task = $2 AND number = ANY ($3::bigint[]) ORDER BY number DESC
"""


async def _large_artifacts(connection: Connection, owner: int, key: bytes, budget: ResponseBudget) -> list[bytes]:
    """The framed artifacts of a task, as far as they fit."""
    artifacts = []
    for artifact, head, first, size, only_text in await connection.fetch(_ARTIFACT_SIZES, owner, key):
        rows = None if only_text else await row_sizes(connection, owner, key, artifact, first)
        artifacts.append(ArtifactSize(artifact, head, first, size, rows))

    async def data(wanted: ReadRows) -> list[bytes]:
        rows = await connection.fetch(_ROWS, owner, key, wanted.artifact, wanted.first, wanted.last)
        return [row[0] for row in rows]

    return await run_fold_async(fold_artifacts(artifacts, owner, key, budget), data)


async def _large_history(
    connection: Connection, owner: int, record: TaskRecord, history: int | None, budget: ResponseBudget
) -> list[bytes]:
    """The rows of a history as far as their contents fit, the newest first."""
    key = record.ref.key
    sizes = await connection.fetch(_MESSAGE_SIZES, owner, key, record.status_message, history)
    messages = []
    for some in slices([RowSize(number, False, size) for number, size in sizes]):
        rows = await connection.fetch(_NUMBERED_MESSAGES, owner, key, [one.sequence for one in some])
        messages += [limit_message(data, number, owner, key, budget) for number, data in rows]
    return messages


async def row_sizes(connection: Connection, owner: int, key: bytes, artifact: str, first: int) -> list[RowSize]:
    """The sizes of an artifact's rows from a sequence on."""
    return [RowSize(*row) for row in await connection.fetch(_ROW_SIZES, owner, key, artifact, first)]


async def content_sizes(connection: Connection, content: StoredContent) -> list[RowSize]:
    """The sizes of the rows from that of a content on."""
    if content.artifact is not None:
        return await row_sizes(connection, content.owner, content.task, content.artifact, content.row)
    size = await connection.fetchval(_MESSAGE_SIZE, content.owner, content.task, content.row)
    return [RowSize(content.row, False, size)] if size is not None else []


async def content_rows(connection: Connection, content: StoredContent, first: int, limit: int) -> list[RowData]:
    """The rows of a content from `first` on, until they have `limit` bytes."""
    if content.artifact is not None:
        where = content.owner, content.task, content.artifact, first
        return [RowData(*row) for row in await connection.fetch(_ROWS_UP_TO, *where, limit)]
    data = await connection.fetchval(_MESSAGE, content.owner, content.task, content.row)
    return [RowData(content.row, False, data)] if data is not None else []


async def events(connection: Connection, ref: TaskRef, after: int, limit: int) -> list[Event]:
    owner = await connection.fetchval(_SELECT_TASK_OWNER, *_task_key(ref))
    if owner is None:
        return []
    rows = await connection.fetch(_EVENTS, owner, ref.key, after + 1, limit, MAX_READ_EVENT_BYTES)
    if not rows:
        if first := await oldest_sequence(connection, ref):
            raise LogTruncated(first)
        return []
    found: list[Event] = []
    for first, count, ends, data in rows:
        if first + count - 1 > after:
            for sequence, payload in enumerate(frames.undelimited(data), first):
                if sequence > after:
                    found.append(Event(sequence, payload, event_state(payload)))
            found[-1].ends = ends
        if len(found) >= limit:
            break
    return found


async def oldest_sequence(connection: Connection, ref: TaskRef) -> int:
    return await connection.fetchval(_OLDEST, *_task_key(ref)) or 0


async def read_messages(connection: Connection, keys: Sequence[tuple[TaskRef, int]]) -> list[TaskMessages | None]:
    """Tasks with their messages after a number."""
    found: list[TaskMessages | None] = [None] * len(keys)
    rows = [(place, *_task_key(ref), after) for place, (ref, after) in enumerate(keys)]
    for row in await _MESSAGES.fetch(connection, rows):
        place, metadata, agent_state, data, version, usage, *columns = row[RECORD_WIDTH:]
        context = ContextState(data or b"", version or 0)
        messages = [
            StoredMessage(number, role, unframe_message(data), envelope, unescape(sender))
            for number, role, data, envelope, sender in zip(*(column or () for column in columns), strict=True)
        ]
        record = record_from_row(keys[place][0], row)
        found[place] = TaskMessages(record, messages, agent_state, metadata, Usage.total(usage or ()), context)
    return found


async def envelope(connection: Connection, ref: TaskRef, number: int) -> bytes:
    found = await connection.fetchval(_ENVELOPE, *_task_key(ref), number)
    return bytes(found or b"")


async def agents_of(connection: Connection, principal: str) -> list[AgentTasks]:
    return [AgentTasks(*row) for row in await connection.fetch(_AGENTS_OF, principal)]


async def last_sequences(connection: Connection, tasks: Collection[TaskRef]) -> dict[bytes, int]:
    rows = await _VERSIONS.fetch(connection, [_task_key(ref) for ref in tasks])
    return {row[0]: row[1] for row in rows}


async def orphaned_tasks(
    connection: Connection, session: int, fixed_now: int | None, limit: int, expired: bool
) -> list[TaskRecord]:
    return records_with_owners(await connection.fetch(_ORPHANS, session, fixed_now, limit, expired))


_PAGE_ORDER: Final = "ORDER BY updated DESC, task DESC"
_SELECT_PAGE: Final = f"""
SELECT {TASK}, t.task, o.scope, o.principal
FROM ({{found}}) f JOIN tasks t ON t.owner = f.owner AND t.task = f.task JOIN owners o ON o.owner = t.owner {CHUNKS}
ORDER BY f.updated DESC, f.task DESC
"""


class _Conditions:
    """SQL conditions, and their arguments in order."""

    def __init__(self, *values: Any) -> None:
        self.values = list(values)
        self.where = ""

    def add(self, condition: str, *values: Any) -> None:
        """Adds a condition; `{}` in it are its arguments."""
        first = len(self.values) + 1
        self.values += values
        self.where += f" AND {condition.format(*(f'${number}' for number in range(first, first + len(values))))}"


async def page(connection: Connection, query: TaskQuery, budget: ResponseBudget) -> TaskPage:
    number = await owner_number(connection, query.owner)
    if number == NO_OWNER:
        return TaskPage()
    sql = _Conditions(number)
    sql.add("t.visible AND t.agent = {}", query.agent)
    if query.context:
        sql.add("t.context = {}", query.context)
    if query.state:
        sql.add("t.state = {}", query.state)
    if query.updated_since:
        sql.add("t.updated >= {}", query.updated_since)
    total = await _total(connection, number, query, sql)
    if query.after is not None:
        sql.add("(t.updated, t.task) < ({}, {})", *query.after)
    limit = f"${len(sql.values) + 1}"
    found = f"SELECT t.owner, t.task, t.updated FROM tasks t WHERE t.owner = $1{sql.where} {_PAGE_ORDER} LIMIT {limit}"
    more = len(sql.values)
    text = _SELECT_PAGE.format(found=found, history=f"${more + 2}::bigint", artifacts=f"${more + 3}::boolean")
    rows = await connection.fetch(text, *sql.values, query.page_size + 1, query.history, query.artifacts)
    tasks, summaries, record = [], [], None
    for row in rows[: query.page_size]:
        key, scope, principal = row[TASK_WIDTH:]
        record = record_from_row(TaskRef(Owner(scope, principal), key), row)
        tasks.append(await task_bytes(connection, record, row, query.history, budget))
        summaries.append(record.summary)
    is_last = record is None or len(rows) <= query.page_size
    return TaskPage(tasks, total, None if is_last or record is None else sort_key(record), summaries)


async def _total(connection: Connection, owner: int, query: TaskQuery, conditions: _Conditions) -> int:
    if query.context or query.updated_since:
        count = f"SELECT count(*) FROM tasks t WHERE t.owner = $1{conditions.where}"
        return int(await connection.fetchval(count, *conditions.values))
    totals = "SELECT coalesce(sum(tasks), 0)::bigint FROM totals WHERE owner = $1 AND agent = $2"
    if query.state:
        return int(await connection.fetchval(f"{totals} AND state = $3", owner, query.agent, query.state))
    return int(await connection.fetchval(totals, owner, query.agent))


_COUNT_TASKS: Final = "SELECT agent, state, sum(tasks)::bigint FROM totals GROUP BY agent, state HAVING sum(tasks) > 0"
_COUNT_WAITING: Final = "SELECT agent, count(*), min(updated) FROM tasks WHERE ready GROUP BY agent"
_COUNT_PUSHES: Final = """
SELECT count(*) FILTER (WHERE due_at <= $1), coalesce(min(due_at) FILTER (WHERE due_at <= $1), 0),
    coalesce(min(failing_since) FILTER (WHERE failing_since > 0), 0)
FROM pushes WHERE due_at > 0
"""
_COUNT_DEAD: Final = "SELECT count(*) FROM pushes WHERE state = 2"


async def read_stats(connection: Connection, fixed_now: int | None) -> StoreStats:
    """Counts of the store's contents, now."""
    now = await connection.fetchval(f"SELECT {SQL_NOW.format('$1')}", fixed_now)
    due, since, failing = await connection.fetchrow(_COUNT_PUSHES, now)
    return StoreStats(
        counted_at=now,
        tasks={(agent, state): tasks for agent, state, tasks in await connection.fetch(_COUNT_TASKS)},
        backlog={agent: AgentBacklog(tasks, since) for agent, tasks, since in await connection.fetch(_COUNT_WAITING)},
        pending_pushes=due,
        pending_pushes_since=since,
        failing_since=failing,
        dead_pushes=await connection.fetchval(_COUNT_DEAD),
    )
