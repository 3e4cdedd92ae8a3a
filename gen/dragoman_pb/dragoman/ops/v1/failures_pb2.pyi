import datetime

from ....dragoman.ops.v1 import tasks_pb2 as _tasks_pb2
from ....dragoman.worker.v1 import worker_pb2 as _worker_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListFailuresRequest(_message.Message):
    __slots__ = ("filter", "limit")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    filter: _tasks_pb2.ListTasksRequest
    limit: int
    def __init__(self, filter: _Optional[_Union[_tasks_pb2.ListTasksRequest, _Mapping]] = ..., limit: _Optional[int] = ...) -> None: ...

class ListFailuresResponse(_message.Message):
    __slots__ = ("groups", "more")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[FailureGroup]
    more: bool
    def __init__(self, groups: _Optional[_Iterable[_Union[FailureGroup, _Mapping]]] = ..., more: bool = ...) -> None: ...

class FailureGroup(_message.Message):
    __slots__ = ("cause", "agent", "failure", "task_id", "count", "count_is_minimum", "first", "last", "reruns")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    COUNT_IS_MINIMUM_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    RERUNS_FIELD_NUMBER: _ClassVar[int]
    cause: str
    agent: str
    failure: _worker_pb2.Failure
    task_id: str
    count: int
    count_is_minimum: bool
    first: _timestamp_pb2.Timestamp
    last: _timestamp_pb2.Timestamp
    reruns: FailureReruns
    def __init__(self, cause: _Optional[str] = ..., agent: _Optional[str] = ..., failure: _Optional[_Union[_worker_pb2.Failure, _Mapping]] = ..., task_id: _Optional[str] = ..., count: _Optional[int] = ..., count_is_minimum: bool = ..., first: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reruns: _Optional[_Union[FailureReruns, _Mapping]] = ...) -> None: ...

class FailureReruns(_message.Message):
    __slots__ = ("last", "principal", "count")
    LAST_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    last: _timestamp_pb2.Timestamp
    principal: str
    count: int
    def __init__(self, last: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., principal: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...
