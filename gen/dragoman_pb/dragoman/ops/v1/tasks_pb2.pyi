import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from ....lf.a2a.v1 import a2a_pb2 as _a2a_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_ORDER_UNSPECIFIED: _ClassVar[TaskOrder]
    TASK_ORDER_CHANGED: _ClassVar[TaskOrder]
    TASK_ORDER_CREATED: _ClassVar[TaskOrder]
TASK_ORDER_UNSPECIFIED: TaskOrder
TASK_ORDER_CHANGED: TaskOrder
TASK_ORDER_CREATED: TaskOrder

class ListTasksRequest(_message.Message):
    __slots__ = ("task_id", "scope", "agent", "context_id", "state", "limit", "include_artifacts", "principal", "states", "changed_since", "changed_before", "text", "metadata", "order", "page_token", "own", "count_states", "cause")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    CHANGED_SINCE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    COUNT_STATES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    scope: str
    agent: str
    context_id: str
    state: _a2a_pb2.TaskState
    limit: int
    include_artifacts: bool
    principal: str
    states: _containers.RepeatedScalarFieldContainer[_a2a_pb2.TaskState]
    changed_since: _timestamp_pb2.Timestamp
    changed_before: _timestamp_pb2.Timestamp
    text: str
    metadata: _containers.RepeatedScalarFieldContainer[str]
    order: TaskOrder
    page_token: str
    own: bool
    count_states: bool
    cause: str
    def __init__(self, task_id: _Optional[str] = ..., scope: _Optional[str] = ..., agent: _Optional[str] = ..., context_id: _Optional[str] = ..., state: _Optional[_Union[_a2a_pb2.TaskState, str]] = ..., limit: _Optional[int] = ..., include_artifacts: bool = ..., principal: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_a2a_pb2.TaskState, str]]] = ..., changed_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., changed_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text: _Optional[str] = ..., metadata: _Optional[_Iterable[str]] = ..., order: _Optional[_Union[TaskOrder, str]] = ..., page_token: _Optional[str] = ..., own: bool = ..., count_states: bool = ..., cause: _Optional[str] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "total", "scopes", "next_page_token", "total_is_minimum", "state_counts")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_IS_MINIMUM_FIELD_NUMBER: _ClassVar[int]
    STATE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[ListedTask]
    total: int
    scopes: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    total_is_minimum: bool
    state_counts: _containers.RepeatedCompositeFieldContainer[StateCount]
    def __init__(self, tasks: _Optional[_Iterable[_Union[ListedTask, _Mapping]]] = ..., total: _Optional[int] = ..., scopes: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ..., total_is_minimum: bool = ..., state_counts: _Optional[_Iterable[_Union[StateCount, _Mapping]]] = ...) -> None: ...

class StateCount(_message.Message):
    __slots__ = ("state", "count", "is_minimum")
    STATE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_MINIMUM_FIELD_NUMBER: _ClassVar[int]
    state: _a2a_pb2.TaskState
    count: int
    is_minimum: bool
    def __init__(self, state: _Optional[_Union[_a2a_pb2.TaskState, str]] = ..., count: _Optional[int] = ..., is_minimum: bool = ...) -> None: ...

class WatchTasksRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: ListTasksRequest
    def __init__(self, filter: _Optional[_Union[ListTasksRequest, _Mapping]] = ...) -> None: ...

class WatchTasksResponse(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: ListTasksResponse
    def __init__(self, list: _Optional[_Union[ListTasksResponse, _Mapping]] = ...) -> None: ...

class ListedTask(_message.Message):
    __slots__ = ("scope", "agent", "task", "principal", "created", "summary", "status_text", "tokens", "cost", "failure_text", "cause")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    STATUS_TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    FAILURE_TEXT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    agent: str
    task: _a2a_pb2.Task
    principal: str
    created: _timestamp_pb2.Timestamp
    summary: str
    status_text: str
    tokens: int
    cost: float
    failure_text: str
    cause: str
    def __init__(self, scope: _Optional[str] = ..., agent: _Optional[str] = ..., task: _Optional[_Union[_a2a_pb2.Task, _Mapping]] = ..., principal: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., summary: _Optional[str] = ..., status_text: _Optional[str] = ..., tokens: _Optional[int] = ..., cost: _Optional[float] = ..., failure_text: _Optional[str] = ..., cause: _Optional[str] = ...) -> None: ...

class CancelTaskRequest(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope", "metadata")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    metadata: _struct_pb2.Struct
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class CancelTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: ListedTask
    def __init__(self, task: _Optional[_Union[ListedTask, _Mapping]] = ...) -> None: ...

class RerunTaskRequest(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope", "request_id", "repeat_steps")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REPEAT_STEPS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    request_id: str
    repeat_steps: bool
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ..., request_id: _Optional[str] = ..., repeat_steps: bool = ...) -> None: ...

class RerunTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: ListedTask
    def __init__(self, task: _Optional[_Union[ListedTask, _Mapping]] = ...) -> None: ...
