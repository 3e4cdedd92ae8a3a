"""Several runtimes on one PostgreSQL and one NATS: NATS makes them fast, but nothing depends on it.

Where polls of the store are put off, only the bus can have brought the events.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conftest import set_timings
from tests.eventually import eventually
from tests.nats import PREFIX, WHO, NatsServer
from tests.runtime.harness import Harness, collect, kinds, open_harness, state, texts

from dragoman import Turn
from dragoman.bus.local import LocalBus
from dragoman.core.task.log import Event, TaskRef
from dragoman.extensions.nats.address import NatsAddress
from dragoman.extensions.nats.bus import NatsBus, open_nats_bus
from dragoman.extensions.postgres.store import open_store
from dragoman.ports import Job
from dragoman.runtime.scheduler import Backlog
from dragoman.testing.fixtures import new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("patient_bus")]

_servers = (f"{os.getpid():x}s{number}" for number in count())


class Pair(NamedTuple):
    """Two servers."""

    one: Harness
    other: Harness
    buses: tuple[NatsBus, NatsBus]


@pytest.fixture
def no_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables polls of the store."""
    set_timings(monkeypatch, backlog_poll_interval=3600.0, version_poll_interval=3600.0)


@asynccontextmanager
async def pair(folder: Path, url: str, server: NatsServer, agent: Any, **options: Any) -> AsyncIterator[Pair]:
    """Two runtimes with an agent; `options` are the first one's."""
    address = NatsAddress.parse(server.url(WHO))
    stores = [await open_store(url) for _ in range(2)]
    epoch = stores[0].epoch
    async with (
        open_nats_bus(LocalBus(), address, prefix=PREFIX, epoch=epoch, server=next(_servers)) as first,
        open_nats_bus(LocalBus(), address, prefix=PREFIX, epoch=epoch, server=next(_servers)) as second,
        open_harness(folder, agent, store=stores[0], bus=first, exclusive=False, **options) as one,
        open_harness(folder, agent, store=stores[1], bus=second, exclusive=False) as other,
    ):
        yield Pair(one, other, (first, second))


def reads_of(store: Any) -> list[TaskRef]:
    """The tasks whose events are read from a store from now on."""
    reads: list[TaskRef] = []
    events = store.events

    async def counted(ref: TaskRef, after: int, *rest: Any) -> Sequence[Event]:
        reads.append(ref)
        found: Sequence[Event] = await events(ref, after, *rest)
        return found

    store.events = counted
    return reads


@pytest.mark.usefixtures("no_rounds")
async def test_a_subscriber_on_another_server_sees_every_event_without_reading_the_store(
    tmp_path: Path, postgres_url: str, nats: NatsServer
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def counts(turn: Turn) -> None:
        begun.set()
        await go_on.wait()
        for number in range(100):
            turn.chunk(str(number))
            await turn.flush()

    async with pair(tmp_path, postgres_url, nats, counts) as servers:
        task = await servers.one.start()
        await begun.wait()
        reads = reads_of(servers.other.store)
        following = [asyncio.create_task(collect(servers.other.follow(task.id))) for _ in range(5)]
        (ref,) = (run.context.record.ref for run in servers.one.runtime.scheduler.runs)
        await eventually(lambda: _waiting(servers.other, ref) == 5)
        go_on.set()
        for shown in await asyncio.gather(*following):
            assert kinds(shown)[-101:] == [*map(str, range(100)), "COMPLETED"]
        assert reads == []


def _waiting(world: Harness, ref: TaskRef) -> int:
    """The number of subscribers that wait for the next event of a task."""
    feed = world.runtime.feeds.by_task.get(ref)
    return feed.waiting if feed else 0


@pytest.mark.usefixtures("no_rounds")
async def test_a_broken_stream_is_resumed_on_another_server(
    tmp_path: Path, postgres_url: str, nats: NatsServer
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def counts(turn: Turn) -> None:
        for number in range(10):
            turn.chunk(str(number))
            await turn.flush()
            if number == 4:
                begun.set()
                await go_on.wait()

    async with pair(tmp_path, postgres_url, nats, counts) as servers:
        stream = servers.one.stream()
        first = [await anext(stream) for _ in range(4)]
        await begun.wait()
        task_id = pb.StreamResponse.FromString(first[0].data).task.id
        following = asyncio.create_task(collect(servers.other.follow(task_id, cursor=first[-1].cursor)))
        go_on.set()
        rest = [event async for event in stream]
        assert [event.cursor for event in await following] == [event.cursor for event in rest]


@pytest.mark.usefixtures("no_rounds")
async def test_a_cancel_reaches_the_server_that_runs_the_task(
    tmp_path: Path, postgres_url: str, nats: NatsServer
) -> None:
    begun = asyncio.Event()

    async def waits(turn: Turn) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with pair(tmp_path, postgres_url, nats, waits) as servers:
        task = await servers.one.start()
        await begun.wait()
        assert state(await servers.other.cancel(task.id)) == "CANCELED"
        assert servers.one.runtime.scheduler.running == 0


@pytest.mark.usefixtures("no_rounds")
async def test_a_message_reaches_a_waiting_turn_on_another_server(
    tmp_path: Path, postgres_url: str, nats: NatsServer
) -> None:
    begun = asyncio.Event()

    async def listens(turn: Turn) -> str:
        begun.set()
        async for message in turn.messages():
            return f"heard {message.text}"
        return "nothing"

    async with pair(tmp_path, postgres_url, nats, listens) as servers:
        task = await servers.one.start()
        await begun.wait()
        done = await servers.other.send("the word", task_id=task.id)
        assert (state(done), texts(done)) == ("COMPLETED", ["heard the word"])


@pytest.mark.usefixtures("no_rounds")
async def test_a_blocking_send_returns_when_another_server_has_run_the_task(
    tmp_path: Path, postgres_url: str, nats: NatsServer
) -> None:
    """The only slot of the first server is in use."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def echo(turn: Turn) -> str:
        ran.append(turn.text)
        if turn.text == "first":
            begun.set()
            await go_on.wait()
        return turn.text

    async with pair(tmp_path, postgres_url, nats, echo, slots=1) as servers:
        first = asyncio.create_task(servers.one.send("first"))
        await begun.wait()
        for number in range(20):
            task = await servers.one.send(str(number))
            assert (state(task), texts(task)) == ("COMPLETED", [str(number)])
        go_on.set()
        assert texts(await first) == ["first"]
    assert ran == ["first", *map(str, range(20))]


async def test_a_server_with_room_publishes_no_jobs_for_tasks_that_wait_briefly(
    tmp_path: Path, postgres_url: str, nats: NatsServer
) -> None:
    """While a server fetches waiting tasks, new ones wait as well. Jobs for them would make the other servers fetch,
    and so on, which no task needs."""

    async def echo(turn: Turn) -> str:
        return turn.text

    async with pair(tmp_path, postgres_url, nats, echo) as servers:
        jobs = list[Job]()
        for world, bus in zip(servers[:2], servers.buses, strict=True):
            bus.publish_job = jobs.append  # type: ignore[method-assign, assignment]
            world.runtime.scheduler.queues.local.backlog = Backlog.EXCEEDING
            world.runtime.scheduler.capacity_changed()
        done = await asyncio.gather(
            *(servers[number % 2].send(str(number)) for number in range(40))  # type: ignore[union-attr]
        )
        assert sorted(int(texts(task)[0]) for task in done) == list(range(40))
        assert jobs == []


async def test_a_draining_server_gets_no_jobs(tmp_path: Path, postgres_url: str, nats: NatsServer) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def waits(turn: Turn) -> None:
        begun.set()
        await go_on.wait()

    async with pair(tmp_path, postgres_url, nats, waits) as servers:
        await servers.other.start()
        await begun.wait()
        draining = asyncio.create_task(servers.other.runtime.scheduler.drain(30))
        await eventually(lambda: servers.other.runtime.scheduler.draining)
        received_jobs = list[Job]()
        address, epoch = NatsAddress.parse(nats.url(WHO)), servers.one.store.epoch
        async with open_nats_bus(LocalBus(), address, prefix=PREFIX, epoch=epoch, server=next(_servers)) as third:
            await third.subscribe_jobs(["waits"], received_jobs.append)
            for bus in servers.buses:
                await bus.flush()
            jobs = [Job("waits", new_ref()) for _ in range(20)]
            for job in jobs:
                servers.buses[0].publish_job(job)
            await eventually(lambda: len(received_jobs) == len(jobs))
        go_on.set()
        await draining


async def _followed(world: Harness, task_id: str) -> asyncio.Task[list[Event]]:
    """Subscribes to a task and reads it; the task may already have ended."""
    stream = world.follow(task_id)
    first = await anext(stream)

    async def rest() -> list[Event]:
        return [first, *await collect(stream)]

    return asyncio.create_task(rest())


async def test_an_outage_of_nats_loses_no_events(
    tmp_path: Path, postgres_url: str, own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timings(monkeypatch, backlog_poll_interval=0.05, version_poll_interval=0.05)
    steps: asyncio.Queue[str] = asyncio.Queue()
    waiting: dict[str, asyncio.Queue[str]] = {}

    async def says(turn: Turn) -> None:
        mine = waiting[turn.text] = asyncio.Queue()
        steps.put_nowait(turn.text)
        while word := await mine.get():
            turn.chunk(word)
            await turn.flush()

    async with pair(tmp_path, postgres_url, own_nats, says) as servers:
        tasks = [await (servers.one, servers.other)[number % 2].start(str(number)) for number in range(10)]
        for _ in tasks:
            await steps.get()
        following = [
            await _followed((servers.other, servers.one)[number % 2], task.id) for number, task in enumerate(tasks)
        ]

        def say(word: str) -> None:
            for queue in waiting.values():
                queue.put_nowait(word)

        say("a")
        own_nats.stop()
        await eventually(lambda: all(bus.problem for bus in servers.buses))
        say("b")
        late = await servers.one.start("late")
        await steps.get()
        following.append(await _followed(servers.other, late.id))
        own_nats.start()
        await eventually(lambda: not any(bus.problem for bus in servers.buses))
        say("c")
        say("")
        for shown, task in zip(await asyncio.gather(*following), [*tasks, late], strict=True):
            assert kinds(shown)[-1] == "COMPLETED"
            answer_texts = texts(await servers.other.get(task.id))
            assert answer_texts == (["c"] if task is late else ["abc"])


async def test_a_cancel_during_an_outage_of_nats_is_executed_afterwards(
    tmp_path: Path, postgres_url: str, own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def waits(turn: Turn) -> None:
        begun.set()
        await asyncio.Event().wait()

    set_timings(monkeypatch, cancel_timeout=0.0)
    async with pair(tmp_path, postgres_url, own_nats, waits) as servers:
        task = await servers.one.start()
        await begun.wait()
        own_nats.stop()
        await eventually(lambda: all(bus.problem for bus in servers.buses))
        assert state(await servers.other.cancel(task.id)) != "CANCELED"
        own_nats.start()
        assert state(await servers.one.ended(task.id)) == "CANCELED"


@pytest.mark.usefixtures("no_rounds")
async def test_an_event_too_large_for_the_bus_is_read_from_the_store(
    tmp_path: Path, postgres_url: str, nats: NatsServer
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def writes(turn: Turn) -> None:
        begun.set()
        await go_on.wait()
        for text in ("a", "b" * 2 * 1024 * 1024, "c"):
            turn.chunk(text)
            await turn.flush()

    async with pair(tmp_path, postgres_url, nats, writes) as servers:
        task = await servers.one.start()
        await begun.wait()
        following = asyncio.create_task(collect(servers.other.follow(task.id)))
        (ref,) = (run.context.record.ref for run in servers.one.runtime.scheduler.runs)
        await eventually(lambda: _waiting(servers.other, ref))
        reads = reads_of(servers.other.store)
        go_on.set()
        assert [text[:1] for text in kinds(await following)[-4:]] == ["a", "b", "c", "C"]
        assert reads == [ref]


@pytest.mark.usefixtures("no_rounds")
async def test_a_lost_last_event_is_found_by_the_next_poll(tmp_path: Path, postgres_url: str, nats: NatsServer) -> None:
    """The bus loses the last event of every tenth task. Every server polls every two seconds."""
    go_on = asyncio.Event()

    async def waits(turn: Turn) -> str:
        turn.chunk("begun ")
        await turn.flush()
        await go_on.wait()
        return turn.text

    async with pair(tmp_path, postgres_url, nats, waits) as servers:
        tasks = [await servers.one.start(str(number)) for number in range(20)]
        following = [asyncio.create_task(collect(servers.other.follow(task.id))) for task in tasks]
        refs = {run.context.task_id: run.context.record.ref for run in servers.one.runtime.scheduler.runs}
        await eventually(lambda: all(_waiting(servers.other, ref) for ref in refs.values()))
        lost, publish = {refs[task.id] for task in tasks[::10]}, servers.buses[0].publish

        def loses(task: TaskRef, events: Sequence[Event]) -> None:
            publish(task, [event for event in events if not (event.ends and task in lost)])

        servers.buses[0].publish = loses  # type: ignore[method-assign]
        go_on.set()
        done, missing = following[1:10] + following[11:], [following[0], following[10]]
        await asyncio.gather(*done)
        await servers.one.idle()
        for bus in servers.buses:
            await bus.flush()
        assert not any(one.done() for one in missing)
        await servers.other.runtime.feeds.poll()
        for shown in await asyncio.gather(*following):
            assert kinds(shown)[-1] == "COMPLETED"
