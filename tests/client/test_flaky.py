"""Runs over a connection that fails repeatedly: no event is lost or repeated."""

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

pytestmark = pytest.mark.long

CHUNKS = 300


@agent(description="Counts")
async def counter(turn: Turn) -> AsyncIterator[str]:
    for n in range(CHUNKS):
        if n % 20 == 0:
            await turn.flush()
        yield f"{n} "


@pytest.mark.parametrize(("binding", "how"), [("jsonrpc", "close"), ("rest", "reset"), ("grpc", "reset")])
async def test_no_event_is_lost_when_connections_fail_repeatedly(
    tmp_path: Path, binding: str, how: DropMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_BACKOFF", Backoff(0.01, 5.0, factor=1.5))
    any_port = Address("127.0.0.1", 0)
    settings = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/tasks.db")
    async with open_app(settings, [counter]) as app:
        target = app.grpc if binding == "grpc" else app.http
        scheme = "grpc" if binding == "grpc" else "http"
        async with (
            FaultProxy(str(target), every=3, after=DropLimit(response_bytes=8000), how=how) as proxy,
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


@agent(description="Ends in its second attempt", on_crash=retry(2))
async def stubborn(turn: Turn) -> AsyncIterator[str]:
    yield f"attempt {turn.attempt}"
    if turn.attempt == 1:
        await turn.flush()
        await asyncio.Event().wait()


@pytest.mark.parametrize("binding", ["jsonrpc", "grpc"])
async def test_a_run_continues_on_a_restarted_server(
    tmp_path: Path, binding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_BACKOFF", Backoff(0.25, 0.5, factor=1.5))

    def settings(http: int = 0, grpc: int = 0) -> Settings:
        addresses = Address("127.0.0.1", http), Address("127.0.0.1", grpc)
        return Settings(http=addresses[0], grpc=addresses[1], store=f"sqlite:///{tmp_path}/tasks.db")

    events: list[Event] = []
    started = asyncio.Event()

    async def follow(url: str) -> None:
        async with connect(url, binding=binding) as client:
            async for event in client.run("go"):
                events.append(event)
                if isinstance(event, Text):
                    started.set()

    async with open_app(settings(), [stubborn]) as app:
        http, grpc = app.http.port, app.grpc.port
        follow_task = asyncio.create_task(follow(f"http://{app.http}"))
        await started.wait()
    async with open_app(settings(http, grpc), [stubborn]):
        await follow_task
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
