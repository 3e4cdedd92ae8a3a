from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UsageGroup(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    USAGE_GROUP_UNSPECIFIED: _ClassVar[UsageGroup]
    USAGE_GROUP_DAY: _ClassVar[UsageGroup]
    USAGE_GROUP_AGENT: _ClassVar[UsageGroup]
    USAGE_GROUP_PRINCIPAL: _ClassVar[UsageGroup]
    USAGE_GROUP_SCOPE: _ClassVar[UsageGroup]
USAGE_GROUP_UNSPECIFIED: UsageGroup
USAGE_GROUP_DAY: UsageGroup
USAGE_GROUP_AGENT: UsageGroup
USAGE_GROUP_PRINCIPAL: UsageGroup
USAGE_GROUP_SCOPE: UsageGroup

class ListUsageRequest(_message.Message):
    __slots__ = ("first_day", "last_day", "scope", "agent", "principal", "group_by", "limit", "page_token")
    FIRST_DAY_FIELD_NUMBER: _ClassVar[int]
    LAST_DAY_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    GROUP_BY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    first_day: str
    last_day: str
    scope: str
    agent: str
    principal: str
    group_by: _containers.RepeatedScalarFieldContainer[UsageGroup]
    limit: int
    page_token: str
    def __init__(self, first_day: _Optional[str] = ..., last_day: _Optional[str] = ..., scope: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., group_by: _Optional[_Iterable[_Union[UsageGroup, str]]] = ..., limit: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListUsageResponse(_message.Message):
    __slots__ = ("rows", "next_page_token")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[UsageRow]
    next_page_token: str
    def __init__(self, rows: _Optional[_Iterable[_Union[UsageRow, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UsageRow(_message.Message):
    __slots__ = ("day", "agent", "principal", "scope", "begun", "completed", "failed", "canceled", "rejected", "turns", "turn_seconds", "tokens", "cost")
    DAY_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    TURN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    day: str
    agent: str
    principal: str
    scope: str
    begun: int
    completed: int
    failed: int
    canceled: int
    rejected: int
    turns: int
    turn_seconds: float
    tokens: int
    cost: float
    def __init__(self, day: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ..., begun: _Optional[int] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., canceled: _Optional[int] = ..., rejected: _Optional[int] = ..., turns: _Optional[int] = ..., turn_seconds: _Optional[float] = ..., tokens: _Optional[int] = ..., cost: _Optional[float] = ...) -> None: ...
