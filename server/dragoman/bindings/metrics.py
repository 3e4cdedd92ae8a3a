"""`/metrics`: how the server is, for operators; or, on a port of its own, for whoever reaches that.

On the port of the API it is for whom `dragoman.ops.v1` is for (`operators.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from dragoman.bindings import operators
from dragoman.bindings.serving import Bound, HttpOptions
from dragoman.core.errors import MethodNotFound

Read = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Gives the numbers as text, and its media type, for an `Accept` header."""

PATH: Final = "/metrics"


async def respond(request: web.BaseRequest, options: HttpOptions) -> web.Response:
    """Answers on the port of the API. Raises Unauthenticated, PermissionDenied."""
    if options.metrics is None:
        raise MethodNotFound("this server shows no numbers here")
    await operators.check(request, options)
    return await _written(request, options.metrics)


@asynccontextmanager
async def serve(host: str, port: int, read: Read) -> AsyncIterator[Bound]:
    """Serves the numbers, and nothing else, to whoever comes. Raises OSError."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != PATH or request.method not in ("GET", "HEAD"):
            return web.Response(status=404, text=f"only GET {PATH} is served here\n")
        return await _written(request, read)

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield Bound(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


async def _written(request: web.BaseRequest, read: Read) -> web.Response:
    body, media_type = await read(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": media_type, "Cache-Control": "no-store"})
