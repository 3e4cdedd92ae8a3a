"""A process that runs no agents: it accepts, shows and cancels tasks, and leaves the turns to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conftest import timings
from tests.eventually import eventually
from tests.runtime.harness import Harness, collect, kinds, open_harness, state, texts
from tests.runtime.unavailable_store import UnavailableStore

from dragoman import Turn
from dragoman.bus.local import LocalBus
from dragoman.stores.sqlite import open_store


class Pair(NamedTuple):
    """Two processes on one store and one bus."""

    server: Harness
    worker: Harness


async def slow(turn: Turn) -> str:
    turn.chunk("begun ")
    if turn.text == "wait":
        await asyncio.Event().wait()
    if turn.text == "ask":
        turn.ask("what?")
    return turn.text


async def answers(turn: Turn) -> str:
    if turn.text == "metadata":
        turn.metadata["a"] = 1
    if turn.text == "usage":
        turn.usage(tokens=5)
    if turn.text == "message":
        async for message in turn.messages():
            return message.text
    if turn.text == "statuses":
        turn.status("one")
        await turn.flush()
        turn.status("two")
    if turn.text == "artifact":
        turn.artifact("more", name="other")
    return turn.text


@asynccontextmanager
async def pair(
    folder: Path, worker_slots: int = 10, agent: Callable[[Turn], object] = slow, store: Any = None
) -> AsyncIterator[Pair]:
    bus = LocalBus()
    async with (
        open_harness(
            folder,
            agent,
            bus=bus,
            exclusive=False,
            runs_agents=False,
            timings=timings(backlog_poll_interval=3600.0),
            store=store,
        ) as server,
        open_harness(
            folder,
            agent,
            bus=bus,
            exclusive=False,
            slots=worker_slots,
            timings=timings(backlog_poll_interval=3600.0),
            store=open_store(folder / "tasks.db"),
        ) as worker,
    ):
        yield Pair(server, worker)


async def test_a_task_accepted_by_one_process_runs_on_another(tmp_path: Path) -> None:
    async with pair(tmp_path) as (server, worker):
        task = await server.send("hello")
        assert (state(task), texts(task)) == ("COMPLETED", ["begun ", "hello"])
        assert kinds(await collect(server.stream("again")))[-1] == "COMPLETED"
        assert server.runtime.scheduler.running == 0
        assert texts(await worker.get(task.id)) == ["begun ", "hello"]


async def test_a_sender_whose_server_saw_all_events_needs_no_read(tmp_path: Path) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with pair(tmp_path, agent=answers, store=store) as (server, _):
        store.unavailable.add("read")
        task = await server.send("hello")
        assert (state(task), texts(task)) == ("COMPLETED", ["hello"])


@pytest.mark.parametrize("text", ["plain", "artifact", "metadata", "usage", "statuses"])
async def test_a_sender_gets_the_task_as_any_reader_does(tmp_path: Path, text: str) -> None:
    async with pair(tmp_path, agent=answers) as (server, worker):
        task = await server.send(text)
        assert task == await worker.get(task.id)
        assert (state(task), task.HasField("metadata")) == ("COMPLETED", text in ("metadata", "usage"))


async def test_a_sender_gets_the_messages_that_others_sent_meanwhile(tmp_path: Path) -> None:
    async with pair(tmp_path, agent=answers) as (server, worker):
        sending = asyncio.create_task(server.send("message"))
        await eventually(lambda: worker.runtime.scheduler.running)
        (run,) = worker.runtime.scheduler.runs
        await worker.start("more", task_id=run.context.task_id)
        task = await sending
        assert [message.parts[0].text for message in task.history] == ["message", "more"]
        assert task == await worker.get(task.id)


async def test_a_follow_up_runs_on_the_other_process_too(tmp_path: Path) -> None:
    async with pair(tmp_path) as (server, _):
        task = await server.send("ask")
        assert state(task) == "INPUT_REQUIRED"
        assert state(await server.send("that", task_id=task.id)) == "COMPLETED"


async def test_a_cancel_reaches_the_running_process(tmp_path: Path) -> None:
    async with pair(tmp_path) as (server, worker):
        stream = server.stream("wait")
        first = await anext(stream)
        while "begun" not in (kinds([first])[0]):
            first = await anext(stream)
        (run,) = worker.runtime.scheduler.runs
        assert state(await server.cancel(run.context.task_id)) == "CANCELED"


async def test_a_task_waiting_for_the_only_slot_runs_when_it_is_free(tmp_path: Path) -> None:
    async with pair(tmp_path, worker_slots=1) as (server, _):
        done = await asyncio.gather(*(server.send(str(number)) for number in range(10)))
        assert {state(task) for task in done} == {"COMPLETED"}


async def test_a_task_without_a_process_to_run_it_waits_and_is_explained(tmp_path: Path) -> None:
    async with open_harness(
        tmp_path, slow, exclusive=False, runs_agents=False, timings=timings(backlog_poll_interval=3600.0)
    ) as server:
        task = await server.start("hello")
        assert state(task) == "SUBMITTED"
        (explanation,) = await server.runtime.explainer.explain(task.id)
        assert explanation.next.startswith("It waits for a process that runs its agent (--role worker, or all)")
        assert not server.runtime.registry.is_local("nobody")
        assert server.runtime.registry.is_local("slow")
        assert state(await server.cancel(task.id)) == "CANCELED"


async def test_a_blocking_call_to_a_stopping_process_returns_the_current_task(tmp_path: Path) -> None:
    async with pair(tmp_path) as (server, worker):
        waiting = asyncio.create_task(server.send("wait"))
        await eventually(lambda: server.runtime.feeds._waits)
        await server.runtime.scheduler.drain(30)
        server.runtime.feeds.release_waits()
        task = await waiting
        assert state(task) in ("SUBMITTED", "WORKING")
        assert state(await worker.cancel(task.id)) == "CANCELED"
