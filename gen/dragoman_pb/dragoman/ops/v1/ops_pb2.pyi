import datetime

from ....dragoman.ops.v1 import bulk_pb2 as _bulk_pb2
from ....dragoman.ops.v1 import events_pb2 as _events_pb2
from ....dragoman.ops.v1 import failures_pb2 as _failures_pb2
from ....dragoman.ops.v1 import overview_pb2 as _overview_pb2
from ....dragoman.ops.v1 import push_pb2 as _push_pb2
from ....dragoman.ops.v1 import signing_pb2 as _signing_pb2
from ....dragoman.ops.v1 import steps_pb2 as _steps_pb2
from ....dragoman.ops.v1 import tasks_pb2 as _tasks_pb2
from ....dragoman.ops.v1 import upstreams_pb2 as _upstreams_pb2
from ....dragoman.ops.v1 import usage_pb2 as _usage_pb2
from ....dragoman.ops.v1 import workers_pb2 as _workers_pb2
from ....dragoman.worker.v1 import worker_pb2 as _worker_pb2
from google.api import annotations_pb2 as _annotations_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from ....lf.a2a.v1 import a2a_pb2 as _a2a_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListAgentsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[Agent]
    def __init__(self, agents: _Optional[_Iterable[_Union[Agent, _Mapping]]] = ...) -> None: ...

class Agent(_message.Message):
    __slots__ = ("id", "name", "description", "version", "root", "card_url", "input_modes", "output_modes", "threads_left_behind", "pause")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    CARD_URL_FIELD_NUMBER: _ClassVar[int]
    INPUT_MODES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_MODES_FIELD_NUMBER: _ClassVar[int]
    THREADS_LEFT_BEHIND_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    description: str
    version: str
    root: bool
    card_url: str
    input_modes: _containers.RepeatedScalarFieldContainer[str]
    output_modes: _containers.RepeatedScalarFieldContainer[str]
    threads_left_behind: int
    pause: AgentPause
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., version: _Optional[str] = ..., root: bool = ..., card_url: _Optional[str] = ..., input_modes: _Optional[_Iterable[str]] = ..., output_modes: _Optional[_Iterable[str]] = ..., threads_left_behind: _Optional[int] = ..., pause: _Optional[_Union[AgentPause, _Mapping]] = ...) -> None: ...

class AgentPause(_message.Message):
    __slots__ = ("since", "principal", "reason")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    since: _timestamp_pb2.Timestamp
    principal: str
    reason: str
    def __init__(self, since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., principal: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PauseAgentRequest(_message.Message):
    __slots__ = ("agent", "reason")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    agent: str
    reason: str
    def __init__(self, agent: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PauseAgentResponse(_message.Message):
    __slots__ = ("pause",)
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    pause: AgentPause
    def __init__(self, pause: _Optional[_Union[AgentPause, _Mapping]] = ...) -> None: ...

class ResumeAgentRequest(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    def __init__(self, agent: _Optional[str] = ...) -> None: ...

class ResumeAgentResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Explanation]
    def __init__(self, tasks: _Optional[_Iterable[_Union[Explanation, _Mapping]]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("task_id", "agent", "scope", "principal", "context_id", "state", "since", "dialect", "last_event", "queued_messages", "attempt", "attempts_allowed", "session", "session_expires", "here", "stopping", "subscribers", "ready", "free_slots", "next", "pushes", "worker", "tokens", "cost", "trace_id", "delegated_tokens", "delegated_cost", "trace_url", "delegated", "failure", "turn_at", "cause")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_ALLOWED_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_EXPIRES_FIELD_NUMBER: _ClassVar[int]
    HERE_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_COST_FIELD_NUMBER: _ClassVar[int]
    TRACE_URL_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    TURN_AT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    scope: str
    principal: str
    context_id: str
    state: str
    since: int
    dialect: str
    last_event: int
    queued_messages: int
    attempt: int
    attempts_allowed: int
    session: int
    session_expires: int
    here: bool
    stopping: bool
    subscribers: int
    ready: bool
    free_slots: int
    next: str
    pushes: _containers.RepeatedCompositeFieldContainer[_push_pb2.PushConfig]
    worker: str
    tokens: int
    cost: float
    trace_id: str
    delegated_tokens: int
    delegated_cost: float
    trace_url: str
    delegated: _containers.RepeatedCompositeFieldContainer[DelegatedTask]
    failure: _worker_pb2.Failure
    turn_at: int
    cause: str
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., scope: _Optional[str] = ..., principal: _Optional[str] = ..., context_id: _Optional[str] = ..., state: _Optional[str] = ..., since: _Optional[int] = ..., dialect: _Optional[str] = ..., last_event: _Optional[int] = ..., queued_messages: _Optional[int] = ..., attempt: _Optional[int] = ..., attempts_allowed: _Optional[int] = ..., session: _Optional[int] = ..., session_expires: _Optional[int] = ..., here: bool = ..., stopping: bool = ..., subscribers: _Optional[int] = ..., ready: bool = ..., free_slots: _Optional[int] = ..., next: _Optional[str] = ..., pushes: _Optional[_Iterable[_Union[_push_pb2.PushConfig, _Mapping]]] = ..., worker: _Optional[str] = ..., tokens: _Optional[int] = ..., cost: _Optional[float] = ..., trace_id: _Optional[str] = ..., delegated_tokens: _Optional[int] = ..., delegated_cost: _Optional[float] = ..., trace_url: _Optional[str] = ..., delegated: _Optional[_Iterable[_Union[DelegatedTask, _Mapping]]] = ..., failure: _Optional[_Union[_worker_pb2.Failure, _Mapping]] = ..., turn_at: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...

class DelegatedTask(_message.Message):
    __slots__ = ("task_id", "agent", "scope", "state", "created", "since")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    scope: str
    state: str
    created: int
    since: int
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., scope: _Optional[str] = ..., state: _Optional[str] = ..., created: _Optional[int] = ..., since: _Optional[int] = ...) -> None: ...

class Selection(_message.Message):
    __slots__ = ("task_id", "context_id", "principal", "older_than", "scope", "agent", "state")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    context_id: str
    principal: str
    older_than: _duration_pb2.Duration
    scope: str
    agent: str
    state: _a2a_pb2.TaskState
    def __init__(self, task_id: _Optional[str] = ..., context_id: _Optional[str] = ..., principal: _Optional[str] = ..., older_than: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., scope: _Optional[str] = ..., agent: _Optional[str] = ..., state: _Optional[_Union[_a2a_pb2.TaskState, str]] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("selection", "dry_run")
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    selection: Selection
    dry_run: bool
    def __init__(self, selection: _Optional[_Union[Selection, _Mapping]] = ..., dry_run: bool = ...) -> None: ...

class PurgeResponse(_message.Message):
    __slots__ = ("receipt", "dry_run")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    receipt: Receipt
    dry_run: bool
    def __init__(self, receipt: _Optional[_Union[Receipt, _Mapping]] = ..., dry_run: bool = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("number", "reason", "selection", "began", "ended", "tasks", "events", "messages", "artifacts", "chunks", "bytes", "digest")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    number: int
    reason: str
    selection: str
    began: _timestamp_pb2.Timestamp
    ended: _timestamp_pb2.Timestamp
    tasks: int
    events: int
    messages: int
    artifacts: int
    chunks: int
    bytes: int
    digest: str
    def __init__(self, number: _Optional[int] = ..., reason: _Optional[str] = ..., selection: _Optional[str] = ..., began: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tasks: _Optional[int] = ..., events: _Optional[int] = ..., messages: _Optional[int] = ..., artifacts: _Optional[int] = ..., chunks: _Optional[int] = ..., bytes: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class ExportTaskRequest(_message.Message):
    __slots__ = ("task_id", "agent", "principal", "scope")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    agent: str
    principal: str
    scope: str
    def __init__(self, task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ...) -> None: ...

class ExportTaskResponse(_message.Message):
    __slots__ = ("header", "task", "event", "message", "end", "push", "step", "content", "failure")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    header: ExportHeader
    task: _a2a_pb2.Task
    event: ExportedEvent
    message: ExportedMessage
    end: ExportEnd
    push: _push_pb2.PushConfig
    step: _steps_pb2.TaskStep
    content: ExportedContent
    failure: _worker_pb2.Failure
    def __init__(self, header: _Optional[_Union[ExportHeader, _Mapping]] = ..., task: _Optional[_Union[_a2a_pb2.Task, _Mapping]] = ..., event: _Optional[_Union[ExportedEvent, _Mapping]] = ..., message: _Optional[_Union[ExportedMessage, _Mapping]] = ..., end: _Optional[_Union[ExportEnd, _Mapping]] = ..., push: _Optional[_Union[_push_pb2.PushConfig, _Mapping]] = ..., step: _Optional[_Union[_steps_pb2.TaskStep, _Mapping]] = ..., content: _Optional[_Union[ExportedContent, _Mapping]] = ..., failure: _Optional[_Union[_worker_pb2.Failure, _Mapping]] = ...) -> None: ...

class ExportHeader(_message.Message):
    __slots__ = ("version", "dragoman", "exported", "task_id", "agent", "principal", "scope", "dialect")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DRAGOMAN_FIELD_NUMBER: _ClassVar[int]
    EXPORTED_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    version: int
    dragoman: str
    exported: _timestamp_pb2.Timestamp
    task_id: str
    agent: str
    principal: str
    scope: str
    dialect: str
    def __init__(self, version: _Optional[int] = ..., dragoman: _Optional[str] = ..., exported: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., task_id: _Optional[str] = ..., agent: _Optional[str] = ..., principal: _Optional[str] = ..., scope: _Optional[str] = ..., dialect: _Optional[str] = ...) -> None: ...

class ExportedEvent(_message.Message):
    __slots__ = ("sequence", "time", "event")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time: _timestamp_pb2.Timestamp
    event: _a2a_pb2.StreamResponse
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event: _Optional[_Union[_a2a_pb2.StreamResponse, _Mapping]] = ...) -> None: ...

class ExportedMessage(_message.Message):
    __slots__ = ("number", "message", "metadata", "accepted_output_modes")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_OUTPUT_MODES_FIELD_NUMBER: _ClassVar[int]
    number: int
    message: _a2a_pb2.Message
    metadata: _struct_pb2.Struct
    accepted_output_modes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, number: _Optional[int] = ..., message: _Optional[_Union[_a2a_pb2.Message, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., accepted_output_modes: _Optional[_Iterable[str]] = ...) -> None: ...

class ExportedContent(_message.Message):
    __slots__ = ("url", "offset", "data")
    URL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    url: str
    offset: int
    data: bytes
    def __init__(self, url: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ExportEnd(_message.Message):
    __slots__ = ("events", "messages", "pushes", "steps", "contents", "failures")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    events: int
    messages: int
    pushes: int
    steps: int
    contents: int
    failures: int
    def __init__(self, events: _Optional[int] = ..., messages: _Optional[int] = ..., pushes: _Optional[int] = ..., steps: _Optional[int] = ..., contents: _Optional[int] = ..., failures: _Optional[int] = ...) -> None: ...

class BackupRequest(_message.Message):
    __slots__ = ("destination",)
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    destination: str
    def __init__(self, destination: _Optional[str] = ...) -> None: ...

class BackupResponse(_message.Message):
    __slots__ = ("bytes", "total_bytes", "done")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    total_bytes: int
    done: bool
    def __init__(self, bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., done: bool = ...) -> None: ...

class ApiKey(_message.Message):
    __slots__ = ("id", "name", "principal", "grants", "created", "expires", "last_used", "rotated", "former_until", "revoked")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_FIELD_NUMBER: _ClassVar[int]
    ROTATED_FIELD_NUMBER: _ClassVar[int]
    FORMER_UNTIL_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    principal: str
    grants: _containers.RepeatedScalarFieldContainer[str]
    created: _timestamp_pb2.Timestamp
    expires: _timestamp_pb2.Timestamp
    last_used: _timestamp_pb2.Timestamp
    rotated: _timestamp_pb2.Timestamp
    former_until: _timestamp_pb2.Timestamp
    revoked: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., principal: _Optional[str] = ..., grants: _Optional[_Iterable[str]] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_used: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., rotated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., former_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revoked: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateKeyRequest(_message.Message):
    __slots__ = ("name", "principal", "grants", "lifetime")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    principal: str
    grants: _containers.RepeatedScalarFieldContainer[str]
    lifetime: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., principal: _Optional[str] = ..., grants: _Optional[_Iterable[str]] = ..., lifetime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CreateKeyResponse(_message.Message):
    __slots__ = ("key", "text")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    key: ApiKey
    text: str
    def __init__(self, key: _Optional[_Union[ApiKey, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...

class ListKeysRequest(_message.Message):
    __slots__ = ("all",)
    ALL_FIELD_NUMBER: _ClassVar[int]
    all: bool
    def __init__(self, all: bool = ...) -> None: ...

class ListKeysResponse(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[ApiKey]
    def __init__(self, keys: _Optional[_Iterable[_Union[ApiKey, _Mapping]]] = ...) -> None: ...

class RotateKeyRequest(_message.Message):
    __slots__ = ("id", "grace", "lifetime")
    ID_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_FIELD_NUMBER: _ClassVar[int]
    id: str
    grace: _duration_pb2.Duration
    lifetime: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., lifetime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RotateKeyResponse(_message.Message):
    __slots__ = ("key", "text")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    key: ApiKey
    text: str
    def __init__(self, key: _Optional[_Union[ApiKey, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...

class RevokeKeyRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class RevokeKeyResponse(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: ApiKey
    def __init__(self, key: _Optional[_Union[ApiKey, _Mapping]] = ...) -> None: ...

class ExportAuditRequest(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: int
    def __init__(self, after: _Optional[int] = ...) -> None: ...

class ExportAuditResponse(_message.Message):
    __slots__ = ("lines",)
    LINES_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lines: _Optional[_Iterable[str]] = ...) -> None: ...
