import datetime

from ....dragoman.worker.v1 import worker_pb2 as _worker_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from ....lf.a2a.v1 import a2a_pb2 as _a2a_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskStepState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STEP_STATE_UNSPECIFIED: _ClassVar[TaskStepState]
    TASK_STEP_STATE_RUNNING: _ClassVar[TaskStepState]
    TASK_STEP_STATE_DONE: _ClassVar[TaskStepState]
    TASK_STEP_STATE_FAILED: _ClassVar[TaskStepState]
    TASK_STEP_STATE_SLEEPING: _ClassVar[TaskStepState]
TASK_STEP_STATE_UNSPECIFIED: TaskStepState
TASK_STEP_STATE_RUNNING: TaskStepState
TASK_STEP_STATE_DONE: TaskStepState
TASK_STEP_STATE_FAILED: TaskStepState
TASK_STEP_STATE_SLEEPING: TaskStepState

class ListStepsRequest(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ...) -> None: ...

class ListStepContentsRequest(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope", "name", "turn")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    name: str
    turn: int
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ..., name: _Optional[str] = ..., turn: _Optional[int] = ...) -> None: ...

class ListStepContentsResponse(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[TaskStep]
    def __init__(self, steps: _Optional[_Iterable[_Union[TaskStep, _Mapping]]] = ...) -> None: ...

class ListStepsResponse(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[TaskStep]
    def __init__(self, steps: _Optional[_Iterable[_Union[TaskStep, _Mapping]]] = ...) -> None: ...

class TaskStep(_message.Message):
    __slots__ = ("name", "state", "turn", "attempt", "started", "ended", "wake_at", "result_bytes", "error", "result", "details", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WAKE_AT_FIELD_NUMBER: _ClassVar[int]
    RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: TaskStepState
    turn: int
    attempt: int
    started: _timestamp_pb2.Timestamp
    ended: _timestamp_pb2.Timestamp
    wake_at: _timestamp_pb2.Timestamp
    result_bytes: int
    error: str
    result: _a2a_pb2.Part
    details: _worker_pb2.StepDetails
    text: TaskStepText
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[TaskStepState, str]] = ..., turn: _Optional[int] = ..., attempt: _Optional[int] = ..., started: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., wake_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., result_bytes: _Optional[int] = ..., error: _Optional[str] = ..., result: _Optional[_Union[_a2a_pb2.Part, _Mapping]] = ..., details: _Optional[_Union[_worker_pb2.StepDetails, _Mapping]] = ..., text: _Optional[_Union[TaskStepText, _Mapping]] = ...) -> None: ...

class TaskStepText(_message.Message):
    __slots__ = ("text", "media_type", "omitted")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    OMITTED_FIELD_NUMBER: _ClassVar[int]
    text: str
    media_type: str
    omitted: int
    def __init__(self, text: _Optional[str] = ..., media_type: _Optional[str] = ..., omitted: _Optional[int] = ...) -> None: ...
