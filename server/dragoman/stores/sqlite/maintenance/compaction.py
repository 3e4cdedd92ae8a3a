"""Compaction: makes the store smaller without changing any response.

An artifact that grew by many small chunks has a row for each: `compact_artifacts` merges neighbors of one kind, which
reading joins anyway. A finished task keeps all its events for clients that resume its stream: some time after the end
`truncate_log` drops all but the last, and clients with an older cursor are told of the gap. Both work in steps, each a
transaction with a limited number of rows and bytes; the writer runs a step only when no append waits. A row is
rewritten a few times at most: at MAX_MERGED_ROW_BYTES it stays, and the next step starts at `artifacts.compacted`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from dragoman.core.task import states
from dragoman.core.task.maintenance import MAX_MERGED_ROW_BYTES, RowGroup, StorageOptions, group_rows, rows_within_limit
from dragoman.core.task.plan import Plan

StoreJob = Callable[[sqlite3.Connection], Any]
RunRead = Callable[[StoreJob], Awaitable[Any]]
RunWrite = Callable[[StoreJob], Awaitable[Any]]

MIN_GROWN_ROWS: Final = 64
"""Growth in rows from which a task is recorded for compaction."""

MAX_COUNTED_TASKS: Final = 4096
"""Tasks whose growth is counted in memory; beyond it the oldest count restarts."""

MIN_KEPT_EVENTS: Final = 64
"""Last events of a finished task that are kept, for clients whose connection just broke."""

COMPACTION_STEP_ROWS: Final = 512
COMPACTION_STEP_BYTES: Final = 1024 * 1024
"""Limits of one step: about what one commit of appends writes. With fewer than 4 rows, or less than two rows of
MAX_MERGED_ROW_BYTES, a step would make no progress."""

_ADD_GROWTH: Final = """
INSERT INTO artifact_growth (owner, task, rows) VALUES (?, ?, ?)
ON CONFLICT (owner, task) DO UPDATE SET rows = rows + excluded.rows
"""
_SELECT_GROWTH: Final = f"""
SELECT owner, task, rows FROM artifact_growth LEFT JOIN tasks USING (owner, task)
WHERE rows >= ? OR state IS NULL OR state IN ({", ".join(map(str, sorted(states.TERMINAL)))}) LIMIT 1
"""
_SUBTRACT_GROWTH: Final = "UPDATE artifact_growth SET rows = rows - ? WHERE owner = ? AND task = ?"
_DELETE_GROWTH: Final = "DELETE FROM artifact_growth WHERE owner = ? AND task = ? AND rows <= 0"
_SELECT_ARTIFACTS: Final = """
SELECT artifact, compacted FROM artifacts WHERE owner = ? AND task = ? AND artifact >= ? ORDER BY artifact LIMIT ?
"""
_SELECT_CHUNKS: Final = """
SELECT sequence, text, length(data) FROM chunks
WHERE owner = ? AND task = ? AND artifact = ? AND sequence >= ? ORDER BY sequence LIMIT ?
"""
_CHUNK_RANGE: Final = "FROM chunks WHERE owner = ? AND task = ? AND artifact = ? AND sequence BETWEEN ? AND ?"
_INSERT_CHUNK: Final = "INSERT INTO chunks (owner, task, artifact, sequence, text, data) VALUES (?, ?, ?, ?, ?, ?)"
_SET_COMPACTED: Final = "UPDATE artifacts SET compacted = ? WHERE owner = ? AND task = ? AND artifact = ?"

_INSERT_LONG_LOG: Final = "INSERT OR IGNORE INTO long_logs (ended, owner, task) VALUES (?, ?, ?)"
_SELECT_LONG_LOG: Final = """
SELECT ended, owner, task, coalesce(last_sequence, 0) FROM long_logs LEFT JOIN tasks USING (owner, task)
WHERE ended <= ? AND NOT coalesce(has_live_push, 0) ORDER BY ended LIMIT 1
"""
_SELECT_OLD_EVENTS: Final = """
SELECT first, count, length(data) FROM log
WHERE owner = ?1 AND task = ?2
  AND first < (SELECT max(first) FROM log WHERE owner = ?1 AND task = ?2 AND first <= ?3)
ORDER BY first LIMIT ?4
"""
_DELETE_EVENTS: Final = "DELETE FROM log WHERE owner = ? AND task = ? AND first <= ?"
_DELETE_LONG_LOG: Final = "DELETE FROM long_logs WHERE ended = ? AND owner = ? AND task = ?"


class SqliteArtifactGrowth:
    """Counts in memory by how many rows artifacts grow, and records the tasks that are worth compacting.

    Counts that are lost with the process are below MIN_GROWN_ROWS for each task; those rows stay as they are.
    """

    def __init__(self, max_tasks: int = MAX_COUNTED_TASKS) -> None:
        self._max_tasks = max_tasks
        self._rows: dict[tuple[int, bytes], int] = {}

    def __len__(self) -> int:
        """The number of tasks that are counted."""
        return len(self._rows)

    def record(self, connection: sqlite3.Connection, owner: int, plan: Plan) -> None:
        """Counts what an append wrote, in its transaction."""
        record, grew = plan.record, 0
        for row in plan.artifacts:
            grew += not row.replaces
        if grew:
            key = (owner, record.ref.key)
            grew += self._rows.get(key, 0)
            if grew >= MIN_GROWN_ROWS:
                connection.execute(_ADD_GROWTH, (*key, grew))
                grew = 0
            if len(self._rows) >= self._max_tasks and key not in self._rows:
                del self._rows[next(iter(self._rows))]
            self._rows[key] = grew
        if record.state in states.TERMINAL:
            self._rows.pop((owner, record.ref.key), None)
            if record.last_sequence > MIN_KEPT_EVENTS:
                connection.execute(_INSERT_LONG_LOG, (record.updated, owner, record.ref.key))


@dataclass(frozen=True, slots=True)
class SqliteCompactionCursor:
    """Position of a pass over the artifacts of one task. grown_rows: the growth that was recorded before the pass."""

    owner: int
    task: bytes
    grown_rows: int
    artifact: str = ""


def find_grown_task(connection: sqlite3.Connection, min_rows: int) -> SqliteCompactionCursor | None:
    """A task that grew by at least `min_rows`, or by fewer and has ended."""
    found = connection.execute(_SELECT_GROWTH, (min_rows,)).fetchone()
    return SqliteCompactionCursor(*found) if found else None


def compact_artifacts(
    connection: sqlite3.Connection, cursor: SqliteCompactionCursor
) -> tuple[SqliteCompactionCursor | None, int]:
    """One step. Returns where the next begins (None when the task is done), and how many rows were saved."""
    rows_left, bytes_left, saved = COMPACTION_STEP_ROWS, COMPACTION_STEP_BYTES, 0
    where = (cursor.owner, cursor.task)
    for artifact, compacted in connection.execute(
        _SELECT_ARTIFACTS, (*where, cursor.artifact, COMPACTION_STEP_ROWS)
    ).fetchall():
        found = connection.execute(_SELECT_CHUNKS, (*where, artifact, compacted, rows_left)).fetchall()
        rows = rows_within_limit(found, bytes_left)
        groups = group_rows(rows)
        for group in groups:
            if group.rows > 1:
                _merge_chunks(connection, (*where, artifact), group)
                saved += group.rows - 1
        if groups and groups[-1].first > compacted:  # the last one may still grow: the next step starts with it
            connection.execute(_SET_COMPACTED, (groups[-1].first, *where, artifact))
        rows_left -= len(found) + 1
        bytes_left -= sum(group.bytes for group in groups if group.bytes < MAX_MERGED_ROW_BYTES)
        if len(rows) < len(found) or rows_left < 2:
            return replace(cursor, artifact=artifact), saved
    connection.execute(_SUBTRACT_GROWTH, (cursor.grown_rows, *where))
    connection.execute(_DELETE_GROWTH, where)
    return None, saved


def _merge_chunks(connection: sqlite3.Connection, artifact_key: tuple[int, bytes, str], group: RowGroup) -> None:
    span = (*artifact_key, group.first, group.last)
    data = b"".join([row[0] for row in connection.execute(f"SELECT data {_CHUNK_RANGE} ORDER BY sequence", span)])
    connection.execute(f"DELETE {_CHUNK_RANGE}", span)
    connection.execute(_INSERT_CHUNK, (*artifact_key, group.first, group.kind, data))


@dataclass(frozen=True, slots=True)
class SqliteFinishedLog:
    """The log of a finished task: when it ended, and its last event."""

    ended: int
    owner: int
    task: bytes
    last: int


def find_long_log(connection: sqlite3.Connection, until: int) -> SqliteFinishedLog | None:
    """A log to truncate: its task ended at `until` or before, and has no undelivered push."""
    found = connection.execute(_SELECT_LONG_LOG, (until,)).fetchone()
    return SqliteFinishedLog(*found) if found else None


def truncate_log(connection: sqlite3.Connection, finished_log: SqliteFinishedLog) -> int:
    """One step. Returns how many events were dropped; the first step that drops none is the last."""
    dropped, size, end = 0, 0, 0
    for first, count, length in connection.execute(
        _SELECT_OLD_EVENTS,
        (finished_log.owner, finished_log.task, finished_log.last - MIN_KEPT_EVENTS + 1, COMPACTION_STEP_ROWS),
    ):
        if end and size + length > COMPACTION_STEP_BYTES:
            break
        dropped, size, end = dropped + count, size + length, first
    if end:
        connection.execute(_DELETE_EVENTS, (finished_log.owner, finished_log.task, end))
    else:
        connection.execute(_DELETE_LONG_LOG, (finished_log.ended, finished_log.owner, finished_log.task))
    return dropped


class SqliteCompactor:
    """Runs the steps. read: runs a job on a reader. write: runs a job as low-priority work of the writer."""

    def __init__(self, read: RunRead, write: RunWrite, clock: Callable[[], int], sizes: StorageOptions) -> None:
        self._read = read
        self._write = write
        self._clock = clock
        self._sizes = sizes

    async def compact_artifacts(self) -> int:
        """Merges rows of artifacts. Returns how many rows were saved."""
        total, min_rows = 0, self._sizes.compact_after_rows
        while min_rows and (cursor := await self._read(partial(find_grown_task, min_rows=min_rows))):
            while cursor is not None:
                cursor, saved = await self._write(partial(compact_artifacts, cursor=cursor))
                total += saved
        return total

    async def truncate_logs(self) -> int:
        """Truncates the logs that are due. Returns how many events were dropped."""
        dropped, after = 0, self._sizes.truncate_log_after
        until = self._clock() - int(after * 1000)
        while after and (task := await self._read(partial(find_long_log, until=until))):
            dropped += await self._write(partial(truncate_log, finished_log=task))
        return dropped
