import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetOverviewRequest(_message.Message):
    __slots__ = ("hours", "scope", "agent")
    HOURS_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    hours: int
    scope: str
    agent: str
    def __init__(self, hours: _Optional[int] = ..., scope: _Optional[str] = ..., agent: _Optional[str] = ...) -> None: ...

class GetOverviewResponse(_message.Message):
    __slots__ = ("agents", "first_hour")
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_HOUR_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[AgentOverview]
    first_hour: _timestamp_pb2.Timestamp
    def __init__(self, agents: _Optional[_Iterable[_Union[AgentOverview, _Mapping]]] = ..., first_hour: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AgentOverview(_message.Message):
    __slots__ = ("agent", "queued", "running", "waiting", "hours", "turns", "queue")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    HOURS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    agent: str
    queued: OpenTasks
    running: OpenTasks
    waiting: OpenTasks
    hours: _containers.RepeatedCompositeFieldContainer[HourlyFigures]
    turns: TurnTimes
    queue: TurnTimes
    def __init__(self, agent: _Optional[str] = ..., queued: _Optional[_Union[OpenTasks, _Mapping]] = ..., running: _Optional[_Union[OpenTasks, _Mapping]] = ..., waiting: _Optional[_Union[OpenTasks, _Mapping]] = ..., hours: _Optional[_Iterable[_Union[HourlyFigures, _Mapping]]] = ..., turns: _Optional[_Union[TurnTimes, _Mapping]] = ..., queue: _Optional[_Union[TurnTimes, _Mapping]] = ...) -> None: ...

class TurnTimes(_message.Message):
    __slots__ = ("count", "mean_seconds", "p50_seconds", "p95_seconds")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MEAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    P50_SECONDS_FIELD_NUMBER: _ClassVar[int]
    P95_SECONDS_FIELD_NUMBER: _ClassVar[int]
    count: int
    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    def __init__(self, count: _Optional[int] = ..., mean_seconds: _Optional[float] = ..., p50_seconds: _Optional[float] = ..., p95_seconds: _Optional[float] = ...) -> None: ...

class OpenTasks(_message.Message):
    __slots__ = ("count", "is_minimum", "oldest")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_MINIMUM_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    count: int
    is_minimum: bool
    oldest: _timestamp_pb2.Timestamp
    def __init__(self, count: _Optional[int] = ..., is_minimum: bool = ..., oldest: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class HourlyFigures(_message.Message):
    __slots__ = ("hour", "begun", "completed", "failed", "canceled", "rejected", "turns", "turn_seconds")
    HOUR_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    TURN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    hour: _timestamp_pb2.Timestamp
    begun: int
    completed: int
    failed: int
    canceled: int
    rejected: int
    turns: int
    turn_seconds: float
    def __init__(self, hour: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., begun: _Optional[int] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., canceled: _Optional[int] = ..., rejected: _Optional[int] = ..., turns: _Optional[int] = ..., turn_seconds: _Optional[float] = ...) -> None: ...
