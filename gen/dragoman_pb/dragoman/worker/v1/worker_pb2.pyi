import datetime

from google.protobuf import duration_pb2 as _duration_pb2
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

class StepState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_STATE_UNSPECIFIED: _ClassVar[StepState]
    STEP_STATE_RUNNING: _ClassVar[StepState]
    STEP_STATE_DONE: _ClassVar[StepState]
    STEP_STATE_FAILED: _ClassVar[StepState]
    STEP_STATE_SLEEPING: _ClassVar[StepState]
STEP_STATE_UNSPECIFIED: StepState
STEP_STATE_RUNNING: StepState
STEP_STATE_DONE: StepState
STEP_STATE_FAILED: StepState
STEP_STATE_SLEEPING: StepState

class ConnectRequest(_message.Message):
    __slots__ = ("hello", "heartbeat", "credit", "events", "message_request", "cancel_refused", "turn_end", "drain", "usage", "task_call")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REFUSED_FIELD_NUMBER: _ClassVar[int]
    TURN_END_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TASK_CALL_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    credit: Credit
    events: Events
    message_request: MessageRequest
    cancel_refused: CancelRefused
    turn_end: TurnEnd
    drain: Drain
    usage: Usage
    task_call: TaskCall
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., events: _Optional[_Union[Events, _Mapping]] = ..., message_request: _Optional[_Union[MessageRequest, _Mapping]] = ..., cancel_refused: _Optional[_Union[CancelRefused, _Mapping]] = ..., turn_end: _Optional[_Union[TurnEnd, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., task_call: _Optional[_Union[TaskCall, _Mapping]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("welcome", "heartbeat", "turn_start", "committed", "message_arrived", "cancel", "stopping", "turn_revoked", "task_call_result")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    TURN_START_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ARRIVED_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    TURN_REVOKED_FIELD_NUMBER: _ClassVar[int]
    TASK_CALL_RESULT_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    heartbeat: Heartbeat
    turn_start: TurnStart
    committed: Committed
    message_arrived: MessageArrived
    cancel: Cancel
    stopping: Stopping
    turn_revoked: TurnRevoked
    task_call_result: TaskCallResult
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., turn_start: _Optional[_Union[TurnStart, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., message_arrived: _Optional[_Union[MessageArrived, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., stopping: _Optional[_Union[Stopping, _Mapping]] = ..., turn_revoked: _Optional[_Union[TurnRevoked, _Mapping]] = ..., task_call_result: _Optional[_Union[TaskCallResult, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("name", "agents")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    agents: _containers.RepeatedCompositeFieldContainer[AgentRegistration]
    def __init__(self, name: _Optional[str] = ..., agents: _Optional[_Iterable[_Union[AgentRegistration, _Mapping]]] = ...) -> None: ...

class AgentRegistration(_message.Message):
    __slots__ = ("id", "card", "extended_skills", "direct", "uncancelable", "refuses_messages", "crash_retries", "idle_limit", "time_limit", "retention", "history_length", "turns", "max_attempts")
    class RetentionEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _duration_pb2.Duration
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    EXTENDED_SKILLS_FIELD_NUMBER: _ClassVar[int]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    UNCANCELABLE_FIELD_NUMBER: _ClassVar[int]
    REFUSES_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CRASH_RETRIES_FIELD_NUMBER: _ClassVar[int]
    IDLE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_LENGTH_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    card: _a2a_pb2.AgentCard
    extended_skills: _containers.RepeatedCompositeFieldContainer[_a2a_pb2.AgentSkill]
    direct: bool
    uncancelable: bool
    refuses_messages: bool
    crash_retries: int
    idle_limit: _duration_pb2.Duration
    time_limit: _duration_pb2.Duration
    retention: _containers.MessageMap[str, _duration_pb2.Duration]
    history_length: int
    turns: int
    max_attempts: int
    def __init__(self, id: _Optional[str] = ..., card: _Optional[_Union[_a2a_pb2.AgentCard, _Mapping]] = ..., extended_skills: _Optional[_Iterable[_Union[_a2a_pb2.AgentSkill, _Mapping]]] = ..., direct: bool = ..., uncancelable: bool = ..., refuses_messages: bool = ..., crash_retries: _Optional[int] = ..., idle_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., time_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retention: _Optional[_Mapping[str, _duration_pb2.Duration]] = ..., history_length: _Optional[int] = ..., turns: _Optional[int] = ..., max_attempts: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("number", "lease")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    number: int
    lease: _duration_pb2.Duration
    def __init__(self, number: _Optional[int] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("agent_id", "turns")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    turns: int
    def __init__(self, agent_id: _Optional[str] = ..., turns: _Optional[int] = ...) -> None: ...

class Events(_message.Message):
    __slots__ = ("turn_id", "number", "events", "state_update")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    STATE_UPDATE_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    number: int
    events: _containers.RepeatedCompositeFieldContainer[Event]
    state_update: StateUpdate
    def __init__(self, turn_id: _Optional[str] = ..., number: _Optional[int] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., state_update: _Optional[_Union[StateUpdate, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("status", "artifact", "text")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    status: StatusChange
    artifact: ArtifactChange
    text: TextChunk
    def __init__(self, status: _Optional[_Union[StatusChange, _Mapping]] = ..., artifact: _Optional[_Union[ArtifactChange, _Mapping]] = ..., text: _Optional[_Union[TextChunk, _Mapping]] = ...) -> None: ...

class StatusChange(_message.Message):
    __slots__ = ("state", "message", "metadata", "failure")
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    state: _a2a_pb2.TaskState
    message: _a2a_pb2.Message
    metadata: _struct_pb2.Struct
    failure: Failure
    def __init__(self, state: _Optional[_Union[_a2a_pb2.TaskState, str]] = ..., message: _Optional[_Union[_a2a_pb2.Message, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("type", "text", "frames", "step", "causes", "attempt", "ended")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    type: str
    text: str
    frames: _containers.RepeatedCompositeFieldContainer[FailureFrame]
    step: str
    causes: _containers.RepeatedScalarFieldContainer[str]
    attempt: int
    ended: _timestamp_pb2.Timestamp
    def __init__(self, type: _Optional[str] = ..., text: _Optional[str] = ..., frames: _Optional[_Iterable[_Union[FailureFrame, _Mapping]]] = ..., step: _Optional[str] = ..., causes: _Optional[_Iterable[str]] = ..., attempt: _Optional[int] = ..., ended: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class FailureFrame(_message.Message):
    __slots__ = ("file", "line", "function", "code")
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    function: str
    code: str
    def __init__(self, file: _Optional[str] = ..., line: _Optional[int] = ..., function: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class ArtifactChange(_message.Message):
    __slots__ = ("artifact", "append", "last_chunk", "metadata")
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    LAST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    artifact: _a2a_pb2.Artifact
    append: bool
    last_chunk: bool
    metadata: _struct_pb2.Struct
    def __init__(self, artifact: _Optional[_Union[_a2a_pb2.Artifact, _Mapping]] = ..., append: bool = ..., last_chunk: bool = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class TextChunk(_message.Message):
    __slots__ = ("artifact_id", "text", "append", "last_chunk", "metadata")
    ARTIFACT_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    LAST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    artifact_id: str
    text: str
    append: bool
    last_chunk: bool
    metadata: _struct_pb2.Struct
    def __init__(self, artifact_id: _Optional[str] = ..., text: _Optional[str] = ..., append: bool = ..., last_chunk: bool = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class StateUpdate(_message.Message):
    __slots__ = ("task_state", "context_state", "task_metadata", "steps")
    TASK_STATE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_STATE_FIELD_NUMBER: _ClassVar[int]
    TASK_METADATA_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    task_state: str
    context_state: str
    task_metadata: _struct_pb2.Struct
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    def __init__(self, task_state: _Optional[str] = ..., context_state: _Optional[str] = ..., task_metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("name", "number", "position", "state", "attempt", "started", "ended", "wake_at", "result", "error", "details")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WAKE_AT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    position: int
    state: StepState
    attempt: int
    started: _timestamp_pb2.Timestamp
    ended: _timestamp_pb2.Timestamp
    wake_at: _timestamp_pb2.Timestamp
    result: _a2a_pb2.Part
    error: str
    details: StepDetails
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., position: _Optional[int] = ..., state: _Optional[_Union[StepState, str]] = ..., attempt: _Optional[int] = ..., started: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., wake_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., result: _Optional[_Union[_a2a_pb2.Part, _Mapping]] = ..., error: _Optional[str] = ..., details: _Optional[_Union[StepDetails, _Mapping]] = ...) -> None: ...

class StepDetails(_message.Message):
    __slots__ = ("input", "failures")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    input: str
    failures: _containers.RepeatedCompositeFieldContainer[Failure]
    def __init__(self, input: _Optional[str] = ..., failures: _Optional[_Iterable[_Union[Failure, _Mapping]]] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("turn_id", "number")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    number: int
    def __init__(self, turn_id: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("turn_id", "tokens", "cost", "key")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    tokens: int
    cost: int
    key: str
    def __init__(self, turn_id: _Optional[str] = ..., tokens: _Optional[int] = ..., cost: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class MessageRequest(_message.Message):
    __slots__ = ("turn_id",)
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    def __init__(self, turn_id: _Optional[str] = ...) -> None: ...

class MessageArrived(_message.Message):
    __slots__ = ("turn_id", "message", "envelope")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    message: _a2a_pb2.Message
    envelope: _a2a_pb2.SendMessageRequest
    def __init__(self, turn_id: _Optional[str] = ..., message: _Optional[_Union[_a2a_pb2.Message, _Mapping]] = ..., envelope: _Optional[_Union[_a2a_pb2.SendMessageRequest, _Mapping]] = ...) -> None: ...

class TaskCall(_message.Message):
    __slots__ = ("turn_id", "number", "send", "get", "cancel")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    number: int
    send: _a2a_pb2.SendMessageRequest
    get: _a2a_pb2.GetTaskRequest
    cancel: _a2a_pb2.CancelTaskRequest
    def __init__(self, turn_id: _Optional[str] = ..., number: _Optional[int] = ..., send: _Optional[_Union[_a2a_pb2.SendMessageRequest, _Mapping]] = ..., get: _Optional[_Union[_a2a_pb2.GetTaskRequest, _Mapping]] = ..., cancel: _Optional[_Union[_a2a_pb2.CancelTaskRequest, _Mapping]] = ...) -> None: ...

class TaskCallResult(_message.Message):
    __slots__ = ("turn_id", "number", "task", "error", "reason")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    number: int
    task: _a2a_pb2.Task
    error: str
    reason: str
    def __init__(self, turn_id: _Optional[str] = ..., number: _Optional[int] = ..., task: _Optional[_Union[_a2a_pb2.Task, _Mapping]] = ..., error: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelRefused(_message.Message):
    __slots__ = ("turn_id", "reason")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    reason: str
    def __init__(self, turn_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class TurnEnd(_message.Message):
    __slots__ = ("turn_id", "status", "reply", "canceled", "released", "pause", "artifacts", "state_update")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    STATE_UPDATE_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    status: StatusChange
    reply: _a2a_pb2.Message
    canceled: Canceled
    released: Released
    pause: Pause
    artifacts: _containers.RepeatedCompositeFieldContainer[ArtifactChange]
    state_update: StateUpdate
    def __init__(self, turn_id: _Optional[str] = ..., status: _Optional[_Union[StatusChange, _Mapping]] = ..., reply: _Optional[_Union[_a2a_pb2.Message, _Mapping]] = ..., canceled: _Optional[_Union[Canceled, _Mapping]] = ..., released: _Optional[_Union[Released, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., artifacts: _Optional[_Iterable[_Union[ArtifactChange, _Mapping]]] = ..., state_update: _Optional[_Union[StateUpdate, _Mapping]] = ...) -> None: ...

class Canceled(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Released(_message.Message):
    __slots__ = ("not_begun", "reason")
    NOT_BEGUN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    not_begun: bool
    reason: str
    def __init__(self, not_begun: bool = ..., reason: _Optional[str] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ("until", "error")
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    until: _timestamp_pb2.Timestamp
    error: str
    def __init__(self, until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("principal", "heartbeat", "lease", "max_frame_bytes")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    principal: str
    heartbeat: _duration_pb2.Duration
    lease: _duration_pb2.Duration
    max_frame_bytes: int
    def __init__(self, principal: _Optional[str] = ..., heartbeat: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_frame_bytes: _Optional[int] = ...) -> None: ...

class TurnStart(_message.Message):
    __slots__ = ("turn_id", "agent_id", "task_id", "context_id", "principal", "message", "envelope", "history", "turns_before", "question", "references", "task_state", "context_state", "attempt", "previous_artifacts", "time_limit", "traceparent", "task_metadata", "steps", "turn_number", "show_error_texts", "now")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    TURNS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    TASK_STATE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TASK_METADATA_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TURN_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SHOW_ERROR_TEXTS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    agent_id: str
    task_id: str
    context_id: str
    principal: str
    message: _a2a_pb2.Message
    envelope: _a2a_pb2.SendMessageRequest
    history: _containers.RepeatedCompositeFieldContainer[_a2a_pb2.Message]
    turns_before: int
    question: _a2a_pb2.Message
    references: _containers.RepeatedCompositeFieldContainer[_a2a_pb2.Task]
    task_state: str
    context_state: str
    attempt: int
    previous_artifacts: _containers.RepeatedCompositeFieldContainer[_a2a_pb2.Artifact]
    time_limit: _duration_pb2.Duration
    traceparent: str
    task_metadata: _struct_pb2.Struct
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    turn_number: int
    show_error_texts: bool
    now: _timestamp_pb2.Timestamp
    def __init__(self, turn_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., task_id: _Optional[str] = ..., context_id: _Optional[str] = ..., principal: _Optional[str] = ..., message: _Optional[_Union[_a2a_pb2.Message, _Mapping]] = ..., envelope: _Optional[_Union[_a2a_pb2.SendMessageRequest, _Mapping]] = ..., history: _Optional[_Iterable[_Union[_a2a_pb2.Message, _Mapping]]] = ..., turns_before: _Optional[int] = ..., question: _Optional[_Union[_a2a_pb2.Message, _Mapping]] = ..., references: _Optional[_Iterable[_Union[_a2a_pb2.Task, _Mapping]]] = ..., task_state: _Optional[str] = ..., context_state: _Optional[str] = ..., attempt: _Optional[int] = ..., previous_artifacts: _Optional[_Iterable[_Union[_a2a_pb2.Artifact, _Mapping]]] = ..., time_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., traceparent: _Optional[str] = ..., task_metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., turn_number: _Optional[int] = ..., show_error_texts: bool = ..., now: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("turn_id", "reason", "metadata")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    reason: str
    metadata: _struct_pb2.Struct
    def __init__(self, turn_id: _Optional[str] = ..., reason: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Stopping(_message.Message):
    __slots__ = ("turn_id",)
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    def __init__(self, turn_id: _Optional[str] = ...) -> None: ...

class TurnRevoked(_message.Message):
    __slots__ = ("turn_id", "reason")
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    reason: str
    def __init__(self, turn_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
