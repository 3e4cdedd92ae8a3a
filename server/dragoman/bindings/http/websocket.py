"""JSON-RPC over WebSocket, as in a2a-rust: each text frame is one call or one response.

Several calls may be open at once; responses carry their ids. A stream is a sequence of responses with one id, ended by
the result `{"status": "stream_complete"}`. The credentials are those of the upgrade request, and are checked for each
call. Closing the connection cancels its open calls, but not their tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web

from dragoman.bindings import authentication
from dragoman.bindings.cards import Cards
from dragoman.bindings.http import bodies, connections
from dragoman.bindings.http.cors import request_id, response_headers
from dragoman.bindings.http.jsonrpc import JsonRpcDispatcher, RequestMetadata, encode_failure, request_metadata
from dragoman.bindings.options import HttpOptions
from dragoman.bindings.request_log import WEBSOCKET_LABEL, RequestLogEntry
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.errors import ContentTypeNotSupported, InvalidRequest, PermissionDenied, Unauthenticated, Unavailable
from dragoman.core.trace import TRACE_HEADER
from dragoman.wire import body_scan, jsonrpc
from dragoman.wire.dialects import Dialect

MAX_WEBSOCKET_CALLS: Final = 64
"""Maximum concurrent calls of one connection; further ones are rejected."""

CLIENT_CLOSED_STATUS: Final = 499
"""Response status, only logged, for a client that disconnected before the upgrade."""

WEBSOCKET_CLOSE_TIMEOUT: Final = 1.0
"""Seconds that a client has to answer a close frame."""

STREAM_COMPLETE_RESULT: Final = b'{"status":"stream_complete"}'


class WebSocketEndpoint:
    """Serves JSON-RPC calls over WebSocket, for all agents."""

    def __init__(
        self, dispatcher: JsonRpcDispatcher, cards: Cards, options: HttpOptions, stream_registry: StreamRegistry
    ) -> None:
        self._dispatcher = dispatcher
        self._cards = cards
        self._options = options
        self._stream_registry = stream_registry

    async def __call__(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        """Serves one connection until it closes."""
        socket = web.WebSocketResponse(
            timeout=WEBSOCKET_CLOSE_TIMEOUT,
            max_msg_size=bodies.max_body_bytes(self._options.message_bytes),
            heartbeat=30.0,
        )
        if not socket.can_prepare(request):
            raise InvalidRequest("this path is a WebSocket endpoint; send Upgrade: websocket")
        try:
            metadata = await request_metadata(request, variables, self._cards, self._options)
        except (Unauthenticated, PermissionDenied) as error:
            self._options.auth_failures.record(error, peer=request.remote or "", method="WebSocket")
            status = 401 if isinstance(error, Unauthenticated) else 403
            return web.Response(status=status, text=error.message, headers=authentication.challenge_headers(error))
        with self._dispatcher.hold_connection(metadata):
            return await self._serve_connection(request, socket, metadata)

    async def _serve_connection(
        self, request: web.BaseRequest, socket: web.WebSocketResponse, metadata: RequestMetadata
    ) -> web.StreamResponse:
        socket.headers.update(response_headers(request))
        try:
            await socket.prepare(request)
        except ConnectionError:  # the client disconnected before the upgrade, so this response is not sent
            return web.Response(status=CLIENT_CLOSED_STATUS)
        try:
            with self._stream_registry.open(metadata.identity):
                await self._read_frames(socket, request, metadata)
        except asyncio.CancelledError:
            end_reason = self._stream_registry.take_end_reason()
            if end_reason is None:
                raise
            if isinstance(end_reason, Unauthenticated):
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=end_reason.message.encode())
            else:
                await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server is shutting down")
        except Unavailable:
            await socket.close(code=WSCloseCode.TRY_AGAIN_LATER)
        except ConnectionError:  # the client disconnected during a write, such as the response to its ping
            pass
        return socket

    async def _read_frames(
        self, socket: web.WebSocketResponse, request: web.BaseRequest, metadata: RequestMetadata
    ) -> None:
        open_calls: set[asyncio.Task[None]] = set()
        connections.note_websocket_message(request)
        try:
            async for frame in socket:
                connections.note_websocket_message(request)
                if frame.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break
                log_entry = RequestLogEntry(
                    self._options.request_metrics,
                    WEBSOCKET_LABEL,
                    "WebSocket",
                    "",
                    request_id(request),
                    is_known_method=False,
                )
                if frame.type is WSMsgType.BINARY:
                    rejection: Exception = ContentTypeNotSupported("a frame must be text with one JSON-RPC call")
                elif len(open_calls) >= MAX_WEBSOCKET_CALLS:
                    rejection = Unavailable(f"a connection has at most {MAX_WEBSOCKET_CALLS} open calls; try again")
                else:
                    call = self._call(socket, request, frame.data, metadata, log_entry)
                    task = asyncio.create_task(call, name="websocket-call")
                    open_calls.add(task)
                    task.add_done_callback(open_calls.discard)
                    continue
                await self._send(socket, encode_failure(rejection, None, Dialect.V1, log_entry))
                # Yields to the loop: one read may contain thousands of frames, and sending may not yield.
                await asyncio.sleep(0)
        finally:
            for task in open_calls:
                task.cancel()
            await asyncio.gather(*open_calls, return_exceptions=True)

    async def _call(
        self,
        socket: web.WebSocketResponse,
        request: web.BaseRequest,
        frame: str,
        metadata: RequestMetadata,
        log_entry: RequestLogEntry,
    ) -> None:
        body: object = None
        if log_entry.is_traced:
            log_entry.start_trace(request.headers.get(TRACE_HEADER, ""))
        try:
            body = body_scan.loads(frame.encode(errors="surrogatepass"), lossy_numbers=self._options.lossy_numbers)
            call = jsonrpc.parse_request(body)
            log_entry.method = call.method
            # The credentials may have expired since the connection was opened.
            identity = await authentication.authenticate(request.headers.items(), self._options, request)
            metadata = replace(metadata, identity=identity)
            # After parsing, because several calls may be open: the error response needs the id of its call.
            self._dispatcher.check_rate(metadata)
            response = await self._dispatcher.dispatch(call, metadata, log_entry)
            if response.events is None:
                await self._send(socket, jsonrpc.encode_result(call.id, response.result))
            else:
                assert response.encode_results is not None
                async with aclosing(response.events) as events:
                    async for event in events:
                        for result in response.encode_results(event):
                            await self._send(socket, jsonrpc.encode_result(call.id, result))
                await self._send(socket, jsonrpc.encode_result(call.id, STREAM_COMPLETE_RESULT))
        except ConnectionError:
            log_entry.finish("gone")
        except Exception as error:
            call = jsonrpc.partial_request(error.value if isinstance(error, body_scan.AmbiguousJson) else body)
            self._options.auth_failures.record(error, peer=request.remote or "", method=log_entry.method)
            dialect = self._dispatcher.error_dialect(call.method, call.params)
            with suppress(ConnectionError):
                await self._send(socket, encode_failure(error, call.id, dialect, log_entry))
        else:
            log_entry.finish("OK")

    async def _send(self, socket: web.WebSocketResponse, data: bytes) -> None:
        """Sends one frame. Waits for a slow client. Raises ConnectionError if it disconnected."""
        await socket.send_str(data.decode())
