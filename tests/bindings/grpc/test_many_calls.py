"""More calls at once than gRPC lets wait by itself: so many come back when another server has stopped."""

from __future__ import annotations

import asyncio

from bench.load.http2 import Connection, head
from tests.bindings.fake_service import TASK, FakeService, make_cards

from dragoman.bindings.grpc.server import serve_grpc
from dragoman.bindings.options import ServerOptions
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CALLS = 2_000


async def test_thousands_of_concurrent_calls_get_responses() -> None:
    data = pb.GetTaskRequest(id="t1").SerializeToString()
    async with serve_grpc(FakeService(TASK), make_cards(), ServerOptions()) as at:
        connections = [await Connection.open(str(at)) for _ in range(5)]
        path = head(str(at), "/lf.a2a.v1.A2AService/GetTask", {"a2a-version": "1.0"})
        calls = [connections[number % 5].call(path, data) for number in range(CALLS)]
        answers = await asyncio.gather(*calls)
        for connection in connections:
            connection.close()
    assert set(answers) == {TASK.SerializeToString()}
