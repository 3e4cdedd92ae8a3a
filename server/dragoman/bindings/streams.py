"""Streams over HTTP: server-sent events, and JSON arrays for readers of Google's APIs.

Nothing is sent before the first event is there, so that what fails before it fails with a status and a body (1.0
§11.7). After that an error is the stream's last word, in the stream's own form. A slow reader blocks its own
response only: what it has not read stays where it was, in the follower or in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from aiohttp import web

from dragoman.bindings.closing import Streams
from dragoman.bindings.pages import told
from dragoman.core.errors import Unauthenticated
from dragoman.core.task.log import Event
from dragoman.runtime.feeds import EventStream
from dragoman.wire.http import sse


@dataclass(frozen=True, slots=True)
class Framing:
    """How elements become one response."""

    media_type: str
    opening: bytes
    between: bytes
    closing: bytes
    idle: bytes
    """What may stand between elements without meaning anything: a sign of life."""
    error: Callable[[bytes], bytes]


def _error_event(body: bytes) -> bytes:
    return sse.frame(body, event="error")


def _error_element(body: bytes) -> bytes:
    return body


SSE: Final = Framing("text/event-stream", b"", b"", b"", sse.KEEP_ALIVE, _error_event)
RPC: Final = Framing("text/event-stream", b"", b"", b"", sse.KEEP_ALIVE, sse.frame)
"""SSE whose errors are JSON-RPC answers: no event name says so, because some readers skip events with a name."""
ARRAY: Final = Framing("application/json", b"[", b",\n", b"]", b"\n", _error_element)

_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold events back until its buffer is full
}


class _Gone(Exception):
    """The client is not there any more."""


class _Writer:
    """A response that is being streamed."""

    def __init__(self, response: web.StreamResponse, framing: Framing) -> None:
        self._response = response
        self._framing = framing
        self._before = framing.opening
        self._clock = asyncio.get_running_loop().time
        self._wrote = self._clock()

    async def elements(self, data: Iterable[bytes]) -> None:
        """Writes them at once. Waits when the reader is behind. Raises _Gone."""
        before, self._before = self._before, self._framing.between
        await self._write(before + self._framing.between.join(data))

    async def close(self) -> None:
        """The end, also of a stream without elements. Raises _Gone."""
        opening = self._framing.opening if self._before is self._framing.opening else b""
        if end := opening + self._framing.closing:
            await self._write(end)
        try:
            await self._response.write_eof()
        except ConnectionError:
            raise _Gone from None

    async def keep_alive(self, interval: float) -> None:
        """Says something whenever nothing was said for `interval` seconds. Runs until cancelled."""
        with suppress(_Gone):
            while True:
                wait = self._wrote + interval - self._clock()
                if wait > 0:
                    await asyncio.sleep(wait)
                else:
                    await self._write(self._framing.idle)

    async def _write(self, data: bytes) -> None:
        self._wrote = self._clock()
        try:
            await self._response.write(data)
        except ConnectionError:
            raise _Gone from None


async def respond(
    request: web.BaseRequest,
    events: EventStream,
    *,
    framing: Framing,
    frame: Callable[[Event], bytes],
    fail: Callable[[Exception], bytes],
    streams: Streams,
    keepalive: float,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> web.StreamResponse:
    """Answers with the events until they end, the client goes, or the server stops.

    `frame` makes the bytes of an event, `fail` the JSON body of an error in mid-stream. Raises what the events
    raise before the first of them.
    """
    async with aclosing(events):
        lot = await events.next_batch()
        all_headers = {**_HEADERS, **told(request), **headers, "Content-Type": framing.media_type}
        response = web.StreamResponse(headers=all_headers)
        with suppress(_Gone):
            try:
                await response.prepare(request)
            except ConnectionError:
                raise _Gone from None
            writer = _Writer(response, framing)
            pulse = asyncio.create_task(writer.keep_alive(keepalive), name="keep-alive")
            try:
                while lot:
                    await writer.elements(map(frame, lot))
                    lot = await events.next_batch()
            except _Gone:
                raise
            except Exception as error:
                await writer.elements((framing.error(fail(error)),))
            except asyncio.CancelledError:
                why = streams.ended_here()
                if why is None:
                    raise
                if isinstance(why, Unauthenticated):  # who reads has to know that it is no use to come back
                    await writer.elements((framing.error(fail(why)),))
            finally:
                pulse.cancel()
            await writer.close()
        return response
