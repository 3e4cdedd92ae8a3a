"""Compaction: makes the store smaller without changing any response.

An artifact that grew by many small chunks has a row for each: `compact_artifacts` merges neighbors of one kind, which
reading joins anyway. A finished task keeps all its events for clients that resume its stream: some time after the end
`truncate_log` drops all but the last, and clients with an older cursor are told of the gap. Both work in steps, each a
low-priority transaction with a limited number of rows and bytes. A row is rewritten a few times at most: at
MAX_MERGED_ROW_BYTES it stays, and the next step starts at `artifacts.compacted`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dragoman.core.task import states
from dragoman.core.task.maintenance import MAX_MERGED_ROW_BYTES, RowGroup, StorageOptions, group_rows, rows_within_limit
from dragoman.core.task.plan import Plan
from dragoman.stores.shared.queries import Query, QueryRunner, change, select, select_first

MIN_GROWN_ROWS: Final = 64  # growth from which a task is recorded for compaction
MAX_COUNTED_TASKS: Final = 4096  # whose growth is counted in memory; beyond it the oldest count restarts
MIN_KEPT_EVENTS: Final = 64  # of a finished task, for clients whose connection just broke

COMPACTION_STEP_ROWS: Final = 512
COMPACTION_STEP_BYTES: Final = 1024 * 1024
"""Limits of one step: about what one commit of appends writes. With fewer than 4 rows, or less than two rows of
MAX_MERGED_ROW_BYTES, a step would make no progress."""

ArtifactKey = tuple[int, bytes, str]

_SELECT_GROWTH: Final = f"""
SELECT g.owner, g.task, g.rows FROM artifact_growth g LEFT JOIN tasks t ON t.owner = g.owner AND t.task = g.task
WHERE g.rows >= ?1 OR t.state IS NULL OR t.state IN ({", ".join(map(str, sorted(states.TERMINAL)))}) LIMIT 1
"""
_SUBTRACT_GROWTH: Final = "UPDATE artifact_growth SET rows = rows - ?3 WHERE owner = ?1 AND task = ?2"
_SELECT_ARTIFACTS: Final = """
SELECT artifact, compacted FROM artifacts WHERE owner = ?1 AND task = ?2 AND artifact >= ?3 ORDER BY artifact LIMIT ?4
"""
_SELECT_CHUNKS: Final = """
SELECT sequence, CAST(text AS int), length(data) FROM chunks
WHERE owner = ?1 AND task = ?2 AND artifact = ?3 AND sequence >= ?4 ORDER BY sequence LIMIT ?5
"""
CHUNK_RANGE: Final = "FROM chunks WHERE owner = ?1 AND task = ?2 AND artifact = ?3 AND sequence BETWEEN ?4 AND ?5"
_INSERT_CHUNK: Final = (
    "INSERT INTO chunks (owner, task, artifact, sequence, text, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
)
_SET_COMPACTED: Final = "UPDATE artifacts SET compacted = ?4 WHERE owner = ?1 AND task = ?2 AND artifact = ?3"
_SELECT_LONG_LOG: Final = """
SELECT l.ended, l.owner, l.task, coalesce(t.last_sequence, 0) FROM long_logs l
LEFT JOIN tasks t ON t.owner = l.owner AND t.task = l.task
WHERE l.ended <= ?1 AND (t.has_live_push IS NULL OR NOT t.has_live_push) ORDER BY l.ended LIMIT 1
"""
_SELECT_OLD_EVENTS: Final = """
SELECT first, count, length(data) FROM log
WHERE owner = ?1 AND task = ?2
  AND first < (SELECT max(first) FROM log WHERE owner = ?1 AND task = ?2 AND first <= ?3)
ORDER BY first LIMIT ?4
"""


class ArtifactGrowth:
    """Counts in memory by how many rows artifacts grow, and returns what is worth recording.

    Counts that are lost with the process are below MIN_GROWN_ROWS for each task; those rows stay as they are.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bytes], int] = {}

    def record(self, row_key: tuple[int, bytes], plan: Plan) -> tuple[int, bool]:
        """The growth to record for this task, and whether it ended with a log to truncate."""
        record, grew, rows = plan.record, 0, 0
        if plan.change.discard:
            return 0, False
        for row in plan.artifacts:
            grew += not row.replaces
        if grew:
            grew += self._rows.get(row_key, 0)
            if grew >= MIN_GROWN_ROWS:
                rows, grew = grew, 0
            if len(self._rows) >= MAX_COUNTED_TASKS and row_key not in self._rows:
                del self._rows[next(iter(self._rows))]
            self._rows[row_key] = grew
        if record.state in states.TERMINAL:
            self._rows.pop(row_key, None)
            return rows, record.last_sequence > MIN_KEPT_EVENTS
        return rows, False


@dataclass(frozen=True, slots=True)
class CompactionCursor:
    """Position of a pass over the artifacts of one task. grown_rows: the growth that was recorded before the pass."""

    owner: int
    task: bytes
    grown_rows: int
    artifact: str = ""


FinishedLog = tuple[int, int, bytes, int]
"""The log of a finished task: when it ended, the owner's number, the task's key, and the sequence of its last event."""


def find_grown_task(min_rows: int) -> Query[CompactionCursor | None]:
    """A task that grew by at least `min_rows`, or by fewer and has ended."""
    found = yield from select_first(_SELECT_GROWTH, min_rows)
    return CompactionCursor(*found) if found else None


def find_long_log(until: int) -> Query[FinishedLog | None]:
    """A log to truncate: its task ended at `until` or before, and has no undelivered push."""
    found = yield from select_first(_SELECT_LONG_LOG, until)
    return (found[0], found[1], found[2], found[3]) if found else None


def truncate_log(finished_log: FinishedLog) -> Query[int]:
    """One step. Returns how many events were dropped; the first step that drops none is the last."""
    dropped, size, end = 0, 0, 0
    ended, *where, last = finished_log
    last -= MIN_KEPT_EVENTS - 1
    for first, count, length in (yield from select(_SELECT_OLD_EVENTS, *where, last, COMPACTION_STEP_ROWS)):
        if end and size + length > COMPACTION_STEP_BYTES:
            break
        dropped, size, end = dropped + count, size + length, first
    if end:
        yield from change("DELETE FROM log WHERE owner = ?1 AND task = ?2 AND first <= ?3", *where, end)
    else:
        yield from change("DELETE FROM long_logs WHERE ended = ?1 AND owner = ?2 AND task = ?3", ended, *where)
    return dropped


def merge_chunks(artifact_key: ArtifactKey, group: RowGroup) -> Query[None]:
    """Makes one row of a group, in a store without a function that joins BLOBs."""
    span = *artifact_key, group.first, group.last
    rows = yield from select(f"SELECT data {CHUNK_RANGE} ORDER BY sequence", *span)
    yield from change(f"DELETE {CHUNK_RANGE}", *span)
    yield from change(_INSERT_CHUNK, *artifact_key, group.first, group.kind, b"".join([row[0] for row in rows]))


class Compactor:
    """Runs the steps on a store."""

    def __init__(
        self,
        runner: QueryRunner,
        sizes: StorageOptions,
        merge_chunks: Callable[[ArtifactKey, RowGroup], Query[None]],
        lock_task: str = "",
    ) -> None:
        """merge_chunks: makes one row of a group. lock_task: a statement, so that no append replaces what is merged."""
        self._runner = runner
        self._sizes = sizes
        self._merge_chunks = merge_chunks
        self._lock_task = lock_task

    async def compact_artifacts(self) -> int:
        """Merges rows of artifacts. Returns how many rows were saved."""
        total, min_rows = 0, self._sizes.compact_after_rows
        while min_rows and (cursor := await self._runner.read(find_grown_task, min_rows)):
            while cursor is not None:
                cursor, saved = await self._runner.write_low_priority(self.compact_step, cursor)
                total += saved
        return total

    async def truncate_logs(self) -> int:
        """Truncates the logs that are due. Returns how many events were dropped."""
        dropped, after = 0, self._sizes.truncate_log_after
        if not after:
            return 0
        until = await self._runner.now() - int(after * 1000)
        while log := await self._runner.read(find_long_log, until):
            dropped += await self._runner.write_low_priority(truncate_log, log)
        return dropped

    def compact_step(self, cursor: CompactionCursor) -> Query[tuple[CompactionCursor | None, int]]:
        """One step. Returns where the next begins (None when the task is done), and how many rows were saved."""
        rows_left, bytes_left, saved = COMPACTION_STEP_ROWS, COMPACTION_STEP_BYTES, 0
        where = cursor.owner, cursor.task
        if self._lock_task:
            yield from select(self._lock_task, *where)
        artifacts = yield from select(_SELECT_ARTIFACTS, *where, cursor.artifact, COMPACTION_STEP_ROWS)
        for artifact, compacted in artifacts:
            found = yield from select(_SELECT_CHUNKS, *where, artifact, compacted, rows_left)
            rows = rows_within_limit([(row[0], row[1], row[2]) for row in found], bytes_left)
            groups = group_rows(rows)
            for group in groups:
                if group.rows > 1:
                    yield from self._merge_chunks((*where, artifact), group)
                    saved += group.rows - 1
            if groups and groups[-1].first > compacted:  # the last one may still grow: the next step starts with it
                yield from change(_SET_COMPACTED, *where, artifact, groups[-1].first)
            rows_left -= len(found) + 1
            bytes_left -= sum(group.bytes for group in groups if group.bytes < MAX_MERGED_ROW_BYTES)
            if len(rows) < len(found) or rows_left < 2:
                return replace(cursor, artifact=artifact), saved
        yield from change(_SUBTRACT_GROWTH, *where, cursor.grown_rows)
        yield from change("DELETE FROM artifact_growth WHERE owner = ?1 AND task = ?2 AND rows <= 0", *where)
        return None, saved
