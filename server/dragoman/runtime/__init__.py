"""The runtime: what happens to tasks. Uses ports only, never a transport, database or broker by name."""

from dragoman.runtime.access import Call, Limits
from dragoman.runtime.assembly import AuditOptions, Operations, Ports, Runtime, RuntimeConfig, open_runtime
from dragoman.runtime.push.delivery import PushOptions
from dragoman.runtime.turn.events import Coalesce

__all__ = [
    "AuditOptions",
    "Call",
    "Coalesce",
    "Limits",
    "Operations",
    "Ports",
    "PushOptions",
    "Runtime",
    "RuntimeConfig",
    "open_runtime",
]
