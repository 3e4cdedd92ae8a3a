"""The limit of gRPC in Python: grpc.aio on uvloop with handlers that answer fixed bytes.

Only the events for many subscribers are encoded, each for each stream, as a server without sharing would.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
import uvloop

from bench.answers import EVENTS, OPENED, READ, SENT, TICKS, chunk
from bench.gate import Gate
from bench.servers import tell

SERVICE: Final = "lf.a2a.v1.A2AService"
CHUNKS: Final = [chunk(number) for number in range(EVENTS)]


async def send(_request: bytes, _context: Any) -> bytes:
    return SENT


async def get(_request: bytes, _context: Any) -> bytes:
    return READ


async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
    yield OPENED
    for event in CHUNKS:
        yield event


def subscribe(gate: Gate) -> Any:
    async def subscribed(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield OPENED
        await gate.passed()
        for number in range(TICKS):
            yield chunk(number)

    return subscribed


async def main(port_file: str, go: str) -> None:
    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "SendMessage": grpc.unary_unary_rpc_method_handler(send),
        "GetTask": grpc.unary_unary_rpc_method_handler(get),
        "SendStreamingMessage": grpc.unary_stream_rpc_method_handler(stream),
        "SubscribeToTask": grpc.unary_stream_rpc_method_handler(subscribe(Gate(go))),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    tell(port_file, {"grpc": f"127.0.0.1:{port}"})
    await server.wait_for_termination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port_file")
    parser.add_argument("go", help="the file that lets subscribers' events begin")
    arguments = parser.parse_args()
    uvloop.run(main(arguments.port_file, arguments.go))
