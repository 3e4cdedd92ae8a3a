"""What one turn has put so far, and what it puts next: the bookkeeping behind `Turn`.

- The first chunk of an artifact in a turn replaces (append=false), later ones append, from whatever thread.
- The default artifact is `output` in a task's first turn and `output-N` in its N-th, so that the answer to a
  follow-up leaves the earlier answers in place.
- `turn.state` goes to the store with the next event, if it has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import orjson

from dragoman.agents.plain import checked_text
from dragoman.agents.values import NewId, adopted, artifact_of, change_of, frame_parts, head_of, message_of, parts_of
from dragoman.core.log import ArtifactChange, StatusChange
from dragoman.ports import NOTHING, Desk, Ending, Notes
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

OUTPUT: Final = "output"


class Output:
    """The outgoing half of a turn at one desk. Made on the event loop; usable from any thread."""

    def __init__(self, desk: Desk, new_id: NewId) -> None:
        self.desk = desk
        self._new_id = new_id
        self._home = threading.get_ident()
        self._opening = threading.Lock()
        self._begun: set[str] = set()
        self._written: set[str] = set()
        before = sum(message.role == pb.ROLE_USER for message in desk.history)
        self._default = f"{OUTPUT}-{before + 1}" if before else OUTPUT
        self._task = Kept("turn.state", desk.memory)
        self._context = Kept("turn.context.state", desk.context_memory)

    @property
    def state(self) -> dict[str, Any]:
        return self._task.value

    @property
    def context_state(self) -> dict[str, Any]:
        return self._context.value

    # Events -----------------------------------------------------------------------------------------------------

    def status(self, state: int, value: object = None) -> Awaitable[None]:
        return self._put(self.status_change(state, value))

    def artifact(self, artifact: pb.Artifact, *, append: bool = False, last: bool = False) -> Awaitable[None]:
        room = self._put(change_of(artifact, append=append, last=last))
        self._written.add(artifact.artifact_id)
        return room

    def chunk(self, value: object, *, artifact: str = OUTPUT, last: bool = False) -> Awaitable[None]:
        id = self._default if artifact == OUTPUT else checked_text(artifact)
        value = adopted(value)
        text = checked_text(value) if isinstance(value, str) else None
        parts = frame_parts(parts_of(value)) if text is None else b""
        head = head_of(id)
        if id in self._written:
            return self._put(ArtifactChange(id, head, parts, text=text, append=True, last_chunk=last))
        with self._in_order():
            append = id in self._begun
            self._begun.add(id)
            room = self._put(ArtifactChange(id, head, parts, text=text, append=append, last_chunk=last))
            self._written.add(id)
        return room

    def _put(self, change: StatusChange | ArtifactChange) -> Awaitable[None]:
        notes = self._changed()
        room = self.desk.put(change, notes=notes)
        self._task.committed(notes.task)
        self._context.committed(notes.context)
        return room

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """One at a time puts a first chunk, so that no second one overtakes it and is replaced."""
        # A thread may hold this while it waits for room, which only the loop can make: the loop never waits long.
        # What that thread waits for is put already, so whoever goes on without the lock comes after it.
        held = self._opening.acquire(timeout=0.1 if threading.get_ident() == self._home else -1)
        try:
            yield
        finally:
            if held:
                self._opening.release()

    # Ends -------------------------------------------------------------------------------------------------------

    def message(self, value: object) -> pb.Message:
        return message_of(value, self._new_id, task_id=self.desk.task_id, context_id=self.desk.context_id)

    def new_artifact(self, value: object, **fields: Any) -> pb.Artifact:
        return artifact_of(value, self._new_id, **fields)

    def status_change(self, state: int, value: object = None) -> StatusChange:
        return StatusChange(state, b"" if value is None else self.message(value).SerializeToString())

    def ending(
        self, status: StatusChange, *, artifacts: Sequence[ArtifactChange] = (), reply: pb.Message | None = None
    ) -> Ending:
        """The end of the turn, with the state as it is now. Raises TypeError for a state that is not JSON."""
        return Ending(status, artifacts, reply, self._changed())

    def _changed(self) -> Notes:
        task, context = self._task.changed(), self._context.changed()
        return NOTHING if task is None and context is None else Notes(task, context)


class Kept:
    """JSON that is kept from turn to turn: read when it is first asked for, written when it has changed."""

    def __init__(self, name: str, saved: bytes) -> None:
        self._name = name
        self._saved = saved
        self._value: dict[str, Any] | None = None

    @property
    def value(self) -> dict[str, Any]:
        if self._value is None:
            self._value = orjson.loads(self._saved) if self._saved else {}
        return self._value

    def committed(self, data: bytes | None) -> None:
        if data is not None:
            self._saved = data

    def changed(self) -> bytes | None:
        """The JSON to write; None when it is as it was. Raises TypeError for what JSON cannot hold."""
        if self._value is None:
            return None
        try:
            data = orjson.dumps(self._value)
        except orjson.JSONEncodeError as error:
            raise TypeError(f"{self._name}: {error}") from None
        if data == self._saved:
            return None
        if orjson.loads(data) != self._value:  # tuples, dates, NaN: written without complaint, read as something else
            raise TypeError(f"{self._name}: would not come back as it is; use dict, list, str, int, float, bool, None")
        return data
