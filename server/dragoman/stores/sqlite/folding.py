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

from dragoman.core import states
from dragoman.core.joins import JOINED, Run, groups, within
from dragoman.core.plan import Plan
from dragoman.core.sizes import Sizes

Work = Callable[[sqlite3.Connection], Any]
Look = Callable[[Work], Awaitable[Any]]
Write = Callable[[Work], Awaitable[Any]]

LEAST: Final = 64
"""Fewer rows than this are not worth a look."""

COUNTED: Final = 4096
"""Tasks whose growth is counted at a time; one more, and the count of the first begins anew."""

KEPT: Final = 64
"""The last events of a finished task are kept, so that who was only just cut off misses nothing."""

ROWS: Final = 512
BYTES: Final = 1024 * 1024
"""The most that one step touches: about what one commit of appends may bring. Less than 4 rows, or two rows of
`JOINED` bytes, would be a step that gets nowhere."""

GREW: Final = """
INSERT INTO grown (owner, task, rows) VALUES (?, ?, ?)
ON CONFLICT (owner, task) DO UPDATE SET rows = rows + excluded.rows
"""
GROWN: Final = f"""
SELECT owner, task, rows FROM grown LEFT JOIN tasks USING (owner, task)
WHERE rows >= ? OR state IS NULL OR state IN ({", ".join(map(str, sorted(states.TERMINAL)))}) LIMIT 1
"""
LOOKED: Final = "UPDATE grown SET rows = rows - ? WHERE owner = ? AND task = ?"
SETTLED: Final = "DELETE FROM grown WHERE owner = ? AND task = ? AND rows <= 0"
ARTIFACTS: Final = """
SELECT artifact, folded FROM artifacts WHERE owner = ? AND task = ? AND artifact >= ? ORDER BY artifact LIMIT ?
"""
CHUNKS: Final = """
SELECT sequence, text, length(data) FROM chunks
WHERE owner = ? AND task = ? AND artifact = ? AND sequence >= ? ORDER BY sequence LIMIT ?
"""
BETWEEN: Final = "FROM chunks WHERE owner = ? AND task = ? AND artifact = ? AND sequence BETWEEN ? AND ?"
INSERT_CHUNK: Final = "INSERT INTO chunks (owner, task, artifact, sequence, text, data) VALUES (?, ?, ?, ?, ?, ?)"
FOLDED: Final = "UPDATE artifacts SET folded = ? WHERE owner = ? AND task = ? AND artifact = ?"

ENDED: Final = "INSERT OR IGNORE INTO long (ended, owner, task) VALUES (?, ?, ?)"
LONG: Final = """
SELECT ended, owner, task, coalesce(last, 0) FROM long LEFT JOIN tasks USING (owner, task)
WHERE ended <= ? AND NOT coalesce(pushed, 0) ORDER BY ended LIMIT 1
"""
OLD: Final = """
SELECT first, count, length(data) FROM log
WHERE owner = ?1 AND task = ?2
  AND first < (SELECT max(first) FROM log WHERE owner = ?1 AND task = ?2 AND first <= ?3)
ORDER BY first LIMIT ?4
"""
DROP: Final = "DELETE FROM log WHERE owner = ? AND task = ? AND first <= ?"
CUT: Final = "DELETE FROM long WHERE ended = ? AND owner = ? AND task = ?"


class Growth:
    """Counts, in memory, the rows by which artifacts grow, and writes down which tasks are worth a look.

    What is not written down when the process ends is less than `LEAST` rows for each task, and stays as it is.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bytes], int] = {}

    def note(self, connection: sqlite3.Connection, owner: int, made: Plan) -> None:
        """Takes what an append wrote, inside its transaction."""
        head, grew = made.head, 0
        for row in made.artifacts:
            grew += not row.fresh
        if grew:
            key = (owner, head.ref.key)
            grew += self._rows.get(key, 0)
            if grew >= LEAST:
                connection.execute(GREW, (*key, grew))
                grew = 0
            if len(self._rows) >= COUNTED and key not in self._rows:
                del self._rows[next(iter(self._rows))]
            self._rows[key] = grew
        if head.state in states.TERMINAL:
            self._rows.pop((owner, head.ref.key), None)
            if head.last > KEPT:
                connection.execute(ENDED, (head.updated, owner, head.ref.key))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pass over the artifacts of one task stands. `seen` is the growth that was written down before it."""

    owner: int
    task: bytes
    seen: int
    artifact: str = ""


def grown(connection: sqlite3.Connection, rows: int) -> Place | None:
    """A task that grew by at least `rows`, or by fewer and has ended."""
    found = connection.execute(GROWN, (rows,)).fetchone()
    return Place(*found) if found else None


def join(connection: sqlite3.Connection, place: Place) -> tuple[Place | None, int]:
    """One step: where the next begins (None when the task is done), and how many rows there are less."""
    rows_left, bytes_left, gone = ROWS, BYTES, 0
    where = (place.owner, place.task)
    for artifact, folded in connection.execute(ARTIFACTS, (*where, place.artifact, ROWS)).fetchall():
        found = connection.execute(CHUNKS, (*where, artifact, folded, rows_left)).fetchall()
        rows = within(found, bytes_left)
        joined = groups(rows)
        for run in joined:
            if run.rows > 1:
                _join(connection, (*where, artifact), run)
                gone += run.rows - 1
        if joined and joined[-1].first > folded:  # the last one may still grow: the next step begins with it
            connection.execute(FOLDED, (joined[-1].first, *where, artifact))
        rows_left -= len(found) + 1
        bytes_left -= sum(run.bytes for run in joined if run.bytes < JOINED)
        if len(rows) < len(found) or rows_left < 2:
            return replace(place, artifact=artifact), gone
    connection.execute(LOOKED, (place.seen, *where))
    connection.execute(SETTLED, where)
    return None, gone


def _join(connection: sqlite3.Connection, where: tuple[int, bytes, str], run: Run) -> None:
    span = (*where, run.first, run.last)
    data = b"".join([row[0] for row in connection.execute(f"SELECT data {BETWEEN} ORDER BY sequence", span)])
    connection.execute(f"DELETE {BETWEEN}", span)
    connection.execute(INSERT_CHUNK, (*where, run.first, run.kind, data))


@dataclass(frozen=True, slots=True)
class Log:
    """The log of a task that ended then, with its last event."""

    ended: int
    owner: int
    task: bytes
    last: int


def long(connection: sqlite3.Connection, until: int) -> Log | None:
    """A log to cut: of a task that ended at `until` or before, and of which no push is still to be delivered."""
    found = connection.execute(LONG, (until,)).fetchone()
    return Log(*found) if found else None


def cut(connection: sqlite3.Connection, task: Log) -> int:
    """One step: how many events were dropped. The first that drops none was the last."""
    dropped, size, end = 0, 0, 0
    for first, count, length in connection.execute(OLD, (task.owner, task.task, task.last - KEPT + 1, ROWS)):
        if end and size + length > BYTES:
            break
        dropped, size, end = dropped + count, size + length, first
    if end:
        connection.execute(DROP, (task.owner, task.task, end))
    else:
        connection.execute(CUT, (task.ended, task.owner, task.task))
    return dropped


class Folder:
    """Takes step after step. `look` reads, `write` is the writer's slot for what may wait."""

    def __init__(self, look: Look, write: Write, clock: Callable[[], int], sizes: Sizes) -> None:
        self._look = look
        self._write = write
        self._clock = clock
        self._sizes = sizes

    async def join(self) -> int:
        """Joins what there is to join. Gives how many rows there are less."""
        gone, rows = 0, self._sizes.fold_rows
        while rows and (place := await self._look(partial(grown, rows=rows))):
            while place is not None:
                place, less = await self._write(partial(join, place=place))
                gone += less
        return gone

    async def cut(self) -> int:
        """Cuts the logs that are due. Gives how many events were dropped."""
        gone, after = 0, self._sizes.cut_after
        until = self._clock() - int(after * 1000)
        while after and (task := await self._look(partial(long, until=until))):
            gone += await self._write(partial(cut, task=task))
        return gone
