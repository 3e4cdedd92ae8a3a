"""The agent registry: agents registered and unregistered at run time, and their waiting tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.runtime.harness import Harness, state, status_text
from tests.runtime.remote_agent import DONE, Far, served
from tests.runtime.unavailable_store import UnavailableStore

from dragoman.bus.local import LocalBus
from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import Append, Appended
from dragoman.ports import WorkerLost
from dragoman.runtime import Ports, RuntimeConfig, open_runtime
from dragoman.runtime.scheduler import Backlog
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_tasks_wait_a_limited_time_for_an_absent_agent(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(capacity=0), worker_wait=60) as here:
        far.seconds_absent = 59.0
        task = await here.start()
        assert await here.runtime.absent_agents.end_abandoned_tasks() == 0
        far.seconds_absent = 61.0
        with pytest.raises(Unavailable, match='no worker of agent "far" has been connected for 61 s'):
            await here.start("other")
        assert await here.runtime.absent_agents.end_abandoned_tasks() == 1
        assert status_text(await here.get(task.id)).startswith("NO_WORKER: ")
        assert (await here.list()).total_size == 1


async def test_agents_can_be_registered_and_unregistered_at_run_time(tmp_path: Path) -> None:
    shown: list[str] = []
    async with served(tmp_path, near := Far("near")) as here:
        registry = here.runtime.registry
        registry.add_listener(lambda spec: shown.append(spec.name), lambda id: shown.append(f"no {id}"))
        late = Far("late")
        assert not registry.is_local("near")
        await registry.register(late)
        assert list(here.runtime.operations.access.agents) == ["near", "late"]
        assert await registry.unregister("late") == 0
        assert list(here.runtime.operations.access.agents) == ["near"]
        assert shown == ["late", "no late"]
        task = await here.start()
        _, end = await near.turns.get()
        end.set_result(DONE)
        await here.ended(task.id)


# Unregistered agents -----------------------------------------------------------------------------------------------


class Slow(UnavailableStore):
    """A store whose creations wait for `may`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.arguments, self.may = asyncio.Event(), asyncio.Event()
        self.claims: list[int] = []

    def append(self, change: Append) -> asyncio.Future[Any]:
        if "append" in self.unavailable:
            return self._refuse("append")(change)
        return asyncio.ensure_future(self._slowly(change) if change.create else self._store.append(change))

    async def _slowly(self, change: Append) -> Appended:
        self.claims.append(change.claim_session)
        self.arguments.set()
        await self.may.wait()
        appended: Appended = await self._store.append(change)
        return appended


@asynccontextmanager
async def removed_meanwhile(tmp_path: Path, far: Far) -> AsyncIterator[tuple[Harness, Any, asyncio.Future[pb.Task]]]:
    """A runtime that unregisters `far` during a send to it; `store.may` lets the write continue."""
    store: Any = Slow(tmp_path / "tasks.db")
    try:
        async with open_runtime(Ports(store, LocalBus(), [Far("near"), far]), RuntimeConfig(root="far")) as runtime:
            here = Harness(runtime, store)
            await eventually(
                lambda: runtime.scheduler.queues.of("far").backlog is not Backlog.EXCEEDING or not far.room
            )
            sending = asyncio.ensure_future(here.send())
            await store.arguments.wait()
            assert await runtime.registry.unregister("far") == 0
            yield here, store, sending
    finally:
        await store.close()


async def outcome(here: Harness, task_id: str) -> int:
    """The state of the task of an unregistered agent, once it is neither running nor waiting."""
    async with asyncio.timeout(60):
        while True:
            (head,) = await here.store.locate(task_id)
            if not (head.ready or head.running):
                return head.state


@pytest.mark.parametrize(("dials_in", "why"), [(True, "NO_WORKER"), (False, "UPSTREAM_AWAY")])
@pytest.mark.parametrize("capacity", [1, 0])
async def test_a_task_written_after_its_agent_was_removed_ends(
    tmp_path: Path, capacity: int, dials_in: bool, why: str
) -> None:
    far = Far("far", capacity)
    far.is_worker_backed = dials_in
    async with removed_meanwhile(tmp_path, far) as (here, store, sending):
        store.may.set()
        task = await sending
        assert (state(task), status_text(task).partition(":")[0]) == ("FAILED", why)
        await here.idle()
    assert [claim > 0 for claim in store.claims] == [capacity > 0]


async def test_a_task_that_cannot_be_ended_does_not_block_shutdown(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with removed_meanwhile(tmp_path, Far("far", 1)) as (here, store, sending):
        store.may.set()
        await eventually(lambda: store._store.commit_counters.changes.count > 0)
        store.unavailable.add("append")
        await store.tried("append")
        sending.cancel()
        await asyncio.wait([sending])
        await here.runtime.scheduler.drain(60)
    assert not [task for task in asyncio.all_tasks() - before if task.get_name().startswith("end ")]


async def test_a_task_written_after_the_last_poll_ends(tmp_path: Path) -> None:
    async with served(tmp_path, Far("near"), Far("far", 0), root="far") as here:
        store: Any = here.store
        look, tasks = store.ready_tasks, list[pb.Task]()

        async def looks(agents: Sequence[str], *more: Any) -> Any:
            found = await look(agents, *more)
            if not tasks:
                tasks.append(await sending)
            return found

        may, append = asyncio.Event(), store.append

        async def slowly(change: Append) -> Any:
            here.at("the store").set()
            await may.wait()
            return await append(change)

        store.append = lambda change: asyncio.ensure_future(slowly(change))
        sending = asyncio.ensure_future(here.start())
        await here.at("the store").wait()
        store.ready_tasks = looks
        may.set()
        await here.runtime.registry.unregister("far")
        assert await outcome(here, tasks[0].id) == states.FAILED


async def test_a_turn_released_after_its_agent_was_removed_ends(tmp_path: Path) -> None:
    async with served(tmp_path, Far("near"), far := Far("far", crash_retries=1), root="far") as here:
        task = await here.start()
        _, end = await far.turns.get()
        await here.runtime.registry.unregister("far")
        end.set_exception(WorkerLost())
        assert await outcome(here, task.id) == states.FAILED


async def test_tasks_of_an_agent_that_returns_meanwhile_wait_on(tmp_path: Path) -> None:
    class SlowQueries(UnavailableStore):
        seen, may = asyncio.Event(), asyncio.Event()

        async def ready_tasks(self, agents: Sequence[str], *rest: Any) -> Any:
            found = await self._store.ready_tasks(agents, *rest)
            if tuple(agents) == ("far",) and found:
                self.seen.set()
                await self.may.wait()
            return found

    store: Any = SlowQueries(tmp_path / "tasks.db")
    far = Far("far", 0)
    async with open_runtime(Ports(store, LocalBus(), [Far("near"), far]), RuntimeConfig(root="far")) as runtime:
        here = Harness(runtime, store)
        task = await here.start()
        removing = asyncio.create_task(runtime.registry.unregister("far"))
        await store.seen.wait()
        await runtime.registry.register(far)
        store.may.set()
        assert await removing == 0
        assert state(await here.get(task.id)) == "SUBMITTED"
    await store.close()


async def test_waiting_tasks_end_once_the_store_is_available(tmp_path: Path) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_runtime(
        Ports(store, LocalBus(), [Far("near"), Far("far", 0)]), RuntimeConfig(root="far")
    ) as runtime:
        here = Harness(runtime, store)
        task = await here.start()
        store.unavailable.add("ready_tasks")
        with pytest.raises(Unavailable):
            await runtime.registry.unregister("far")
        store.unavailable.clear()
        assert await runtime.absent_agents.end_abandoned_tasks() == 1
        store.unavailable.add("ready_tasks")
        assert await runtime.absent_agents.end_abandoned_tasks() == 0, (
            "what another process makes of such an agent is not ours to end"
        )
        assert await outcome(here, task.id) == states.FAILED
    await store.close()
