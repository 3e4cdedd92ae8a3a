"""The port of HTTP: encrypted or not, alone on its address or beside other processes of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from dragoman.bindings.connections import Connections
from dragoman.bindings.door import BACKLOG, Door
from dragoman.bindings.serving import Bound, HttpOptions


@asynccontextmanager
async def listen(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], options: HttpOptions
) -> AsyncIterator[Bound]:
    """Answers requests for as long as the block runs, then gives those under way `options.grace` seconds.

    Raises OSError when the address cannot be had.
    """
    server = Connections(
        handle,
        limit=options.connections,
        bodies=options.bodies,
        patience=options.patience,
        refusals=options.refusals,
    )
    runner = web.ServerRunner(server, shutdown_timeout=options.grace)
    await runner.setup()
    watching = asyncio.create_task(server.watch(), name="http-connections")
    door = Door(server, options.certificates.ssl_context, shared=options.shared) if options.certificates else None
    try:
        if door is not None:
            host, port = await door.open(options.host, options.port)
        else:
            site = web.TCPSite(runner, options.host, options.port, backlog=BACKLOG, reuse_port=options.shared or None)
            await site.start()
            host, port = runner.addresses[0][:2]
        yield Bound(host, port, tls=door is not None)
    finally:
        watching.cancel()
        if door is not None:
            await door.close()
        await runner.cleanup()
