"""A run through a road that breaks again and again: against our server nothing is lost and nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dragoman import Turn, agent
from dragoman.app import open_app
from dragoman.client import Artifact, Finished, Text, connect, patience
from dragoman.settings import Address, Settings

CHUNKS = 300


@agent(description="Counts")
async def counter(turn: Turn) -> AsyncIterator[str]:
    for n in range(CHUNKS):
        if n % 20 == 0:
            await turn.flush()
        yield f"{n} "


@dataclass
class Flaky:
    """A TCP proxy that cuts each connection once it has carried so many bytes back."""

    host: str
    port: int
    most: int
    cut: int = 0
    carrying: set[asyncio.Task[None]] = field(default_factory=set)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.carrying.add(task)
        there, back = await asyncio.open_connection(self.host, self.port)
        sending = asyncio.create_task(_pass_on(reader, back))
        left = self.most
        try:
            while left > 0 and (data := await there.read(left)):
                writer.write(data)
                await writer.drain()
                left -= len(data)
            self.cut += left <= 0
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client has closed it, or it is over; nobody waits for this task
        finally:
            self.carrying.discard(task)
            sending.cancel()
            writer.transport.abort()
            back.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)


@asynccontextmanager
async def flaky(host: str, port: int, most: int) -> AsyncIterator[tuple[Flaky, int]]:
    proxy = Flaky(host, port, most)
    server = await asyncio.start_server(proxy.take, "127.0.0.1", 0)
    try:
        yield proxy, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(proxy.carrying):
            task.cancel()
        await asyncio.gather(*proxy.carrying, return_exceptions=True)


@pytest.mark.parametrize("binding", ["jsonrpc", "rest", "grpc"])
async def test_a_road_that_breaks_again_and_again_loses_nothing(
    tmp_path: Path, binding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/tasks.db")
    async with open_app(settings, [counter]) as app:
        to = app.grpc if binding == "grpc" else app.http
        async with flaky(to.host, to.port, 8000) as (road, port):
            url = f"{'grpc' if binding == 'grpc' else 'http'}://127.0.0.1:{port}"
            async with connect(url, binding=binding) as client:
                heard = [event async for event in client.run("go")]
    told = [event.text for event in heard if isinstance(event, Text)]
    assert told == [f"{n} " for n in range(CHUNKS)]
    assert len([event for event in heard if isinstance(event, Artifact)]) == 1
    last = heard[-1]
    assert isinstance(last, Finished)
    assert last.result.text == "".join(told)
    assert road.cut > 3
