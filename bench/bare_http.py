"""The limit of HTTP with aiohttp: fixed bytes on uvloop, and a fixed stream of server-sent events."""

from __future__ import annotations

import argparse
import asyncio

import uvloop
from aiohttp import web

from bench.answers import EVENTS, SSE_EVENT, UNARY_JSON


async def unary(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(body=UNARY_JSON, content_type="application/json")


async def stream(request: web.Request) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for _ in range(EVENTS + 1):
        await response.write(SSE_EVENT)
    await response.write_eof()
    return response


async def main(port_file: str) -> None:
    app = web.Application()
    app.router.add_post("/message:send", unary)
    app.router.add_post("/message:stream", stream)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    with open(port_file, "w") as file:  # noqa: ASYNC230 - start-up, nothing else runs yet
        file.write(str(runner.addresses[0][1]))
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port_file")
    uvloop.run(main(parser.parse_args().port_file))
