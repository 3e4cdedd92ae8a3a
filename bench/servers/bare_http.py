"""Bare HTTP server, the upper bound: aiohttp on uvloop with fixed bodies and server-sent events of REST and JSON-RPC.

Only the events for many subscribers are encoded for each stream, as in a server without sharing. Each method of
JSON-RPC has its own path, so that no body has to be parsed.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator

import uvloop
from aiohttp import web

from bench.responses import (
    EVENTS,
    GET_RESPONSE_JSON,
    ID,
    SEND_RESPONSE_JSON,
    STREAM_TASK_JSON,
    TICKS,
    chunk_json,
    jsonrpc_response,
    sse,
)
from bench.servers.contestants import write_addresses
from bench.servers.gate import Gate

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Wrap = Callable[[bytes], bytes]


def fixed(body: bytes) -> Handler:
    async def respond(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=body, content_type="application/json")

    return respond


async def _open(request: web.Request, first: bytes) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(first)
    return response


def stream(wrap: Wrap) -> Handler:
    first = sse(wrap(STREAM_TASK_JSON), 1)
    events = [sse(wrap(chunk_json(number)), number + 2) for number in range(EVENTS)]

    async def respond(request: web.Request) -> web.StreamResponse:
        response = await _open(request, first)
        for event in events:
            await response.write(event)
        await response.write_eof()
        return response

    return respond


def subscribe(wrap: Wrap, gate: Gate) -> Handler:
    async def respond(request: web.Request) -> web.StreamResponse:
        response = await _open(request, sse(wrap(STREAM_TASK_JSON), 1))
        await gate.wait_open()
        for number in range(TICKS):
            await response.write(sse(wrap(chunk_json(number)), number + 2))
        await response.write_eof()
        return response

    return respond


def routes(gate: Gate) -> Iterator[web.RouteDef]:
    yield web.post("/message:send", fixed(SEND_RESPONSE_JSON))
    yield web.post("/message:stream", stream(bytes))
    yield web.get(f"/tasks/{ID}", fixed(GET_RESPONSE_JSON))
    yield web.get(f"/tasks/{ID}:subscribe", subscribe(bytes, gate))
    yield web.post("/SendMessage", fixed(jsonrpc_response(SEND_RESPONSE_JSON)))
    yield web.post("/SendStreamingMessage", stream(jsonrpc_response))
    yield web.post("/GetTask", fixed(jsonrpc_response(GET_RESPONSE_JSON)))
    yield web.post("/SubscribeToTask", subscribe(jsonrpc_response, gate))


async def main(address_file: str, start_file: str) -> None:
    app = web.Application()
    app.add_routes(list(routes(Gate(start_file))))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    write_addresses(address_file, {"http": f"127.0.0.1:{runner.addresses[0][1]}"})
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address_file")
    parser.add_argument("start_file", help="the file whose creation starts the events for subscribers")
    arguments = parser.parse_args()
    uvloop.run(main(arguments.address_file, arguments.start_file))
