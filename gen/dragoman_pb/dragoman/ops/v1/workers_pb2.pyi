import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Worker(_message.Message):
    __slots__ = ("name", "peer", "free", "running", "draining")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    name: str
    peer: str
    free: int
    running: int
    draining: bool
    def __init__(self, name: _Optional[str] = ..., peer: _Optional[str] = ..., free: _Optional[int] = ..., running: _Optional[int] = ..., draining: bool = ...) -> None: ...

class WorkerAgent(_message.Message):
    __slots__ = ("agent", "principal", "seen", "workers")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    agent: str
    principal: str
    seen: _timestamp_pb2.Timestamp
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    def __init__(self, agent: _Optional[str] = ..., principal: _Optional[str] = ..., seen: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[WorkerAgent]
    def __init__(self, agents: _Optional[_Iterable[_Union[WorkerAgent, _Mapping]]] = ...) -> None: ...

class ForgetAgentRequest(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    def __init__(self, agent: _Optional[str] = ...) -> None: ...

class ForgetAgentResponse(_message.Message):
    __slots__ = ("ended_tasks",)
    ENDED_TASKS_FIELD_NUMBER: _ClassVar[int]
    ended_tasks: int
    def __init__(self, ended_tasks: _Optional[int] = ...) -> None: ...
