from ....lf.a2a.v1 import a2a_pb2 as _a2a_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListTasksRequest(_message.Message):
    __slots__ = ("task_id", "scope", "agent", "context_id", "state", "limit", "include_artifacts")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    scope: str
    agent: str
    context_id: str
    state: _a2a_pb2.TaskState
    limit: int
    include_artifacts: bool
    def __init__(self, task_id: _Optional[str] = ..., scope: _Optional[str] = ..., agent: _Optional[str] = ..., context_id: _Optional[str] = ..., state: _Optional[_Union[_a2a_pb2.TaskState, str]] = ..., limit: _Optional[int] = ..., include_artifacts: bool = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "total", "scopes")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[ListedTask]
    total: int
    scopes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tasks: _Optional[_Iterable[_Union[ListedTask, _Mapping]]] = ..., total: _Optional[int] = ..., scopes: _Optional[_Iterable[str]] = ...) -> None: ...

class ListedTask(_message.Message):
    __slots__ = ("scope", "agent", "task")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    scope: str
    agent: str
    task: _a2a_pb2.Task
    def __init__(self, scope: _Optional[str] = ..., agent: _Optional[str] = ..., task: _Optional[_Union[_a2a_pb2.Task, _Mapping]] = ...) -> None: ...
