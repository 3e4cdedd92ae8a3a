"""Many subscribers on real servers: all get every event, and one that does not read delays only itself."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import orjson
import pytest
from tests.eventually import eventually

from dragoman import Turn, agent
from dragoman.bindings.options import DEFAULT_CONNECTION_CALLS
from dragoman.client import connect
from dragoman.client.calls import Client, message
from dragoman.settings.settings import Address, Settings
from dragoman.wire.http import sse
from dragoman.wiring.app import App, open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1.a2a_pb2_grpc import A2AServiceStub

pytestmark = pytest.mark.long

CHUNKS = 800
CHUNK = "x" * 8000
"""More than all socket buffers hold."""

gate = asyncio.Event()


@agent(default=True)
async def floods(turn: Turn) -> None:
    await gate.wait()
    for number in range(CHUNKS):
        await turn.chunk(f"{number} {CHUNK}")


def number_of(text: str) -> int:
    return int(text.split(" ", 1)[0])


async def over_sse(app: App, session: aiohttp.ClientSession, task: str, here: asyncio.Semaphore) -> list[int]:
    parser, seen = sse.SseParser(), []
    async with session.get(f"{app.public_url}/tasks/{task}:subscribe") as response:
        async for data in response.content.iter_any():
            for event in parser.feed(data):
                found = orjson.loads(event.data)
                if "task" in found:
                    here.release()
                elif artifact := found.get("artifactUpdate"):
                    seen.append(number_of(artifact["artifact"]["parts"][0]["text"]))
    return seen


async def over_grpc(stub: Any, task: str, here: asyncio.Semaphore) -> list[int]:
    seen = []
    async for event in stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task)):
        if event.HasField("task"):
            here.release()
        elif event.HasField("artifact_update"):
            seen.append(number_of(event.artifact_update.artifact.parts[0].text))
    return seen


def not_reading(app: App, task: str) -> socket.socket:
    """A client with a tiny buffer that subscribes and does not read."""
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.connect((app.http.host, app.http.port))
    lazy.sendall(f"GET /tasks/{task}:subscribe HTTP/1.1\r\nHost: {app.http}\r\n\r\n".encode())
    return lazy


def all_of(lazy: socket.socket) -> list[int]:
    """Reads the complete response of such a client."""
    lazy.settimeout(60)
    body = lazy.makefile("rb")
    while body.readline().strip():  # headers
        pass
    parser = sse.SseParser()
    seen: list[Any] = []
    while size := int(body.readline(), 16):  # chunk by chunk (RFC 9112 §7.1)
        seen += [orjson.loads(event.data).get("artifactUpdate") for event in parser.feed(body.read(size))]
        body.readline()
    return [number_of(update["artifact"]["parts"][0]["text"]) for update in seen if update]


async def test_a_subscriber_that_does_not_read_does_not_delay_ninety_nine_others(tmp_path: Path) -> None:
    gate.clear()
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(store=f"sqlite:///{tmp_path}/t.db", http=anywhere, grpc=anywhere)
    here = asyncio.Semaphore(0)
    async with (
        open_app(settings, [floods]) as app,
        Client(str(app.grpc)) as client,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        requested = pb.SendMessageConfiguration(return_immediately=True)
        task = (await client.send(message("go"), configuration=requested)).task.id
        with not_reading(app, task) as lazy:
            stub = A2AServiceStub(channel)
            readers = [asyncio.create_task(over_sse(app, session, task, here)) for _ in range(89)]
            readers += [asyncio.create_task(over_grpc(stub, task, here)) for _ in range(10)]
            for _ in readers:
                await here.acquire()
            gate.set()
            for seen in await asyncio.gather(*readers):
                assert seen == list(range(CHUNKS))
            # It starts to read only now, long after the end of the task and the other streams, and misses nothing.
            assert await asyncio.to_thread(all_of, lazy) == list(range(CHUNKS))


SUBSCRIBERS = 150
"""More than one gRPC connection carries."""


@agent
async def waits(turn: Turn) -> None:
    turn.status("waiting")
    await asyncio.Event().wait()


async def test_a_client_with_more_subscriptions_than_a_connection_carries_still_sends(tmp_path: Path) -> None:
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/t.db", root="waits")
    assert DEFAULT_CONNECTION_CALLS < SUBSCRIBERS
    async with open_app(settings, [waits]) as app, connect(f"grpc://{app.grpc}") as client:
        task = (await client.start("hello")).task_id

        async def follow() -> None:
            async for _ in client.follow(task):
                pass

        followers = [asyncio.create_task(follow()) for _ in range(SUBSCRIBERS)]
        open_streams = app.runtime.operations.admission.open_streams
        async with asyncio.timeout(30):
            await eventually(lambda: sum(open_streams.values()) == SUBSCRIBERS)
            assert (await client.get(task)).state == "WORKING"
            sent = await asyncio.gather(*(client.start(f"hello {number}") for number in range(20)))
        assert len({result.task_id for result in sent}) == 20
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
