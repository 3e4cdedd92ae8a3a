"""The ports: protocols between the runtime, its adapters and agents.

`runtime/` depends only on these; `stores/`, `bus/` and `agents/` implement them. `dragoman.testing` has a contract
suite for each port, which every adapter runs.
"""

# fmt: off
# isort: off
from dragoman.ports.agent import (
    AGENT_STOP_TIMEOUT, NO_CHANGE, Agent, AgentStillRuns, BufferFull, LeaseLost, Pause, RemoteAgent, StateUpdate,
    TurnContext, TurnResult, WORK_ELSEWHERE, WorkerLost, is_called,
    is_remote,
)
from dragoman.ports.bus import Bus, Job, RegistryChange, TaskSignal, Unsubscribe
from dragoman.ports.outbound import (
    ConnectFailed, OutboundFailed, OutboundForbidden, OutboundHttp, OutboundResponse, OutboundResponseStream,
    OutboundStreams,
)
from dragoman.ports.push import PushConfigKey, PushStore, WebhookEncoder, WebhookRequest, WebhookRequestSigner
from dragoman.ports.remote_agents import (
    AddedUpstream, AgentWorkers, RegisteredAgent, RemoteAgentRegistry, UpstreamRegistry, UpstreamStatus, UpstreamStore,
    WorkerHub, WorkerRegistry, WorkerStatus,
)
from dragoman.ports.security import (
    ApiKeys, AuditLog, Authenticator, CardSigner, CertificateIdentifier, SecretBox, SigningKeys,
)
from dragoman.ports.store import (
    AgentTasks, BackupProgress, Blobs, CancelRequests, CompactionResult, Erasures, KeyValues, Store, StoredMessage,
    TaskMessages, TaskSnapshot,
)
# isort: on

__all__ = [
    "AddedUpstream", "Agent", "AGENT_STOP_TIMEOUT", "AgentStillRuns", "AgentTasks", "AgentWorkers", "ApiKeys",
    "AuditLog", "Authenticator", "BackupProgress", "Blobs", "BufferFull", "Bus", "CancelRequests", "CardSigner",
    "CertificateIdentifier", "CompactionResult", "ConnectFailed", "Erasures", "is_called", "is_remote", "Job",
    "KeyValues", "LeaseLost", "NO_CHANGE", "OutboundFailed", "OutboundForbidden", "OutboundHttp", "OutboundResponse",
    "OutboundResponseStream", "OutboundStreams", "Pause", "PushConfigKey", "PushStore", "RegisteredAgent",
    "RegistryChange", "RemoteAgent", "RemoteAgentRegistry", "SecretBox", "SigningKeys", "StateUpdate", "Store",
    "StoredMessage", "TaskMessages", "TaskSignal", "TaskSnapshot", "TurnContext", "TurnResult", "Unsubscribe",
    "UpstreamRegistry", "UpstreamStatus", "UpstreamStore", "WebhookEncoder", "WebhookRequest", "WebhookRequestSigner",
    "WORK_ELSEWHERE", "WorkerHub", "WorkerLost", "WorkerRegistry", "WorkerStatus",
]
# fmt: on
