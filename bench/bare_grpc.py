"""The limit of gRPC in Python: grpc.aio on uvloop with empty handlers that answer fixed bytes."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop

from bench.answers import EVENTS, TASK_EVENT, UNARY, chunk_event

SERVICE = "lf.a2a.v1.A2AService"


async def unary(_request: bytes, _context: Any) -> bytes:
    return UNARY


async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
    yield TASK_EVENT
    for number in range(EVENTS):
        yield chunk_event(number)


async def main(port_file: str) -> None:
    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "SendMessage": grpc.unary_unary_rpc_method_handler(unary),
        "SendStreamingMessage": grpc.unary_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with open(port_file, "w") as file:  # noqa: ASYNC230 - start-up, nothing else runs yet
        file.write(str(port))
    await server.wait_for_termination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port_file")
    uvloop.run(main(parser.parse_args().port_file))
