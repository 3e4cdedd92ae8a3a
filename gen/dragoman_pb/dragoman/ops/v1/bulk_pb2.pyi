from ....dragoman.ops.v1 import tasks_pb2 as _tasks_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskFailure(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope", "reason")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    reason: str
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelTasksRequest(_message.Message):
    __slots__ = ("filter", "dry_run", "limit", "page_token", "request_id")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    filter: _tasks_pb2.ListTasksRequest
    dry_run: bool
    limit: int
    page_token: str
    request_id: str
    def __init__(self, filter: _Optional[_Union[_tasks_pb2.ListTasksRequest, _Mapping]] = ..., dry_run: bool = ..., limit: _Optional[int] = ..., page_token: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class CancelTasksResponse(_message.Message):
    __slots__ = ("matched", "matched_is_minimum", "changed", "skipped", "failures", "next_page_token")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_IS_MINIMUM_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    matched: int
    matched_is_minimum: bool
    changed: int
    skipped: int
    failures: _containers.RepeatedCompositeFieldContainer[TaskFailure]
    next_page_token: str
    def __init__(self, matched: _Optional[int] = ..., matched_is_minimum: bool = ..., changed: _Optional[int] = ..., skipped: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[TaskFailure, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RerunTasksRequest(_message.Message):
    __slots__ = ("filter", "dry_run", "limit", "page_token", "request_id", "repeat_steps")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REPEAT_STEPS_FIELD_NUMBER: _ClassVar[int]
    filter: _tasks_pb2.ListTasksRequest
    dry_run: bool
    limit: int
    page_token: str
    request_id: str
    repeat_steps: bool
    def __init__(self, filter: _Optional[_Union[_tasks_pb2.ListTasksRequest, _Mapping]] = ..., dry_run: bool = ..., limit: _Optional[int] = ..., page_token: _Optional[str] = ..., request_id: _Optional[str] = ..., repeat_steps: bool = ...) -> None: ...

class RerunTasksResponse(_message.Message):
    __slots__ = ("matched", "matched_is_minimum", "changed", "skipped", "failures", "next_page_token")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_IS_MINIMUM_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    matched: int
    matched_is_minimum: bool
    changed: int
    skipped: int
    failures: _containers.RepeatedCompositeFieldContainer[TaskFailure]
    next_page_token: str
    def __init__(self, matched: _Optional[int] = ..., matched_is_minimum: bool = ..., changed: _Optional[int] = ..., skipped: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[TaskFailure, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class EraseTasksRequest(_message.Message):
    __slots__ = ("filter", "dry_run", "limit", "page_token", "request_id")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    filter: _tasks_pb2.ListTasksRequest
    dry_run: bool
    limit: int
    page_token: str
    request_id: str
    def __init__(self, filter: _Optional[_Union[_tasks_pb2.ListTasksRequest, _Mapping]] = ..., dry_run: bool = ..., limit: _Optional[int] = ..., page_token: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class EraseTasksResponse(_message.Message):
    __slots__ = ("matched", "matched_is_minimum", "changed", "skipped", "failures", "next_page_token")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_IS_MINIMUM_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    matched: int
    matched_is_minimum: bool
    changed: int
    skipped: int
    failures: _containers.RepeatedCompositeFieldContainer[TaskFailure]
    next_page_token: str
    def __init__(self, matched: _Optional[int] = ..., matched_is_minimum: bool = ..., changed: _Optional[int] = ..., skipped: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[TaskFailure, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
