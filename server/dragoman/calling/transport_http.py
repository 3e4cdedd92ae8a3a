"""HTTP: REST, JSON-RPC and JSON-RPC over WebSocket, in the dialects that have them."""

from __future__ import annotations

import socket
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, NamedTuple

import aiohttp
import orjson
from google.protobuf.message import Message

from dragoman.calling import tls as trust
from dragoman.calling.errors import ClientError, Invalid, NotAllowed, NotSupported, ProtocolError, ServerUnavailable
from dragoman.calling.transport import CallOptions, StreamResponses
from dragoman.core import trace as traces
from dragoman.core.errors import A2AError
from dragoman.wire import client_operations, remote_errors
from dragoman.wire.client_operations import ClientOperation
from dragoman.wire.http import sse
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SSE_MEDIA_TYPE: Final = "text/event-stream"

MAX_SSE_EVENT_BYTES: Final = 1 << 30
"""Bytes of one event: the server decides how much is too much."""


class CallHeaders(NamedTuple):
    """What a call carries beside its request."""

    after: str = ""
    key: str = ""
    parent: str = ""
    is_blocking: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a cursor, a key and a trace context, if there are any."""
        given = {"Last-Event-ID": self.after, "Idempotency-Key": self.key, traces.TRACE_HEADER: self.parent}
        return {name: value for name, value in given.items() if value}


NO_CALL_HEADERS: Final = CallHeaders()


class _HttpTransport:
    """What the roads over HTTP share: a session, and words for what goes wrong with it."""

    def __init__(self, url: str, dialect: str, agent: str, options: CallOptions) -> None:
        self._base = url.rstrip("/")
        self._dialect = dialect
        self._agent = agent
        self._trace = options.trace
        # Streams last as long as their tasks; a connection that cannot be made is noticed all the same.
        extension = "A2A-Extensions" if dialect == "1.0" else "X-A2A-Extensions"
        self._blocking_timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=options.idle_timeout)
        tls = trust.ssl_context(options.ca, options.cert) if self._base.startswith("https:") else True
        connector = aiohttp.TCPConnector(ssl=tls, socket_factory=_keepalive_socket)
        headers = {"A2A-Version": dialect, extension: options.extensions, **options.request_headers}
        self._session = aiohttp.ClientSession(timeout=timeout, headers=headers, connector=connector)

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        accept: str = "application/json",
        *,
        call_headers: CallHeaders = NO_CALL_HEADERS,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        data = None if body is None else orjson.dumps(body)
        self._trace(">", f"{method} {path}")
        if data is not None:
            self._trace(">", data.decode())
        headers = {"Accept": accept, **call_headers.headers}
        if data is not None:
            headers["Content-Type"] = "application/json"
        # What is not asked for as a stream may be answered when its task has ended.
        limit = self._blocking_timeout if call_headers.is_blocking else self._session.timeout
        try:
            async with self._session.request(
                method, self._base + path, data=data, headers=headers, timeout=limit, allow_redirects=False
            ) as response:
                self._trace("<", f"{response.status} {response.headers.get('Content-Type', '')}")
                if 300 <= response.status < 400:
                    to = response.headers.get("Location", "")[:500]
                    raise ProtocolError(
                        f"{self._base}: answered with a redirect ({response.status}) to {to}; call that"
                    )
                yield response
        except aiohttp.ClientError as error:
            raise connection_error(self._base, error) from error

    async def _read_json(self, response: aiohttp.ClientResponse) -> Any:
        """The JSON of an answer. Raises ClientError for an answer that is none, of the kind that its status says."""
        data = await response.read()
        self._trace("<", data.decode(errors="replace"))
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            if response.status >= 400:
                raise ClientError.from_response(response.status, response.headers, None) from error
            said = data.decode(errors="replace").partition("\n")[0][:200]
            raise ProtocolError(f"the answer ({response.status}) is no JSON: {said}") from error

    async def _read_events(self, response: aiohttp.ClientResponse) -> AsyncGenerator[Any, None]:
        parser = sse.SseParser(limit=MAX_SSE_EVENT_BYTES)
        async for chunk in response.content.iter_any():
            try:
                found = parser.feed(chunk)
            except A2AError as error:
                raise ProtocolError(f"{self._base}: {error.message}") from error
            for event in found:
                self._trace("<", f"data: {event.data.decode(errors='replace')}")
                try:
                    yield orjson.loads(event.data)
                except orjson.JSONDecodeError as error:
                    raise ProtocolError(f"{self._base}: an event of the stream is no JSON") from error

    def _decode(self, operation: ClientOperation, value: Any) -> Message:
        try:
            return operation.decode_response(value)
        except A2AError as error:
            raise ProtocolError(f"the answer is not {self._dialect}: {error.message}") from error


def _as_stream_response(message: Message) -> pb.StreamResponse:
    assert isinstance(message, pb.StreamResponse)
    return message


class JsonRpcTransport(_HttpTransport):
    """JSON-RPC over HTTP. Implements `Road`."""

    def __init__(self, url: str, dialect: str, agent: str, options: CallOptions, *, is_endpoint: bool = False) -> None:
        """`exact`: the URL is where to post, whatever the agent; else it is that of the server."""
        super().__init__(url, dialect, agent, options)
        self._endpoint_path = "" if is_endpoint else f"/{agent}" if agent else "/"
        self._base = url if is_endpoint else self._base

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        phrase = self._operation(rpc)
        said = CallHeaders(key=key, parent=parent, is_blocking=rpc == "SendMessage")
        async with self._request("POST", self._path, self._envelope(phrase, request), call_headers=said) as response:
            value = await self._read_json(response)
            _raise_for_auth(response, value)
            return self._decode(phrase, _result(value, response))

    async def stream(
        self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = ""
    ) -> StreamResponses:
        phrase = self._operation(rpc)
        body = self._envelope(phrase, request)
        said = CallHeaders(after, key, parent)
        async with self._request("POST", self._path, body, SSE_MEDIA_TYPE, call_headers=said) as response:
            if response.content_type != SSE_MEDIA_TYPE:
                # A refusal, or all that there is to say in one piece.
                value = await self._read_json(response)
                _raise_for_auth(response, value)
                yield _as_stream_response(self._decode(phrase, _result(value, response)))
                return
            async with aclosing(self._read_events(response)) as events:
                async for value in events:
                    yield _as_stream_response(self._decode(phrase, _result(value)))

    @property
    def _path(self) -> str:
        return self._endpoint_path

    def _operation(self, rpc: str) -> ClientOperation:
        phrase = client_operations.JSONRPC_OPERATIONS[self._dialect].get(rpc)
        if phrase is None:
            raise NotSupported("UNIMPLEMENTED", f"{self._dialect} has no {rpc} over JSON-RPC")
        return phrase

    def _envelope(self, operation: ClientOperation, request: Message) -> dict[str, Any]:
        return {
            "jsonrpc": "2.0",
            "id": str(uuid.uuid4()),
            "method": operation.name,
            "params": operation.encode_request(request),
        }


class WebSocketTransport(JsonRpcTransport):
    """JSON-RPC over WebSocket, a connection for each call. Implements `Road`."""

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        phrase = self._operation(rpc)
        async with aclosing(
            self._responses(self._envelope(phrase, request), CallHeaders(key=key, parent=parent))
        ) as answers:
            async for value in answers:
                return self._decode(phrase, _result(value))
        raise ServerUnavailable.for_address(self._base, "the connection closed without an answer")

    async def stream(
        self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = ""
    ) -> StreamResponses:
        phrase = self._operation(rpc)
        async with aclosing(
            self._responses(self._envelope(phrase, request), CallHeaders(after, key, parent))
        ) as answers:
            async for value in answers:
                result = _result(value)
                if result == {"status": "stream_complete"}:
                    return
                yield _as_stream_response(self._decode(phrase, result))

    async def _responses(self, envelope: dict[str, Any], call_headers: CallHeaders) -> AsyncGenerator[Any, None]:
        path = f"{self._path.rstrip('/')}/ws"
        self._trace(">", f"WebSocket {path}")
        try:
            async with self._session.ws_connect(
                self._base + path, max_msg_size=0, headers=call_headers.headers
            ) as socket:
                text = orjson.dumps(envelope).decode()
                self._trace(">", text)
                await socket.send_str(text)
                async for frame in socket:
                    if frame.type is aiohttp.WSMsgType.TEXT:
                        self._trace("<", frame.data)
                        yield orjson.loads(frame.data)
        except aiohttp.WSServerHandshakeError as error:
            if refused := _AUTH_ERROR_CODES.get(error.status):
                raise NotAllowed(refused, "the server refused these credentials, or none", reason=refused) from error
            raise ClientError.from_response(error.status, error.headers or {}, None) from error
        except aiohttp.ClientError as error:
            raise connection_error(self._base, error) from error


_AUTH_ERROR_CODES: Final = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}
"""What a status says of who calls; 0.x has no numbers for it."""


def _raise_for_auth(response: aiohttp.ClientResponse, value: Any) -> None:
    if refused := _AUTH_ERROR_CODES.get(response.status):
        error = value.get("error") if isinstance(value, dict) else None
        said = error.get("message") if isinstance(error, dict) else None
        raise NotAllowed(refused, str(said or "no reason given"), reason=refused)


def _result(value: Any, response: aiohttp.ClientResponse | None = None) -> Any:
    """What a call gave. Raises ClientError for a refusal."""
    if isinstance(value, dict) and value.get("error") is not None:
        raise ClientError.from_json(value["error"])
    if response is not None and response.status >= 400:
        raise ClientError.from_response(response.status, response.headers, value)
    if not isinstance(value, dict) or "result" not in value:
        raise ProtocolError("the answer is no JSON-RPC")
    return value["result"]


# REST ------------------------------------------------------------------------------------------------------


class RestTransport(_HttpTransport):
    """REST. Implements `Road`."""

    _uses_other_subscribe_method = False
    """Subscriptions are asked for with the other method."""

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        phrase, method, path, body = self._rest_call(rpc, request)
        said = CallHeaders(key=key, parent=parent, is_blocking=rpc == "SendMessage")
        async with self._request(method, path, body, call_headers=said) as response:
            value = await self._read_json(response)
            if response.status >= 400:
                raise ClientError.from_response(response.status, response.headers, value)
        return self._decode(phrase, value)

    async def stream(
        self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = ""
    ) -> StreamResponses:
        phrase, method, path, body = self._rest_call(rpc, request)
        may_swap = rpc == "SubscribeToTask"
        if may_swap and self._uses_other_subscribe_method:
            method = _other_method(method)
        said = CallHeaders(after, key, parent)
        try:
            async with aclosing(self._stream_once(phrase, method, path, body, said)) as events:
                async for event in events:
                    yield event
        except ClientError as error:
            # The proto says GET and the prose POST, and servers follow one or the other.
            if not (may_swap and not self._uses_other_subscribe_method and error.remote_error.is_unknown_method):
                raise
            self._uses_other_subscribe_method = True
            async with aclosing(self._stream_once(phrase, _other_method(method), path, body, said)) as events:
                async for event in events:
                    yield event

    async def _stream_once(
        self, operation: ClientOperation, method: str, path: str, body: Any, call_headers: CallHeaders
    ) -> StreamResponses:
        async with self._request(method, path, body, SSE_MEDIA_TYPE, call_headers=call_headers) as response:
            if response.content_type != SSE_MEDIA_TYPE:
                value = await self._read_json(response)
                if response.status >= 400:
                    raise ClientError.from_response(response.status, response.headers, value)
                yield _as_stream_response(self._decode(operation, value))
                return
            async with aclosing(self._read_events(response)) as events:
                async for value in events:
                    if isinstance(value, dict) and _is_error(value):
                        raise ClientError.from_remote_error(remote_errors.parse_rest_error(500, value))
                    yield _as_stream_response(self._decode(operation, value))

    def _rest_call(self, rpc: str, request: Message) -> client_operations.RestCall:
        return client_operations.rest_call(self._dialect, rpc, request, self._agent)


def _other_method(method: str) -> str:
    return "POST" if method == "GET" else "GET"


def _is_error(value: Mapping[str, Any]) -> bool:
    """Whether an event of a REST stream is an error: of AIP-193, or of 0.3's servers."""
    return "error" in value or ("message" in value and ("code" in value or "type" in value))


def connection_error(address: str, error: aiohttp.ClientError) -> ClientError:
    """The failure that there was no answer, or only half of one."""
    if isinstance(error, aiohttp.InvalidURL):
        return Invalid("INVALID_ARGUMENT", f"{address}: is no URL that can be called")
    never = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return ServerUnavailable.for_address(address, error, may_have_arrived=not never)


def _keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket whose system looks now and then whether the other side is still there: some answers take long."""
    made = socket.socket(*address[:3])
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_OPTIONS.items():
        if hasattr(socket, name):  # not every system lets a program say how often
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


_KEEPALIVE_OPTIONS: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence before the first question, seconds between two, and how many may stay unanswered."""
