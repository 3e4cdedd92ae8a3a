"""Bare gRPC server, the upper bound: grpc.aio on uvloop with handlers that return fixed bytes.

Only the events for many subscribers are encoded for each stream, as in a server without sharing.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
import uvloop

from bench.responses import EVENTS, GET_RESPONSE, SEND_RESPONSE, STREAM_TASK, TICKS, chunk
from bench.servers.contestants import write_addresses
from bench.servers.gate import Gate

SERVICE: Final = "lf.a2a.v1.A2AService"
CHUNKS: Final = [chunk(number) for number in range(EVENTS)]


async def send(_request: bytes, _context: Any) -> bytes:
    return SEND_RESPONSE


async def get(_request: bytes, _context: Any) -> bytes:
    return GET_RESPONSE


async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
    yield STREAM_TASK
    for event in CHUNKS:
        yield event


def subscribe(gate: Gate) -> Any:
    async def subscribed(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield STREAM_TASK
        await gate.wait_open()
        for number in range(TICKS):
            yield chunk(number)

    return subscribed


async def main(address_file: str, start_file: str) -> None:
    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "SendMessage": grpc.unary_unary_rpc_method_handler(send),
        "GetTask": grpc.unary_unary_rpc_method_handler(get),
        "SendStreamingMessage": grpc.unary_stream_rpc_method_handler(stream),
        "SubscribeToTask": grpc.unary_stream_rpc_method_handler(subscribe(Gate(start_file))),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    write_addresses(address_file, {"grpc": f"127.0.0.1:{port}"})
    await server.wait_for_termination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address_file")
    parser.add_argument("start_file", help="the file whose creation starts the events for subscribers")
    arguments = parser.parse_args()
    uvloop.run(main(arguments.address_file, arguments.start_file))
