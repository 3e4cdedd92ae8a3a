"""JSON-RPC over WebSocket, as in a2a-rust: each text frame is one call or one response.

Several calls may be open at once; responses carry their ids. A stream is a sequence of responses with one id, ended by
the result `{"status": "stream_complete"}`. The credentials are those of the upgrade request, and are checked for each
call. Closing the connection cancels its open calls, but not their tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web

from dragoman.bindings.http import connections
from dragoman.bindings.http.cors import response_headers
from dragoman.bindings.http.jsonrpc import JsonRpcExchange
from dragoman.bindings.http.request import max_body_bytes
from dragoman.bindings.pipeline import ClientDisconnected, Pipeline, authenticate, challenge_headers
from dragoman.bindings.stream_registry import OpenStream
from dragoman.core import errors
from dragoman.core.access.identity import Identity
from dragoman.runtime.feeds import EventStream
from dragoman.wire.json import request as json_request
from dragoman.wire.json.request import AmbiguousJson

MAX_WEBSOCKET_CALLS: Final = 64  # maximum concurrent calls of one connection; further ones are rejected
_SENT: Final = web.Response()  # the answer to a frame: its response has been sent, as frames


class WebSocketExchange(JsonRpcExchange):
    """One JSON-RPC call that came as a frame. Its headers are those of the upgrade request."""

    def __init__(
        self, pipeline: Pipeline, request: web.BaseRequest, tenant: str, socket: web.WebSocketResponse, frame: str
    ) -> None:
        super().__init__(pipeline, request, request.rel_url.raw_path, tenant, "websocket")
        self._socket = socket
        self._frame = frame

    async def read(self) -> None:
        try:
            self.body = json_request.loads(
                self._frame.encode(errors="surrogatepass"), lossy_numbers=self.pipeline.options.lossy_numbers
            )
        except AmbiguousJson as error:
            self.body = error.value
            raise
        self.parse()

    async def describe(self) -> web.StreamResponse:
        return await self._send_result(self.extended_card())

    async def respond(self, response: bytes) -> web.StreamResponse:
        if self.task_was_unknown:
            await self.choose_row_again()
        return await self._send_result(self.result(response))

    async def stream(self, events: EventStream, registration: OpenStream) -> web.StreamResponse:
        if self.task_was_unknown:
            await self.choose_row_again()
        encode_results = self.result_encoder()
        async with aclosing(events):
            async for batch in events:
                for event in batch:
                    for result in encode_results(event):
                        await self._send_result(result)
        return await self._send_result(b'{"status":"stream_complete"}')

    async def reject(self, error: Exception) -> web.StreamResponse:
        if self.body is None:  # rejected before it was read: several calls may be open, so the response needs its id
            with suppress(errors.A2AError):
                await self.read()
        return await self._send(self.failure(error))

    async def _send_result(self, result: bytes) -> web.StreamResponse:
        return await self._send(json_request.encode_result(self.rpc.id, result))

    async def _send(self, data: bytes) -> web.StreamResponse:
        """Sends one frame. Waits for a slow client. Raises ClientDisconnected."""
        try:
            await self._socket.send_str(data.decode())
        except ConnectionError:
            raise ClientDisconnected from None
        return _SENT


class WebSocketEndpoint:
    """Serves JSON-RPC calls over WebSocket, for all agents."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def __call__(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        options = self._pipeline.options
        largest = max_body_bytes(options.message_bytes)
        socket = web.WebSocketResponse(timeout=1.0, max_msg_size=largest, heartbeat=30.0)
        if not socket.can_prepare(request):
            raise errors.InvalidRequest("this path is a WebSocket endpoint; send Upgrade: websocket")
        try:
            identity = await authenticate(request.headers.items(), options, request)
        except (errors.Unauthenticated, errors.PermissionDenied) as error:
            self._pipeline.record_failure(error, request.remote or "", "WebSocket")
            status = 401 if isinstance(error, errors.Unauthenticated) else 403
            return web.Response(status=status, text=error.message, headers=challenge_headers(error))
        with self._pipeline.operations.admission.stream(identity):
            return await self._serve_connection(request, socket, variables.get("tenant", ""), identity)

    async def _serve_connection(
        self, request: web.BaseRequest, socket: web.WebSocketResponse, tenant: str, identity: Identity
    ) -> web.StreamResponse:
        streams = self._pipeline.streams
        socket.headers.update(response_headers(request))
        try:
            await socket.prepare(request)
        except ConnectionError:  # the client disconnected before the upgrade, so this status is only logged
            return web.Response(status=499)
        try:
            with streams.open(identity):
                await self._read_frames(socket, request, tenant)
        except asyncio.CancelledError:
            end_reason = streams.take_end_reason()
            if end_reason is None:
                raise
            if isinstance(end_reason, errors.Unauthenticated):
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=end_reason.message.encode())
            else:
                await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server is shutting down")
        except errors.Unavailable:
            await socket.close(code=WSCloseCode.TRY_AGAIN_LATER)
        except (ConnectionError, ClientDisconnected):  # during a write, such as the response to its ping
            pass
        return socket

    async def _read_frames(self, socket: web.WebSocketResponse, request: web.BaseRequest, tenant: str) -> None:
        open_calls: set[asyncio.Task[None]] = set()
        connections.note_websocket_message(request)
        try:
            async for frame in socket:
                connections.note_websocket_message(request)
                if frame.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break
                data = frame.data if frame.type is WSMsgType.TEXT else ""
                exchange = WebSocketExchange(self._pipeline, request, tenant, socket, data)
                if frame.type is WSMsgType.BINARY:
                    rejection: Exception = errors.ContentTypeNotSupported("a frame must be text with one JSON-RPC call")
                elif len(open_calls) >= MAX_WEBSOCKET_CALLS:
                    text = f"a connection has at most {MAX_WEBSOCKET_CALLS} open calls; try again"
                    rejection = errors.Unavailable(text)
                else:
                    task = asyncio.create_task(self._serve_call(exchange), name="websocket-call")
                    open_calls.add(task)
                    task.add_done_callback(open_calls.discard)
                    continue
                await self._pipeline.reject(exchange, rejection)
                # Yields to the loop: one read may contain thousands of frames, and sending may not yield.
                await asyncio.sleep(0)
        finally:
            for task in open_calls:
                task.cancel()
            await asyncio.gather(*open_calls, return_exceptions=True)

    async def _serve_call(self, exchange: WebSocketExchange) -> None:
        with suppress(ClientDisconnected):
            await self._pipeline.serve(exchange)
