"""The interface of transports, and what their owners pass in.

A transport calls one interface of an agent: a dialect over a binding. Requests and responses are those of A2A 1.0 on
every one of them. The client library and upstream agents share the transports and bring their own HTTP client, gRPC
channel, limits and error classes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, get_args

from google.protobuf.message import Message

from dragoman.calling.errors import ResponseErrors
from dragoman.core.trace import TRACE_HEADER
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DialectName = Literal["1.0", "0.3", "0.1"]
BindingName = Literal["grpc", "rest", "jsonrpc", "ws"]

DIALECT_NAMES: Final[tuple[str, ...]] = get_args(DialectName)
BINDING_NAMES: Final[tuple[str, ...]] = get_args(BindingName)

WireTrace = Callable[[str, str], None]
"""Receives what goes over the wire: `>` or `<`, and the text."""

StreamResponses = AsyncGenerator[pb.StreamResponse, None]
"""Events of one task, in order. Close it (`contextlib.aclosing`) to stop before it ends."""


def no_wire_trace(direction: str, text: str) -> None:
    """Discards the wire trace."""


class Transport(Protocol):
    """Calls by the names of 1.0's RPCs. All raise ClientError."""

    async def call(
        self, rpc: str, request: Message, *, key: str = "", parent: str = "", extensions: str = ""
    ) -> Message:
        """The response of a unary call.

        key: its idempotency key. parent: its trace context (a `traceparent`). extensions: URIs to activate, separated
        by commas.
        """
        ...

    def stream(
        self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = "", extensions: str = ""
    ) -> StreamResponses:
        """The events of a streaming call; with `after`, a cursor, only those that follow it."""
        ...

    async def close(self) -> None:
        """Closes the connection. May be called twice."""
        ...


class HttpResponse(Protocol):
    """A response whose body is still coming. `headers` have lower-case names."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        ...


class HttpClient(Protocol):
    """Makes HTTP requests, and follows no redirects."""

    def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        idle_timeout: float | None,
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """One request. `idle_timeout`: seconds without a byte after which it fails; None for no limit.

        Raises ServerUnavailable and CallForbidden, also while the body is read.
        """
        ...

    async def close(self) -> None:
        """Closes its connections. May be called twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLimits:
    """Limits on what a server may send and how long it may take, in bytes and seconds. None: no limit."""

    max_response_bytes: int | None = None
    """Bytes of one response, or of one event."""
    max_stream_bytes: int | None = None
    """Bytes of everything that one call returns."""
    response_timeout: float | None = None
    """Seconds for the response to a call that does not wait for a task."""
    blocking_timeout: float | None = None
    """Seconds without a byte of the response to SendMessage, and for a complete response body: some servers respond
    only when the task has ended, whatever the request says."""
    idle_timeout: float | None = None
    """Seconds without a byte after which a stream counts as broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """How a transport calls its server."""

    errors: ResponseErrors
    limits: TransportLimits = TransportLimits()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each call, over gRPC as metadata. They may hold credentials."""
    rest_prefix: str = ""
    """The tenant that precedes the paths of REST."""
    overrides_tenant: bool = False
    """Requests are sent with the interface's tenant; else with the one that they have."""
    trace: WireTrace = no_wire_trace
    trace_context: Callable[[], str] = str
    """The trace context of calls that name no `parent`; by default none."""

    def call_headers(
        self, dialect: str, *, after_header: str, after: str = "", key: str = "", parent: str = "", extensions: str = ""
    ) -> dict[str, str]:
        """The headers of one call: cursor, idempotency key, trace context and extensions, those that there are."""
        values = {
            after_header: after,
            "Idempotency-Key": key,
            TRACE_HEADER: parent or self.trace_context(),
            extensions_header(dialect): extensions,
        }
        return {name: value for name, value in values.items() if value}

    def with_tenant(self, request: Any, tenant: str) -> Any:
        """The request to send: a copy with the interface's tenant, or the request itself."""
        if not self.overrides_tenant:
            return request
        copy = type(request)()
        copy.CopyFrom(request)
        if "tenant" in copy.DESCRIPTOR.fields_by_name:
            copy.tenant = tenant
        return copy


def extensions_header(dialect: str) -> str:
    """The header that names extensions to activate."""
    return "A2A-Extensions" if dialect == "1.0" else "X-A2A-Extensions"
