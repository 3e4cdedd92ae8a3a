"""The HTTP side of the client: aiohttp sessions, cards, JSON-RPC over WebSocket, and calls of operators.

Imported for the first call over HTTP: importing aiohttp takes longer than a call over gRPC.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Unpack, cast
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import orjson
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.calling import tls
from dragoman.calling.errors import (
    AUTH_ERROR_CODES,
    ClientError,
    Invalid,
    NotAllowed,
    NotFound,
    ProtocolError,
    ServerUnavailable,
)
from dragoman.calling.transport import CallFields, HttpResponse, StreamResponses
from dragoman.calling.transport_http import (
    JSON_MEDIA_TYPE,
    CardResponse,
    JsonRpcTransport,
    RestTransport,
    fetch_card,
    read_body,
)
from dragoman.client.options import CallOptions
from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.client_operations import ClientOperation, HttpCall
from dragoman.wire.http import httprule
from dragoman.wire.http.httprule import Rule
from dragoman.wire.json import protojson, remote_values
from dragoman_pb.dragoman.ops.v1 import ops_pb2
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HTTP_CONNECT_TIMEOUT: Final = 10.0

CLIENT_CARD_MAX_BYTES: Final = 4 * 1024 * 1024
CLIENT_CARD_TIMEOUT: Final = 30.0  # seconds

_KEEPALIVE_OPTIONS: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Idle seconds before the first probe (Linux, macOS), seconds between two, and how many may stay unanswered."""


class AiohttpClient:
    """One aiohttp session. Implements `HttpClient`. Requires a running event loop."""

    def __init__(self, url: str, options: CallOptions, headers: Mapping[str, str]) -> None:
        """`url`: the server's URL, for error messages. `headers`: sent with each request. Raises ClientError for
        unusable certificate files."""
        self._url = url
        context = tls.ssl_context(options.ca, options.cert) if url.startswith("https:") else True
        # No total timeout: streams last as long as their tasks.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=HTTP_CONNECT_TIMEOUT, sock_read=options.idle_timeout)
        connector = aiohttp.TCPConnector(ssl=context, socket_factory=_keepalive_socket)
        self.session = aiohttp.ClientSession(timeout=timeout, headers=headers, connector=connector)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        idle_timeout: float | None,
    ) -> AsyncIterator[HttpResponse]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=HTTP_CONNECT_TIMEOUT, sock_read=idle_timeout)
        try:
            async with self.session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                yield _AiohttpResponse(response)
        except aiohttp.ClientError as error:
            raise connection_error(self._url, error) from error

    async def close(self) -> None:
        await self.session.close()


class _AiohttpResponse:
    """Implements `HttpResponse`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self.chunks: Callable[[], AsyncIterator[bytes]] = response.content.iter_any


def connection_error(address: str, error: aiohttp.ClientError) -> ClientError:
    if isinstance(error, aiohttp.InvalidURL):
        return Invalid("INVALID_ARGUMENT", f"{address}: is not a URL that can be called")
    never_connected = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    failure = ServerUnavailable.for_address(address, _failure_reason(error), may_have_arrived=not never_connected)
    return tls.with_advice(address, failure)


def _failure_reason(error: aiohttp.ClientError) -> object:
    """Why a connection failed: the system's text where there is one, since aiohttp's is about its own arguments."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the name cannot be resolved"
    if isinstance(error, aiohttp.ClientSSLError) or not isinstance(error, aiohttp.ClientConnectorError):
        return error
    return os.strerror(error.os_error.errno) if error.os_error.errno else error


def _keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Creates a socket with TCP keep-alive: some responses take long, and a dead server must be detected meanwhile."""
    connection = socket.socket(*address[:3])
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_OPTIONS.items():
        if hasattr(socket, name):  # not every system has these options
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


async def fetch_agent_card(url: str, options: CallOptions) -> tuple[bytes, str]:
    """Returns a card and its URL. Raises ClientError."""
    http = AiohttpClient(url, options, options.request_headers)
    try:
        responses = await fetch_card(url, lambda at, headers: _get_card(http.session, at, headers, options))
    finally:
        await http.close()
    last = responses[-1]
    if last.status == 200:
        return last.document, last.url
    if last.is_redirect:
        location = last.headers.get("location", "")[:500]
        raise ProtocolError(f"{last.url} responded with a redirect to {location}; use that address")
    failures = [ClientError.from_response(one.status, one.headers, _parse_json(one.document)) for one in responses]
    if last.is_conclusive:
        failure = failures[-1]
        remote_error = replace(failure.remote_error, message=f"{last.url}: {failure.message}")
        raise ClientError.from_remote_error(remote_error, type(failure))
    message = f"there is no card at {url}: {failures[0].message}"
    raise NotFound("NOT_FOUND", message, reason="AGENT_NOT_FOUND")


def _parse_json(document: bytes) -> Any:
    """The JSON of an error's body; None for a body that is not JSON, such as a page of a proxy."""
    try:
        return remote_values.loads(document)
    except ValueError:
        return None


async def _get_card(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], options: CallOptions
) -> CardResponse:
    # Credentials belong to this server only, so requests with credentials follow no redirects.
    follow_redirects = not options.request_headers
    timeout = aiohttp.ClientTimeout(total=CLIENT_CARD_TIMEOUT, sock_connect=HTTP_CONNECT_TIMEOUT)
    options.trace(">", f"GET {url}")
    try:
        async with session.get(url, headers=headers, allow_redirects=follow_redirects, timeout=timeout) as response:
            options.trace("<", f"{response.status} {response.content_type}")
            document = await read_body(_AiohttpResponse(response), url, CLIENT_CARD_MAX_BYTES, None)
            final_url = str(response.url) if response.status == 200 else url
            return CardResponse(final_url, response.status, response.headers, document)
    except aiohttp.ClientError as error:
        raise connection_error(url, error) from error
    except TimeoutError as error:
        late = aiohttp.ServerTimeoutError(f"no card within {CLIENT_CARD_TIMEOUT:g} s")
        raise connection_error(url, late) from error


class WebSocketTransport(JsonRpcTransport):
    """JSON-RPC over WebSocket, with one connection for each call. Implements `Transport`."""

    async def call(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> Message:
        async with aclosing(self.stream(rpc, request, **fields)) as responses:
            async for response in responses:
                return response
        raise ServerUnavailable.for_address(self._errors.address, "the connection closed without a response")

    async def stream(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> StreamResponses:
        operation, _, _, envelope = self._encode(rpc, request)
        url = f"{self.interface.url.rstrip('/')}/ws"
        self._trace(">", f"WebSocket {urlsplit(url).path}")
        try:
            session = cast(AiohttpClient, self._http).session
            async with session.ws_connect(url, max_msg_size=0, headers=self._call_headers(fields)) as connection:
                text = orjson.dumps(envelope).decode()
                self._trace(">", text)
                await connection.send_str(text)
                async for frame in connection:
                    if frame.type is aiohttp.WSMsgType.TEXT:
                        self._trace("<", frame.data)
                        try:
                            answer = remote_values.loads(frame.data)
                        except ValueError as error:
                            raise ProtocolError(f"{self._errors.address}: a frame is not JSON") from error
                        result = self._result(None, {}, answer)
                        if result == {"status": "stream_complete"}:
                            return
                        yield cast(pb.StreamResponse, self._decode(operation, result))
        except aiohttp.WSServerHandshakeError as error:
            if code := AUTH_ERROR_CODES.get(error.status):
                message = "the server rejected these credentials, or requires some"
                raise NotAllowed(code, message, reason=code) from error
            raise ClientError.from_response(error.status, error.headers or {}, None) from error
        except aiohttp.ClientError as error:
            raise connection_error(self._errors.address, error) from error


_OPS_SERVICE: Final = ops_pb2.DESCRIPTOR.services_by_name["OpsService"]
_OPS_JSON: Final = protojson.JsonDialect("1.0")


class OperationsTransport(RestTransport):
    """The calls of `dragoman.ops.v1.OpsService` that have an HTTP rule. Implements `Transport`."""

    def __init__(self, url: str, options: CallOptions) -> None:
        http = AiohttpClient(url, options, options.request_headers)
        super().__init__(Interface(url, "HTTP+JSON", "1.0"), http, options.for_transport(url, {}))

    def rule_of(self, rpc: str, request: Message) -> Rule | None:
        """The HTTP rule of a call whose path variables the request has, most variables first; None without one."""
        rules = [
            rule
            for method, rule in httprule.rules(_OPS_SERVICE)
            if method.name == rpc and all(getattr(request, variable.field[0]) for variable in rule.template.variables)
        ]
        return max(rules, key=lambda rule: len(rule.template.variables), default=None)

    async def get_json(self, path: str) -> Any:
        """Reads any JSON of the server; None for an error without JSON. Raises ClientError."""
        undecoded = cast(Any, None)  # in place of an operation
        call = HttpCall(undecoded, "GET", self.interface.url + path, None)
        async with self._open(call, {"Accept": JSON_MEDIA_TYPE}, None) as response:
            return await self._read_json(response)

    def _encode(self, rpc: str, request: Message) -> HttpCall:
        rule = self.rule_of(rpc, request)
        assert rule is not None
        encode = protojson.compile(type(request), _OPS_JSON).to_dict
        response_class = GetMessageClass(_OPS_SERVICE.methods_by_name[rpc].output_type)
        operation = ClientOperation(rpc, encode, protojson.compile(response_class, _OPS_JSON).decode)
        fields = encode(request)
        path = str(rule.template)
        for variable in rule.template.variables:
            name = ".".join(variable.field)
            value = fields.pop(request.DESCRIPTOR.fields_by_name[name].json_name)
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        if not rule.body and fields:
            path = f"{path}?{urlencode(list(_query_pairs(fields)))}"
        return HttpCall(operation, rule.http_method, self.interface.url + path, fields if rule.body else None)


def _query_pairs(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The query of a request's JSON: nested fields have dotted names, repeated ones several values."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _query_pairs(value, f"{prefix}{name}.")
            continue
        for one in value if isinstance(value, list) else [value]:
            yield f"{prefix}{name}", str(one).lower() if isinstance(one, bool) else str(one)
