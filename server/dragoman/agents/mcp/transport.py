"""Transports of the SDK's client: HTTP over the outbound client, and a child process.

The SDK closes the whole client when one HTTP request fails without a response, and all calls with it. `GuardedHttp`
therefore answers such a request with a JSON-RPC error of its own (`call_error` in connection.py reads it).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import anyio
import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from dragoman.core.mcp_sources import McpSpec
from dragoman.ports import (
    ConnectFailed,
    OutboundFailed,
    OutboundForbidden,
    OutboundResponseStream,
    OutboundStreams,
)

log = logging.getLogger("dragoman.mcp")

UNAVAILABLE_CODE: Final = -33_001
FORBIDDEN_CODE: Final = -33_002
SESSION_LOST_CODE: Final = -33_003
"""Codes of errors that this process makes, outside the range of JSON-RPC and MCP."""

STDERR_TAIL_LINES: Final = 5

_DROPPED_HEADERS: Final = frozenset(
    ("accept-encoding", "connection", "content-length", "host", "transfer-encoding", "user-agent")
)
"""Headers that the outbound client sets."""

_UNAVAILABLE_STATUSES: Final = {429: False, 502: True, 503: False, 504: True}
"""Statuses of servers that are overloaded or down, and whether the request may have arrived at the server."""


class GuardedHttp(httpx2.AsyncBaseTransport):
    """HTTP of the SDK's client over the outbound client, which connects only to checked addresses. Raises nothing."""

    def __init__(self, outbound: OutboundStreams, silence: float, max_response_bytes: int) -> None:
        """silence: seconds without a byte after which a response counts as broken."""
        self._outbound = outbound
        self._silence = silence
        self._max_response_bytes = max_response_bytes
        self.last_failure = ""
        """Why the last request without a response failed; empty when none has."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends one request. A JSON body is read completely, an event stream as it comes."""
        body = await request.aread()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED_HEADERS}
        url = str(request.url)
        try:
            async with AsyncExitStack() as stack:
                response = await stack.enter_async_context(
                    self._outbound.open(request.method, url, headers, body or None, idle_timeout=self._silence)
                )
                is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
                if response.status == 200 and is_stream:
                    events = _EventStream(stack.pop_all(), response, may_end=request.method == "GET")
                    return httpx2.Response(200, headers=dict(response.headers), stream=events)
                content = await self._read(response)
        except OutboundForbidden as error:
            return self._failure(FORBIDDEN_CODE, str(error), arrived=False)
        except OutboundFailed as error:
            return self._failure(UNAVAILABLE_CODE, str(error), arrived=not isinstance(error, ConnectFailed))
        return self._checked(request, response, content)

    def _checked(
        self, request: httpx2.Request, response: OutboundResponseStream, content: bytes | None
    ) -> httpx2.Response:
        """The response with this body; for one without a JSON-RPC error, what its status says."""
        status = response.status
        if content is None:
            text = f"the response is longer than {self._max_response_bytes} bytes"
            return self._failure(UNAVAILABLE_CODE, text, arrived=True)
        if status == 404 and "mcp-session-id" in request.headers:  # 2025-11-25, Session Management, 3 and 4
            return self._failure(SESSION_LOST_CODE, "the session is unknown", arrived=False)
        if status >= 400 and not _is_rpc_error(content):
            if status in (401, 403):
                text = f"it rejected the credentials, or requires some ({status})"
                return self._failure(FORBIDDEN_CODE, text, arrived=False)
            if (arrived := _UNAVAILABLE_STATUSES.get(status)) is not None:
                return self._failure(UNAVAILABLE_CODE, f"responded with status {status}", arrived=arrived)
        return httpx2.Response(status, headers=_kept_headers(response), content=content)

    async def _read(self, response: OutboundResponseStream) -> bytes | None:
        """The body; None for one that is too long."""
        data = bytearray()
        async for chunk in response.chunks():
            data += chunk
            if len(data) > self._max_response_bytes:
                return None
        return bytes(data)

    def _failure(self, code: int, text: str, *, arrived: bool) -> httpx2.Response:
        self.last_failure = text
        error = {"code": code, "message": text, "data": {"arrived": arrived}}
        return httpx2.Response(503, json={"jsonrpc": "2.0", "id": None, "error": error})


def _is_rpc_error(content: bytes) -> bool:
    try:
        value: Any = json.loads(content)
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(value.get("error"), dict) and "code" in value["error"]


def _kept_headers(response: OutboundResponseStream) -> dict[str, str]:
    """The headers of a response whose body was read."""
    return {name: value for name, value in response.headers.items() if name not in ("content-length", "connection")}


class _EventStream(httpx2.AsyncByteStream):
    """The body of an event stream."""

    def __init__(self, connection: AsyncExitStack, response: OutboundResponseStream, *, may_end: bool) -> None:
        """may_end: a broken stream ends like a complete one, because the SDK then opens it again."""
        self._connection = connection
        self._response = response
        self._may_end = may_end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.chunks():
                yield chunk
        except Exception as error:  # of the HTTP library, which the outbound client translates only when it is left
            if not self._may_end:
                raise httpx2.ReadError("connection lost") from error

    async def aclose(self) -> None:
        await self._connection.aclose()


class WatchedStream:
    """The read stream of a transport; calls `on_end` when it ends."""

    def __init__(self, inner: Any, on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, for HTTP that of the call it belongs to."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            message: SessionMessage | Exception = await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise
        return message

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def http_streams(
    server: McpSpec, http: GuardedHttp, max_event_bytes: int, on_end: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of a server over HTTP."""
    headers = dict(server.headers)
    async with (
        httpx2.AsyncClient(transport=http, headers=headers, trust_env=False, follow_redirects=False) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=max_event_bytes) as (read, write),
    ):
        yield WatchedStream(read, on_end), write


@asynccontextmanager
async def stdio_streams(
    server: McpSpec, stderr: StderrLog, on_end: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of a server in a child process, which ends with the block. Raises OSError."""
    parameters = StdioServerParameters(
        command=server.command[0], args=list(server.command[1:]), env=dict(server.env), cwd=server.cwd or None
    )
    read_end, write_end = os.pipe()
    reading = asyncio.create_task(stderr.read(read_end), name=f"stderr of {server.location}")
    try:
        async with AsyncExitStack() as stack:
            with os.fdopen(write_end, "w") as sink:
                read, write = await stack.enter_async_context(stdio_client(parameters, errlog=sink))
            yield WatchedStream(read, on_end), write
    finally:
        reading.cancel()
        await asyncio.wait([reading])


class StderrLog:
    """Copies what a child process writes to stderr to our log, and keeps the last lines."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._tail: deque[str] = deque(maxlen=STDERR_TAIL_LINES)

    @property
    def last_line(self) -> str:
        """The last line; empty when there is none."""
        return self._tail[-1] if self._tail else ""

    async def read(self, descriptor: int) -> None:
        """Reads lines until the end, or until canceled. Closes the descriptor."""
        reader = asyncio.StreamReader(limit=65536)
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        rest = b""
        try:
            while chunk := await reader.read(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                rest = rest[-65536:]
                for line in lines:
                    self._log(line)
            self._log(rest)
        finally:
            transport.close()

    def _log(self, line: bytes) -> None:
        if text := line.decode(errors="replace").rstrip():
            self._tail.append(text[:1000])
            log.info("%s", text, extra={"agent": self._agent})
