"""The ports: what the runtime needs from the world, and what an agent needs from the runtime.

`runtime/` is written against these and nothing else; `stores/`, `bus/` and `agents/` implement them. One contract
suite per port ships in `dragoman.testing`, and every adapter runs it.
"""

from dragoman.ports.agent import NOTHING, Agent, BufferFull, Desk, Elsewhere, Ending, Notes, ProcessLost, TurnOver
from dragoman.ports.apikeys import ApiKeys
from dragoman.ports.audit import AuditLog
from dragoman.ports.bus import Bus, Job, News, Signal, Stop
from dragoman.ports.cancels import Cancels
from dragoman.ports.outbound import Forbidden, NobodyThere, Opened, Outbound, Outlet, Reply, Unreachable
from dragoman.ports.papers import Papers
from dragoman.ports.push import Letter, Letters, Pushes, PushKey, Signer
from dragoman.ports.roster import Enrolled, Roster
from dragoman.ports.security import Authenticator, CertificateHolders
from dragoman.ports.signing import CardSigner, SigningKeys, Vault
from dragoman.ports.store import Blobs, Conversation, Copied, Snapshot, Store, StoredMessage, Tidied
from dragoman.ports.upstreams import Added, Directory, Standing, Upstreams
from dragoman.ports.workers import Enlist, Presence, Present, Switchboard

__all__ = [
    "Added",
    "Agent",
    "ApiKeys",
    "AuditLog",
    "Authenticator",
    "Blobs",
    "BufferFull",
    "Bus",
    "Cancels",
    "CardSigner",
    "CertificateHolders",
    "Conversation",
    "Copied",
    "Desk",
    "Directory",
    "Elsewhere",
    "Ending",
    "Enlist",
    "Enrolled",
    "Forbidden",
    "Job",
    "Letter",
    "Letters",
    "NOTHING",
    "News",
    "NobodyThere",
    "Notes",
    "Opened",
    "Outbound",
    "Outlet",
    "Papers",
    "Presence",
    "Present",
    "ProcessLost",
    "PushKey",
    "Pushes",
    "Reply",
    "Roster",
    "Signal",
    "Signer",
    "SigningKeys",
    "Snapshot",
    "Standing",
    "Stop",
    "Store",
    "StoredMessage",
    "Switchboard",
    "Tidied",
    "TurnOver",
    "Unreachable",
    "Vault",
    "Upstreams",
]
