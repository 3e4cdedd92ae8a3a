"""Compaction: makes the store smaller without changing any response.

An artifact that grew by many small chunks has a row for each: `compact_artifacts` merges neighbors of one kind, which
reading joins anyway. A finished task keeps all its events for clients that resume its stream: some time after the end
`truncate_log` drops all but the last. Both work in steps, each a transaction that locks one task and touches a limited
number of rows and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from asyncpg import Connection

from dragoman.core.task import states
from dragoman.core.task.maintenance import MAX_MERGED_ROW_BYTES, RowGroup, StorageOptions, group_rows, rows_within_limit
from dragoman.core.task.plan import Plan
from dragoman.extensions.postgres.database import Database
from dragoman.extensions.postgres.rows import insert_statement

MIN_GROWN_ROWS: Final = 64
"""Growth in rows from which a task is recorded for compaction."""

MAX_COUNTED_TASKS: Final = 4096
"""Tasks whose growth is counted in memory; beyond it the oldest count restarts."""

MIN_KEPT_EVENTS: Final = 64
"""Last events of a finished task that are kept, for clients whose connection just broke."""

COMPACTION_STEP_ROWS: Final = 512
COMPACTION_STEP_BYTES: Final = 1024 * 1024
"""Limits of one step."""

ADD_GROWTH: Final = insert_statement(
    "artifact_growth",
    "iyi",
    "owner, task, rows",
    "ON CONFLICT (owner, task) DO UPDATE SET rows = artifact_growth.rows + excluded.rows",
)
INSERT_LONG_LOGS: Final = insert_statement("long_logs", "iiy", "ended, owner, task", "ON CONFLICT DO NOTHING")

_SELECT_GROWTH: Final = f"""
SELECT g.owner, g.task, g.rows FROM artifact_growth g LEFT JOIN tasks t ON t.owner = g.owner AND t.task = g.task
WHERE g.rows >= $1 OR t.state IS NULL OR t.state IN ({", ".join(map(str, sorted(states.TERMINAL)))}) LIMIT 1
"""
_LOCK_TASK: Final = "SELECT 1 FROM tasks WHERE owner = $1 AND task = $2 FOR UPDATE"
_SUBTRACT_GROWTH: Final = "UPDATE artifact_growth SET rows = rows - $3 WHERE owner = $1 AND task = $2"
_DELETE_GROWTH: Final = "DELETE FROM artifact_growth WHERE owner = $1 AND task = $2 AND rows <= 0"
_SELECT_ARTIFACTS: Final = """
SELECT artifact, compacted FROM artifacts WHERE owner = $1 AND task = $2 AND artifact >= $3 ORDER BY artifact LIMIT $4
"""
_SELECT_CHUNKS: Final = """
SELECT sequence, text::int, length(data) FROM chunks
WHERE owner = $1 AND task = $2 AND artifact = $3 AND sequence >= $4 ORDER BY sequence LIMIT $5
"""
_CHUNK_RANGE: Final = "FROM chunks WHERE owner = $1 AND task = $2 AND artifact = $3 AND sequence BETWEEN $4 AND $5"
_MERGE_CHUNKS: Final = f"""
UPDATE chunks SET data = (SELECT string_agg(data, ''::bytea ORDER BY sequence) {_CHUNK_RANGE})
WHERE owner = $1 AND task = $2 AND artifact = $3 AND sequence = $4
"""
_DELETE_MERGED_CHUNKS: Final = f"DELETE {_CHUNK_RANGE} AND sequence > $4"
_SET_COMPACTED: Final = "UPDATE artifacts SET compacted = $4 WHERE owner = $1 AND task = $2 AND artifact = $3"
_SELECT_LONG_LOG: Final = """
SELECT l.ended, l.owner, l.task, coalesce(t.last_sequence, 0) FROM long_logs l
LEFT JOIN tasks t ON t.owner = l.owner AND t.task = l.task
WHERE l.ended <= $1 AND NOT coalesce(t.has_live_push, false) ORDER BY l.ended LIMIT 1
"""
_SELECT_OLD_EVENTS: Final = """
SELECT first, count, length(data) FROM log
WHERE owner = $1 AND task = $2
  AND first < (SELECT max(first) FROM log WHERE owner = $1 AND task = $2 AND first <= $3)
ORDER BY first LIMIT $4
"""
_DELETE_EVENTS: Final = "DELETE FROM log WHERE owner = $1 AND task = $2 AND first <= $3"
_DELETE_LONG_LOG: Final = "DELETE FROM long_logs WHERE ended = $1 AND owner = $2 AND task = $3"


class PostgresArtifactGrowth:
    """Counts in memory by how many rows artifacts grow, and returns what is worth recording.

    Counts that are lost with the process are below MIN_GROWN_ROWS for each task; those rows stay as they are.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bytes], int] = {}

    def record(self, row_key: tuple[int, bytes], plan: Plan) -> tuple[int, bool]:
        """The growth to record for this task, and whether it ended with a log to truncate."""
        record, rows = plan.record, 0
        grew = sum(not row.replaces for row in plan.artifacts)
        if grew:
            grew += self._rows.pop(row_key, 0)
            if grew >= MIN_GROWN_ROWS:
                rows, grew = grew, 0
            if len(self._rows) >= MAX_COUNTED_TASKS:
                del self._rows[next(iter(self._rows))]
            self._rows[row_key] = grew
        if record.state in states.TERMINAL:
            self._rows.pop(row_key, None)
            return rows, record.last_sequence > MIN_KEPT_EVENTS
        return rows, False


@dataclass(frozen=True, slots=True)
class PostgresCompactionCursor:
    """Position of a pass over the artifacts of one task. grown_rows: the growth that was recorded before the pass."""

    owner: int
    task: bytes
    grown_rows: int
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class PostgresFinishedLog:
    """The log of a finished task: when it ended, and its last event."""

    ended: int
    owner: int
    task: bytes
    last: int


async def find_grown_task(connection: Connection, min_rows: int) -> PostgresCompactionCursor | None:
    """A task that grew by at least `min_rows`, or by fewer and has ended."""
    found = await connection.fetchrow(_SELECT_GROWTH, min_rows)
    return PostgresCompactionCursor(*found) if found else None


async def compact_artifacts(
    connection: Connection, cursor: PostgresCompactionCursor
) -> tuple[PostgresCompactionCursor | None, int]:
    """One step. Returns where the next begins (None when the task is done), and how many rows were saved."""
    rows_left, bytes_left, saved = COMPACTION_STEP_ROWS, COMPACTION_STEP_BYTES, 0
    where = cursor.owner, cursor.task
    await connection.execute(_LOCK_TASK, *where)  # so that no append replaces what is merged here
    for artifact, compacted in await connection.fetch(_SELECT_ARTIFACTS, *where, cursor.artifact, COMPACTION_STEP_ROWS):
        found: Sequence[tuple[int, int, int]] = await connection.fetch(
            _SELECT_CHUNKS, *where, artifact, compacted, rows_left
        )
        rows = rows_within_limit(found, bytes_left)
        groups = group_rows(rows)
        for group in groups:
            if group.rows > 1:
                await _merge_chunks(connection, (*where, artifact), group)
                saved += group.rows - 1
        if groups and groups[-1].first > compacted:  # the last one may still grow: the next step starts with it
            await connection.execute(_SET_COMPACTED, *where, artifact, groups[-1].first)
        rows_left -= len(found) + 1
        bytes_left -= sum(group.bytes for group in groups if group.bytes < MAX_MERGED_ROW_BYTES)
        if len(rows) < len(found) or rows_left < 2:
            return replace(cursor, artifact=artifact), saved
    await connection.execute(_SUBTRACT_GROWTH, *where, cursor.grown_rows)
    await connection.execute(_DELETE_GROWTH, *where)
    return None, saved


async def _merge_chunks(connection: Connection, artifact_key: tuple[int, bytes, str], group: RowGroup) -> None:
    await connection.execute(_MERGE_CHUNKS, *artifact_key, group.first, group.last)
    await connection.execute(_DELETE_MERGED_CHUNKS, *artifact_key, group.first, group.last)


async def find_long_log(connection: Connection, until: int) -> PostgresFinishedLog | None:
    """A log to truncate: its task ended at `until` or before, and has no undelivered push."""
    found = await connection.fetchrow(_SELECT_LONG_LOG, until)
    return PostgresFinishedLog(*found) if found else None


async def truncate_log(connection: Connection, finished_log: PostgresFinishedLog) -> int:
    """One step. Returns how many events were dropped; the first step that drops none is the last."""
    dropped, size, end = 0, 0, 0
    for first, count, length in await connection.fetch(
        _SELECT_OLD_EVENTS,
        finished_log.owner,
        finished_log.task,
        finished_log.last - MIN_KEPT_EVENTS + 1,
        COMPACTION_STEP_ROWS,
    ):
        if end and size + length > COMPACTION_STEP_BYTES:
            break
        dropped, size, end = dropped + count, size + length, first
    if end:
        await connection.execute(_DELETE_EVENTS, finished_log.owner, finished_log.task, end)
    else:
        await connection.execute(_DELETE_LONG_LOG, finished_log.ended, finished_log.owner, finished_log.task)
    return dropped


class PostgresCompactor:
    """Runs the steps."""

    def __init__(self, database: Database, sizes: StorageOptions) -> None:
        self._database = database
        self._sizes = sizes

    async def compact_artifacts(self) -> int:
        """Merges rows of artifacts. Returns how many rows were saved."""
        total, min_rows = 0, self._sizes.compact_after_rows
        while min_rows and (cursor := await self._database.read(find_grown_task, min_rows)):
            while cursor is not None:
                cursor, saved = await self._database.write(compact_artifacts, cursor)
                total += saved
        return total

    async def truncate_logs(self) -> int:
        """Truncates the logs that are due. Returns how many events were dropped."""
        dropped, after = 0, self._sizes.truncate_log_after
        if not after:
            return 0
        until = await self._database.read(self._database.now) - int(after * 1000)
        while task := await self._database.read(find_long_log, until):
            dropped += await self._database.write(truncate_log, task)
        return dropped
