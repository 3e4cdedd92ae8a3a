"""Folding: making the store smaller without changing an answer.

Two things take room that no answer needs. An artifact that grew by many small chunks has a row for each: `join`
puts neighbours of one kind into one row, which changes nothing, because reading joins them anyway. A finished
task keeps every event for those who come back to its stream: some time after the end `cut` drops all but the
last, and who comes back with an older cursor is told of the gap.

Both work in steps, each a transaction of its own that touches at most so many rows and bytes. The writer takes a
step only when no append waits. A row is rewritten a few times at most, however large its artifact becomes: once it
holds `JOINED` bytes it is left alone, and `artifacts.folded` says where the next step begins.
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
"""Fewer rows than this are not worth a look."""

MAX_COUNTED_TASKS: Final = 4096
"""Tasks whose growth is counted at a time; one more, and the count of the first begins anew."""

MIN_KEPT_EVENTS: Final = 64
"""The last events of a finished task are kept, so that who was only just cut off misses nothing."""

COMPACTION_STEP_ROWS: Final = 512
COMPACTION_STEP_BYTES: Final = 1024 * 1024
"""The most that one step touches: about what one commit of appends may bring. Less than 4 rows, or two rows of
`JOINED` bytes, would be a step that gets nowhere."""

_ADD_GROWN: Final = """
INSERT INTO grown (owner, task, rows) VALUES (?, ?, ?)
ON CONFLICT (owner, task) DO UPDATE SET rows = rows + excluded.rows
"""
_SELECT_GROWN: Final = f"""
SELECT owner, task, rows FROM grown LEFT JOIN tasks USING (owner, task)
WHERE rows >= ? OR state IS NULL OR state IN ({", ".join(map(str, sorted(states.TERMINAL)))}) LIMIT 1
"""
_SUBTRACT_GROWN: Final = "UPDATE grown SET rows = rows - ? WHERE owner = ? AND task = ?"
_DELETE_GROWN: Final = "DELETE FROM grown WHERE owner = ? AND task = ? AND rows <= 0"
_SELECT_ARTIFACTS: Final = """
SELECT artifact, folded FROM artifacts WHERE owner = ? AND task = ? AND artifact >= ? ORDER BY artifact LIMIT ?
"""
_SELECT_CHUNKS: Final = """
SELECT sequence, text, length(data) FROM chunks
WHERE owner = ? AND task = ? AND artifact = ? AND sequence >= ? ORDER BY sequence LIMIT ?
"""
_CHUNK_RANGE: Final = "FROM chunks WHERE owner = ? AND task = ? AND artifact = ? AND sequence BETWEEN ? AND ?"
_INSERT_CHUNK: Final = "INSERT INTO chunks (owner, task, artifact, sequence, text, data) VALUES (?, ?, ?, ?, ?, ?)"
_SET_FOLDED: Final = "UPDATE artifacts SET folded = ? WHERE owner = ? AND task = ? AND artifact = ?"

_INSERT_LONG_LOG: Final = "INSERT OR IGNORE INTO long (ended, owner, task) VALUES (?, ?, ?)"
_SELECT_LONG_LOG: Final = """
SELECT ended, owner, task, coalesce(last, 0) FROM long LEFT JOIN tasks USING (owner, task)
WHERE ended <= ? AND NOT coalesce(pushed, 0) ORDER BY ended LIMIT 1
"""
_SELECT_OLD_EVENTS: Final = """
SELECT first, count, length(data) FROM log
WHERE owner = ?1 AND task = ?2
  AND first < (SELECT max(first) FROM log WHERE owner = ?1 AND task = ?2 AND first <= ?3)
ORDER BY first LIMIT ?4
"""
_DELETE_EVENTS: Final = "DELETE FROM log WHERE owner = ? AND task = ? AND first <= ?"
_DELETE_LONG_LOG: Final = "DELETE FROM long WHERE ended = ? AND owner = ? AND task = ?"


class SqliteArtifactGrowth:
    """Counts, in memory, the rows by which artifacts grow, and writes down which tasks are worth a look.

    What is not written down when the process ends is less than `LEAST` rows for each task, and stays as it is.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bytes], int] = {}

    def record(self, connection: sqlite3.Connection, owner: int, plan: Plan) -> None:
        """Takes what an append wrote, inside its transaction."""
        head, grew = plan.record, 0
        for row in plan.artifacts:
            grew += not row.replaces
        if grew:
            key = (owner, head.ref.key)
            grew += self._rows.get(key, 0)
            if grew >= MIN_GROWN_ROWS:
                connection.execute(_ADD_GROWN, (*key, grew))
                grew = 0
            if len(self._rows) >= MAX_COUNTED_TASKS and key not in self._rows:
                del self._rows[next(iter(self._rows))]
            self._rows[key] = grew
        if head.state in states.TERMINAL:
            self._rows.pop((owner, head.ref.key), None)
            if head.last_sequence > MIN_KEPT_EVENTS:
                connection.execute(_INSERT_LONG_LOG, (head.updated, owner, head.ref.key))


@dataclass(frozen=True, slots=True)
class SqliteCompactionCursor:
    """Where a pass over the artifacts of one task stands. `seen` is the growth that was written down before it."""

    owner: int
    task: bytes
    grown_rows: int
    artifact: str = ""


def find_grown_task(connection: sqlite3.Connection, min_rows: int) -> SqliteCompactionCursor | None:
    """A task that grew by at least `rows`, or by fewer and has ended."""
    found = connection.execute(_SELECT_GROWN, (min_rows,)).fetchone()
    return SqliteCompactionCursor(*found) if found else None


def compact_artifacts(
    connection: sqlite3.Connection, cursor: SqliteCompactionCursor
) -> tuple[SqliteCompactionCursor | None, int]:
    """One step: where the next begins (None when the task is done), and how many rows there are less."""
    rows_left, bytes_left, gone = COMPACTION_STEP_ROWS, COMPACTION_STEP_BYTES, 0
    where = (cursor.owner, cursor.task)
    for artifact, folded in connection.execute(
        _SELECT_ARTIFACTS, (*where, cursor.artifact, COMPACTION_STEP_ROWS)
    ).fetchall():
        found = connection.execute(_SELECT_CHUNKS, (*where, artifact, folded, rows_left)).fetchall()
        rows = rows_within_limit(found, bytes_left)
        joined = group_rows(rows)
        for run in joined:
            if run.rows > 1:
                _merge_chunks(connection, (*where, artifact), run)
                gone += run.rows - 1
        if joined and joined[-1].first > folded:  # the last one may still grow: the next step begins with it
            connection.execute(_SET_FOLDED, (joined[-1].first, *where, artifact))
        rows_left -= len(found) + 1
        bytes_left -= sum(run.bytes for run in joined if run.bytes < MAX_MERGED_ROW_BYTES)
        if len(rows) < len(found) or rows_left < 2:
            return replace(cursor, artifact=artifact), gone
    connection.execute(_SUBTRACT_GROWN, (cursor.grown_rows, *where))
    connection.execute(_DELETE_GROWN, where)
    return None, gone


def _merge_chunks(connection: sqlite3.Connection, artifact_key: tuple[int, bytes, str], chunk_run: RowGroup) -> None:
    span = (*artifact_key, chunk_run.first, chunk_run.last)
    data = b"".join([row[0] for row in connection.execute(f"SELECT data {_CHUNK_RANGE} ORDER BY sequence", span)])
    connection.execute(f"DELETE {_CHUNK_RANGE}", span)
    connection.execute(_INSERT_CHUNK, (*artifact_key, chunk_run.first, chunk_run.kind, data))


@dataclass(frozen=True, slots=True)
class SqliteFinishedLog:
    """The log of a task that ended then, with its last event."""

    ended: int
    owner: int
    task: bytes
    last: int


def find_long_log(connection: sqlite3.Connection, until: int) -> SqliteFinishedLog | None:
    """A log to cut: of a task that ended at `until` or before, and of which no push is still to be delivered."""
    found = connection.execute(_SELECT_LONG_LOG, (until,)).fetchone()
    return SqliteFinishedLog(*found) if found else None


def truncate_log(connection: sqlite3.Connection, finished_log: SqliteFinishedLog) -> int:
    """One step: how many events were dropped. The first that drops none was the last."""
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
    """Takes step after step. `look` reads, `write` is the writer's slot for what may wait."""

    def __init__(self, read: RunRead, write: RunWrite, clock: Callable[[], int], sizes: StorageOptions) -> None:
        self._read = read
        self._write = write
        self._clock = clock
        self._sizes = sizes

    async def compact_artifacts(self) -> int:
        """Joins what there is to join. Gives how many rows there are less."""
        gone, rows = 0, self._sizes.fold_rows
        while rows and (place := await self._read(partial(find_grown_task, min_rows=rows))):
            while place is not None:
                place, less = await self._write(partial(compact_artifacts, cursor=place))
                gone += less
        return gone

    async def truncate_logs(self) -> int:
        """Cuts the logs that are due. Gives how many events were dropped."""
        gone, after = 0, self._sizes.cut_after
        until = self._clock() - int(after * 1000)
        while after and (task := await self._read(partial(find_long_log, until=until))):
            gone += await self._write(partial(truncate_log, finished_log=task))
        return gone
