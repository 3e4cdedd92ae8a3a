"""Interface of transports, and of the parts that their owners pass in.

A transport calls one interface of an agent: a dialect over a binding. Requests and responses are always those of A2A
1.0. The client library and upstream agents share the transports and pass in their own HTTP client, gRPC channel, limits
and error classes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypedDict, Unpack

from google.protobuf.message import Message

from dragoman.calling.errors import ProtocolError, ResponseErrors
from dragoman.core.errors import InvalidParams
from dragoman.core.trace import TRACE_HEADER
from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.dialects import file_bytes
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DIALECT_NAMES: Final = ("1.0", "0.3", "0.1")
BINDING_NAMES: Final = ("grpc", "rest", "jsonrpc", "ws")
WireTrace = Callable[[str, str], None]  # receives the wire traffic: `>` or `<`, and the text
StreamResponses = AsyncGenerator[pb.StreamResponse, None]  # events of one task, in order; close it to stop early


def no_wire_trace(direction: str, text: str) -> None:
    """Discards the wire trace."""


class CallFields(TypedDict, total=False):
    """The fields of a call beside its request."""

    after: str  # a cursor: a stream yields only the events that follow it
    key: str  # the idempotency key
    parent: str  # the trace context, a `traceparent`
    extensions: str  # URIs to activate, separated by commas


class Transport(Protocol):
    """Calls the RPCs of A2A 1.0 by name. All methods raise ClientError."""

    async def call(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> Message: ...

    def stream(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> StreamResponses: ...

    async def close(self) -> None:
        """Closes the connection. May be called twice."""


class HttpResponse(Protocol):
    """An HTTP response whose body is read as it arrives. Names in `headers` are lower-case."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]: ...


class HttpClient(Protocol):
    """Sends HTTP requests; follows no redirects."""

    def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        idle_timeout: float | None,
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """Sends one request. `idle_timeout`: seconds without a byte after which it fails; None for no limit. Raises
        ServerUnavailable and CallForbidden, also while the body is read."""

    async def close(self) -> None:
        """Closes the connections. May be called twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLimits:
    """Limits of a server's responses, in bytes and seconds. None: no limit."""

    max_response_bytes: int | None = None  # bytes of one response, or of one event
    max_stream_bytes: int | None = None  # bytes of all events of one call
    response_timeout: float | None = None  # seconds for the response to a call that does not wait for a task
    blocking_timeout: float | None = None
    """Seconds without a byte of the response to SendMessage, and for a complete response body: some servers respond
    only when the task has ended, whatever the request asks for."""
    idle_timeout: float | None = None  # seconds without a byte after which a stream counts as broken


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """Settings of a transport's calls."""

    errors: ResponseErrors
    limits: TransportLimits = TransportLimits()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of each call, metadata over gRPC. They may contain credentials."""
    rest_prefix: str = ""  # the tenant that prefixes the paths of REST
    overrides_tenant: bool = False  # whether requests are sent with the interface's tenant instead of their own
    trace: WireTrace = no_wire_trace
    trace_context: Callable[[], str] = str  # the trace context of calls that name no `parent`; by default none

    def call_headers(
        self, dialect: str, after_header: str, *, after: str = "", key: str = "", parent: str = "", extensions: str = ""
    ) -> dict[str, str]:
        """Returns the headers of one call, as far as its fields are set."""
        parent = parent or self.trace_context()
        values = {after_header: after, "Idempotency-Key": key, TRACE_HEADER: parent}
        values[extensions_header(dialect)] = extensions
        return {name: value for name, value in values.items() if value}

    def with_tenant(self, request: Any, tenant: str) -> Any:
        """Returns the request to send: a copy with the interface's tenant, or the request itself."""
        if not self.overrides_tenant:
            return request
        copy = type(request)()
        copy.CopyFrom(request)
        if "tenant" in copy.DESCRIPTOR.fields_by_name:
            copy.tenant = tenant
        return copy


class RemoteFiles:
    """Files of one interface, in the form of its server: bytes, or base64 text in 0.3 over gRPC and REST.

    A form that is unknown there is base64 text, as in the servers of most SDKs. Then bytes that are none are the file.
    """

    def __init__(self, interface: Interface, address: str) -> None:
        form = interface.files or "base64"
        self._are_base64 = interface.dialect == "0.3" and file_bytes.are_base64(form, interface.tenant)
        self._is_known = interface.files is not None
        self._address = address

    def write(self, request: Any) -> Any:
        """Returns the request to send: the request itself, or a copy with base64 text."""
        if not self._are_base64 or not isinstance(request, pb.SendMessageRequest):
            return request
        copy = pb.SendMessageRequest()
        copy.CopyFrom(request)
        file_bytes.write_base64(copy)
        return copy

    def read(self, response: Message) -> Message:
        """Decodes the files of a response, in place. Raises ProtocolError for files that are not in the set form."""
        if self._are_base64:
            try:
                file_bytes.read_base64(response, strict=self._is_known)
            except InvalidParams as error:
                raise ProtocolError(f"{self._address}: {error.message}") from error
        return response


def extensions_header(dialect: str) -> str:
    return "A2A-Extensions" if dialect == "1.0" else "X-A2A-Extensions"
