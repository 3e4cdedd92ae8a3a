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

from dragoman.core.log import Head, TaskRef
from dragoman.core.names import Owner, key_of
from dragoman.core.shared import shared
from dragoman.ports import Snapshot
from dragoman.stores.sqlite import reads
from dragoman.stores.sqlite.apply import HEAD_COLUMNS, head_of

T = TypeVar("T")

ROWS: Final = 128
"""Messages, and chunks of artifacts, that are read here: well under half a millisecond."""

BYTES: Final = 64 * 1024
"""Bytes of either that are read here, and of a task that is kept."""

KEPT: Final = 4 * 1024 * 1024
"""Bytes of tasks that are kept. With their forms, JSON for example, it may be some times that."""

SLOW: Final = 0.02
"""Seconds after which a look was a slow one: the disk, and not its cache, has answered. Threads that do not let go of
the interpreter take less."""

AWAY: Final = 32
"""Looks after a slow one that go to the readers."""

_NAMES: Final = [name.strip() for name in HEAD_COLUMNS.split(",")]
_AGENT, _ID, _VISIBLE = (1 + _NAMES.index(name) for name in ("agent", "id", "visible"))
TASK: Final = f"""
SELECT t.owner, {", ".join(f"t.{name}" for name in _NAMES)}, t.metadata
FROM owners o CROSS JOIN tasks t ON t.owner = o.owner
WHERE o.scope = ? AND o.principal = ? AND t.task = ?
UNION ALL SELECT {", ".join(["NULL"] * (len(_NAMES) + 2))}
"""
"""The row of a task, and one more that means nothing: as long as that is not fetched, this is one snapshot with what
else is read, without BEGIN and ROLLBACK. Each of them would let go of the interpreter, which gRPC's threads take."""


class Away(Exception):
    """This is for the readers."""


class Near:
    """Reads on one connection, from one thread."""

    def __init__(
        self, connection: sqlite3.Connection, marker: bytes, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._connection = connection
        connection.execute("PRAGMA busy_timeout = 0")
        self._held = connection.cursor()
        """The look under way."""
        self._marker = marker
        self._clock = clock
        self._away = 0
        self._kept: OrderedDict[tuple[int, bytes, int | None], tuple[tuple[Any, ...], Snapshot]] = OrderedDict()
        self._bytes = 0

    def find(self, owner: Owner, agent: str, task_id: str) -> Head:
        """Raises Away when there is no task of its own id: it may have an alias, or be another's."""
        key, row = self._look(self._find, owner, agent, task_id)
        return head_of(TaskRef(owner, key), row[1:])

    def get(self, owner: Owner, agent: str, task_id: str, history: int | None) -> Snapshot:
        """`find` and `read`. Raises Away as they do."""
        return self._look(self._get, owner, agent, task_id, history)

    def read(self, ref: TaskRef, history: int | None, artifacts: bool) -> Snapshot | None:
        """Raises Away for what is too much."""
        return self._look(self._read, ref, history, artifacts)

    def forget(self) -> None:
        """Keeps nothing of what was read."""
        self._kept.clear()
        self._bytes = 0

    def close(self) -> None:
        self.forget()
        self._connection.close()

    def _look(self, look: Callable[..., T], *arguments: Any) -> T:
        if self._away:
            self._away -= 1
            raise Away
        began = self._clock()
        try:
            try:
                return look(*arguments)
            finally:
                self._held.close()
        except sqlite3.Error:  # the readers have more patience, and tell what is wrong
            raise Away from None
        finally:
            if self._clock() - began > SLOW:
                self._away = AWAY

    def _find(self, owner: Owner, agent: str, task_id: str) -> tuple[bytes, tuple[Any, ...]]:
        key = key_of(task_id)
        row = self._row(owner, key) if key else None
        if key is None or row is None or not (row[_VISIBLE] and row[_AGENT] == agent and row[_ID] == task_id):
            raise Away
        return key, row

    def _get(self, owner: Owner, agent: str, task_id: str, history: int | None) -> Snapshot:
        key, row = self._find(owner, agent, task_id)
        return self._kept_as(row, key, history) or self._task(TaskRef(owner, key), row, history)

    def _read(self, ref: TaskRef, history: int | None, artifacts: bool) -> Snapshot | None:
        row = self._row(ref.owner, ref.key)
        if row is None:
            return None
        if artifacts:
            return self._kept_as(row, ref.key, history) or self._task(ref, row, history)
        head = head_of(ref, row[1:])
        return Snapshot(head, self._made(head, row, history, artifacts=False))

    def _row(self, owner: Owner, key: bytes) -> tuple[Any, ...] | None:
        self._held = held = self._connection.execute(TASK, (owner.scope, owner.principal, key))
        found: tuple[Any, ...] = held.fetchone()
        return found if found[0] is not None else None

    def _kept_as(self, row: tuple[Any, ...], key: bytes, history: int | None) -> Snapshot | None:
        """The task as it was read before, if it is still that."""
        at = row[0], key, history
        kept = self._kept.get(at)
        if kept is None:
            return None
        if kept[0] == row:
            self._kept.move_to_end(at)
            return kept[1]
        del self._kept[at]
        self._bytes -= len(kept[1].task)
        return None

    def _task(self, ref: TaskRef, row: tuple[Any, ...], history: int | None) -> Snapshot:
        head = head_of(ref, row[1:])
        snapshot = Snapshot(head, shared(self._made(head, row, history, artifacts=True), head.dialect))
        if (size := len(snapshot.task)) <= BYTES:
            self._kept[row[0], ref.key, history] = row, snapshot
            self._bytes += size
            while self._bytes > KEPT:
                _, (_, oldest) = self._kept.popitem(last=False)
                self._bytes -= len(oldest.task)
        return snapshot

    def _made(self, head: Head, row: tuple[Any, ...], history: int | None, *, artifacts: bool) -> bytes:
        made = reads.task_bytes(self._connection, row[0], head, row[-1], history, artifacts, few)
        if self._marker in made:  # its large parts are files
            raise Away
        return made


def few(rows: sqlite3.Cursor) -> list[Any]:
    """These rows, the last column of which is the one that can be large. Raises Away when they are many, or much."""
    found: list[Any] = []
    size = 0
    while some := rows.fetchmany(16):
        found += some
        size += sum([len(row[-1]) for row in some])
        if len(found) > ROWS or size > BYTES:
            raise Away
    return found
