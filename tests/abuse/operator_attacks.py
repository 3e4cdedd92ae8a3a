"""Attacks on the operators' service: callers without the grant, and operators who never wait for an answer."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import count
from typing import Any

import grpc
from tests.abuse.connections import BROKEN, connect, discard
from tests.callers import named

from dragoman_pb.dragoman.ops.v1 import bulk_pb2, ops_pb2_grpc, tasks_pb2


def _list_agents(number: int) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in named(f"p{number}", "agent:x").items())
    return f"GET /operations/agents HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode()


async def denied_operators(http: str, grpc_address: str, seconds: float) -> int:
    """Callers with valid credentials and without the grant: a new principal for each call."""
    until, numbers = time.monotonic() + seconds, count()

    async def caller() -> None:
        while time.monotonic() < until:
            with suppress(*BROKEN):
                reader, writer = await connect(http)
                reading = asyncio.create_task(discard(reader))
                for _ in range(50):
                    writer.write(b"".join(_list_agents(next(numbers)) for _ in range(20)))
                    await asyncio.wait_for(writer.drain(), 5)
                writer.transport.abort()
                await reading

    await asyncio.gather(*(caller() for _ in range(4)))
    return next(numbers)


async def abandoned_changes(http: str, grpc_address: str, seconds: float) -> int:
    """An operator who begins changes, twenty at a time, and waits for none."""
    until, number = time.monotonic() + seconds, 0
    request = bulk_pb2.EraseTasksRequest(filter=tasks_pb2.ListTasksRequest(principal="nobody"))
    metadata = tuple(named("olga", "operator").items())
    async with grpc.aio.insecure_channel(grpc_address) as channel:
        stub: Any = ops_pb2_grpc.OpsServiceStub(channel)
        while time.monotonic() < until:
            calls = [stub.EraseTasks(request, metadata=metadata) for _ in range(20)]
            await asyncio.wait([asyncio.ensure_future(calls[0])], timeout=5)
            for call in calls:
                call.cancel()
            number += len(calls)
    return number
