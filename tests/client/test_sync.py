"""The synchronous client, from several threads, against a server in another thread."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import assert_type

import pytest
from tests.client.conftest import ServerInThread

from dragoman.client import Finished, NotFound, Question, Result, ServerUnavailable, Status, TaskFailed, Text, sync
from dragoman.client.sync import LoopThread, connect
from dragoman.core import trace


@pytest.mark.parametrize("binding", ["", "grpc", "rest"])
def test_all_methods_of_the_client_work_without_asyncio(url: str, binding: str) -> None:
    with connect(url, binding=binding) as client:
        assert client.card.name == client.card_of("playground").name == "Playground"
        assert assert_type(client.ask("echo hi"), Result).text == "hi"  # the type checker reads the wrapped method
        texts = []
        for event in client.run("stream 3 1"):
            texts += [event.text] if isinstance(event, Text) else []
        assert texts == ["chunk-1 ", "chunk-2 ", "chunk-3 "]
        for event in client.run("ask"):
            if isinstance(event, Question):
                event.answer("blue")
        assert event.raw is not None
        assert client.ask("ask", answer=lambda question: question.text[:4]).text == "you said: what"
        *_, last = client.run("ask", answer=lambda question: question.text[:4])
        assert isinstance(last, Finished)
        assert last.result.text == "you said: what"
        begun = client.start("sleep 60")
        for event in client.follow(begun.task_id):
            if isinstance(event, Status) and event.state == "WORKING":
                break  # stops listening; the task continues
        assert client.get(begun.task_id).state == "WORKING"
        client.cancel(begun.task_id)
        with pytest.raises(TaskFailed):
            client.wait(begun.task_id)
        assert len(list(client.list())) == 6
        with pytest.raises(NotFound):
            client.get("none")


def test_every_call_goes_to_the_agent_that_it_names(server_in_thread: ServerInThread) -> None:
    for url in server_in_thread:
        with connect(url) as client:
            result = client.ask("x", agent="other")
            assert result.text == "other heard x", url
            assert client.wait(client.start("y", agent="other").task_id, agent="other").text == "other heard y", url
            texts = [event.text for event in client.run("z", agent="other") if isinstance(event, Text)]
            assert texts == ["other heard z"], url
            assert client.get(result.task_id, agent="other").text == "other heard x", url
            assert result.task_id in {task.task_id for task in client.list(agent="other")}, url
            paused = client.start("sleep 60")
            with pytest.raises(NotFound):
                client.cancel(paused.task_id, agent="other")
            with pytest.raises(NotFound):
                client.ask("x", agent="nobody")
            client.cancel(paused.task_id)


def test_threads_share_a_connection(url: str) -> None:
    with connect(url) as client, ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: client.ask(f"echo {n}").text, range(12)))
    assert results == [str(n) for n in range(12)]


async def test_the_blocking_client_works_inside_a_running_loop(url: str) -> None:
    """As in a notebook, where a loop already runs."""
    with connect(url) as client:
        assert client.ask("echo hi").text == "hi"


def test_garbage_collection_of_a_run_does_not_stop_the_loop(url: str) -> None:
    with connect(url) as client:
        events = client.run("stream 5000 20")
        next(events)
        collected = threading.Event()

        def collect() -> None:
            nonlocal events
            events = iter(())  # type: ignore[assignment]  # drops the last reference, as a garbage collection does
            collected.set()

        sync._LOOP._running_loop().call_soon_threadsafe(collect)
        assert collected.wait(60)
        assert client.ask("echo hi").text == "hi"


def test_calls_are_made_in_the_context_of_their_caller() -> None:
    """An agent in a thread that calls another one passes on its trace and its task."""
    seen: list[str] = []

    async def look() -> None:
        seen.append(trace.CURRENT_TRACE.get())

    token = trace.CURRENT_TRACE.set("here")
    try:
        sync._LOOP.run(look())
    finally:
        trace.CURRENT_TRACE.reset(token)
    assert seen == ["here"]


def test_a_missing_server_raises_an_error() -> None:
    with pytest.raises(ServerUnavailable), connect("http://127.0.0.1:9", retry_timeout=0):
        pass


def test_contexts_are_exited_in_reverse_order_on_the_loop_that_entered_them() -> None:
    calls: list[tuple[str, int]] = []

    @asynccontextmanager
    async def opened(name: str) -> AsyncIterator[str]:
        calls.append((f"enter {name}", threading.get_ident()))
        yield name
        calls.append((f"exit {name}", threading.get_ident()))

    loop = LoopThread("a loop")
    assert [loop.open(opened(name)) for name in ("a", "b")] == ["a", "b"]
    loop.close()
    assert [name for name, _ in calls] == ["enter a", "enter b", "exit b", "exit a"]
    assert len({thread for _, thread in calls}) == 1
    assert threading.get_ident() not in {thread for _, thread in calls}
    assert "a loop" not in {thread.name for thread in threading.enumerate()}


def test_the_thread_ends_even_if_a_context_fails_to_exit() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        yield
        raise ValueError("no exit")

    loop = LoopThread("a loop")
    loop.open(broken())
    with pytest.raises(ValueError, match="no exit"):
        loop.close()
    assert "a loop" not in {thread.name for thread in threading.enumerate()}
