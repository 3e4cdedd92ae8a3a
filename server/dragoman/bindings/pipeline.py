"""The path of a request: ten steps, in one order, for every binding.

1. authenticate: who calls, by the credentials of the transport (A2A 1.0 §7)
2. rate: count the request; a caller over its rate gets no further
3. trace: continue the caller's trace, if traces are recorded
4. read: the body, within the limits
5. version: reject unknown values of `A2A-Version` (1.0 §3.6)
6. decode: find the row of the method table, and convert the dialect's request to that of 1.0
7. authorize: whether the caller may call the agent, and whose tasks it sees
8. call: the operation
9. encode: the response, or each event of a stream, in the dialect
10. observe: metrics, access log, span

`Pipeline.serve` runs them. A binding supplies a `RequestExchange`: how it reads a request and how it answers. An error
in any step becomes the binding's error response, and is observed too.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Final, Generic, TypeVar

import grpc
from aiohttp import web
from google.protobuf.message import Message
from multidict import MultiMapping

from dragoman.bindings.cards import Cards
from dragoman.bindings.http.connections import PlainRequest
from dragoman.bindings.method_table import ExtensionRow, JsonRpcRow, RpcRow
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.stream_registry import OpenStream, StreamRegistry
from dragoman.core import errors
from dragoman.core.access.identity import ANONYMOUS, OPERATOR_GRANT, Caller, Identity
from dragoman.core.access.local_callers import is_local_caller
from dragoman.core.cards.agent_spec import RESUME_EXTENSION, SERVER_EXTENSIONS, with_cursor
from dragoman.core.names import DEFAULT_SCOPE
from dragoman.core.task.log import Event
from dragoman.core.trace import CURRENT_TRACE, TRACE_HEADER, is_recorded, parse_traceparent
from dragoman.ports.tracing import Span
from dragoman.runtime import Operations
from dragoman.runtime.access import Call
from dragoman.runtime.feeds import EventStream
from dragoman.supervision import log_fault
from dragoman.wire.dialects import Dialect
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CallerConnection = web.BaseRequest | PlainRequest | grpc.aio.ServicerContext[bytes, bytes]
"""An HTTP request, or the context of a gRPC call."""

_log: Final = logging.getLogger("dragoman.bindings.pipeline")

Answer = TypeVar("Answer")


class ClientDisconnected(Exception):
    """The response cannot be sent: the client has disconnected."""


class RequestExchange(ABC, Generic[Answer]):
    """One request, and the way back to its caller. `Answer`: what the binding's server takes as the response."""

    DISCONNECTED_STATUS: ClassVar[str]  # the status, in logs and metrics, of a request whose client disconnected

    is_public = False  # whether the request needs no credentials: it reads a public card
    row: RpcRow | JsonRpcRow | ExtensionRow  # the row of the method table; known after `decode`
    caller: Caller  # known after authorization

    def __init__(
        self,
        pipeline: Pipeline,
        log_entry: RequestLogEntry,
        headers: MultiMapping[str],
        connection: CallerConnection,
        tenant: str = "",
    ) -> None:
        """`headers`: HTTP headers or gRPC metadata. `tenant`: of the path, which wins over the request's."""
        self.pipeline = pipeline
        self.log_entry = log_entry
        self.headers = headers
        self.connection = connection
        self.tenant = tenant
        self.identity: Identity = ANONYMOUS
        self.version = ""  # the `A2A-Version` of the request, as written; empty for none
        self.extensions: tuple[str, ...] = ()  # the URIs of the extensions that the caller requests
        self.status: object = "OK"

    @property
    @abstractmethod
    def peer(self) -> str:
        """The client's address."""

    @property
    def name(self) -> str:
        """How the log of rejected requests names this one."""
        return self.log_entry.method

    def credentials(self) -> Iterable[tuple[str, str]]:
        """The headers that may contain credentials."""
        return self.headers.items()

    def versions(self) -> Iterable[str]:
        """Every `A2A-Version` of the request."""
        return self.headers.getall(VERSION_HEADER, ())

    def activation_headers(self) -> dict[str, str]:
        """The response header that names the requested extensions which the agent supports; empty for none."""
        if not self.extensions or (spec := self.pipeline.cards.agents.get(self.caller.agent)) is None:
            return {}
        declared = {extension.uri for extension in (*spec.extensions, *SERVER_EXTENSIONS)}
        activated = ", ".join(uri for uri in self.extensions if uri in declared)
        name = V03_EXTENSIONS_HEADER if self.row.dialect in _V03_HEADER_DIALECTS else EXTENSIONS_HEADER
        if name not in self.headers:  # fasta2a 2.x uses the header of 1.0 in both versions
            name = EXTENSIONS_HEADER if name == V03_EXTENSIONS_HEADER else V03_EXTENSIONS_HEADER
        return {name: activated} if activated else {}

    @abstractmethod
    async def read(self) -> None:
        """Reads and parses the body. Raises A2AError."""

    @abstractmethod
    async def decode(self) -> Any:
        """Sets `row`, and returns the request as a message of 1.0. Raises A2AError."""

    @abstractmethod
    def call(self) -> Call:
        """Returns the call of `caller`, with what transport and dialect imply."""

    @abstractmethod
    async def describe(self) -> Answer:
        """Returns the response to a request that needs no operation: a card, or what the server offers."""

    @abstractmethod
    async def respond(self, response: bytes) -> Answer:
        """Returns the response. `response`: a serialized message of 1.0."""

    @abstractmethod
    async def stream(self, events: EventStream, registration: OpenStream) -> Answer:
        """Sends events until they end or the client disconnects. Raises the error of a stream without an event."""

    @abstractmethod
    async def reject(self, error: Exception) -> Answer:
        """Sets `status`, and returns the error response."""


@dataclass(eq=False)
class Pipeline:
    """Runs the requests of one port, with everything that their steps need."""

    operations: Operations
    cards: Cards
    options: ServerOptions
    streams: StreamRegistry

    async def serve(self, exchange: RequestExchange[Answer]) -> Answer:
        """Runs a request. Errors become responses.

        A disconnected client raises CancelledError, or ClientDisconnected if a write shows it.
        """
        operations, options, headers, log_entry = self.operations, self.options, exchange.headers, exchange.log_entry
        try:
            # 1 authenticate
            identity = ANONYMOUS
            if options.authenticator is not None:
                identity = exchange.identity = await authenticate(
                    exchange.credentials(), options, exchange.connection, public=exchange.is_public
                )
            # 2 rate
            operations.admission.check_rate(identity)
            # 3 trace
            if options.tracer is not None:
                log_entry.start_trace(headers.get(TRACE_HEADER, ""))
            # 4 read
            await exchange.read()
            # 5 version
            exchange.version = check_version(exchange.versions())
            exchange.extensions = requested_extensions(headers)
            # 6 decode
            request = await exchange.decode()
            # 7 authorize
            op = exchange.row.op
            if op.names_agent:
                caller = exchange.caller = operations.access.authorize(
                    exchange.tenant or request.tenant, identity, public=exchange.is_public
                )
                log_entry.agent, log_entry.identity, log_entry.request = caller.agent, caller.identity, request
            # 8 call, 9 encode
            if op.operation is None:
                answer = await exchange.describe()
            else:
                response = op.operation(operations)(exchange.call(), request)
                if op.streaming:
                    with self.streams.open(identity) as registration:
                        answer = await exchange.stream(response, registration)
                else:
                    answer = await exchange.respond(await response)
        except ClientDisconnected:
            log_entry.finish(exchange.DISCONNECTED_STATUS)
            raise
        except Exception as error:
            return await self.reject(exchange, error)
        except asyncio.CancelledError:
            end_reason = self.streams.take_end_reason()
            if end_reason is None:
                log_entry.finish(exchange.DISCONNECTED_STATUS)
                raise
            return await self.reject(exchange, end_reason)
        # 10 observe
        log_entry.finish(exchange.status)
        return answer

    async def reject(self, exchange: RequestExchange[Answer], error: Exception) -> Answer:
        self.record_failure(error, exchange.peer, exchange.name, exchange.log_entry.agent, exchange.identity)
        try:
            return await exchange.reject(error)
        finally:
            exchange.log_entry.finish(exchange.status)

    def record_failure(
        self, error: Exception, peer: str, name: str, agent: str = "", identity: Identity = ANONYMOUS
    ) -> None:
        """Logs a fault of the server, or the rejection of a caller. `name`: of the request."""
        log_call_fault(error, name)
        self.options.rejections.record(error, peer=peer, method=name, agent=agent, identity=identity)

    async def task_dialect(self, exchange: RequestExchange[Any], tenant: str, task_id: str) -> str:
        """The dialect in which a task was created; empty if the caller sees no such task. Before authorization."""
        try:
            caller = self.operations.access.authorize(exchange.tenant or tenant, exchange.identity)
        except errors.A2AError:
            return ""  # authorization raises it again
        return await self.operations.read.dialect_of(caller, task_id)

    async def listed_dialect(self, caller: Caller, response: bytes) -> str:
        """The dialect of the newest task in a serialized ListTasksResponse; empty without tasks."""
        tasks = pb.ListTasksResponse.FromString(response).tasks
        return await self.operations.read.dialect_of(caller, tasks[0].id) if tasks else ""


def log_call_fault(error: Exception, name: str) -> None:
    """Logs an error that is a fault of the server; its caller does not see the text. `name`: of the request."""
    if not isinstance(error, errors.A2AError):
        log_fault(_log, f"{name} failed", error)


# ---- steps 1 and 7: authentication and authorization, the same for every binding
#
# Credentials come from the transport (A2A 1.0 §7), never from the message. Without an authenticator every caller is
# anonymous. With one, requests with invalid credentials are rejected before anything else is read, and so are requests
# without credentials when no agent is public.

CREDENTIALS_REQUIRED: Final = "credentials are required: send Authorization: Bearer CREDENTIALS"


async def authenticate(
    headers: Iterable[tuple[str, str]], options: ServerOptions, connection: CallerConnection, *, public: bool = False
) -> Identity:
    """The identity behind HTTP headers or gRPC metadata, and behind the connection's client certificate.

    Credentials in headers win over a certificate, since a proxy may call for others. `public`: the requested resource
    needs no credentials.

    Raises Unauthenticated for invalid credentials, and for missing ones where they are required.
    """
    if options.authenticator is None:
        return ANONYMOUS
    holder = None
    if options.client_certificates is not None and (certificate := peer_certificate(connection)):
        holder = options.client_certificates.identify(certificate)
    identity = await options.authenticator.authenticate(headers) or holder
    if identity is None and options.access_policy.is_closed and not public:
        hint = ", or connect with a certificate" if options.client_certificates is not None else ""
        raise errors.Unauthenticated(CREDENTIALS_REQUIRED + hint)
    return identity or ANONYMOUS


async def authenticate_visitor(
    headers: Iterable[tuple[str, str]],
    options: ServerOptions,
    connection: CallerConnection,
    agent: str = "",
    scope: str = DEFAULT_SCOPE,
) -> Identity:
    """The identity of a caller that reads a page, or an agent's card in a scope; anonymous unless pages are private.

    Raises Unauthenticated, and AgentNotFound for an agent that this caller may not call.
    """
    if not options.private_pages:
        return ANONYMOUS
    identity = await authenticate(headers, options, connection, public=True)
    if not identity.is_authenticated and not (agent and options.access_policy.is_public(agent)):
        raise errors.Unauthenticated(CREDENTIALS_REQUIRED)
    if agent and not identity.may_call(scope, agent):
        raise errors.AgentNotFound
    return identity


async def authenticate_operator(
    headers: Iterable[tuple[str, str]],
    options: ServerOptions,
    connection: CallerConnection,
    *,
    grant: str = OPERATOR_GRANT,
    limited: bool = False,
) -> Identity:
    """The identity of the operator. Without authentication every caller is one: other machines are rejected before.

    `grant`: is enough, as is that of operators. `limited`: the operation can be limited to scopes and agents of grants.

    Raises Unauthenticated for a caller without credentials, PermissionDenied for one without the grant.
    """
    if options.authenticator is None:
        return ANONYMOUS
    identity = await authenticate(headers, options, connection)
    if not identity.is_authenticated:
        raise errors.Unauthenticated("operations are for operators; send credentials with the operator grant")
    if not (identity.is_operator or grant in identity.grants):
        grants = " or ".join(f'"{name}"' for name in dict.fromkeys((OPERATOR_GRANT, grant)))
        raise errors.PermissionDenied(f"this operation needs the grant {grants}", log_details=identity.log_details)
    if identity.is_limited and not limited:
        text = "this operation on the whole server needs credentials without grants for scopes or agents"
        raise errors.PermissionDenied(text, log_details=identity.log_details)
    return identity


def challenge_headers(error: BaseException, *, resource_metadata: str = "") -> dict[str, str]:
    """The `WWW-Authenticate` header of a rejection (RFC 9110 §11.6.1, RFC 6750 §3); empty for other errors.

    All supported credentials can be sent as bearer tokens, so Bearer is the only scheme named. `resource_metadata`: URL
    that tells clients of OAuth where they get a token (RFC 9728 §5.1), from `well_known.resource_metadata_url`.
    """
    if isinstance(error, errors.Unauthenticated):
        code, scope = error.error, ""
    elif not isinstance(error, errors.PermissionDenied) or isinstance(error, errors.OriginNotAllowed):
        return {}  # no credentials would help
    else:
        code, scope = "insufficient_scope", error.scope
    description = error.message if code else ""
    values = {"error": code, "error_description": description, "scope": scope, "resource_metadata": resource_metadata}
    named = [f'{name}="{_quotable(value)}"' for name, value in values.items() if value]
    return {"WWW-Authenticate": ", ".join(('Bearer realm="dragoman"', *named))}


def _quotable(text: str) -> str:
    """Reduces a text to the characters allowed in a quoted value (RFC 6750 §3)."""
    return "".join("'" if char in '"\\' else char for char in text if " " <= char <= "~")


def is_local(headers: Iterable[tuple[str, str]], options: ServerOptions, connection: CallerConnection) -> bool:
    """Whether a caller is on this machine, and no proxy calls for it."""
    if isinstance(connection, PlainRequest | web.BaseRequest):
        return is_local_caller(connection.remote or "", headers, behind_proxy=options.behind_proxy, names_host=True)
    return is_local_caller(connection.peer(), headers, behind_proxy=options.behind_proxy)


LOCAL_ONLY: Final = (
    "without authentication, {what} on this machine only, and not behind a proxy; run the server with --api-keys, "
    "--issuers, --tls-client-ca or --token"
)
"""The error for callers of other machines; `what` says what is allowed."""


def peer_certificate(connection: CallerConnection) -> bytes:
    """The client's certificate (DER or PEM), verified by the TLS handshake; empty without one."""
    if isinstance(connection, PlainRequest | web.BaseRequest):
        ssl_object = connection.transport.get_extra_info("ssl_object") if connection.transport else None
        return (ssl_object.getpeercert(binary_form=True) or b"") if ssl_object is not None else b""
    certificates = connection.auth_context().get("x509_pem_cert") or ()
    return next(iter(certificates), b"")


# ---- step 5: the `A2A-Version` and `A2A-Extensions` headers (A2A 1.0 §3.6)
#
# The dialect of a call follows from its service, path or shape. The specification's own examples send 1.0 calls under
# `A2A-Version: 0.3`, and most clients send no version. So the version only serves to reject unknown versions, to choose
# 1.0 on Google's resource paths, and to choose among dialects whose calls look alike.

VERSION_HEADER: Final = "A2A-Version"
SUPPORTED_VERSIONS: Final = ("1.0", "0.3", "0.2", "0.1")

# `Major.Minor`, and an ignored patch. Later minors of 1 are compatible by semantic versioning.
_VERSION_PATTERN: Final = re.compile(r"1(\.[0-9]{1,9}){0,2}|0\.[123](\.[0-9]{1,9})?")


def check_version(values: Iterable[str]) -> str:
    """Validates header values, each possibly a list, and returns the version named, as written; empty for none.

    There are several values when a client library adds its own to its caller's; 1.x wins over the others. Raises
    VersionNotSupported for the first unknown version.
    """
    named = ""
    for value in values:
        for version in map(str.strip, value.split(",")):
            if not version:
                continue
            if not _VERSION_PATTERN.fullmatch(version):
                raise errors.VersionNotSupported(
                    f'{VERSION_HEADER}: "{version[:40]}" is not supported; use one of {", ".join(SUPPORTED_VERSIONS)}',
                    metadata={"supported": ", ".join(SUPPORTED_VERSIONS)},
                )
            if not named or not named.startswith("1"):
                named = version
    return named


def minor_version(version: str) -> str:
    """`Major.Minor` of a version that `check_version` returned."""
    return ".".join(version.split(".")[:2])


EXTENSIONS_HEADER: Final = "A2A-Extensions"
V03_EXTENSIONS_HEADER: Final = "X-A2A-Extensions"
_V03_HEADER_DIALECTS: Final = (Dialect.V03, Dialect.V01)


def event_adapter(uris: Sequence[str]) -> Callable[[Event], Event]:
    """Returns the function that adapts an event to the extensions a caller requested."""
    return with_cursor if RESUME_EXTENSION.uri in uris else unchanged


def unchanged(event: Event) -> Event:
    return event


def requested_extensions(headers: MultiMapping[str]) -> tuple[str, ...]:
    """The distinct URIs of the extensions that a caller requests; a value may be a comma-separated list."""
    if EXTENSIONS_HEADER not in headers and V03_EXTENSIONS_HEADER not in headers:
        return ()
    values = [*headers.getall(EXTENSIONS_HEADER, ()), *headers.getall(V03_EXTENSIONS_HEADER, ())]
    return tuple(dict.fromkeys(uri for value in values for uri in map(str.strip, value.split(",")) if uri))


# ---- steps 3 and 10: spans, metrics, and the access log

_ACCESS_LOG: Final = logging.getLogger("dragoman.access")

OTHER_METHOD_LABEL: Final = "other"  # stands for methods that are not in our tables


@dataclass(slots=True, eq=False)
class RequestLogEntry:
    """One request in the access log, metrics and traces. Costs little when the log is off."""

    options: ServerOptions
    binding: str  # `grpc`, `rest`, `jsonrpc`, `websocket`, `page` for what is no operation, or that of an extension
    method: str
    dialect: str
    request_id: str = ""  # the caller's
    is_known_method: bool = field(default=True, kw_only=True)  # the method is in our tables, not a caller's text
    agent: str = field(default="", init=False)
    identity: Identity = field(default=ANONYMOUS, init=False)
    request: object = field(default=None, init=False)  # the 1.0 request, which may name a task
    _span: tuple[str, str, str] | None = field(default=None, init=False)  # its name, trace context and parent
    _started: float = field(default_factory=time.perf_counter, init=False)

    def start_trace(self, parent: str) -> None:
        """Continues the trace of the caller's `traceparent`, or starts one. Call it in the asyncio task that serves the
        request, if its options have a tracer."""
        tracer = self.options.tracer
        if tracer is not None:
            parent = parent and parse_traceparent(parent)
            context = tracer.start_span(parent)
            CURRENT_TRACE.set(context)
            if is_recorded(context):
                self._span = self.method, context, parent

    def finish(self, status: object) -> None:
        """Counts the request, records its span, and writes the log line."""
        seconds = time.perf_counter() - self._started
        method = self.method if self.is_known_method else OTHER_METHOD_LABEL
        self.options.request_metrics.count(self.binding, method, self.dialect, status, seconds)
        if self._span is not None:
            self._record_span(*self._span, seconds, str(status))
        if not _ACCESS_LOG.isEnabledFor(logging.INFO):
            return
        fields = {
            "method": self.method,
            "dialect": self.dialect,
            "agent": self.agent,
            "principal": self.identity.principal if self.identity.is_authenticated else "",
            "task": request_task_id(self.request),
            "request": self.request_id,
            "status": str(status),
            "ms": round(seconds * 1000, 1),
        }
        _ACCESS_LOG.info("request", extra={name: value for name, value in fields.items() if value != ""})

    def _record_span(self, name: str, context: str, parent: str, seconds: float, status: str) -> None:
        tracer, self._span = self.options.tracer, None
        assert tracer is not None
        name, method = (self.method, self.method) if self.is_known_method else (name, OTHER_METHOD_LABEL)
        tracer.record_span(Span(
            name, "server", context, parent, seconds, _SPAN_ATTRIBUTES,
            (self.binding, method, status, self.dialect, self.agent, request_task_id(self.request), self.request_id),
            f"answered with {status}" if status in _SERVER_FAULT_STATUSES or _HTTP_FAULT.fullmatch(status) else "",
        ))  # fmt: skip


_SPAN_ATTRIBUTES: Final = (
    "rpc.system", "rpc.method", "rpc.response.status", "dragoman.dialect", "dragoman.agent", "dragoman.task",
    "dragoman.request",
)  # fmt: skip

# Statuses that mean a failure of the server, not of the caller.
_SERVER_FAULT_STATUSES: Final = frozenset(
    ("INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS", "DEADLINE_EXCEEDED", "-32603")
)
_HTTP_FAULT: Final = re.compile("5..")


def request_task_id(request: object) -> str:
    """The task id of a 1.0 request, empty for none. Push configuration requests have `task_id` and their own `id`."""
    message_type: Any = type(request)
    return _task_id_reader(message_type)(request)


@cache
def _task_id_reader(message_type: Any) -> Callable[[Any], str]:
    """Returns the reader for a message type: looking for an absent field costs more than writing the log line."""
    fields = message_type.DESCRIPTOR.fields_by_name if issubclass(message_type, Message) else ()
    if "message" in fields:
        return lambda request: str(request.message.task_id)
    if "task_id" in fields:
        return lambda request: str(request.task_id)
    return (lambda request: str(request.id)) if "id" in fields else (lambda request: "")
