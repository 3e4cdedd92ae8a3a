"""Fast path of reads: on the event loop itself, where a read is a few point lookups or is cached.

Reading one task takes some 20 µs, the way to a reader thread and back three times as long, and more beside gRPC's own
threads, because each of them needs the interpreter lock. What may take longer goes to the reader threads: tasks with
many rows or bytes, large parts, a disk that was just slow, a locked file. A task is cached with the row under which it
was read, and valid while that row is the same: nothing that GetTask shows changes without it. So every read asks the
database, and an erased task, or one of another caller, is not found. The cache is bounded, and cleared by erasures.
"""

from __future__ import annotations

import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from dragoman.core.names import Owner, task_key_of
from dragoman.core.task.contents import unlimited_budget
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.projection import cached_response
from dragoman.ports import TaskSnapshot
from dragoman.stores.shared.rows import RECORD_COLUMNS, RECORD_WIDTH, TABLE_RECORD_COLUMNS, record_from_row
from dragoman.stores.sqlite import reads

P = ParamSpec("P")
T = TypeVar("T")

MAX_LOOP_ROWS: Final = 128
"""Messages, and chunks of artifacts, that are read on the loop: well under half a millisecond."""

MAX_LOOP_BYTES: Final = 64 * 1024  # bytes of either that are read on the loop, and of a cached task

MAX_CACHE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of cached tasks. With their encodings, such as JSON, memory may be a few times that."""

SLOW_READ_SECONDS: Final = 0.02
"""Seconds from which a read counts as slow: it came from the disk, not from its cache. Threads that hold the
interpreter lock delay it by less."""

READS_SKIPPED_WHEN_SLOW: Final = 32  # reads after a slow one that go to the reader threads

_BUDGET: Final = unlimited_budget()  # what `fetch_few` returns fits into every response

# The columns of SELECT_TASK_ONCE.
_OWNER, _RECORD, _METADATA = 0, slice(1, 1 + RECORD_WIDTH), 1 + RECORD_WIDTH
_AGENT, _ID, _VISIBLE = (1 + RECORD_COLUMNS.split(", ").index(name) for name in ("agent", "id", "visible"))
SELECT_TASK_ONCE: Final = f"""
SELECT t.owner, {TABLE_RECORD_COLUMNS}, t.metadata
FROM owners o CROSS JOIN tasks t ON t.owner = o.owner
WHERE o.scope = ? AND o.principal = ? AND t.task = ?
UNION ALL SELECT {", ".join(["NULL"] * (RECORD_WIDTH + 2))}
"""
"""The row of a task, and an empty one that is not fetched: the unfinished statement keeps one snapshot for all reads,
 without BEGIN and ROLLBACK. Each of these would release the interpreter lock, which gRPC's threads take."""


class NotOnLoop(Exception):
    """This read has to be done on a reader thread."""


def _on_loop(read: Callable[Concatenate[LoopReader, P], T]) -> Callable[Concatenate[LoopReader, P], T]:
    """Makes a method raise NotOnLoop after a slow read, and for an error of the database."""

    def read_on_loop(reader: LoopReader, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if reader._reads_to_skip:
            reader._reads_to_skip -= 1
            raise NotOnLoop
        started = reader._clock()
        try:
            try:
                return read(reader, *args, **kwargs)
            finally:
                reader._open_cursor.close()
        except sqlite3.Error:  # the reader threads wait longer, and report the error
            raise NotOnLoop from None
        finally:
            if reader._clock() - started > SLOW_READ_SECONDS:
                reader._reads_to_skip = READS_SKIPPED_WHEN_SLOW

    return read_on_loop


class LoopReader:
    """Reads on one connection, from the loop's thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        marker: bytes,
        clock: Callable[[], float] = time.perf_counter,
        max_cache_bytes: int = MAX_CACHE_BYTES,
    ) -> None:
        self._connection = connection
        connection.execute("PRAGMA busy_timeout = 0")
        self._open_cursor = connection.cursor()  # of the current read
        self._marker = marker
        self._clock = clock
        self._max_cache_bytes = max_cache_bytes
        self._reads_to_skip = 0
        self._cache: OrderedDict[tuple[int, bytes, int | None], tuple[tuple[Any, ...], TaskSnapshot]] = OrderedDict()
        self.cached_bytes = 0

    @_on_loop
    def find(self, owner: Owner, agent: str, task_id: str) -> TaskRecord:
        """Raises NotOnLoop when no own task has this id: it may be an alias."""
        key, row = self._find(owner, agent, task_id)
        return record_from_row(TaskRef(owner, key), row[_RECORD])

    @_on_loop
    def get(self, owner: Owner, agent: str, task_id: str, history: int | None) -> TaskSnapshot:
        """`find` and `read` in one. Raises NotOnLoop as they do."""
        key, row = self._find(owner, agent, task_id)
        return self._cached(row, key, history) or self._read_task(TaskRef(owner, key), row, history)

    @_on_loop
    def read(self, ref: TaskRef, history: int | None, artifacts: bool) -> TaskSnapshot | None:
        """Raises NotOnLoop for a task that is too large."""
        row = self._row(ref.owner, ref.key)
        if row is None:
            return None
        if artifacts:
            return self._cached(row, ref.key, history) or self._read_task(ref, row, history)
        record = record_from_row(ref, row[_RECORD])
        return TaskSnapshot(record, self._task_bytes(record, row, history, artifacts=False))

    def clear_cache(self) -> None:
        self._cache.clear()
        self.cached_bytes = 0

    def close(self) -> None:
        self.clear_cache()
        self._connection.close()

    def _find(self, owner: Owner, agent: str, task_id: str) -> tuple[bytes, tuple[Any, ...]]:
        key = task_key_of(task_id)
        row = self._row(owner, key) if key else None
        if key is None or row is None or not (row[_VISIBLE] and row[_AGENT] == agent and row[_ID] == task_id):
            raise NotOnLoop
        return key, row

    def _row(self, owner: Owner, key: bytes) -> tuple[Any, ...] | None:
        self._open_cursor = cursor = self._connection.execute(SELECT_TASK_ONCE, (owner.scope, owner.principal, key))
        row: tuple[Any, ...] = cursor.fetchone()
        return row if row[_OWNER] is not None else None

    def _cached(self, row: tuple[Any, ...], key: bytes, history: int | None) -> TaskSnapshot | None:
        """The cached task, if its row is unchanged."""
        cache_key = row[_OWNER], key, history
        cached_row, snapshot = self._cache.get(cache_key, (None, None))
        if snapshot is None:
            return None
        if cached_row == row:
            self._cache.move_to_end(cache_key)
            return snapshot
        del self._cache[cache_key]
        self.cached_bytes -= len(snapshot.task)
        return None

    def _read_task(self, ref: TaskRef, row: tuple[Any, ...], history: int | None) -> TaskSnapshot:
        record = record_from_row(ref, row[_RECORD])
        task = self._task_bytes(record, row, history, artifacts=True)
        snapshot = TaskSnapshot(record, cached_response(task, record.dialect))
        if (size := len(snapshot.task)) <= MAX_LOOP_BYTES:
            self._cache[row[_OWNER], ref.key, history] = row, snapshot
            self.cached_bytes += size
            while self.cached_bytes > self._max_cache_bytes:
                _, (_, oldest) = self._cache.popitem(last=False)
                self.cached_bytes -= len(oldest.task)
        return snapshot

    def _task_bytes(self, record: TaskRecord, row: tuple[Any, ...], history: int | None, *, artifacts: bool) -> bytes:
        task = reads.task_bytes(
            self._connection, row[_OWNER], record, row[_METADATA], history, artifacts, _BUDGET, fetch_few
        )
        if self._marker in task:  # its large parts are in files
            raise NotOnLoop
        return task


def fetch_few(rows: Iterable[Any]) -> list[Any]:
    """These rows; None in the last column stands for a large value. Raises NotOnLoop for too many rows or bytes."""
    few: list[Any] = []
    size = 0
    for row in rows:
        few.append(row)
        size += MAX_LOOP_BYTES + 1 if row[-1] is None else len(row[-1])
        if len(few) > MAX_LOOP_ROWS or size > MAX_LOOP_BYTES:
            raise NotOnLoop
    return few
