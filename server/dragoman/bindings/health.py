"""`/healthz` and `/readyz`: on every server, and all there is of a process that only runs agents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from dragoman.bindings import http_port
from dragoman.bindings.serving import Bound, HttpOptions

ALIVE: Final = ("/healthz", "/health")
READY: Final = ("/readyz", "/ready")
PATHS: Final = frozenset((*ALIVE, *READY))

_NO_STORE: Final = {"Cache-Control": "no-store"}


def alive() -> web.Response:
    """That the process answers."""
    return web.json_response({"status": "ok"}, headers=_NO_STORE)


def ready(options: HttpOptions) -> web.Response:
    """Whether it wants work, and what is wrong with the bus."""
    if options.draining.is_set():
        return web.json_response({"status": "draining"}, status=503, headers=_NO_STORE)
    if not options.ready():
        return web.json_response({"status": "not ready"}, status=503, headers=_NO_STORE)
    if trouble := options.trouble():
        return web.json_response({"status": "degraded", "reason": f"bus: {trouble}"}, headers=_NO_STORE)
    return web.json_response({"status": "ok"}, headers=_NO_STORE)


@asynccontextmanager
async def serve(options: HttpOptions) -> AsyncIterator[Bound]:
    """Serves these and nothing else. Raises OSError when the address cannot be had."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if request.method not in ("GET", "HEAD") or path not in PATHS:
            return web.json_response({"error": "this process runs agents, and serves /healthz and /readyz"}, status=404)
        return alive() if path in ALIVE else ready(options)

    async with http_port.listen(handle, options) as bound:
        yield bound
