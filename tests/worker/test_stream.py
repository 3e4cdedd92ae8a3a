"""The stream of a worker to its server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from dragoman.worker.stream import CONNECT_METHOD, ServerStream
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk


@pytest.mark.parametrize("lease", [8, 0], ids=["with a lease", "without one, as in an outage of the database"])
async def test_the_first_heartbeat_follows_hello_whatever_else_is_to_be_sent(lease: int) -> None:
    """No turn begins before its answer, and a worker with much to send renews its lease nevertheless."""
    received: asyncio.Queue[str] = asyncio.Queue()

    async def connect(requests: AsyncIterator[wk.ConnectRequest], context: Any) -> AsyncIterator[wk.ConnectResponse]:
        async for frame in requests:
            received.put_nowait(frame.WhichOneof("frame") or "")
            if frame.HasField("heartbeat"):
                answer = wk.Heartbeat(number=frame.heartbeat.number)
                answer.lease.FromSeconds(lease)
                yield wk.ConnectResponse(heartbeat=answer)

    server = grpc.aio.server()
    service, _, method = CONNECT_METHOD[1:].partition("/")
    handler = grpc.stream_stream_rpc_method_handler(
        connect, wk.ConnectRequest.FromString, wk.ConnectResponse.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    answered = asyncio.Event()
    stream = ServerStream(f"127.0.0.1:{port}", on_frame=lambda _: answered.set(), on_end=lambda _: None)
    try:
        stream.send(hello=wk.Hello())
        for _ in range(100):
            stream.send(credit=wk.Credit())
        async with asyncio.timeout(60):
            assert [await received.get() for _ in range(102)] == ["hello", "heartbeat", *["credit"] * 100]
            await answered.wait()
        assert math.isinf(stream.lease.remaining) == (not lease)
    finally:
        stream.close()
        await server.stop(None)
