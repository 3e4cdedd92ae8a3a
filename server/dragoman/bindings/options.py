"""Options of the HTTP and gRPC servers, and the addresses they bind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dragoman.bindings.rejection_log import RejectionLog
from dragoman.core.access.identity import OPEN_ACCESS, AccessPolicy
from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.agent_sources import FileForm
from dragoman.core.counters import RequestMetrics
from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman.ports import Authenticator, Blobs, CertificateIdentifier
from dragoman.ports.extension import HttpPaths
from dragoman.ports.security import ServerCertificates, SignIn
from dragoman.ports.tracing import Tracer
from dragoman.wire.errors import ErrorTable

SHUTDOWN_GRACE_SECONDS: Final = 2.0  # seconds for calls in flight when a server stops; streams end at once
CREDENTIAL_CHECK_INTERVAL: Final = 5.0  # seconds between two checks of the credentials behind open streams


@dataclass(frozen=True, slots=True)
class BoundAddress:
    """The address a server listens on, with the port that the system assigned for port 0."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_any(self) -> bool:
        """Whether it listens on every address of the machine, so clients cannot connect to `host`."""
        return self.host in ("0.0.0.0", "::", "")

    def reachable(self, host: str) -> BoundAddress:
        """The same, with `host` instead of every address."""
        return replace(self, host=host) if self.is_any else self

    @property
    def url(self) -> str:
        """The HTTP URL, without a path."""
        return f"{'https' if self.tls else 'http'}://{self}"


DEFAULT_MAX_CONNECTIONS: Final = 4096  # maximum open connections of each of the two ports

DEFAULT_CONNECTION_CALLS: Final = 100

DEFAULT_MAX_BODY_BYTES: Final = 256 * 1024 * 1024  # maximum bytes of HTTP bodies being received at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTimeouts:
    """Timeouts of an HTTP connection, in seconds."""

    head: float = 20.0  # for the head of a request, after connecting or after its first byte
    body: float = 30.0  # for the body, plus one second for each `rate` bytes of it
    rate: int = 8192
    stalled: float = 300.0  # for a client that reads none of its pending data; it can resume its stream
    idle: float = 620.0  # between two requests: load balancers, which wait for up to 600 s, close first
    half_closed: float = 10.0  # for the response to a client that has closed its side: most of these have gone
    check_interval: float = 1.0  # between two checks of all connections


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of the gRPC and the HTTP server. Port 0 lets the system choose a free port."""

    host: str = "127.0.0.1"
    port: int = 0
    shared: bool = False  # other server processes share the port; the system distributes the connections
    message_bytes: int = MAX_MESSAGE_BYTES  # maximum of a decoded request: as in `runtime.access.Limits`
    error_table: ErrorTable = "1.0.1"  # the edition of A2A 1.0 whose status codes errors use
    v03_files: FileForm = "bytes"  # the form of files in `a2a.v1`
    grace: float = SHUTDOWN_GRACE_SECONDS
    credential_check_interval: float = CREDENTIAL_CHECK_INTERVAL
    grpc_handshake_timeout: float = 10.0  # seconds for the TLS handshake and the first HTTP/2 frames
    certificates: ServerCertificates | None = None  # TLS certificates of the server; None: no TLS
    connections: int = DEFAULT_MAX_CONNECTIONS
    connection_calls: int = DEFAULT_CONNECTION_CALLS
    """Maximum concurrent calls of one gRPC connection; further ones wait in the client (RFC 9113 §5.1.2)."""
    authenticator: Authenticator | None = None  # authenticates callers; None: every caller is `anonymous`
    client_certificates: CertificateIdentifier | None = None  # identifies callers, where certificates are requested
    access_policy: AccessPolicy = OPEN_ACCESS  # which agents accept calls without credentials
    behind_proxy: bool = False  # other machines call through a proxy, so no caller counts as one of this machine
    private_pages: bool = False  # cards, the list of agents, the OpenAPI document and /docs need credentials
    rejections: RejectionLog = field(default_factory=RejectionLog)
    request_metrics: RequestMetrics = field(default_factory=RequestMetrics)
    tracer: Tracer | None = None  # records the spans of calls
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process starts to stop: `/readyz` and gRPC health report it, calls are still served."""
    store_problem: Callable[[], str] = lambda: ""
    """Returns why the store is not usable, empty if it is; `/readyz` and gRPC health then report not ready."""

    # Of HTTP alone
    timeouts: HttpTimeouts = field(default_factory=HttpTimeouts)
    overflow_connections: int = 64  # connections beyond the maximum that still get an error response
    bodies: int = DEFAULT_MAX_BODY_BYTES
    keepalive: float = 15.0  # seconds between keep-alives on a silent stream
    cors: tuple[str, ...] = ()  # web origins that may call; `*` for all
    lossy_numbers: bool = False  # accept JSON integers beyond 2^53, which then lose digits
    issuers: tuple[Issuer, ...] = ()  # the trusted token issuers, to which clients are referred for tokens
    blobs: Blobs | None = None
    jwks: Callable[[], Awaitable[bytes]] | None = None
    """Returns the content of `/.well-known/jwks.json`; None when nothing is signed."""
    console: bool = True  # serve the console's page
    console_sign_in: SignIn | None = None  # sign-in of people at the console; None: with API keys and tokens only
    extension_paths: Sequence[tuple[HttpPaths, Any]] = ()  # the paths of extensions, with the settings of each
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]] | None = None
    """Returns text and media type of `/metrics` for an `Accept` header."""
    bus_problem: Callable[[], str] = lambda: ""  # empty for none; `/readyz` reports it and stays ready
