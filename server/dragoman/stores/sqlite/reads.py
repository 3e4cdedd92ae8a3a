"""Reads: each function sees one consistent snapshot, and touches only the rows that it returns.

A Task is the join of stored rows (`core.task.plan.encode_task`), without parsing any of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, Final

from dragoman.core.counters import AgentBacklog, StoreStats
from dragoman.core.names import Owner, task_key_of
from dragoman.core.task import contents, frames
from dragoman.core.task.blob_references import LARGE_PART_BYTES
from dragoman.core.task.contents import ResponseBudget, RowData, RowSize, StoredContent
from dragoman.core.task.cursors import TaskPage, TaskQuery, sort_key
from dragoman.core.task.log import MAX_READ_EVENT_BYTES, Event, LogTruncated, TaskRecord, TaskRef
from dragoman.core.task.plan import encode_task
from dragoman.core.task.projection import event_state, join_artifact_rows, unframe_message
from dragoman.ports import AgentTasks, StoredMessage, TaskMessages, TaskSnapshot
from dragoman.stores.shared.rows import RECORD_COLUMNS, TABLE_RECORD_COLUMNS, record_from_row, records_with_owners
from dragoman.stores.sqlite.cold import task_tables
from dragoman.stores.sqlite.hot.rows import CLAIMED, SELECT_OWNER, TOTALS

_TASK: Final = f"SELECT {RECORD_COLUMNS}, owner, metadata, agent_state FROM tasks WHERE owner = ? AND task = ?"
_FIND: Final = f"""
SELECT task, {RECORD_COLUMNS} FROM tasks WHERE owner = ?1 AND task = ?2 AND agent = ?3 AND id = ?4 AND visible
UNION ALL SELECT task, {RECORD_COLUMNS} FROM tasks WHERE owner = ?1 AND agent = ?3 AND id = ?4 AND alias AND visible
"""
"""A task by its own id, or by the one that its client chose."""
_LOCATE: Final = f"""
SELECT o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS} FROM (
    SELECT o.owner, ?2 AS task FROM owners o UNION SELECT owner, task FROM tasks WHERE alias AND id = ?1
) f CROSS JOIN tasks t USING (owner, task) CROSS JOIN owners o USING (owner) WHERE t.id = ?1 ORDER BY owner, task
"""
MESSAGE: Final = "SELECT data FROM messages WHERE owner = ? AND task = ? AND number = ?"
MESSAGE_SIZE: Final = "SELECT length(data) FROM messages WHERE owner = ? AND task = ? AND number = ?"
HISTORY: Final = """
SELECT number, data FROM messages WHERE owner = ? AND task = ? AND number != ? ORDER BY number DESC LIMIT ?
"""
SUMMED_ROWS: Final = 4096  # whose sizes one statement adds up, without the interpreter lock

# Not joined: SQLite would sort all rows before it returns the first, and a reader may need no more than that.
ARTIFACT_HEADS: Final = "SELECT artifact, head FROM artifacts WHERE owner = ? AND task = ? ORDER BY position, artifact"
# `length` of a column reads the head of a row, and none of the pages with the rest of a large value. With conditions
# that end the range, SQLite would read each row as a whole to compare it: the caller stops at the end of the artifact.
_FROM_ROW: Final = "WHERE (owner, task, artifact, sequence) >= (?, ?, ?, ?) ORDER BY owner, task, artifact, sequence"
ROW_SIZES: Final = f"SELECT owner, task, artifact, sequence, text, length(data) FROM chunks {_FROM_ROW}"
SUM_SIZES: Final = f"""
SELECT count(*), min(sequence), max(sequence), min(text), sum(size) FROM (
    SELECT owner, task, artifact, sequence, text, length(data) AS size FROM chunks {_FROM_ROW} LIMIT {SUMMED_ROWS}
) WHERE owner = ? AND task = ? AND artifact = ?
"""
ROWS: Final = f"SELECT owner, task, artifact, sequence, text, data FROM chunks {_FROM_ROW}"
SMALL_ROWS: Final = f"""
SELECT owner, task, artifact, text, CASE WHEN length(data) <= {LARGE_PART_BYTES} THEN data END
FROM chunks {_FROM_ROW}
"""
EVENTS_FROM: Final = """
SELECT max(first) FROM log WHERE owner = ?1 AND task = ?2 AND first <= ?3
    AND EXISTS (SELECT 1 FROM tasks WHERE owner = ?1 AND task = ?2)
"""
OLDEST: Final = """
SELECT min(first) FROM log WHERE owner = ?1 AND task = ?2
    AND EXISTS (SELECT 1 FROM tasks WHERE owner = ?1 AND task = ?2)
"""
EVENTS: Final = "SELECT first, count, ends, data FROM log WHERE owner = ? AND task = ? AND first >= ? ORDER BY first"
MESSAGES: Final = """
SELECT number, role, data, envelope, sender FROM messages WHERE owner = ? AND task = ? AND number > ? ORDER BY number
"""
ENVELOPE: Final = "SELECT envelope FROM messages WHERE owner = ? AND task = ? AND number = ?"
ORPHANS: Final = f"""
SELECT o.scope, o.principal, t.task, {TABLE_RECORD_COLUMNS}
FROM {CLAIMED} c CROSS JOIN tasks t USING (owner, task) JOIN owners o USING (owner)
WHERE c.session != ? AND c.session NOT IN (SELECT session FROM sessions WHERE expires > ?) LIMIT ?
"""
_AGENTS_OF: Final = """
SELECT scope, agent, sum(tasks), max(changed) AS newest FROM (
    SELECT o.scope, t.agent, t.tasks, (
        SELECT max(n.updated) FROM tasks n WHERE n.owner = t.owner AND n.agent = t.agent AND n.listed) AS changed
    FROM owners o JOIN totals t ON t.owner = o.owner WHERE o.principal = ? AND t.tasks > 0
) GROUP BY scope, agent ORDER BY newest DESC, scope, agent
"""
_LISTED, _UNLISTED = "{index} WHERE listed", "INDEXED BY tasks_unlisted WHERE listed = 0 AND visible"
_PAGE: Final = f"""
SELECT task, {RECORD_COLUMNS}, metadata FROM tasks {_LISTED.format(index="")} AND owner = ? AND {{where}}
UNION ALL SELECT task, {RECORD_COLUMNS}, metadata FROM tasks {_UNLISTED} AND owner = ? AND {{where}}
ORDER BY updated DESC, task DESC LIMIT ?
"""
"""Both in one snapshot: callers ask for what has changed since the last task that they saw."""
_COUNT: Final = f"""
SELECT (SELECT count(*) FROM tasks {_LISTED} AND owner = ? AND {{where}})
    + (SELECT count(*) FROM tasks {_UNLISTED} AND owner = ? AND {{where}})
"""


def owner_number(connection: sqlite3.Connection, owner: Owner) -> int | None:
    row = connection.execute(SELECT_OWNER, (owner.scope, owner.principal)).fetchone()
    return row[0] if row else None


def find(connection: sqlite3.Connection, owner: Owner, agent: str, task_id: str) -> TaskRecord | None:
    values = (owner_number(connection, owner), task_key_of(task_id), agent, task_id)
    for key, *columns in connection.execute(_FIND, values):
        return record_from_row(TaskRef(owner, key), columns)
    return None


def locate(connection: sqlite3.Connection, task_id: str) -> list[TaskRecord]:
    return records_with_owners(connection.execute(_LOCATE, (task_id, task_key_of(task_id) or b"")))


def read(
    connection: sqlite3.Connection, ref: TaskRef, history: int | None, artifacts: bool, budget: ResponseBudget
) -> TaskSnapshot | None:
    row = _task_row(connection, ref)
    if row is None:
        return None
    record, number, metadata, _ = row
    return TaskSnapshot(record, task_bytes(connection, number, record, metadata, history, artifacts, budget))


def _task_row(connection: sqlite3.Connection, ref: TaskRef) -> tuple[TaskRecord, int, bytes, bytes] | None:
    """The record of a task, the number of its owner, its metadata, and the state of its agent."""
    for *columns, number, metadata, state in connection.execute(_TASK, (owner_number(connection, ref.owner), ref.key)):
        return record_from_row(ref, columns), number, metadata, state
    return None


def task_bytes(
    connection: sqlite3.Connection,
    owner: int,
    record: TaskRecord,
    metadata: bytes,
    history: int | None,
    artifacts: bool,
    budget: ResponseBudget,
    fetch: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> bytes:
    """A serialized Task within the budget of its response.

    fetch: returns the rows of artifacts and of messages, or raises when they are too large.
    """
    where = (owner, record.ref.key)
    status_message = b""
    if record.status_message:
        ((status_message,),) = fetch(connection.execute(MESSAGE, (*where, record.status_message)))
        status_message = contents.limit_message(status_message, record.status_message, *where, budget)
    parts = [*_artifacts(connection, *where, budget, fetch)] if artifacts else []
    if history != 0:
        rows = connection.execute(HISTORY, (*where, record.status_message, -1 if history is None else history))
        parts += [contents.limit_message(data, number, *where, budget) for number, data in fetch(rows)][::-1]
    return encode_task(record, status_message, parts, metadata)


def _artifacts(
    connection: sqlite3.Connection,
    owner: int,
    key: bytes,
    budget: ResponseBudget,
    fetch: Callable[[Iterable[Any]], Iterable[Any]],
) -> Iterable[bytes]:
    """The framed artifacts of a task: their rows as they are, if they are small."""
    artifacts = connection.execute(ARTIFACT_HEADS, (owner, key)).fetchall()
    rows, size = [], 0
    chunks = (
        (artifact, head, *row)
        for artifact, head in artifacts
        for row in _rows_from(connection, SMALL_ROWS, owner, key, artifact, 0)
    )
    for row in fetch(chunks):
        if (size := size + (LARGE_PART_BYTES + 1 if row[-1] is None else len(row[-1]))) > LARGE_PART_BYTES:
            break
        rows.append(row)
    if budget.take_rows(size):
        return join_artifact_rows(rows)
    rows.clear()

    def data(wanted: contents.ReadRows) -> list[bytes]:
        found = _rows_from(connection, ROWS, owner, key, wanted.artifact, wanted.first)
        return [data for _, _, data in takewhile(lambda row: row[0] <= wanted.last, found)]

    sizes = _artifact_sizes(connection, owner, key, artifacts)
    return contents.run_fold(contents.fold_artifacts(sizes, owner, key, budget), data)


def _rows_from(
    connection: sqlite3.Connection, statement: str, owner: int, key: bytes, artifact: str, first: int
) -> Iterator[tuple[Any, ...]]:
    """The rows of an artifact from a sequence on, without their first three columns, which name it."""
    for row in connection.execute(statement, (owner, key, artifact, first)):
        if row[:3] != (owner, key, artifact):
            return
        yield row[3:]


def _artifact_sizes(
    connection: sqlite3.Connection, owner: int, key: bytes, artifacts: Iterable[tuple[str, bytes]]
) -> Iterator[contents.ArtifactSize]:
    for artifact, head in artifacts:
        first, size, only_text = _sum_sizes(connection, owner, key, artifact)
        if first is not None:
            rows = None if only_text else row_sizes(connection, owner, key, artifact, first)
            yield contents.ArtifactSize(artifact, head, first, size, rows)


def _sum_sizes(connection: sqlite3.Connection, owner: int, key: bytes, artifact: str) -> tuple[int | None, int, bool]:
    """The first row of an artifact, its size, and whether all rows are text."""
    begin: int | None = None
    start = total = 0
    only_text, count = True, SUMMED_ROWS
    while count == SUMMED_ROWS:
        where = (owner, key, artifact)
        count, first, last, text, size = connection.execute(SUM_SIZES, (*where, start, *where)).fetchone()
        if count:
            begin = first if begin is None else begin
            start, total, only_text = last + 1, total + size, only_text and bool(text)
    return begin, total, only_text


def row_sizes(connection: sqlite3.Connection, owner: int, key: bytes, artifact: str, first: int) -> list[RowSize]:
    """The sizes of an artifact's rows from a sequence on."""
    rows = _rows_from(connection, ROW_SIZES, owner, key, artifact, first)
    return [RowSize(sequence, bool(text), size) for sequence, text, size in rows]


def content_sizes(connection: sqlite3.Connection, content: StoredContent) -> list[RowSize]:
    """The sizes of the rows from that of a content on."""
    if content.artifact is not None:
        return row_sizes(connection, content.owner, content.task, content.artifact, content.row)
    row = connection.execute(MESSAGE_SIZE, (content.owner, content.task, content.row)).fetchone()
    return [RowSize(content.row, False, row[0])] if row else []


def content_rows(connection: sqlite3.Connection, content: StoredContent, first: int, limit: int) -> list[RowData]:
    """The rows of a content from `first` on, until they have `limit` bytes."""
    found: list[RowData] = []
    if content.artifact is None:
        row = connection.execute(MESSAGE, (content.owner, content.task, content.row)).fetchone()
        return [RowData(content.row, False, row[0])] if row else found
    for sequence, text, data in _rows_from(connection, ROWS, content.owner, content.task, content.artifact, first):
        found.append(RowData(sequence, bool(text), data))
        limit -= len(data)
        if limit <= 0:
            break
    return found


def events(connection: sqlite3.Connection, task: TaskRef, after: int, limit: int) -> list[Event]:
    number = owner_number(connection, task.owner)
    (start,) = connection.execute(EVENTS_FROM, (number, task.key, after + 1)).fetchone()
    found: list[Event] = []
    size = 0
    if start is None:
        if first := oldest_sequence(connection, task):
            raise LogTruncated(first)
        return found
    for first, count, ends, data in connection.execute(EVENTS, (number, task.key, start)):
        if first + count - 1 > after:
            for sequence, payload in enumerate(frames.undelimited(data), first):
                if sequence > after:
                    found.append(Event(sequence, payload, event_state(payload)))
            found[-1].ends = bool(ends)
            size += len(data)
        if len(found) >= limit or size >= MAX_READ_EVENT_BYTES:
            break
    return found


def oldest_sequence(connection: sqlite3.Connection, task: TaskRef) -> int:
    (first,) = connection.execute(OLDEST, (owner_number(connection, task.owner), task.key)).fetchone()
    return first or 0


def read_messages(connection: sqlite3.Connection, task: TaskRef, after: int) -> TaskMessages | None:
    row = _task_row(connection, task)
    if row is None:
        return None
    record, number, metadata, state = row
    messages = [
        StoredMessage(n, role, unframe_message(data), envelope, sender)
        for n, role, data, envelope, sender in connection.execute(MESSAGES, (number, task.key, after))
    ]
    usage = task_tables.usage_of(connection, number, task.key)
    context = task_tables.read_context_state(connection, number, record.agent, record.context)
    return TaskMessages(record, messages, state, metadata, usage, context)


def envelope(connection: sqlite3.Connection, task: TaskRef, number: int) -> bytes:
    row = connection.execute(ENVELOPE, (owner_number(connection, task.owner), task.key, number)).fetchone()
    return bytes(row[0]) if row else b""


def page(connection: sqlite3.Connection, query: TaskQuery, budget: ResponseBudget) -> TaskPage:
    number = owner_number(connection, query.owner)
    if number is None:
        return TaskPage()
    filters = (("context =", query.context), ("state =", query.state), ("updated >=", query.updated_since))
    where = "agent = ?" + "".join(f" AND {comparison} ?" for comparison, value in filters if value)
    values: tuple[Any, ...] = (query.agent, *(value for _, value in filters if value))
    total = _total(connection, number, query, where, values)
    if query.after is not None:
        where += " AND (updated, task) < (?, ?)"
        values += query.after
    both = (number, *values) * 2
    rows = connection.execute(_PAGE.format(where=where), (*both, query.page_size + 1)).fetchall()
    tasks, summaries, record = [], [], None
    for key, *columns, metadata in rows[: query.page_size]:
        record = record_from_row(TaskRef(query.owner, key), columns)
        tasks.append(task_bytes(connection, number, record, metadata, query.history, query.artifacts, budget))
        summaries.append(record.summary)
    more = record is not None and len(rows) > query.page_size
    return TaskPage(tasks, total, sort_key(record) if record is not None and more else None, summaries)


def _total(connection: sqlite3.Connection, owner: int, query: TaskQuery, where: str, values: tuple[Any, ...]) -> int:
    sql, values = f"SELECT coalesce(sum(tasks), 0) FROM {TOTALS} WHERE owner = ? AND {where}", (owner, *values)
    if query.context or query.updated_since:
        # Without INDEXED BY, SQLite counts one context by walking through all tasks of its owner.
        index = "INDEXED BY tasks_by_context" if query.context else ""
        sql, values = _COUNT.format(index=index, where=where), values * 2
    total: int = connection.execute(sql, values).fetchone()[0]
    return total


def agents_of(connection: sqlite3.Connection, principal: str) -> list[AgentTasks]:
    return [AgentTasks(*row) for row in connection.execute(_AGENTS_OF, (principal,))]


def last_sequences(connection: sqlite3.Connection, tasks: Iterable[TaskRef]) -> dict[bytes, int]:
    sql = f"SELECT last_sequence FROM tasks WHERE owner = ({SELECT_OWNER}) AND task = ?"
    return {key: row[0] for owner, key in tasks if (row := connection.execute(sql, (*owner, key)).fetchone())}


def orphaned_tasks(connection: sqlite3.Connection, session: int, now: int, limit: int) -> list[TaskRecord]:
    return records_with_owners(connection.execute(ORPHANS, (session, now, limit)))


_COUNT_TASKS: Final = f"SELECT agent, state, sum(tasks) FROM {TOTALS} GROUP BY agent, state HAVING sum(tasks) > 0"
_COUNT_WAITING: Final = (
    "SELECT agent, count(*), min(updated) FROM tasks INDEXED BY tasks_ready WHERE ready GROUP BY agent"
)
_COUNT_PUSHES: Final = """
SELECT count(*) FILTER (WHERE due_at <= ?1), coalesce(min(due_at) FILTER (WHERE due_at <= ?1), 0),
    coalesce(min(failing_since) FILTER (WHERE failing_since > 0), 0)
FROM pushes INDEXED BY pushes_due WHERE due_at > 0
"""
_COUNT_DEAD: Final = "SELECT count(*) FROM pushes INDEXED BY pushes_given_up WHERE state = 2"


def read_stats(connection: sqlite3.Connection, now: int) -> StoreStats:
    """Counts of the store's contents at `now`, in milliseconds."""
    due, since, failing = connection.execute(_COUNT_PUSHES, (now,)).fetchone()
    (dead,) = connection.execute(_COUNT_DEAD).fetchone()
    return StoreStats(
        counted_at=now,
        tasks={(agent, state): tasks for agent, state, tasks in connection.execute(_COUNT_TASKS)},
        backlog={agent: AgentBacklog(tasks, since) for agent, tasks, since in connection.execute(_COUNT_WAITING)},
        pending_pushes=due,
        pending_pushes_since=since,
        failing_since=failing,
        dead_pushes=dead,
    )
