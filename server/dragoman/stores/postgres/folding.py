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

from dragoman.core import states
from dragoman.core.joins import JOINED, Run, groups, within
from dragoman.core.plan import Plan
from dragoman.core.sizes import Sizes
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.rows import insert

LEAST: Final = 64
"""Fewer rows than this are not worth a look."""

COUNTED: Final = 4096
"""Tasks whose growth is counted at a time; one more, and the count of the first begins anew."""

KEPT: Final = 64
"""The last events of a finished task are kept, so that who was only just cut off misses nothing."""

ROWS: Final = 512
BYTES: Final = 1024 * 1024
"""The most that one step touches."""

GREW: Final = insert(
    "grown", "iyi", "owner, task, rows", "ON CONFLICT (owner, task) DO UPDATE SET rows = grown.rows + excluded.rows"
)
ENDED: Final = insert("long", "iiy", "ended, owner, task", "ON CONFLICT DO NOTHING")

_GROWN: Final = f"""
SELECT g.owner, g.task, g.rows FROM grown g LEFT JOIN tasks t ON t.owner = g.owner AND t.task = g.task
WHERE g.rows >= $1 OR t.state IS NULL OR t.state IN ({", ".join(map(str, sorted(states.TERMINAL)))}) LIMIT 1
"""
_HOLD: Final = "SELECT 1 FROM tasks WHERE owner = $1 AND task = $2 FOR UPDATE"
_LOOKED: Final = "UPDATE grown SET rows = rows - $3 WHERE owner = $1 AND task = $2"
_SETTLED: Final = "DELETE FROM grown WHERE owner = $1 AND task = $2 AND rows <= 0"
_ARTIFACTS: Final = """
SELECT artifact, folded FROM artifacts WHERE owner = $1 AND task = $2 AND artifact >= $3 ORDER BY artifact LIMIT $4
"""
_CHUNKS: Final = """
SELECT sequence, text::int, length(data) FROM chunks
WHERE owner = $1 AND task = $2 AND artifact = $3 AND sequence >= $4 ORDER BY sequence LIMIT $5
"""
_BETWEEN: Final = "FROM chunks WHERE owner = $1 AND task = $2 AND artifact = $3 AND sequence BETWEEN $4 AND $5"
_JOIN: Final = f"""
UPDATE chunks SET data = (SELECT string_agg(data, ''::bytea ORDER BY sequence) {_BETWEEN})
WHERE owner = $1 AND task = $2 AND artifact = $3 AND sequence = $4
"""
_DROP_JOINED: Final = f"DELETE {_BETWEEN} AND sequence > $4"
_FOLDED: Final = "UPDATE artifacts SET folded = $4 WHERE owner = $1 AND task = $2 AND artifact = $3"
_LONG: Final = """
SELECT l.ended, l.owner, l.task, coalesce(t.last, 0) FROM long l
LEFT JOIN tasks t ON t.owner = l.owner AND t.task = l.task
WHERE l.ended <= $1 AND NOT coalesce(t.pushed, false) ORDER BY l.ended LIMIT 1
"""
_OLD: Final = """
SELECT first, count, length(data) FROM log
WHERE owner = $1 AND task = $2
  AND first < (SELECT max(first) FROM log WHERE owner = $1 AND task = $2 AND first <= $3)
ORDER BY first LIMIT $4
"""
_DROP: Final = "DELETE FROM log WHERE owner = $1 AND task = $2 AND first <= $3"
_CUT: Final = "DELETE FROM long WHERE ended = $1 AND owner = $2 AND task = $3"


class Growth:
    """Counts, in memory, the rows by which artifacts grow, and says which tasks are worth a look.

    What is not written down when the process ends is less than `LEAST` rows for each task, and stays as it is.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bytes], int] = {}

    def note(self, place: tuple[int, bytes], made: Plan) -> tuple[int, bool]:
        """Rows to write down for this task, and whether it ended with a log to be cut."""
        head, rows = made.head, 0
        grew = sum(not row.fresh for row in made.artifacts)
        if grew:
            grew += self._rows.pop(place, 0)
            if grew >= LEAST:
                rows, grew = grew, 0
            if len(self._rows) >= COUNTED:
                del self._rows[next(iter(self._rows))]
            self._rows[place] = grew
        if head.state in states.TERMINAL:
            self._rows.pop(place, None)
            return rows, head.last > KEPT
        return rows, False


@dataclass(frozen=True, slots=True)
class At:
    """Where a pass over the artifacts of one task stands. `seen` is the growth that was written down before it."""

    owner: int
    task: bytes
    seen: int
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    """The log of a task that ended then, with its last event."""

    ended: int
    owner: int
    task: bytes
    last: int


async def grown(connection: Connection, rows: int) -> At | None:
    """A task that grew by at least `rows`, or by fewer and has ended."""
    found = await connection.fetchrow(_GROWN, rows)
    return At(*found) if found else None


async def join(connection: Connection, at: At) -> tuple[At | None, int]:
    """One step: where the next begins (None when the task is done), and how many rows there are less."""
    rows_left, bytes_left, gone = ROWS, BYTES, 0
    where = at.owner, at.task
    await connection.execute(_HOLD, *where)  # so that no append replaces what is joined here
    for artifact, folded in await connection.fetch(_ARTIFACTS, *where, at.artifact, ROWS):
        found: Sequence[tuple[int, int, int]] = await connection.fetch(_CHUNKS, *where, artifact, folded, rows_left)
        rows = within(found, bytes_left)
        joined = groups(rows)
        for run in joined:
            if run.rows > 1:
                await _join(connection, (*where, artifact), run)
                gone += run.rows - 1
        if joined and joined[-1].first > folded:  # the last one may still grow: the next step begins with it
            await connection.execute(_FOLDED, *where, artifact, joined[-1].first)
        rows_left -= len(found) + 1
        bytes_left -= sum(run.bytes for run in joined if run.bytes < JOINED)
        if len(rows) < len(found) or rows_left < 2:
            return replace(at, artifact=artifact), gone
    await connection.execute(_LOOKED, *where, at.seen)
    await connection.execute(_SETTLED, *where)
    return None, gone


async def _join(connection: Connection, where: tuple[int, bytes, str], run: Run) -> None:
    await connection.execute(_JOIN, *where, run.first, run.last)
    await connection.execute(_DROP_JOINED, *where, run.first, run.last)


async def long(connection: Connection, until: int) -> Log | None:
    """A log to cut: of a task that ended at `until` or before, and of which no push is still to be delivered."""
    found = await connection.fetchrow(_LONG, until)
    return Log(*found) if found else None


async def cut(connection: Connection, task: Log) -> int:
    """One step: how many events were dropped. The first that drops none was the last."""
    dropped, size, end = 0, 0, 0
    for first, count, length in await connection.fetch(_OLD, task.owner, task.task, task.last - KEPT + 1, ROWS):
        if end and size + length > BYTES:
            break
        dropped, size, end = dropped + count, size + length, first
    if end:
        await connection.execute(_DROP, task.owner, task.task, end)
    else:
        await connection.execute(_CUT, task.ended, task.owner, task.task)
    return dropped


class Folder:
    """Takes step after step."""

    def __init__(self, database: Database, sizes: Sizes) -> None:
        self._database = database
        self._sizes = sizes

    async def join(self) -> int:
        """Joins what there is to join. Gives how many rows there are less."""
        gone, rows = 0, self._sizes.fold_rows
        while rows and (at := await self._database.look(grown, rows)):
            while at is not None:
                at, less = await self._database.change(join, at)
                gone += less
        return gone

    async def cut(self) -> int:
        """Cuts the logs that are due. Gives how many events were dropped."""
        gone, after = 0, self._sizes.cut_after
        if not after:
            return 0
        until = await self._database.look(self._database.now) - int(after * 1000)
        while task := await self._database.look(long, until):
            gone += await self._database.change(cut, task)
        return gone
