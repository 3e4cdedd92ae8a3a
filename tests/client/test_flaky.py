"""Runs over a connection that fails repeatedly: no event is lost or repeated."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cli import server as processes
from tests.eventually import eventually
from tests.postgres import free_port

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


CALLERS = ("jsonrpc", "rest", "grpc")
AGENTS = """
from dragoman import Turn, agent

@agent
async def echo(turn: Turn) -> str:
    return turn.text
"""


@pytest.mark.timeout(600)
async def test_programs_that_connect_for_each_call_see_no_restart(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    http, grpc = (f"127.0.0.1:{free_port()}" for _ in range(2))
    answers: dict[str, list[str]] = {binding: [] for binding in CALLERS}
    over = asyncio.Event()

    async def call(binding: str) -> None:
        while not over.is_set():
            async with connect(f"http://{http}", binding=binding, retry_timeout=500) as client:
                answers[binding].append((await client.ask(f"{binding} {len(answers[binding])}")).text)

    def serve() -> processes.Server:
        return processes.start("agents.py", "--store", "sqlite:///tasks.db", cwd=tmp_path, http=http, grpc=grpc)

    server = await asyncio.to_thread(serve)
    try:
        async with asyncio.TaskGroup() as callers:
            for binding in CALLERS:
                callers.create_task(call(binding))
            for _ in range(2):
                wanted = {binding: len(texts) + 3 for binding, texts in answers.items()}
                await eventually(lambda: all(len(answers[one]) >= wanted[one] for one in CALLERS))  # noqa: B023
                server.signal(signal.SIGTERM)
                assert await asyncio.to_thread(server.ends) == 0
                server = await asyncio.to_thread(serve)
            over.set()
        async with connect(f"http://{http}") as client:
            states = [task.state async for task in client.list()]
        assert states == ["COMPLETED"] * sum(map(len, answers.values()))
        assert answers == {binding: [f"{binding} {n}" for n in range(len(answers[binding]))] for binding in CALLERS}
    finally:
        server.process.kill()
        server.process.wait()
