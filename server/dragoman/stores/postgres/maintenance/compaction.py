"""Folding: making the store smaller without changing an answer.

Two things take room that no answer needs. An artifact that grew by many small chunks has a row for each: `join` puts
neighbours of one kind into one row, which changes nothing, because reading joins them anyway. A finished task keeps
every event for those who come back to its stream: some time after the end `cut` drops all but the last.

Both work in steps, each a transaction of its own that holds one task and touches at most so many rows and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from asyncpg import Connection

from dragoman.core.task import states
from dragoman.core.task.maintenance import MAX_MERGED_ROW_BYTES, RowGroup, StorageOptions, group_rows, rows_within_limit
from dragoman.core.task.plan import Plan
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.rows import insert_statement

MIN_GROWN_ROWS: Final = 64
"""Fewer rows than this are not worth a look."""

MAX_COUNTED_TASKS: Final = 4096
"""Tasks whose growth is counted at a time; one more, and the count of the first begins anew."""

MIN_KEPT_EVENTS: Final = 64
"""The last events of a finished task are kept, so that who was only just cut off misses nothing."""

COMPACTION_STEP_ROWS: Final = 512
COMPACTION_STEP_BYTES: Final = 1024 * 1024
"""The most that one step touches."""

ADD_GROWN: Final = insert_statement(
    "grown", "iyi", "owner, task, rows", "ON CONFLICT (owner, task) DO UPDATE SET rows = grown.rows + excluded.rows"
)
INSERT_LONG_LOGS: Final = insert_statement("long", "iiy", "ended, owner, task", "ON CONFLICT DO NOTHING")

_SELECT_GROWN: Final = f"""
SELECT g.owner, g.task, g.rows FROM grown g LEFT JOIN tasks t ON t.owner = g.owner AND t.task = g.task
WHERE g.rows >= $1 OR t.state IS NULL OR t.state IN ({", ".join(map(str, sorted(states.TERMINAL)))}) LIMIT 1
"""
_LOCK_TASK: Final = "SELECT 1 FROM tasks WHERE owner = $1 AND task = $2 FOR UPDATE"
_SUBTRACT_GROWN: Final = "UPDATE grown SET rows = rows - $3 WHERE owner = $1 AND task = $2"
_DELETE_GROWN: Final = "DELETE FROM grown WHERE owner = $1 AND task = $2 AND rows <= 0"
_SELECT_ARTIFACTS: Final = """
SELECT artifact, folded FROM artifacts WHERE owner = $1 AND task = $2 AND artifact >= $3 ORDER BY artifact LIMIT $4
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
_SET_FOLDED: Final = "UPDATE artifacts SET folded = $4 WHERE owner = $1 AND task = $2 AND artifact = $3"
_SELECT_LONG_LOG: Final = """
SELECT l.ended, l.owner, l.task, coalesce(t.last, 0) FROM long l
LEFT JOIN tasks t ON t.owner = l.owner AND t.task = l.task
WHERE l.ended <= $1 AND NOT coalesce(t.pushed, false) ORDER BY l.ended LIMIT 1
"""
_SELECT_OLD_EVENTS: Final = """
SELECT first, count, length(data) FROM log
WHERE owner = $1 AND task = $2
  AND first < (SELECT max(first) FROM log WHERE owner = $1 AND task = $2 AND first <= $3)
ORDER BY first LIMIT $4
"""
_DELETE_EVENTS: Final = "DELETE FROM log WHERE owner = $1 AND task = $2 AND first <= $3"
_DELETE_LONG_LOG: Final = "DELETE FROM long WHERE ended = $1 AND owner = $2 AND task = $3"


class PostgresArtifactGrowth:
    """Counts, in memory, the rows by which artifacts grow, and says which tasks are worth a look.

    What is not written down when the process ends is less than `LEAST` rows for each task, and stays as it is.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bytes], int] = {}

    def record(self, row_key: tuple[int, bytes], plan: Plan) -> tuple[int, bool]:
        """Rows to write down for this task, and whether it ended with a log to be cut."""
        head, rows = plan.record, 0
        grew = sum(not row.replaces for row in plan.artifacts)
        if grew:
            grew += self._rows.pop(row_key, 0)
            if grew >= MIN_GROWN_ROWS:
                rows, grew = grew, 0
            if len(self._rows) >= MAX_COUNTED_TASKS:
                del self._rows[next(iter(self._rows))]
            self._rows[row_key] = grew
        if head.state in states.TERMINAL:
            self._rows.pop(row_key, None)
            return rows, head.last_sequence > MIN_KEPT_EVENTS
        return rows, False


@dataclass(frozen=True, slots=True)
class PostgresCompactionCursor:
    """Where a pass over the artifacts of one task stands. `seen` is the growth that was written down before it."""

    owner: int
    task: bytes
    grown_rows: int
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class PostgresFinishedLog:
    """The log of a task that ended then, with its last event."""

    ended: int
    owner: int
    task: bytes
    last: int


async def find_grown_task(connection: Connection, min_rows: int) -> PostgresCompactionCursor | None:
    """A task that grew by at least `rows`, or by fewer and has ended."""
    found = await connection.fetchrow(_SELECT_GROWN, min_rows)
    return PostgresCompactionCursor(*found) if found else None


async def compact_artifacts(
    connection: Connection, cursor: PostgresCompactionCursor
) -> tuple[PostgresCompactionCursor | None, int]:
    """One step: where the next begins (None when the task is done), and how many rows there are less."""
    rows_left, bytes_left, gone = COMPACTION_STEP_ROWS, COMPACTION_STEP_BYTES, 0
    where = cursor.owner, cursor.task
    await connection.execute(_LOCK_TASK, *where)  # so that no append replaces what is joined here
    for artifact, folded in await connection.fetch(_SELECT_ARTIFACTS, *where, cursor.artifact, COMPACTION_STEP_ROWS):
        found: Sequence[tuple[int, int, int]] = await connection.fetch(
            _SELECT_CHUNKS, *where, artifact, folded, rows_left
        )
        rows = rows_within_limit(found, bytes_left)
        joined = group_rows(rows)
        for run in joined:
            if run.rows > 1:
                await _merge_chunks(connection, (*where, artifact), run)
                gone += run.rows - 1
        if joined and joined[-1].first > folded:  # the last one may still grow: the next step begins with it
            await connection.execute(_SET_FOLDED, *where, artifact, joined[-1].first)
        rows_left -= len(found) + 1
        bytes_left -= sum(run.bytes for run in joined if run.bytes < MAX_MERGED_ROW_BYTES)
        if len(rows) < len(found) or rows_left < 2:
            return replace(cursor, artifact=artifact), gone
    await connection.execute(_SUBTRACT_GROWN, *where, cursor.grown_rows)
    await connection.execute(_DELETE_GROWN, *where)
    return None, gone


async def _merge_chunks(connection: Connection, artifact_key: tuple[int, bytes, str], chunk_run: RowGroup) -> None:
    await connection.execute(_MERGE_CHUNKS, *artifact_key, chunk_run.first, chunk_run.last)
    await connection.execute(_DELETE_MERGED_CHUNKS, *artifact_key, chunk_run.first, chunk_run.last)


async def find_long_log(connection: Connection, until: int) -> PostgresFinishedLog | None:
    """A log to cut: of a task that ended at `until` or before, and of which no push is still to be delivered."""
    found = await connection.fetchrow(_SELECT_LONG_LOG, until)
    return PostgresFinishedLog(*found) if found else None


async def truncate_log(connection: Connection, finished_log: PostgresFinishedLog) -> int:
    """One step: how many events were dropped. The first that drops none was the last."""
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
    """Takes step after step."""

    def __init__(self, database: Database, sizes: StorageOptions) -> None:
        self._database = database
        self._sizes = sizes

    async def compact_artifacts(self) -> int:
        """Joins what there is to join. Gives how many rows there are less."""
        gone, rows = 0, self._sizes.fold_rows
        while rows and (at := await self._database.read(find_grown_task, rows)):
            while at is not None:
                at, less = await self._database.write(compact_artifacts, at)
                gone += less
        return gone

    async def truncate_logs(self) -> int:
        """Cuts the logs that are due. Gives how many events were dropped."""
        gone, after = 0, self._sizes.cut_after
        if not after:
            return 0
        until = await self._database.read(self._database.now) - int(after * 1000)
        while task := await self._database.read(find_long_log, until):
            gone += await self._database.write(truncate_log, task)
        return gone
