"""Runs over a connection that breaks repeatedly: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman import Turn, agent, retry
from dragoman.calling import retry as retries
from dragoman.client import Artifact, Event, Finished, Text, connect
from dragoman.core.durations import Backoff
from dragoman.fault_proxy import DropLimit, DropMode, FaultProxy
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

CHUNKS = 300


@agent(description="Counts")
async def counter(turn: Turn) -> AsyncIterator[str]:
    for n in range(CHUNKS):
        if n % 20 == 0:
            await turn.flush()
        yield f"{n} "


@pytest.mark.parametrize(("binding", "how"), [("jsonrpc", "close"), ("rest", "reset"), ("grpc", "reset")])
async def test_a_connection_that_breaks_repeatedly_loses_nothing(
    tmp_path: Path, binding: str, how: DropMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_BACKOFF", Backoff(0.01, 5.0, factor=1.5))
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/tasks.db")
    async with open_app(settings, [counter]) as app:
        to = app.grpc if binding == "grpc" else app.http
        scheme = "grpc" if binding == "grpc" else "http"
        async with (
            FaultProxy(str(to), every=3, after=DropLimit(response_bytes=8000), how=how) as proxy,
            connect(f"{scheme}://{proxy.address}", binding=binding) as client,
        ):
            events = [event async for event in client.run("go")]
    texts = [event.text for event in events if isinstance(event, Text)]
    assert texts == [f"{n} " for n in range(CHUNKS)]
    assert len([event for event in events if isinstance(event, Artifact)]) == 1
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.result.text == "".join(texts)
    assert proxy.dropped.total() > 3


@agent(description="Ends when it is run again", on_crash=retry(2))
async def stubborn(turn: Turn) -> AsyncIterator[str]:
    yield f"attempt {turn.attempt}"
    if turn.attempt == 1:
        await turn.flush()
        await asyncio.Event().wait()


@pytest.mark.parametrize("binding", ["jsonrpc", "grpc"])
async def test_a_run_outlives_the_server_that_it_began_at(
    tmp_path: Path, binding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_BACKOFF", Backoff(0.25, 0.5, factor=1.5))

    def settings(http: int = 0, grpc: int = 0) -> Settings:
        at = Address("127.0.0.1", http), Address("127.0.0.1", grpc)
        return Settings(http=at[0], grpc=at[1], store=f"sqlite:///{tmp_path}/tasks.db")

    events: list[Event] = []
    begun = asyncio.Event()

    async def listen(url: str) -> None:
        async with connect(url, binding=binding) as client:
            async for event in client.run("go"):
                events.append(event)
                if isinstance(event, Text):
                    begun.set()

    async with open_app(settings(), [stubborn]) as app:
        http, grpc = app.http.port, app.grpc.port
        listening = asyncio.create_task(listen(f"http://{app.http}"))
        await begun.wait()
    async with open_app(settings(http, grpc), [stubborn]):
        await listening
    content = [event for event in events if isinstance(event, Artifact | Text)]
    assert content == [
        Artifact("output"),
        Text("attempt 1", "output"),
        Artifact("output", replaces=True),
        Text("attempt 2", "output"),
    ]
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.ok, last.result.text) == (True, "attempt 2")
