import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PushState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PUSH_STATE_UNSPECIFIED: _ClassVar[PushState]
    PUSH_STATE_LIVE: _ClassVar[PushState]
    PUSH_STATE_COMPLETE: _ClassVar[PushState]
    PUSH_STATE_GIVEN_UP: _ClassVar[PushState]
    PUSH_STATE_UNSUBSCRIBED: _ClassVar[PushState]
PUSH_STATE_UNSPECIFIED: PushState
PUSH_STATE_LIVE: PushState
PUSH_STATE_COMPLETE: PushState
PUSH_STATE_GIVEN_UP: PushState
PUSH_STATE_UNSUBSCRIBED: PushState

class PushConfig(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope", "id", "url", "dialect", "state", "reason", "created", "delivered", "last", "failures", "failing_since", "next_attempt", "delivering", "attempt_count", "attempts")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    FAILING_SINCE_FIELD_NUMBER: _ClassVar[int]
    NEXT_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DELIVERING_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_COUNT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    id: str
    url: str
    dialect: str
    state: PushState
    reason: str
    created: _timestamp_pb2.Timestamp
    delivered: int
    last: int
    failures: int
    failing_since: _timestamp_pb2.Timestamp
    next_attempt: _timestamp_pb2.Timestamp
    delivering: bool
    attempt_count: int
    attempts: _containers.RepeatedCompositeFieldContainer[PushAttempt]
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ..., id: _Optional[str] = ..., url: _Optional[str] = ..., dialect: _Optional[str] = ..., state: _Optional[_Union[PushState, str]] = ..., reason: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delivered: _Optional[int] = ..., last: _Optional[int] = ..., failures: _Optional[int] = ..., failing_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., next_attempt: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delivering: bool = ..., attempt_count: _Optional[int] = ..., attempts: _Optional[_Iterable[_Union[PushAttempt, _Mapping]]] = ...) -> None: ...

class PushAttempt(_message.Message):
    __slots__ = ("sequence", "time", "status", "error", "milliseconds")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time: _timestamp_pb2.Timestamp
    status: int
    error: str
    milliseconds: int
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., status: _Optional[int] = ..., error: _Optional[str] = ..., milliseconds: _Optional[int] = ...) -> None: ...

class ListPushConfigsRequest(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope", "limit")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    limit: int
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListPushConfigsResponse(_message.Message):
    __slots__ = ("configs",)
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    configs: _containers.RepeatedCompositeFieldContainer[PushConfig]
    def __init__(self, configs: _Optional[_Iterable[_Union[PushConfig, _Mapping]]] = ...) -> None: ...

class RedeliverRequest(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope", "config_id")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    config_id: str
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ..., config_id: _Optional[str] = ..., **kwargs) -> None: ...

class RedeliverResponse(_message.Message):
    __slots__ = ("configs",)
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    configs: _containers.RepeatedCompositeFieldContainer[PushConfig]
    def __init__(self, configs: _Optional[_Iterable[_Union[PushConfig, _Mapping]]] = ...) -> None: ...
