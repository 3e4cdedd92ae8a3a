"""JSON-RPC over WebSocket, as a2a-rust offers it: every text frame is one call, every answer one text frame.

Several calls may be open at once; answers carry their ids. A stream is a row of answers under one id, closed by an
answer whose result is `{"status": "stream_complete"}`. Who calls is said by the request that opened the connection, and
looked at again with each call. A connection that breaks ends what it was waiting for, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web

from dragoman.bindings import body, callers, calls, connections
from dragoman.bindings.access import Access
from dragoman.bindings.calls import Calls, Peer
from dragoman.bindings.cards import Cards
from dragoman.bindings.closing import Streams
from dragoman.bindings.jsonrpc import peer_of
from dragoman.bindings.pages import request_id, told
from dragoman.bindings.serving import HttpOptions
from dragoman.bindings.tally import WEBSOCKET
from dragoman.core.errors import ContentTypeNotSupported, InvalidRequest, PermissionDenied, Unauthenticated, Unavailable
from dragoman.core.trace import TRACE_HEADER
from dragoman.wire import body_scan, jsonrpc
from dragoman.wire.dialects import Dialect

AT_ONCE: Final = 64
"""Calls of one connection that are answered at the same time; the next is refused until one is done."""

GONE: Final = 499
"""Of a client that did not wait for its answer, for the log alone."""

GOODBYE: Final = 1.0
"""Seconds that a client gets to answer a closing frame."""

COMPLETE: Final = b'{"status":"stream_complete"}'


class WebSocket:
    """The WebSocket endpoint, the same for all agents."""

    def __init__(self, known: Calls, cards: Cards, options: HttpOptions, open_streams: Streams) -> None:
        self._calls = known
        self._cards = cards
        self._options = options
        self._streams = open_streams

    async def __call__(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        """Serves one connection until it closes."""
        socket = web.WebSocketResponse(
            timeout=GOODBYE, max_msg_size=body.cap(self._options.message_bytes), heartbeat=30.0
        )
        if not socket.can_prepare(request):
            raise InvalidRequest("this path speaks WebSocket; send Upgrade: websocket")
        try:
            peer = await peer_of(request, variables, self._cards, self._options)
        except (Unauthenticated, PermissionDenied) as error:
            self._options.refusals.tell(error, peer=request.remote or "", method="WebSocket")
            status = 401 if isinstance(error, Unauthenticated) else 403
            return web.Response(status=status, text=error.message, headers=callers.challenge(error))
        with self._calls.connect(peer):
            return await self._connected(request, socket, peer)

    async def _connected(
        self, request: web.BaseRequest, socket: web.WebSocketResponse, peer: Peer
    ) -> web.StreamResponse:
        socket.headers.update(told(request))
        try:
            await socket.prepare(request)
        except ConnectionError:  # it hung up before it was answered; this goes nowhere either
            return web.Response(status=GONE)
        try:
            with self._streams.open(peer.identity):
                await self._serve(socket, request, peer)
        except asyncio.CancelledError:
            why = self._streams.ended_here()
            if why is None:
                raise
            if isinstance(why, Unauthenticated):
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=why.message.encode())
            else:
                await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server stops")
        except Unavailable:
            await socket.close(code=WSCloseCode.TRY_AGAIN_LATER)
        except ConnectionError:  # it hung up before all was written to it, an answer to its ping for one
            pass
        return socket

    async def _serve(self, socket: web.WebSocketResponse, request: web.BaseRequest, peer: Peer) -> None:
        open_calls: set[asyncio.Task[None]] = set()
        connections.framed(request)
        try:
            async for frame in socket:
                connections.framed(request)
                if frame.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break
                access = Access(self._options.tally, WEBSOCKET, "WebSocket", "", request_id(request), known=False)
                if frame.type is WSMsgType.BINARY:
                    refusal: Exception = ContentTypeNotSupported("a frame must be text, one JSON-RPC call each")
                elif len(open_calls) >= AT_ONCE:
                    refusal = Unavailable(f"at most {AT_ONCE} calls of one connection are answered at a time")
                else:
                    call = self._call(socket, request, frame.data, peer, access)
                    task = asyncio.create_task(call, name="websocket-call")
                    open_calls.add(task)
                    task.add_done_callback(open_calls.discard)
                    continue
                await self._send(socket, calls.failure(refusal, None, Dialect.V1, access))
                await asyncio.sleep(0)  # a read may hold thousands of frames, and sending waits for nobody
        finally:
            for task in open_calls:
                task.cancel()
            await asyncio.gather(*open_calls, return_exceptions=True)

    async def _call(
        self, socket: web.WebSocketResponse, request: web.BaseRequest, text: str, peer: Peer, access: Access
    ) -> None:
        call = jsonrpc.JsonRpcRequest(None, "", None)
        if access.is_traced:
            access.trace(request.headers.get(TRACE_HEADER, ""))
        try:
            value = body_scan.loads(text.encode(errors="surrogatepass"), lossy_numbers=self._options.lossy_numbers)
            call = jsonrpc.partial_request(value)
            call = jsonrpc.parse_request(value)
            access.method = call.method
            # The connection may be older than its credentials are good.
            identity = await callers.identify(request.headers.items(), self._options, request)
            peer = replace(peer, identity=identity)
            self._calls.ask(peer)  # only now: of several calls that are open, the answer has to say which it is for
            answer = await self._calls.answer(call, peer, access)
            if answer.events is None:
                await self._send(socket, jsonrpc.encode_result(call.id, answer.result))
            else:
                assert answer.results is not None
                async with aclosing(answer.events) as events:
                    async for event in events:
                        for value in answer.results(event):
                            await self._send(socket, jsonrpc.encode_result(call.id, value))
                await self._send(socket, jsonrpc.encode_result(call.id, COMPLETE))
        except ConnectionError:
            access.done("gone")
        except Exception as error:
            if isinstance(error, body_scan.AmbiguousJson):
                call = jsonrpc.partial_request(error.value)
            self._options.refusals.tell(error, peer=request.remote or "", method=access.method)
            dialect = self._calls.dialect(call.method, call.params)
            with suppress(ConnectionError):
                await self._send(socket, calls.failure(error, call.id, dialect, access))
        else:
            access.done("OK")

    async def _send(self, socket: web.WebSocketResponse, data: bytes) -> None:
        """Waits when the reader is behind. Raises ConnectionError when it is gone."""
        await socket.send_str(data.decode())
