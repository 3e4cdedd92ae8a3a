"""The limit of HTTP with aiohttp on uvloop: fixed bytes and fixed server-sent events, as REST and JSON-RPC have them.

Only the events for many subscribers are encoded, each for each stream, as a server without sharing would. JSON-RPC has
a path for each method here, so that nothing has to be read to choose the answer.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator

import uvloop
from aiohttp import web

from bench.answers import EVENTS, ID, OPENED_JSON, READ_JSON, SENT_JSON, TICKS, chunk_json, enveloped, sse
from bench.gate import Gate
from bench.servers import tell

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Wrap = Callable[[bytes], bytes]


def fixed(body: bytes) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=body, content_type="application/json")

    return answer


async def _open(request: web.Request, first: bytes) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(first)
    return response


def stream(wrap: Wrap) -> Handler:
    first = sse(wrap(OPENED_JSON), 1)
    events = [sse(wrap(chunk_json(number)), number + 2) for number in range(EVENTS)]

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await _open(request, first)
        for event in events:
            await response.write(event)
        await response.write_eof()
        return response

    return answer


def subscribe(wrap: Wrap, gate: Gate) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await _open(request, sse(wrap(OPENED_JSON), 1))
        await gate.passed()
        for number in range(TICKS):
            await response.write(sse(wrap(chunk_json(number)), number + 2))
        await response.write_eof()
        return response

    return answer


def routes(gate: Gate) -> Iterator[web.RouteDef]:
    yield web.post("/message:send", fixed(SENT_JSON))
    yield web.post("/message:stream", stream(bytes))
    yield web.get(f"/tasks/{ID}", fixed(READ_JSON))
    yield web.get(f"/tasks/{ID}:subscribe", subscribe(bytes, gate))
    yield web.post("/SendMessage", fixed(enveloped(SENT_JSON)))
    yield web.post("/SendStreamingMessage", stream(enveloped))
    yield web.post("/GetTask", fixed(enveloped(READ_JSON)))
    yield web.post("/SubscribeToTask", subscribe(enveloped, gate))


async def main(port_file: str, go: str) -> None:
    app = web.Application()
    app.add_routes(list(routes(Gate(go))))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    tell(port_file, {"http": f"127.0.0.1:{runner.addresses[0][1]}"})
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port_file")
    parser.add_argument("go", help="the file that lets subscribers' events begin")
    arguments = parser.parse_args()
    uvloop.run(main(arguments.port_file, arguments.go))
