"""Reads on the event loop itself: what is a few point look-ups, and what was read before and is still the same.

A look at one task takes some 20 µs, and its way to a reader's thread and back three times as long, more beside gRPC's
own threads, because each of them wants the interpreter. What may take longer goes to the readers as ever: tasks of many
rows or bytes, large parts, a disk that has just been slow, a file that somebody holds.

A task is kept with the row that it was read under, and given again while that row is the same: nothing of what GetTask
shows changes without it. So every read asks the database, and what was erased or is not the caller's is not there. What
is kept is bounded, and is let go when anything is erased.
"""

from __future__ import annotations

import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar

from dragoman.core.names import Owner, task_key_of
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.projection import cached_response
from dragoman.ports import TaskSnapshot
from dragoman.stores.shared.rows import RECORD_COLUMNS
from dragoman.stores.sqlite import reads
from dragoman.stores.sqlite.rows import record_from_row

T = TypeVar("T")

MAX_LOOP_ROWS: Final = 128
"""Messages, and chunks of artifacts, that are read here: well under half a millisecond."""

MAX_LOOP_BYTES: Final = 64 * 1024
"""Bytes of either that are read here, and of a task that is kept."""

MAX_CACHE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of tasks that are kept. With their forms, JSON for example, it may be some times that."""

SLOW_READ_SECONDS: Final = 0.02
"""Seconds after which a look was a slow one: the disk, and not its cache, has answered. Threads that do not let go of
the interpreter take less."""

READS_SKIPPED_WHEN_SLOW: Final = 32
"""Looks after a slow one that go to the readers."""

_RECORD_NAMES: Final = [name.strip() for name in RECORD_COLUMNS.split(",")]
_AGENT, _ID, _VISIBLE = (1 + _RECORD_NAMES.index(name) for name in ("agent", "id", "visible"))
SELECT_TASK_ONCE: Final = f"""
SELECT t.owner, {", ".join(f"t.{name}" for name in _RECORD_NAMES)}, t.metadata
FROM owners o CROSS JOIN tasks t ON t.owner = o.owner
WHERE o.scope = ? AND o.principal = ? AND t.task = ?
UNION ALL SELECT {", ".join(["NULL"] * (len(_RECORD_NAMES) + 2))}
"""
"""The row of a task, and one more that means nothing: as long as that is not fetched, this is one snapshot with what
else is read, without BEGIN and ROLLBACK. Each of them would let go of the interpreter, which gRPC's threads take."""


class NotOnLoop(Exception):
    """This is for the readers."""


class LoopReader:
    """Reads on one connection, from one thread."""

    def __init__(
        self, connection: sqlite3.Connection, marker: bytes, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._connection = connection
        connection.execute("PRAGMA busy_timeout = 0")
        self._open_cursor = connection.cursor()
        """The look under way."""
        self._marker = marker
        self._clock = clock
        self._reads_to_skip = 0
        self._cache: OrderedDict[tuple[int, bytes, int | None], tuple[tuple[Any, ...], TaskSnapshot]] = OrderedDict()
        self._cache_bytes = 0

    def find(self, owner: Owner, agent: str, task_id: str) -> TaskRecord:
        """Raises Away when there is no task of its own id: it may have an alias, or be another's."""
        key, row = self._read_on_loop(self._find, owner, agent, task_id)
        return record_from_row(TaskRef(owner, key), row[1:])

    def get(self, owner: Owner, agent: str, task_id: str, history: int | None) -> TaskSnapshot:
        """`find` and `read`. Raises Away as they do."""
        return self._read_on_loop(self._get, owner, agent, task_id, history)

    def read(self, ref: TaskRef, history: int | None, artifacts: bool) -> TaskSnapshot | None:
        """Raises Away for what is too much."""
        return self._read_on_loop(self._read, ref, history, artifacts)

    def clear_cache(self) -> None:
        """Keeps nothing of what was read."""
        self._cache.clear()
        self._cache_bytes = 0

    def close(self) -> None:
        self.clear_cache()
        self._connection.close()

    def _read_on_loop(self, read: Callable[..., T], *arguments: Any) -> T:
        if self._reads_to_skip:
            self._reads_to_skip -= 1
            raise NotOnLoop
        began = self._clock()
        try:
            try:
                return read(*arguments)
            finally:
                self._open_cursor.close()
        except sqlite3.Error:  # the readers have more patience, and tell what is wrong
            raise NotOnLoop from None
        finally:
            if self._clock() - began > SLOW_READ_SECONDS:
                self._reads_to_skip = READS_SKIPPED_WHEN_SLOW

    def _find(self, owner: Owner, agent: str, task_id: str) -> tuple[bytes, tuple[Any, ...]]:
        key = task_key_of(task_id)
        row = self._row(owner, key) if key else None
        if key is None or row is None or not (row[_VISIBLE] and row[_AGENT] == agent and row[_ID] == task_id):
            raise NotOnLoop
        return key, row

    def _get(self, owner: Owner, agent: str, task_id: str, history: int | None) -> TaskSnapshot:
        key, row = self._find(owner, agent, task_id)
        return self._cached(row, key, history) or self._read_task(TaskRef(owner, key), row, history)

    def _read(self, ref: TaskRef, history: int | None, artifacts: bool) -> TaskSnapshot | None:
        row = self._row(ref.owner, ref.key)
        if row is None:
            return None
        if artifacts:
            return self._cached(row, ref.key, history) or self._read_task(ref, row, history)
        head = record_from_row(ref, row[1:])
        return TaskSnapshot(head, self._task_bytes(head, row, history, artifacts=False))

    def _row(self, owner: Owner, key: bytes) -> tuple[Any, ...] | None:
        self._open_cursor = held = self._connection.execute(SELECT_TASK_ONCE, (owner.scope, owner.principal, key))
        found: tuple[Any, ...] = held.fetchone()
        return found if found[0] is not None else None

    def _cached(self, row: tuple[Any, ...], key: bytes, history: int | None) -> TaskSnapshot | None:
        """The task as it was read before, if it is still that."""
        at = row[0], key, history
        kept = self._cache.get(at)
        if kept is None:
            return None
        if kept[0] == row:
            self._cache.move_to_end(at)
            return kept[1]
        del self._cache[at]
        self._cache_bytes -= len(kept[1].task)
        return None

    def _read_task(self, ref: TaskRef, row: tuple[Any, ...], history: int | None) -> TaskSnapshot:
        head = record_from_row(ref, row[1:])
        snapshot = TaskSnapshot(
            head, cached_response(self._task_bytes(head, row, history, artifacts=True), head.dialect)
        )
        if (size := len(snapshot.task)) <= MAX_LOOP_BYTES:
            self._cache[row[0], ref.key, history] = row, snapshot
            self._cache_bytes += size
            while self._cache_bytes > MAX_CACHE_BYTES:
                _, (_, oldest) = self._cache.popitem(last=False)
                self._cache_bytes -= len(oldest.task)
        return snapshot

    def _task_bytes(self, record: TaskRecord, row: tuple[Any, ...], history: int | None, *, artifacts: bool) -> bytes:
        made = reads.task_bytes(self._connection, row[0], record, row[-1], history, artifacts, fetch_few)
        if self._marker in made:  # its large parts are files
            raise NotOnLoop
        return made


def fetch_few(cursor: sqlite3.Cursor) -> list[Any]:
    """These rows, the last column of which is the one that can be large. Raises Away when they are many, or much."""
    found: list[Any] = []
    size = 0
    while some := cursor.fetchmany(16):
        found += some
        size += sum([len(row[-1]) for row in some])
        if len(found) > MAX_LOOP_ROWS or size > MAX_LOOP_BYTES:
            raise NotOnLoop
    return found
