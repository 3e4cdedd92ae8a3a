"""The client without asyncio, from several threads, while the server runs on a loop elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dragoman.app import open_app
from dragoman.client import NotFound, Question, Status, TaskFailed, Text, Unreachable, sync
from dragoman.client.sync import connect
from dragoman.core import trace
from dragoman.playground import playground
from dragoman.settings import Address, Settings


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server in a thread."""
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/tasks.db")
    at: list[str] = []
    begun, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with open_app(settings, [playground]) as app:
            at.append(f"http://{app.http}")
            begun.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert begun.wait(60)
    yield at[0]
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()


@pytest.mark.parametrize("binding", ["", "grpc", "rest"])
def test_everything_is_there_without_asyncio(url: str, binding: str) -> None:
    with connect(url, binding=binding) as client:
        assert client.card.name == client.card_of("playground").name == "Playground"
        assert client.ask("echo hi").text == "hi"
        heard = []
        for event in client.run("stream 3 1"):
            heard += [event.text] if isinstance(event, Text) else []
        assert heard == ["chunk-1 ", "chunk-2 ", "chunk-3 "]
        for event in client.run("ask"):
            if isinstance(event, Question):
                event.answer("blue")
        assert event.raw is not None
        assert client.ask("ask", answer=lambda question: question.text[:4]).text == "you said: what"
        begun = client.start("sleep 60")
        for event in client.follow(begun.task_id):
            if isinstance(event, Status) and event.state == "WORKING":
                break  # which ends the listening, and not the task
        assert client.get(begun.task_id).state == "WORKING"
        client.cancel(begun.task_id)
        with pytest.raises(TaskFailed):
            client.wait(begun.task_id)
        assert len(list(client.list())) == 5
        with pytest.raises(NotFound):
            client.get("none")


def test_threads_share_a_connection(url: str) -> None:
    with connect(url) as client, ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda n: client.ask(f"echo {n}").text, range(12)))
    assert said == [str(n) for n in range(12)]


async def test_it_works_where_a_loop_runs_already(url: str) -> None:
    """As in a notebook."""
    with connect(url) as client:
        assert client.ask("echo hi").text == "hi"


def test_calls_are_made_in_the_context_of_their_caller() -> None:
    """An agent in a thread that calls another one is in a trace, and works for a task."""
    seen: list[str] = []

    async def look() -> None:
        seen.append(trace.CURRENT.get())

    token = trace.CURRENT.set("here")
    try:
        sync._LOOP.run(look())
    finally:
        trace.CURRENT.reset(token)
    assert seen == ["here"]


def test_a_server_that_is_not_there_is_said() -> None:
    with pytest.raises(Unreachable), connect("http://127.0.0.1:9"):
        pass
