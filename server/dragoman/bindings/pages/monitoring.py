"""`/healthz`, `/readyz` and `/metrics`; worker processes serve only these."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from dragoman.bindings.admin import http_routes
from dragoman.bindings.http import listener
from dragoman.bindings.options import BoundAddress, HttpOptions
from dragoman.core.errors import MethodNotFound

LIVENESS_PATHS: Final = ("/healthz", "/health")
READINESS_PATHS: Final = ("/readyz", "/ready")
HEALTH_PATHS: Final = frozenset((*LIVENESS_PATHS, *READINESS_PATHS))

_NO_STORE_HEADERS: Final = {"Cache-Control": "no-store"}


def liveness_response() -> web.Response:
    """Liveness: the process responds."""
    return web.json_response({"status": "ok"}, headers=_NO_STORE_HEADERS)


def readiness_response(options: HttpOptions) -> web.Response:
    """Readiness, and the problem of the bus, if any."""
    if options.draining.is_set():
        return web.json_response({"status": "draining"}, status=503, headers=_NO_STORE_HEADERS)
    if not options.ready():
        return web.json_response({"status": "not ready"}, status=503, headers=_NO_STORE_HEADERS)
    if trouble := options.bus_problem():
        return web.json_response({"status": "degraded", "reason": f"bus: {trouble}"}, headers=_NO_STORE_HEADERS)
    return web.json_response({"status": "ok"}, headers=_NO_STORE_HEADERS)


@asynccontextmanager
async def serve_health(options: HttpOptions) -> AsyncIterator[BoundAddress]:
    """Serves only health. Raises OSError when the address cannot be bound."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if request.method not in ("GET", "HEAD") or path not in HEALTH_PATHS:
            return web.json_response({"error": "this process runs agents, and serves /healthz and /readyz"}, status=404)
        return liveness_response() if path in LIVENESS_PATHS else readiness_response(options)

    async with listener.listen_http(handle, options) as bound:
        yield bound


ReadMetrics = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Returns the metrics as text with its media type, for an `Accept` header."""

METRICS_PATH: Final = "/metrics"


async def metrics_response(request: web.BaseRequest, options: HttpOptions) -> web.Response:
    """Serves `/metrics` on the API port, to operators. Raises Unauthenticated, PermissionDenied."""
    if options.metrics is None:
        raise MethodNotFound("this server shows no numbers here")
    await http_routes.authorize_operator(request, options)
    return await _metrics_text(request, options.metrics)


@asynccontextmanager
async def serve_metrics(host: str, port: int, read: ReadMetrics) -> AsyncIterator[BoundAddress]:
    """Serves only `/metrics`, without authentication. Raises OSError."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != METRICS_PATH or request.method not in ("GET", "HEAD"):
            return web.Response(status=404, text=f"only GET {METRICS_PATH} is served here\n")
        return await _metrics_text(request, read)

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield BoundAddress(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


async def _metrics_text(request: web.BaseRequest, read: ReadMetrics) -> web.Response:
    body, media_type = await read(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": media_type, "Cache-Control": "no-store"})
