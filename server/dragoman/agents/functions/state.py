"""State and metadata of a task and its conversation, as a turn reads and changes them.

Changes are stored with the next event, or at the end of the turn.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
from google.protobuf import struct_pb2

from dragoman.agents import values
from dragoman.agents.values import struct_of
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task.projection import merge_metadata
from dragoman.ports import NO_CHANGE, StateUpdate, TurnContext


class TurnState:
    """Changes of a turn to its task and its conversation, besides events."""

    def __init__(self, turn_context: TurnContext) -> None:
        self.task = PersistedState("turn.state", turn_context.task_state)
        self.context = PersistedState("turn.context.state", turn_context.context_state)
        self.metadata = TaskMetadata(turn_context.task_metadata)

    def changes(self) -> StateUpdate:
        """The changes since the last call of `mark_saved`. Raises TypeError, and InvalidAgentResponse for metadata."""
        task, context = self.task.dump_if_changed(), self.context.dump_if_changed()
        metadata = self.metadata.changes()
        return NO_CHANGE if task is None and context is None and not metadata else StateUpdate(task, context, metadata)

    def valid_metadata(self) -> StateUpdate:
        """The changes of the metadata only; none if they are not valid."""
        try:
            metadata = self.metadata.changes()
        except Exception:  # also of a value's own class
            return NO_CHANGE
        return StateUpdate(task_metadata=metadata) if metadata else NO_CHANGE

    def mark_saved(self, update: StateUpdate) -> None:
        self.task.mark_saved(update.task_state)
        self.context.mark_saved(update.context_state)
        self.metadata.mark_saved(update.task_metadata)


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
