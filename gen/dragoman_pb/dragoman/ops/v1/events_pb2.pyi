import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from ....lf.a2a.v1 import a2a_pb2 as _a2a_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListEventsRequest(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope", "after", "limit", "include_history")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_HISTORY_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    after: int
    limit: int
    include_history: bool
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ..., include_history: bool = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "oldest", "last", "history")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[EncodedEvent]
    oldest: int
    last: int
    history: _containers.RepeatedCompositeFieldContainer[_a2a_pb2.Message]
    def __init__(self, events: _Optional[_Iterable[_Union[EncodedEvent, _Mapping]]] = ..., oldest: _Optional[int] = ..., last: _Optional[int] = ..., history: _Optional[_Iterable[_Union[_a2a_pb2.Message, _Mapping]]] = ...) -> None: ...

class EncodedEvent(_message.Message):
    __slots__ = ("sequence", "time", "v1_json", "v03_json", "v01_json", "text")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    V1_JSON_FIELD_NUMBER: _ClassVar[int]
    V03_JSON_FIELD_NUMBER: _ClassVar[int]
    V01_JSON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time: _timestamp_pb2.Timestamp
    v1_json: str
    v03_json: str
    v01_json: _containers.RepeatedScalarFieldContainer[str]
    text: str
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., v1_json: _Optional[str] = ..., v03_json: _Optional[str] = ..., v01_json: _Optional[_Iterable[str]] = ..., text: _Optional[str] = ...) -> None: ...
