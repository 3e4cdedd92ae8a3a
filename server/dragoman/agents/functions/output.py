"""The output of one turn: events, default artifact and state behind `Turn`.

- The first chunk of an artifact in a turn replaces it (append=false); later chunks append, from any thread.
- The default artifact is `output` in a task's first turn and `output-N` in its N-th, so that the response to a
  follow-up does not overwrite earlier ones.
- A changed `turn.state` is stored with the next event, and so are changed keys of `turn.metadata`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import orjson
from google.protobuf import struct_pb2

from dragoman.agents import values
from dragoman.agents.values import NewId, struct_of
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task import states
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.core.task.projection import merge_metadata
from dragoman.ports import NO_CHANGE, StateUpdate, TurnContext, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DEFAULT_ARTIFACT_ID: Final = "output"


class TurnOutput:
    """Sends the events of one turn. Create it on the event loop; its methods are thread-safe."""

    def __init__(self, turn_context: TurnContext, new_id: NewId) -> None:
        self.turn_context = turn_context
        self._new_id = new_id
        self._loop_thread = threading.get_ident()
        self._first_chunk_lock = threading.Lock()
        self._started: set[str] = set()
        self._written: set[str] = set()
        before = sum(message.role == pb.ROLE_USER for message in turn_context.history)
        self._default_artifact_id = f"{DEFAULT_ARTIFACT_ID}-{before + 1}" if before else DEFAULT_ARTIFACT_ID
        self.task_state = PersistedState("turn.state", turn_context.task_state)
        self.context_state = PersistedState("turn.context.state", turn_context.context_state)
        self.metadata = TaskMetadata(turn_context.task_metadata)

    def status(self, state: int, value: object = None, metadata: Mapping[str, object] | None = None) -> Awaitable[None]:
        return self._send(replace(self.status_change(state, value), metadata=values.event_metadata(metadata)))

    def artifact(self, artifact: pb.Artifact, *, append: bool = False, last: bool = False) -> Awaitable[None]:
        accepted = self._send(values.artifact_change(artifact, append=append, last=last))
        self._written.add(artifact.artifact_id)
        return accepted

    def chunk(
        self, value: object, *, artifact: str, last: bool, metadata: Mapping[str, object] | None
    ) -> Awaitable[None]:
        id = self._default_artifact_id if artifact == DEFAULT_ARTIFACT_ID else values.checked_string(artifact)
        value = values.to_local_type(value)
        text = values.checked_string(value) if isinstance(value, str) else None
        parts = values.encode_parts(values.parts_of(value)) if text is None else b""
        head, event_metadata = values.encode_artifact_head(id), values.event_metadata(metadata)
        change = ArtifactChange(id, head, parts, text=text, append=True, last_chunk=last, metadata=event_metadata)
        if id in self._written:
            return self._send(change)
        with self._serialize_first_chunk():
            append = id in self._started
            self._started.add(id)
            accepted = self._send(replace(change, append=append))
            self._written.add(id)
        return accepted

    def _send(self, change: StatusChange | ArtifactChange) -> Awaitable[None]:
        update = self._state_update()
        accepted = self.turn_context.put(change, state_update=update)
        self.task_state.mark_saved(update.task_state)
        self.context_state.mark_saved(update.context_state)
        self.metadata.mark_saved(update.task_metadata)
        return accepted

    @contextmanager
    def _serialize_first_chunk(self) -> Iterator[None]:
        """Lets one thread at a time send a first chunk, so that no later chunk overtakes it and is replaced."""
        # A thread may hold the lock while it waits for the buffer, which only the loop can empty, so the loop waits
        # 0.1 s at most. The thread's chunk is in the buffer by then, so a chunk sent without the lock follows it.
        acquired = self._first_chunk_lock.acquire(timeout=0.1 if threading.get_ident() == self._loop_thread else -1)
        try:
            yield
        finally:
            if acquired:
                self._first_chunk_lock.release()

    def message(self, value: object) -> pb.Message:
        return values.message_of(value, self._new_id, self.turn_context)

    def new_artifact(self, value: object, **fields: Any) -> pb.Artifact:
        return values.artifact_of(value, self._new_id, **fields)

    def status_change(self, state: int, value: object = None) -> StatusChange:
        return StatusChange(state, b"" if value is None else self.message(value).SerializeToString())

    def turn_result(
        self, status: StatusChange, *, artifacts: Sequence[ArtifactChange] = (), reply: pb.Message | None = None
    ) -> TurnResult:
        """The result of the turn, with the current state. Raises TypeError for a state that is not JSON."""
        return TurnResult(status, artifacts, reply, self._state_update())

    def _state_update(self) -> StateUpdate:
        task, context = self.task_state.dump_if_changed(), self.context_state.dump_if_changed()
        metadata = self.metadata.changes()
        return NO_CHANGE if task is None and context is None and not metadata else StateUpdate(task, context, metadata)

    def failed_result(self, text: str) -> TurnResult:
        """FAILED with a text, for an error of the agent. Valid changes of the metadata are stored, state is not."""
        try:
            metadata = self.metadata.changes()
        except Exception:  # the error itself, or a second one; also of a value's own class
            metadata = b""
        update = StateUpdate(task_metadata=metadata) if metadata else NO_CHANGE
        return TurnResult(self.status_change(states.FAILED, text), state_update=update)


class Context:
    """A conversation: the state that the tasks of one context share."""

    def __init__(self, output: TurnOutput) -> None:
        self._output = output

    @property
    def id(self) -> str:
        """The context id."""
        return self._output.turn_context.context_id

    @property
    def state(self) -> dict[str, Any]:
        """The agent's JSON object for this conversation. Change it in place; it is stored between tasks.

        Changes are stored with the next event or the end of the turn. If another task of the conversation has changed
        it since this turn began, this turn fails, so that no change is lost.
        """
        return self._output.context_state.value


class TaskMetadata:
    """The task's metadata as a JSON object: parsed on first access. Changed keys are merged into the task's."""

    def __init__(self, saved: bytes) -> None:
        """`saved`: the serialized Struct of the task."""
        self._saved = saved
        self._saved_values: dict[str, bytes] = {}  # the serialized Value of each stored key
        self._value: dict[str, Any] | None = None

    @property
    def value(self) -> dict[str, Any]:
        if self._value is None:
            struct = struct_of(self._saved)
            self._saved_values = _values_by_key(struct)
            self._value = values.struct_to_json(struct)
        return self._value

    def changes(self) -> bytes:
        """The changed keys, as a serialized Struct; empty if unchanged. Raises InvalidAgentResponse."""
        if self._value is None:
            return b""
        update = struct_of(b"")
        try:
            update.update(values.to_json(self._value))
        except InvalidAgentResponse as error:
            raise InvalidAgentResponse(f"turn.metadata: {error}") from None
        for key, saved in self._saved_values.items():
            if key not in update.fields:
                raise InvalidAgentResponse(
                    f'turn.metadata: the key "{key}" was removed, but keys of a task stay; set it to None instead'
                )
            if update.fields[key].SerializeToString(deterministic=True) == saved:
                del update.fields[key]
        return values.check_task_metadata("turn.metadata", self._saved, update) if update.fields else b""

    def mark_saved(self, update: bytes) -> None:
        if update:
            self._saved = merge_metadata(self._saved, update)
            self._saved_values.update(_values_by_key(struct_of(update)))


def _values_by_key(struct: struct_pb2.Struct) -> dict[str, bytes]:
    return {key: value.SerializeToString(deterministic=True) for key, value in struct.fields.items()}


class PersistedState:
    """A JSON object stored between turns: parsed on first access, written when changed."""

    def __init__(self, name: str, saved: bytes) -> None:
        self._name = name
        self._saved = saved
        self._value: dict[str, Any] | None = None

    @property
    def value(self) -> dict[str, Any]:
        if self._value is None:
            self._value = orjson.loads(self._saved) if self._saved else {}
        return self._value

    def mark_saved(self, data: bytes | None) -> None:
        if data is not None:
            self._saved = data

    def dump_if_changed(self) -> bytes | None:
        """The JSON to store; None if unchanged. Raises TypeError for a value that JSON cannot represent."""
        if self._value is None:
            return None
        try:
            data = orjson.dumps(self._value)
        except orjson.JSONEncodeError as error:
            raise TypeError(self._describe_problem(str(error))) from None
        if data == self._saved:
            return None
        if orjson.loads(data) != self._value:  # tuples, dates, NaN: orjson writes them, and reads another value
            raise TypeError(self._describe_problem("holds a value that JSON changes"))
        return data

    def _describe_problem(self, general: str) -> str:
        """Names the value that JSON cannot keep, as in `turn.state["pages"][3] is a tuple, ...`."""
        problem = find_unstorable(self._value, self._name) or f"{self._name}: {general}"
        return f"{problem}; use dict, list, str, int, float, bool, None only"


MAX_PATH_DEPTH: Final = 250  # levels of a state: orjson writes no more than 254
MAX_PATH_CHARS: Final = 60  # of a key or a path in an error text


def find_unstorable(value: object, path: str, depth: int = 0) -> str:
    """Path and reason of the first value that JSON cannot round-trip; empty if all can."""
    if depth > MAX_PATH_DEPTH:
        return f"{path[:MAX_PATH_CHARS]}… nests more than {MAX_PATH_DEPTH} levels"
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                return f"{path} has the key {values.abbreviated(key)}, and keys must be str"
            if found := find_unstorable(item, f'{path}["{key[:MAX_PATH_CHARS]}"]', depth + 1):
                return found
        return ""
    if type(value) is list:
        problems = (find_unstorable(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value))
        return next(filter(None, problems), "")
    try:
        stored = orjson.loads(orjson.dumps(value)) == value
    except (orjson.JSONEncodeError, orjson.JSONDecodeError):
        stored = False
    if stored:
        return ""
    if isinstance(value, (str, int, float)):
        return f"{path} is {values.abbreviated(value)}, which JSON cannot represent"
    return f"{path} is {values.type_name(value)}, which JSON does not give back as it was"
