"""The ports: what the runtime needs from the world, and what an agent needs from the runtime.

`runtime/` is written against these and nothing else; `stores/`, `bus/` and `agents/` implement them. One contract
suite per port ships in `dragoman.testing`, and every adapter runs it.
"""

from dragoman.ports.agent import NOTHING, Agent, BufferFull, Desk, Ending, Notes, TurnOver
from dragoman.ports.apikeys import ApiKeys
from dragoman.ports.bus import Bus, Job, Signal, Stop
from dragoman.ports.outbound import Forbidden, NobodyThere, Outbound, Reply, Unreachable
from dragoman.ports.push import Letter, Letters, Pushes, PushKey, Signer
from dragoman.ports.security import Authenticator
from dragoman.ports.store import Blobs, Conversation, Copied, Snapshot, Store, StoredMessage, Tidied

__all__ = [
    "Agent",
    "ApiKeys",
    "Authenticator",
    "Blobs",
    "BufferFull",
    "Bus",
    "Conversation",
    "Copied",
    "Desk",
    "Ending",
    "Forbidden",
    "Job",
    "Letter",
    "Letters",
    "NOTHING",
    "NobodyThere",
    "Notes",
    "Outbound",
    "PushKey",
    "Pushes",
    "Reply",
    "Signal",
    "Signer",
    "Snapshot",
    "Stop",
    "Store",
    "StoredMessage",
    "Tidied",
    "TurnOver",
    "Unreachable",
]
