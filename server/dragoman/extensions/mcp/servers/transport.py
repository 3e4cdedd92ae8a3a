"""Transports of the SDK's client: HTTP over the outbound client, and a child process.

The SDK closes the whole client when one HTTP request fails without a response, and drops answers that it cannot read
or match, so that their calls wait for ever. Such calls are answered with an error of this process, and so is a call
without an answer for too long (`call_error` in connection.py reads these errors).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

import anyio
import httpx2
import mcp_types as types
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.message import SessionMessage

from dragoman.core.media_types import bare_type
from dragoman.extensions.mcp.servers.open_calls import WAITING_CALL_SECONDS
from dragoman.extensions.mcp.servers.readers import read_message
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.extensions.mcp.wire.called_server import (
    KNOWN_NOTIFICATIONS,
    ToolList,
    answer_problem,
    is_progress,
    is_rpc_error,
    read_tool_list,
    unreadable_answer,
)
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
UNREADABLE_CODE: Final = -33_004
SILENT_CODE: Final = -33_005
"""Codes of errors that this process makes, outside the range of JSON-RPC and MCP."""

_ENDLESS: Final = "subscriptions/listen"
"""The method whose answer comes when the subscription ends."""

MAX_SERVER_REQUESTS: Final = 1_000
"""Requests of one server without our answer; further ones are ignored. Each has a task, and its answer has to be read.
Calls that wait for a person (`MAX_WAITING_CALLS`) have at most one each over stdio."""

STDERR_TAIL_LINES: Final = 5

PROCESS_END_TIMEOUT: Final = 2.0
"""Seconds for a child process to end after its input was closed, and again after SIGTERM (2025-11-25, Shutdown)."""

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
                is_stream = bare_type(response.headers.get("content-type", "")) == "text/event-stream"
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
        if status >= 400 and not is_rpc_error(content):
            if status in (401, 403):
                text = f"it rejected the credentials, or requires some ({status})"
                return self._failure(FORBIDDEN_CODE, text, arrived=False)
            if (arrived := _UNAVAILABLE_STATUSES.get(status)) is not None:
                return self._failure(UNAVAILABLE_CODE, f"responded with status {status}", arrived=arrived)
        if status == 200 and request.method == "POST" and (problem := answer_problem(request.content, content)):
            return self._failure(UNREADABLE_CODE, problem, arrived=True)
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


class UnreadableMessage(Exception):
    """Something that a server sent, and that is no message. `text`: it, or its beginning."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text


class OpenRequests:
    """The requests of one connection that have no answer yet."""

    def __init__(
        self, silence: float | None, left_out: list[str], *, question_seconds: float = WAITING_CALL_SECONDS
    ) -> None:
        """silence: seconds without an answer or progress after which a request fails; None for no limit.

        left_out: takes the tools of a list that cannot be read, with the reason. question_seconds: for which a question
        of the server suspends the limit of the call that asks.
        """
        self._left_out = left_out
        self.expire: Callable[[int], None] = lambda _: None
        """Called for a request that has waited too long."""
        self.silence = silence
        self._methods: dict[int, str] = {}
        self._subscriptions: set[str] = set()
        """The ids of open subscriptions: the SDK names them by texts, and has to know when they end."""
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._question_seconds = question_seconds
        self._server_requests: dict[types.RequestId, asyncio.TimerHandle | None] = {}
        """Requests of the server without our answer. The timer of a question ends the suspension of its calls."""
        self._asking: dict[int, types.RequestId] = {}
        """The calls without a limit, and their question: meanwhile the server waits for a person."""
        self._ignores_requests = False
        self._last_id = 0

    @property
    def ids(self) -> list[int]:
        """The ids of requests that may be answered at any time."""
        return [id for id, method in self._methods.items() if method != _ENDLESS]

    def sent(self, message: Any) -> None:
        """Notes a message to the server."""
        match message:
            case types.JSONRPCRequest(id=int(id)):
                self._methods[id] = message.method
                self._last_id = max(self._last_id, id)
                self._restart(id)
            case types.JSONRPCRequest(id=str(id)):
                self._subscriptions.add(id)
            case types.JSONRPCNotification(method="notifications/cancelled", params={"requestId": str(id)}):
                self._subscriptions.discard(id)
            case types.JSONRPCNotification(method="notifications/cancelled", params={"requestId": int(id)}):
                self._forget(id)
            case types.JSONRPCResponse(id=id) | types.JSONRPCError(id=int() | str() as id):
                self._end_server_request(id)

    def received(self, message: Any) -> Any:
        """The message to pass on; None for one to drop."""
        match message:
            case types.JSONRPCResponse() | types.JSONRPCError():
                return self._answer(message)
            case types.JSONRPCRequest():
                return message if self._begin_server_request(message) else None
            case types.JSONRPCNotification(method="notifications/cancelled"):
                if (canceled := as_request_id((message.params or {}).get("requestId"))) is not None:
                    self._end_server_request(canceled)
            case types.JSONRPCNotification(method="notifications/progress"):
                params = message.params or {}
                if not is_progress(params):
                    return None
                if params["progressToken"] in self._methods:
                    self._restart(params["progressToken"])
            case types.JSONRPCNotification() if message.method not in KNOWN_NOTIFICATIONS:
                return None
        return message

    def unreadable(self, problem: UnreadableMessage) -> Any:
        """The error for the request that an unreadable message belongs to; None if that is not known."""
        id = unreadable_answer(problem.text, self.ids)
        if id is None:
            log.warning("ignored what an MCP server sent: %s: %s", problem.reason, problem.text[:200])
            return None
        return self.error(id, UNREADABLE_CODE, f"the MCP server sent an answer that cannot be read: {problem.reason}")

    def error(self, id: int, code: int, text: str) -> types.JSONRPCError:
        """The error that answers a request in place of the server."""
        self._forget(id)
        return types.JSONRPCError(jsonrpc="2.0", id=id, error=types.ErrorData(code=code, message=text))

    def close(self) -> None:
        """Stops all timers."""
        for id in list(self._methods):
            self._forget(id)
        for request in list(self._server_requests):
            self._end_server_request(request)

    def _answer(self, message: types.JSONRPCResponse | types.JSONRPCError) -> Any:
        id = coerce_request_id(message.id) if message.id is not None else None
        if isinstance(id, int) and id in self._methods:
            method = self._methods[id]
            self._forget(id)
            if method == "tools/list" and isinstance(message, types.JSONRPCResponse):
                return self._tool_list(id, message)
            return message
        if isinstance(message.id, str) and message.id in self._subscriptions:
            self._subscriptions.discard(message.id)
            return message
        if isinstance(id, int) and 0 < id <= self._last_id:
            return None  # of a call that was canceled or has failed
        reason = f": {message.error.message} ({message.error.code})" if isinstance(message, types.JSONRPCError) else ""
        text = f"the MCP server answered with the id {str(id)[:80]}, which no call has{reason}"
        if len(self.ids) == 1:
            return self.error(self.ids[0], UNREADABLE_CODE, text)
        log.warning("ignored an answer: %s", text)
        return None

    def _tool_list(self, id: int, message: types.JSONRPCResponse) -> Any:
        found = read_tool_list(message.result)
        if not isinstance(found, ToolList):
            return self.error(id, UNREADABLE_CODE, found)
        self._left_out.extend(found.left_out)
        return types.JSONRPCResponse(jsonrpc="2.0", id=id, result=dict(found.result))

    def _restart(self, id: int) -> None:
        if self.silence is None or self._methods[id] == _ENDLESS:
            return
        if (timer := self._timers.pop(id, None)) is not None:
            timer.cancel()
        if id not in self._asking:
            self._timers[id] = asyncio.get_running_loop().call_later(self.silence, self._expire, id)

    def _expire(self, id: int) -> None:
        if id in self._methods:
            self.expire(id)

    def _forget(self, id: int) -> None:
        self._methods.pop(id, None)
        self._asking.pop(id, None)
        if (timer := self._timers.pop(id, None)) is not None:
            timer.cancel()

    def _begin_server_request(self, message: types.JSONRPCRequest) -> bool:
        """Notes a request of the server. Returns False for one to ignore."""
        request = coerce_request_id(message.id)
        if request in self._server_requests or len(self._server_requests) >= MAX_SERVER_REQUESTS:
            if not self._ignores_requests:
                self._ignores_requests = True
                text = "an MCP server repeats the id of an open request, or has %d open requests: further are ignored"
                log.warning(text, len(self._server_requests))
            return False
        self._server_requests[request] = None
        if self.silence is not None and message.method == "elicitation/create":
            loop = asyncio.get_running_loop()
            self._server_requests[request] = loop.call_later(self._question_seconds, self._resume, request)
            # It does not say which call asks: one that does not wait for an answer yet, as in `OpenCalls.elicit`.
            for id, method in self._methods.items():
                if method == "tools/call" and id not in self._asking:
                    self._asking[id] = request
                    self._restart(id)
        return True

    def _end_server_request(self, id: types.RequestId) -> None:
        """Notes that a request of the server was answered or withdrawn."""
        request = coerce_request_id(id)
        if (timer := self._server_requests.pop(request, None)) is not None:
            timer.cancel()
        self._resume(request)

    def _resume(self, request: types.RequestId) -> None:
        """Applies the limit again to the calls that this question has suspended."""
        for id in [id for id, question in self._asking.items() if question == request]:
            del self._asking[id]
            self._restart(id)


class GuardedReads:
    """The read stream of a transport, without what cannot be read; calls `on_end` when it ends."""

    def __init__(self, inner: Any, requests: OpenRequests, on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._requests = requests
        self._on_end = on_end
        self._errors: deque[SessionMessage] = deque()
        """Errors of this process, which come before the next message."""
        self._waiting: anyio.CancelScope | None = None
        requests.expire = self._on_expired

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, for HTTP that of the call it belongs to."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while True:
            if self._errors:
                return self._errors.popleft()
            item: SessionMessage | Exception | None = None
            try:
                with anyio.CancelScope() as self._waiting:
                    item = await self._inner.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                self._requests.close()
                self._on_end()
                raise
            finally:
                self._waiting = None
            if isinstance(item, SessionMessage):
                message = self._requests.received(item.message)
                if message is item.message:
                    return item
                if message is not None:
                    return SessionMessage(message, item.metadata)
            elif isinstance(item, UnreadableMessage):
                if (message := self._requests.unreadable(item)) is not None:
                    return SessionMessage(message)
            elif item is not None:
                return item

    def _on_expired(self, id: int) -> None:
        text = f"nothing came from the MCP server for {self._requests.silence or 0:g} s"
        self._errors.append(SessionMessage(self._requests.error(id, SILENT_CODE, text)))
        if self._waiting is not None:
            self._waiting.cancel()

    async def aclose(self) -> None:
        self._requests.close()
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


class GuardedWrites:
    """The write stream of a transport, whose requests are noted."""

    def __init__(self, inner: Any, requests: OpenRequests) -> None:
        self._inner = inner
        self._requests = requests

    async def send(self, item: SessionMessage) -> None:
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            await self._inner.send(item)  # a server that does not read has the request open
            self._requests.sent(item.message)
        else:
            self._requests.sent(item.message)
            await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def http_streams(
    server: McpSpec, http: GuardedHttp, max_event_bytes: int, requests: OpenRequests, on_end: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of a server over HTTP. Its silence is that of `http`."""
    headers = dict(server.headers)
    async with (
        httpx2.AsyncClient(transport=http, headers=headers, trust_env=False, follow_redirects=False) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=max_event_bytes) as (read, write),
    ):
        yield GuardedReads(read, requests, on_end), GuardedWrites(write, requests)


@asynccontextmanager
async def stdio_streams(
    server: McpSpec, stderr: StderrLog, max_line_bytes: int, requests: OpenRequests, on_end: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of a server in a child process, which ends with the block. Raises OSError."""
    read_end, write_end = os.pipe()
    reading_stderr = asyncio.create_task(stderr.read(read_end), name=f"stderr of {server.location}")
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *server.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=write_end,
                env={**get_default_environment(), **server.env},
                cwd=server.cwd or None,
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        read_in, read_out = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_in, write_out = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(_read_lines(process, read_in, max_line_bytes), name=f"stdout of {server.location}"),
            asyncio.create_task(_write_lines(process, write_out, read_in), name=f"stdin of {server.location}"),
        ]
        try:
            yield GuardedReads(read_out, requests, on_end), GuardedWrites(write_in, requests)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for stream in (read_in, read_out, write_in, write_out):
                stream.close()
            await _end_process(process)
    finally:
        reading_stderr.cancel()
        await asyncio.wait([reading_stderr])


async def _read_lines(process: asyncio.subprocess.Process, messages: Any, max_line_bytes: int) -> None:
    """Passes on the lines of a process as messages, until its output ends."""
    assert process.stdout is not None
    parts: list[bytes] = []
    size = 0
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError), messages:
        while chunk := await process.stdout.read(65_536):
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                whole = b"".join((*parts, line))
                await messages.send(_read_line(whole, size + len(line), max_line_bytes))
                parts, size = [], 0
            size += len(rest)
            if size <= max_line_bytes:
                parts.append(rest)


def _read_line(line: bytes, size: int, max_line_bytes: int) -> SessionMessage | UnreadableMessage:
    """The message in a line. `size`: of the whole line, of which a part is missing if it is too long."""
    if size > max_line_bytes:
        return UnreadableMessage(f"it is longer than {max_line_bytes} bytes", line[:65_536].decode(errors="replace"))
    message = read_message(line)
    if isinstance(message, str):
        return UnreadableMessage(message, line[:65_536].decode(errors="replace"))
    return SessionMessage(message)


async def _write_lines(process: asyncio.subprocess.Process, messages: Any, read_in: Any) -> None:
    """Sends messages to a process as lines. Ends the stream of what it says when it reads no more."""
    assert process.stdin is not None
    try:
        async with messages:
            async for item in messages:
                process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()
    except (ConnectionError, anyio.ClosedResourceError):
        read_in.close()


async def _end_process(process: asyncio.subprocess.Process) -> None:
    """Closes the input of a process, and ends it and its children by force if it does not end by itself."""
    assert process.stdin is not None
    process.stdin.close()
    draining = asyncio.create_task(_drain(process), name="output of an ending MCP server")
    try:
        for signal_number in (None, signal.SIGTERM, signal.SIGKILL):
            if signal_number is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal_number)
            with suppress(TimeoutError):
                async with asyncio.timeout(PROCESS_END_TIMEOUT):
                    await process.wait()
                    return
        log.warning("the process %d of an MCP server does not end", process.pid)
    finally:
        draining.cancel()
        await asyncio.wait([draining])
        process._transport.close()  # type: ignore[attr-defined]  # a child of it may hold the pipes open


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Discards the output of a process that ends, so that it does not wait for a reader."""
    assert process.stdout is not None
    with suppress(OSError):
        while await process.stdout.read(65_536):
            pass


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
