"""One HTTP request and its response: headers, JSON bodies within limits, complete and streamed responses."""

from __future__ import annotations

import asyncio
import math
import re
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from aiohttp import HttpVersion11, web

from dragoman.bindings.cards import CARD_MAX_AGE, Origin, ServedCard
from dragoman.bindings.http.connections import BodyTooSlow, HandOver, HttpConnection, PlainRequest, Response
from dragoman.bindings.http.cors import request_id, response_headers
from dragoman.bindings.pipeline import (
    VERSION_HEADER,
    ClientDisconnected,
    Pipeline,
    RequestExchange,
    RequestLogEntry,
    log_call_fault,
)
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.errors import ContentTypeNotSupported, InvalidRequest, PayloadTooLarge, Unauthenticated
from dragoman.core.media_types import accepted_types
from dragoman.core.task.log import Event
from dragoman.runtime.feeds import EventStream
from dragoman.wire import errors
from dragoman.wire.http import sse
from dragoman.wire.json import request as json_request
from dragoman.wire.json.request import AmbiguousJson

T = TypeVar("T")

AnyRequest = web.BaseRequest | PlainRequest

JSON_CONTENT_TYPE: Final = "application/json"
SSE_CONTENT_TYPE: Final = "text/event-stream"

CURSOR_HEADER: Final = "Last-Event-ID"


class HttpExchange(RequestExchange[Response | web.StreamResponse]):
    """A request that one HTTP response answers."""

    DISCONNECTED_STATUS = "disconnected"

    def __init__(
        self,
        pipeline: Pipeline,
        request: AnyRequest,
        path: str,
        tenant: str = "",
        *,
        binding: str,
        method: str,
        dialect: str = "",
        is_known_method: bool = True,
    ) -> None:
        """`path`: percent-encoded. `binding`, `method`, `dialect`, `is_known_method`: as in the request log."""
        log_entry = RequestLogEntry(
            pipeline.options, binding, method, dialect,
            "" if isinstance(request, PlainRequest) else request_id(request), is_known_method=is_known_method,
        )  # fmt: skip
        super().__init__(pipeline, log_entry, request.headers, request, tenant)
        self.request = request
        self.path = path
        self.body: object = None

    @property
    def is_unary(self) -> bool:
        """Whether the call is known to have one complete response, for which a plain request is enough."""
        return False

    @property
    def peer(self) -> str:
        return self.request.remote or ""

    def versions(self) -> Iterable[str]:
        return named_versions(self.request)

    async def read(self) -> None:
        options = self.pipeline.options
        try:
            self.body = await read_json(self.request, options.message_bytes, lossy_numbers=options.lossy_numbers)
        except AmbiguousJson as error:
            self.body = error.value  # an error response of JSON-RPC repeats its id
            raise

    def origin(self) -> Origin | None:
        if not isinstance(self.request, web.BaseRequest):
            raise HandOver
        return self.pipeline.cards.origin(self.request)

    async def send_events(
        self,
        events: EventStream,
        *,
        framing: Framing,
        encode_event: Callable[[Event], bytes],
        encode_error: Callable[[Exception], bytes],
    ) -> web.StreamResponse:
        """Streams events. `encode_error` returns the JSON body of an error after the first event."""
        if not isinstance(self.request, web.BaseRequest):
            raise HandOver

        def failure(error: Exception) -> bytes:
            log_call_fault(error, self.name)
            return encode_error(error)

        return await respond_stream(
            self.request, events, framing=framing, encode_event=encode_event, encode_error=failure,
            stream_registry=self.pipeline.streams, keepalive=self.pipeline.options.keepalive,
            headers=self.activation_headers(),
        )  # fmt: skip


def named_versions(request: AnyRequest) -> Sequence[str]:
    """Every `A2A-Version` of a request, from headers and query."""
    versions: Sequence[str] = request.headers.getall(VERSION_HEADER, ())
    if request.query_string:
        versions = [*versions, *request.query.getall(VERSION_HEADER, ())]
    return versions


def idempotency_key(headers: Any) -> str:
    """The `Idempotency-Key`, without the quotes of the IETF draft, which most clients omit."""
    key: str = headers.get("Idempotency-Key", "")
    return key.strip().removeprefix('"').removesuffix('"') if key else ""


def error_headers(error: Exception) -> dict[str, str]:
    """The headers that say how to repeat a call: `Retry-After` in whole seconds (RFC 9110 §10.2.3), or the content
    codings that are accepted (§15.5.16)."""
    if isinstance(error, errors.ContentCodingNotSupported):
        return {"Accept-Encoding": error.ACCEPTED}
    seconds = errors.retry_after(error)
    return {"Retry-After": str(math.ceil(seconds))} if seconds else {}


def accepted(request: AnyRequest) -> frozenset[str]:
    """The media types that the `Accept` headers of a request name."""
    return accepted_types(",".join(request.headers.getall("Accept", ())))


def accepts_only_json(request: AnyRequest) -> bool:
    return JSON_CONTENT_TYPE in accepted(request) and SSE_CONTENT_TYPE not in accepted(request)


def accepts_only_streams(request: AnyRequest) -> bool:
    return accepted(request) == {SSE_CONTENT_TYPE}


def as_aiohttp(response: Response | web.StreamResponse) -> web.StreamResponse:
    if isinstance(response, web.StreamResponse):
        return response
    return web.Response(status=response.status, body=response.body, headers=response.headers)


# ---- bodies of requests

_JSON_CONTENT_TYPE: Final = re.compile(r"\s*application/([a-z0-9!#$&^_.+-]+\+)?json\s*(;.*)?", re.IGNORECASE)

_BODY_OVERHEAD_BYTES: Final = 1024 * 1024  # bytes for keys and punctuation around the payload
_METHODS_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "DELETE"})  # methods whose body is ignored (RFC 9110 §9.3)


@cache
def max_body_bytes(message_bytes: int) -> int:
    """Maximum bytes of an HTTP body: the decoded limit in base64, plus the envelope."""
    return message_bytes * 4 // 3 + _BODY_OVERHEAD_BYTES


async def read_json(request: AnyRequest, message_bytes: int, *, lossy_numbers: bool = False) -> object:
    """The JSON value of the body, or None for a request without one.

    Raises ContentTypeNotSupported, ContentCodingNotSupported, PayloadTooLarge, InvalidRequest, Unavailable, ParseError,
    and AmbiguousJson for JSON that two parsers could read differently.
    """
    if request.method in _METHODS_WITHOUT_BODY or not request.can_read_body:
        return None
    content_type = request.headers.get("Content-Type", "")
    if content_type and not _JSON_CONTENT_TYPE.fullmatch(content_type):
        raise ContentTypeNotSupported(
            f'Content-Type: "{content_type[:100]}" is not supported; use application/json',
            metadata={"field": "Content-Type", "accepted": "application/json, application/a2a+json"},
        )
    limit = max_body_bytes(message_bytes)
    data = request.body if isinstance(request, PlainRequest) else await _read_bytes(request, limit)
    if len(data) > limit:
        raise _too_large(limit)
    return json_request.loads(data, lossy_numbers=lossy_numbers) if data else None


async def _read_bytes(request: web.BaseRequest, limit: int) -> bytes:
    """Reads and decodes the body. Raises PayloadTooLarge as soon as the limit is exceeded, without reading on."""
    decoder = _decoder_of(request, limit)
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= HttpVersion11:
        # After the check above, so a client that expects 100 Continue does not send a body that is rejected.
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    connection, budget = request.protocol, None
    if not request.content.is_eof() and isinstance(connection, HttpConnection):
        budget = connection.body_budget
    if budget is None and request.content.exception() is None:  # the body has been received completely
        received = request.content.read_nowait()
        return received if decoder is None else decoder.decode(received) + decoder.end()
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.content.iter_any():
            if decoder is not None:
                chunk = decoder.decode(chunk)
            if budget is not None:
                budget.reserve(len(chunk))
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
    except BodyTooSlow as error:
        raise errors.RequestTooSlow(f"the body cannot be read: {error}") from None
    except web.RequestPayloadError as error:
        raise InvalidRequest(f"the body cannot be read: {error}") from None
    finally:
        if budget is not None:
            budget.release(size)
    if decoder is not None:
        decoder.end()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS  # makes zlib read the header of gzip
_CODINGS: Final = {
    "gzip": _GZIP_WINDOW_BITS,
    "x-gzip": _GZIP_WINDOW_BITS,  # RFC 9110 §8.4.1.3
    "deflate": zlib.MAX_WBITS,
}


def _decoder_of(request: web.BaseRequest, limit: int) -> _BodyDecoder | None:
    """The decoder of the body's content coding; None for a plain body. Raises ContentCodingNotSupported."""
    if "Content-Encoding" not in request.headers:
        return None
    named = ", ".join(request.headers.getall("Content-Encoding"))
    codings = [coding for name in named.split(",") if (coding := name.strip().lower()) not in ("", "identity")]
    if len(codings) > 1 or not _CODINGS.keys() >= set(codings):
        raise errors.ContentCodingNotSupported(named)
    return _BodyDecoder(codings[0], limit) if codings else None


class _BodyDecoder:
    """Decodes a body in pieces, up to `limit` bytes: a few kilobytes can be megabytes of spaces."""

    def __init__(self, coding: str, limit: int) -> None:
        self._coding = coding
        self._left = limit
        self._limit = limit
        self._zlib: Any = None

    def decode(self, data: bytes) -> bytes:
        """The content of the next piece. Raises PayloadTooLarge, InvalidRequest."""
        if self._zlib is None and data:
            is_raw = self._coding == "deflate" and data[0] & 0x0F != zlib.DEFLATED  # many senders omit zlib's header
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS if is_raw else _CODINGS[self._coding])
        if not data:
            return b""
        try:
            content: bytes = self._zlib.decompress(data, self._left + 1)
        except zlib.error as error:
            raise InvalidRequest(f"the body is not valid {self._coding}: {error}") from None
        self._left -= len(content)
        if self._left < 0:
            raise _too_large(self._limit)
        if self._zlib.unused_data:
            raise InvalidRequest(f"the body goes on after the end of its {self._coding}")
        return content

    def end(self) -> bytes:
        """Nothing, after the last piece. Raises InvalidRequest for a body that was cut."""
        if self._zlib is not None and not self._zlib.eof:
            raise InvalidRequest(f"the body ends before its {self._coding} does")
        return b""


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"body: at most {limit} bytes are accepted")


# ---- responses


@dataclass(frozen=True, slots=True)
class Framing:
    """How the elements of a stream are framed in a response."""

    media_type: str
    opening: bytes
    separator: bytes
    closing: bytes
    keep_alive: bytes  # sent between elements on an idle stream; clients ignore it
    encode_error: Callable[[bytes], bytes]


SSE_FRAMING: Final = Framing("text/event-stream", b"", b"", b"", sse.KEEP_ALIVE, partial(sse.frame, event="error"))
JSONRPC_SSE_FRAMING: Final = Framing("text/event-stream", b"", b"", b"", sse.KEEP_ALIVE, sse.frame)
"""SSE whose errors are JSON-RPC responses, without an event name, because some clients skip named events."""
JSON_ARRAY_FRAMING: Final = Framing("application/json", b"[", b",\n", b"]", b"\n", bytes)

_STREAM_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold events back until its buffer is full
}


class _StreamWriter:
    """Writes a stream. The response begins with the first write: until then it can still be another one."""

    def __init__(self, request: web.BaseRequest, response: web.StreamResponse, framing: Framing) -> None:
        self._request = request
        self._response = response
        self._framing = framing
        self._prefix = framing.opening
        self._clock = asyncio.get_running_loop().time
        self._last_write = self._clock()

    async def write_elements(self, *data: bytes) -> None:
        """Writes elements in one call. Waits for a slow client. Raises ClientDisconnected."""
        prefix, self._prefix = self._prefix, self._framing.separator
        await self._write(prefix + self._framing.separator.join(data))

    async def close(self) -> None:
        """Ends the response, even if it has no elements. Raises ClientDisconnected."""
        opening = self._framing.opening if self._prefix is self._framing.opening else b""
        await self._write(opening + self._framing.closing)
        try:
            await self._response.write_eof()
        except ConnectionError:
            raise ClientDisconnected from None

    async def keep_alive(self, interval: float) -> None:
        """Sends a keep-alive after each `interval` seconds without a write. Runs until canceled or disconnected."""
        with suppress(ClientDisconnected):
            while True:
                wait = self._last_write + interval - self._clock()
                if wait > 0:
                    await asyncio.sleep(wait)
                else:
                    await self._write(self._framing.keep_alive)

    async def _write(self, data: bytes) -> None:
        self._last_write = self._clock()
        try:
            if not self._response.prepared:
                await self._response.prepare(self._request)
            if data:
                await self._response.write(data)
        except ConnectionError:
            raise ClientDisconnected from None


async def respond_stream(
    request: web.BaseRequest,
    events: AsyncGenerator[Sequence[T], None],
    *,
    framing: Framing,
    encode_event: Callable[[T], bytes],
    encode_error: Callable[[Exception], bytes],
    stream_registry: StreamRegistry,
    keepalive: float,
    headers: Mapping[str, str] = MappingProxyType({}),
    encode_stop: Callable[[], bytes] = bytes,
) -> web.StreamResponse:
    """Streams batches of events until they end, the client disconnects, or the server stops.

    `encode_event` returns the bytes of an event, `encode_error` the JSON body of an error, `encode_stop` the bytes of
    the last event when the server stops, by default none. `keepalive`: seconds. Errors before the first event or
    keep-alive are raised to the caller.
    """
    all_headers = {**_STREAM_HEADERS, **response_headers(request), **headers, "Content-Type": framing.media_type}
    response = web.StreamResponse(headers=all_headers)
    writer = _StreamWriter(request, response, framing)
    async with aclosing(events):
        keepalive_task = asyncio.create_task(writer.keep_alive(keepalive), name="keep-alive")
        with suppress(ClientDisconnected):
            try:
                async for batch in events:
                    await writer.write_elements(*map(encode_event, batch))
            except ClientDisconnected:
                raise
            except Exception as error:
                if not response.prepared:
                    raise
                await writer.write_elements(framing.encode_error(encode_error(error)))
            except asyncio.CancelledError:
                end_reason = stream_registry.take_end_reason() if response.prepared else None
                if end_reason is None:
                    raise
                if isinstance(end_reason, Unauthenticated):  # tells the client that reconnecting would fail
                    await writer.write_elements(framing.encode_error(encode_error(end_reason)))
                elif last := encode_stop():
                    await writer.write_elements(last)
            finally:
                keepalive_task.cancel()
            if not response.prepared and request.method == "GET" and framing is SSE_FRAMING:
                # The task has ended, and the client has all events. Only this status ends the reconnects of an
                # EventSource (WHATWG HTML §9.2.3).
                return web.Response(status=204, headers=headers)
            await writer.close()
        return response


def card_response(
    request: web.BaseRequest,
    served: ServedCard,
    *,
    vary: str = "A2A-Version",
    private: bool = False,
    media_type: str = "application/json",
) -> web.Response:
    """Returns 200 with the card, or 304 if the caller's copy is current (RFC 9110 §13.1.2).

    `private`: shared caches must not store the response.
    """
    headers = {
        "ETag": served.etag,
        "Cache-Control": "private, no-cache" if private else f"public, max-age={CARD_MAX_AGE}",
        **({"Vary": vary} if vary else {}),
    }
    # If-None-Match uses weak comparison: a proxy that compressed the card has weakened its tag.
    conditions = ",".join(request.headers.getall("If-None-Match", ())).split(",")
    if any(tag.strip().removeprefix("W/") in (served.etag, "*") for tag in conditions):
        return web.Response(status=304, headers=headers)
    return web.Response(body=served.body, headers={**headers, "Content-Type": media_type})
