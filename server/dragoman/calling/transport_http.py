"""HTTP transports: REST and JSON-RPC with server-sent events, and card discovery."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, NamedTuple, Unpack, cast
from urllib.parse import urljoin, urlsplit

import orjson
from google.protobuf.message import Message

from dragoman.calling.errors import CallRefused, NotSupported, ProtocolError, ServerUnavailable
from dragoman.calling.transport import (
    CallFields,
    HttpClient,
    HttpResponse,
    RemoteFiles,
    StreamResponses,
    TransportOptions,
    no_wire_trace,
)
from dragoman.core.errors import A2AError
from dragoman.core.media_types import bare_type
from dragoman.wire import client_operations
from dragoman.wire.cards import remote_card
from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.client_operations import ClientOperation, HttpCall
from dragoman.wire.http import sse
from dragoman.wire.json import remote_values
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

JSON_MEDIA_TYPE: Final = "application/json"
SSE_MEDIA_TYPE: Final = "text/event-stream"
CURSOR_HEADER: Final = "Last-Event-ID"
MAX_SSE_EVENT_BYTES: Final = 1 << 30  # if the transport sets no limit


class HttpTransport:
    """Base class of the REST and JSON-RPC transports. Implements `Transport`."""

    def __init__(self, interface: Interface, http: HttpClient, options: TransportOptions) -> None:
        self.interface = interface
        self._http = http
        self._options = options
        self._limits = options.limits
        self._errors = options.errors
        self._trace = options.trace

    async def call(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> Message:
        call = self._encode(rpc, request)
        headers = self._call_headers(fields)
        timeout = self._limits.blocking_timeout if rpc == "SendMessage" else self._limits.response_timeout
        async with self._open(call, {"Accept": JSON_MEDIA_TYPE, **headers}, timeout) as response:
            body = await self._read_json(response)
            return self._decode(call.operation, self._result(response.status, response.headers, body))

    async def stream(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> StreamResponses:
        headers = self._call_headers(fields)
        async with aclosing(self._stream_once(self._encode(rpc, request), headers)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        await self._http.close()

    def _encode(self, rpc: str, request: Message) -> HttpCall:
        """Encodes the request of a call. Raises NotSupported if the dialect does not have the call."""
        raise NotImplementedError

    def _result(self, status: int | None, headers: Mapping[str, str], body: Any) -> Any:
        """Returns the result in the JSON of a response, or of an event (`status` None). Raises ClientError."""
        raise NotImplementedError

    def _is_response(self, value: Any) -> bool:
        """Whether an event with a name of its own has a response. Others, such as `event: ping`, are of no interest
        (WHATWG HTML §9.2.6: each type of event has its own listeners)."""
        raise NotImplementedError

    def _call_headers(self, fields: CallFields) -> dict[str, str]:
        return self._options.call_headers(self.interface.dialect, CURSOR_HEADER, **fields)

    @asynccontextmanager
    async def _open(
        self, call: HttpCall, headers: Mapping[str, str], idle_timeout: float | None, *, is_redirected: bool = False
    ) -> AsyncIterator[HttpResponse]:
        """Sends a request. Follows one redirect within the server: many add or remove a slash, with 307."""
        body = None if call.body is None else orjson.dumps(call.body)
        headers = {**self._options.headers, **headers}
        if body is not None:
            headers["Content-Type"] = JSON_MEDIA_TYPE
        if self._trace is not no_wire_trace:
            self._trace(">", f"{call.method} {urlsplit(call.url)._replace(scheme='', netloc='').geturl()}")
        self._trace_bytes(">", body)
        async with self._http.open(call.method, call.url, headers, body, idle_timeout=idle_timeout) as response:
            self._trace("<", f"{response.status} {response.headers.get('content-type', '')}")
            if not 300 <= response.status < 400:
                yield response
                return
            target = _redirect_target(call.url, response)
        if is_redirected or target is None:
            raise self._errors.from_redirect(response.status, response.headers)
        async with self._open(call._replace(url=target), headers, idle_timeout, is_redirected=True) as response:
            yield response

    async def _stream_once(self, call: HttpCall, headers: Mapping[str, str]) -> StreamResponses:
        async with self._open(call, {"Accept": SSE_MEDIA_TYPE, **headers}, self._limits.idle_timeout) as response:
            if response.status == 204:  # the task has ended, without an event that was not received
                return
            if bare_type(response.headers.get("content-type", "")) != SSE_MEDIA_TYPE:
                # An error, or the only event of the stream as plain JSON.
                result = self._result(response.status, response.headers, await self._read_json(response))
                yield cast(pb.StreamResponse, self._decode(call.operation, result))
                return
            async with aclosing(self._read_events(response)) as events:
                async for event in events:
                    yield cast(pb.StreamResponse, self._decode(call.operation, self._result(None, {}, event)))

    async def _read_events(self, response: HttpResponse) -> AsyncGenerator[Any, None]:
        parser = sse.SseParser(limit=self._limits.max_response_bytes or MAX_SSE_EVENT_BYTES)
        limit, received = self._limits.max_stream_bytes, 0
        async for chunk in response.chunks():
            received += len(chunk)
            if limit is not None and received > limit:
                raise ProtocolError(f"{self._errors.address}: the stream is longer than {limit} bytes")
            try:
                events = parser.feed(chunk)
            except A2AError as error:
                raise ProtocolError(f"{self._errors.address}: {error.message}") from error
            for event in events:
                if self._trace is not no_wire_trace:
                    self._trace("<", f"data: {event.data.decode(errors='replace')}")
                if not event.data.strip():
                    continue  # a heartbeat
                is_named = event.event != "message"
                try:
                    value = remote_values.loads(event.data)
                except ValueError as error:
                    if is_named:
                        continue
                    raise ProtocolError(f"{self._errors.address}: an event of the stream is not JSON") from error
                if not is_named or self._is_response(value):
                    yield value

    async def _read_json(self, response: HttpResponse) -> Any:
        """Reads the JSON of a response; None for an error response without JSON. Raises ClientError."""
        limits = self._limits
        data = await read_body(response, self._errors.address, limits.max_response_bytes, limits.blocking_timeout)
        self._trace_bytes("<", data)
        try:
            return remote_values.loads(data)
        except ValueError as error:
            if response.status >= 400:
                return None
            raise self._errors.not_json(response.status, data) from error

    def _decode(self, operation: ClientOperation, result: Any) -> Message:
        try:
            return operation.decode_response(result)
        except A2AError as error:
            problem = f"the response to {operation.name} is not {self.interface.dialect}: {error.message[:300]}"
            raise ProtocolError(f"{self._errors.address}: {problem}") from error

    def _trace_bytes(self, direction: str, data: bytes | None) -> None:
        if data is not None and self._trace is not no_wire_trace:
            self._trace(direction, data.decode(errors="replace"))


def _redirect_target(url: str, response: HttpResponse) -> str | None:
    """The URL to repeat a request at: a redirect that keeps the method, to the same origin, which may get the
    credentials of the call (RFC 9110 §15.4.8). None for any other."""
    if response.status not in (307, 308):
        return None
    try:
        target = urlsplit(urljoin(url, response.headers.get("location", "")))
    except ValueError:
        return None
    return target.geturl() if target[:2] == urlsplit(url)[:2] and target.geturl() != url else None


async def read_body(response: HttpResponse, address: str, max_bytes: int | None, max_seconds: float | None) -> bytes:
    """Reads a body. Raises ProtocolError beyond `max_bytes`, ServerUnavailable for one that is never complete."""
    data, started = bytearray(), time.monotonic()
    async for chunk in response.chunks():
        data += chunk
        if max_bytes is not None and len(data) > max_bytes:
            raise ProtocolError(f"{address}: the response is longer than {max_bytes} bytes")
        # The idle timeout does not stop a server that sends a byte now and then.
        if max_seconds is not None and time.monotonic() > started + max_seconds:
            raise ServerUnavailable.for_address(address, f"the response was not complete within {max_seconds:g} s")
    return bytes(data)


class JsonRpcTransport(HttpTransport):
    """Calls one JSON-RPC interface. Implements `Transport`."""

    def _encode(self, rpc: str, request: Message) -> HttpCall:
        operation = client_operations.JSONRPC_OPERATIONS[self.interface.dialect].get(rpc)
        if operation is None:
            raise NotSupported("UNIMPLEMENTED", f"{self.interface.dialect} has no {rpc} over JSON-RPC")
        envelope = {
            "jsonrpc": "2.0",
            "id": str(uuid.uuid4()),
            "method": operation.name,
            "params": operation.encode_request(self._options.with_tenant(request, self.interface.tenant)),
        }
        return HttpCall(operation, "POST", self.interface.url, envelope)

    def _result(self, status: int | None, headers: Mapping[str, str], body: Any) -> Any:
        status = status or 200
        if status >= 400 or (isinstance(body, dict) and body.get("error") is not None):
            raise self._errors.from_jsonrpc(status, headers, body)
        if not isinstance(body, dict) or "result" not in body:
            raise ProtocolError(f"{self._errors.address}: the response is not JSON-RPC")
        return body["result"]

    def _is_response(self, value: Any) -> bool:
        return isinstance(value, dict) and not value.keys().isdisjoint(("result", "error"))


class RestTransport(HttpTransport):
    """Calls one REST interface. Implements `Transport`."""

    _subscribes_with_get = False
    """Whether this server does not know SubscribeToTask as a POST: the text of the specification says POST, the HTTP
    rule of its proto GET, and there are servers that know only one."""

    def __init__(self, interface: Interface, http: HttpClient, options: TransportOptions) -> None:
        super().__init__(interface, http, options)
        self._files = RemoteFiles(interface, options.errors.address)

    async def stream(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> StreamResponses:
        call, headers = self._encode(rpc, request), self._call_headers(fields)
        methods = [call.method]
        if rpc == "SubscribeToTask":
            methods = ["GET"] if self._subscribes_with_get else ["POST", "GET"]
        for method in methods:
            try:
                async with aclosing(self._stream_once(call._replace(method=method), headers)) as events:
                    async for event in events:
                        # Only now: a 404 for POST may be that of an unknown task.
                        self._subscribes_with_get |= rpc == "SubscribeToTask" and method == "GET"
                        yield event
                return
            except CallRefused as error:
                if method == methods[-1] or not error.remote_error.is_unknown_method:
                    raise

    def _encode(self, rpc: str, request: Message) -> HttpCall:
        request = self._files.write(self._options.with_tenant(request, self.interface.tenant))
        base = "/".join(filter(None, (self.interface.url.rstrip("/"), self._options.rest_prefix)))
        return client_operations.rest_call(self.interface.dialect, rpc, request, base)

    def _decode(self, operation: ClientOperation, result: Any) -> Message:
        return self._files.read(super()._decode(operation, result))

    def _result(self, status: int | None, headers: Mapping[str, str], body: Any) -> Any:
        if _is_error_event(body) if status is None else status >= 400:
            raise self._errors.from_rest(status, headers, body)
        return body

    def _is_response(self, value: Any) -> bool:
        return isinstance(value, dict) and (not value.keys().isdisjoint(_EVENT_KEYS) or _is_error_event(value))


_EVENT_KEYS: Final = frozenset(
    ("task", "message", "msg", "statusUpdate", "status_update", "artifactUpdate", "artifact_update")
)
"""The members of a `StreamResponse`, in 0.3 and 1.0."""


def _is_error_event(event: Any) -> bool:
    """Whether an event of a REST stream is an error, in the form of AIP-193 or of 0.3 servers."""
    fields = event if isinstance(event, dict) else {}
    return "error" in fields or ("message" in fields and ("code" in fields or "type" in fields))


# Card discovery ------------------------------------------------------------------------------------------------------


class CardResponse(NamedTuple):
    """The response to one request for a card. `url`: the final URL, after redirects."""

    url: str
    status: int
    headers: Mapping[str, str]
    document: bytes

    @property
    def is_redirect(self) -> bool:
        return 300 <= self.status < 400

    @property
    def is_conclusive(self) -> bool:
        """Whether discovery ends with this response: a card, a redirect, or an error of the entire server."""
        return self.is_redirect or self.status in (200, 401, 403, 429, 502, 503, 504)


CardGetter = Callable[[str, Mapping[str, str]], Awaitable[CardResponse]]
"""Requests a URL with these headers. Raises ClientError."""


async def fetch_card(url: str, get: CardGetter) -> list[CardResponse]:
    """Requests the well-known URLs of a card up to the first conclusive response. Returns the last response of each
    URL. `url`: the agent or its card."""
    responses: list[CardResponse] = []
    for card_url in remote_card.card_urls(url):
        for headers in remote_card.CARD_REQUEST_HEADERS:
            response = await get(card_url, headers)
            if response.status != 400:
                break
        responses.append(response)
        if response.is_conclusive:
            break
    return responses
