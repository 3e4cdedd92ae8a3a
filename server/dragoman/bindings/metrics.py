"""`/metrics`: how the server is, for operators; or, on a port of its own, for whoever reaches that.

On the port of the API it is for whom `dragoman.ops.v1` is for: who shows credentials with the grant `operator`; where
nobody is asked who they are, callers on this machine. A proxy on this machine that forwards strangers says so in a
header, and such callers are not from here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final

from aiohttp import web

from dragoman.bindings import callers
from dragoman.bindings.serving import Bound, HttpOptions
from dragoman.core.errors import MethodNotFound, PermissionDenied, Unauthenticated
from dragoman.core.identity import OPERATOR

Read = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Gives the numbers as text, and its media type, for an `Accept` header."""

PATH: Final = "/metrics"

_FORWARDED: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP")


async def respond(request: web.BaseRequest, options: HttpOptions) -> web.Response:
    """Answers on the port of the API. Raises Unauthenticated, PermissionDenied."""
    if options.metrics is None:
        raise MethodNotFound("this server shows no numbers here")
    await check_operator(request, options)
    return await _written(request, options.metrics)


async def check_operator(request: web.BaseRequest, options: HttpOptions) -> None:
    """Raises Unauthenticated for who has not shown who it is, PermissionDenied for who is no operator."""
    if options.authenticator is None:
        if not _is_here(request.remote or "") or any(name in request.headers for name in _FORWARDED):
            raise Unauthenticated("this is for operators, on this machine only where nobody is asked who they are")
        return
    identity = await callers.identify(request.headers.items(), options, request)
    if not identity.known:
        raise Unauthenticated(callers.REQUIRED)
    if not identity.operates:
        about = {"principal": identity.principal, **({"key": identity.key} if identity.key else {})}
        raise PermissionDenied(f'this needs the grant "{OPERATOR}"', about=about)


def _is_here(remote: str) -> bool:
    try:
        return ip_address(remote.partition("%")[0]).is_loopback
    except ValueError:
        return False


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
