"""What both servers are told, and what they tell back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dragoman.bindings.request_log import AuthFailureLog, RequestMetrics
from dragoman.core.access.identity import OPEN_ACCESS, AccessPolicy
from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman.ports import Authenticator, Blobs, CertificateIdentifier
from dragoman.ports.security import ServerCertificates
from dragoman.runtime.observe.audit import Auditor
from dragoman.wire.errors import ErrorTable

SHUTDOWN_GRACE_SECONDS: Final = 5.0
"""Seconds that calls in flight get to end when a server stops; streams end at once."""


@dataclass(frozen=True, slots=True)
class BoundAddress:
    """Where a server really listens: the port the system gave, when it was asked for any."""

    host: str
    port: int
    tls: bool = False
    """Whether the port is encrypted."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_any(self) -> bool:
        """Whether it listens on every address of the machine, so that `host` is nothing to hand out."""
        return self.host in ("0.0.0.0", "::", "")

    @property
    def url(self) -> str:
        """The address for HTTP, without a path."""
        return f"{'https' if self.tls else 'http'}://{self}"


DEFAULT_MAX_CONNECTIONS: Final = 4096
"""Connections that each of the two ports holds open."""

DEFAULT_MAX_BODY_BYTES: Final = 256 * 1024 * 1024
"""Bytes of HTTP bodies that may be coming in at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTimeouts:
    """How slow an HTTP connection may be, in seconds."""

    head: float = 20.0
    """Until the head of a request is complete: after connecting, or after its first byte."""
    body: float = 30.0
    """Until the body is complete, and a second more for each `rate` bytes of it."""
    rate: int = 8192
    stalled: float = 300.0
    """For which a reader takes nothing of what is there for it; it can take up its stream again."""
    idle: float = 620.0
    """Between two requests: longer than balancers hold connections (Google's: 600 s), so that they end them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where to listen, and the limits. Port 0 asks the system for a free one."""

    host: str = "127.0.0.1"
    port: int = 0
    shared: bool = False
    """Other processes of ours listen on the same port, and the system gives each connection to one of them."""
    message_bytes: int = MAX_MESSAGE_BYTES
    """Decoded size of the largest request: the service's own limit, so that the wire lets such a request in."""
    error_table: ErrorTable = "1.0.1"
    """Which edition's status codes 1.0 errors have."""
    grace: float = SHUTDOWN_GRACE_SECONDS
    certificates: ServerCertificates | None = None
    """What the server proves itself with; without it the port is not encrypted."""
    connections: int = DEFAULT_MAX_CONNECTIONS
    """Open at the same time."""
    authenticator: Authenticator | None = None
    """Who knows callers; without it everyone is `anonymous`."""
    client_certificates: CertificateIdentifier | None = None
    """Who knows callers by their certificates, where those are asked for."""
    access_policy: AccessPolicy = OPEN_ACCESS
    """Whom it lets in without credentials."""
    private_pages: bool = False
    """Cards, the catalogue, the description and its page are only for callers who show who they are."""
    auth_failures: AuthFailureLog = field(default_factory=AuthFailureLog)
    """Who tells the log of those who were refused."""
    channelz: bool = False
    """Shows operators the connections of the gRPC port."""
    request_metrics: RequestMetrics = field(default_factory=RequestMetrics)
    """Who counts requests."""
    auditor: Auditor | None = None
    """Who tells the audit log of operators' verbs."""
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process begins to stop: `/readyz` and gRPC health then say so. Calls are still served."""


def _always_ready() -> bool:
    return True


def _no_problem() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions(ServerOptions):
    """What only HTTP is told."""

    timeouts: HttpTimeouts = field(default_factory=HttpTimeouts)
    bodies: int = DEFAULT_MAX_BODY_BYTES
    """Bytes of bodies that may be coming in at the same time."""
    keepalive: float = 15.0
    """Seconds between signs of life on a silent stream."""
    cors: tuple[str, ...] = ()
    """Origins whose pages may call; `*` for all."""
    lossy_numbers: bool = False
    """Accepts JSON integers beyond 2^53, which then lose digits."""
    openapi: Mapping[str, bytes] = field(default_factory=dict)
    """Files to serve under `/openapi/`, by relative path."""
    blobs: Blobs | None = None
    """What `/blobs/` serves."""
    jwks: Callable[[], Awaitable[bytes]] | None = None
    """What `/.well-known/jwks.json` serves, where letters are signed."""
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]] | None = None
    """What `/metrics` shows to operators: text and media type, for an `Accept` header."""
    ready: Callable[[], bool] = _always_ready
    """Further conditions for `/readyz`."""
    bus_problem: Callable[[], str] = _no_problem
    """What is wrong with the bus, if anything: everything is served, but `/readyz` says it."""
