import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Upstream(_message.Message):
    __slots__ = ("agent", "url", "settings", "credentials", "unavailable_ms", "last_error", "interfaces", "skipped_interfaces", "running", "turns", "last_error_ms")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    INTERFACES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_MS_FIELD_NUMBER: _ClassVar[int]
    agent: str
    url: str
    settings: bool
    credentials: bool
    unavailable_ms: int
    last_error: str
    interfaces: _containers.RepeatedScalarFieldContainer[str]
    skipped_interfaces: _containers.RepeatedScalarFieldContainer[str]
    running: int
    turns: int
    last_error_ms: int
    def __init__(self, agent: _Optional[str] = ..., url: _Optional[str] = ..., settings: bool = ..., credentials: bool = ..., unavailable_ms: _Optional[int] = ..., last_error: _Optional[str] = ..., interfaces: _Optional[_Iterable[str]] = ..., skipped_interfaces: _Optional[_Iterable[str]] = ..., running: _Optional[int] = ..., turns: _Optional[int] = ..., last_error_ms: _Optional[int] = ...) -> None: ...

class ListUpstreamsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUpstreamsResponse(_message.Message):
    __slots__ = ("upstreams",)
    UPSTREAMS_FIELD_NUMBER: _ClassVar[int]
    upstreams: _containers.RepeatedCompositeFieldContainer[Upstream]
    def __init__(self, upstreams: _Optional[_Iterable[_Union[Upstream, _Mapping]]] = ...) -> None: ...

class AddUpstreamRequest(_message.Message):
    __slots__ = ("url", "id", "prefix", "headers", "turns", "time_limit")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    URL_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    url: str
    id: str
    prefix: str
    headers: _containers.ScalarMap[str, str]
    turns: int
    time_limit: _duration_pb2.Duration
    def __init__(self, url: _Optional[str] = ..., id: _Optional[str] = ..., prefix: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., turns: _Optional[int] = ..., time_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class AddUpstreamResponse(_message.Message):
    __slots__ = ("upstream",)
    UPSTREAM_FIELD_NUMBER: _ClassVar[int]
    upstream: Upstream
    def __init__(self, upstream: _Optional[_Union[Upstream, _Mapping]] = ...) -> None: ...

class RemoveUpstreamRequest(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    def __init__(self, agent: _Optional[str] = ...) -> None: ...

class RemoveUpstreamResponse(_message.Message):
    __slots__ = ("ended_tasks",)
    ENDED_TASKS_FIELD_NUMBER: _ClassVar[int]
    ended_tasks: int
    def __init__(self, ended_tasks: _Optional[int] = ...) -> None: ...
