"""Remote agents in the runtime: capacity, backlog, and lost processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.runtime.harness import Harness, state, status_text
from tests.runtime.unavailable_store import UnavailableStore

from dragoman.bus.local import LocalBus
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import Append, Appended, StatusChange
from dragoman.ports import Job, RemoteAgent, TurnContext, TurnResult, WorkerLost
from dragoman.runtime import open_runtime
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class Far:
    """Does what the test says, as often as it says. Implements `ports.Elsewhere`."""

    leaked_threads = 0
    is_worker_backed = True
    problem = ""

    def __init__(self, id: str = "far", capacity: int = 1, **spec: Any) -> None:
        self.spec = AgentSpec(id=id, name=id, description="far away", **spec)
        self.room = capacity
        self.seconds_absent = 0.0
        self.turns: asyncio.Queue[tuple[TurnContext, asyncio.Future[TurnResult]]] = asyncio.Queue()
        self.held = 0

    @property
    def capacity(self) -> int:
        return self.room

    def runner_of(self, task_id: str) -> str:
        return "somewhere"

    def describe_run(self, task_id: str) -> str:
        return ""

    async def on_canceled(self, memory: bytes) -> None:
        """There is nothing to let go of."""

    async def take_turn(self, context: TurnContext) -> TurnResult:
        self.held += 1
        end: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self.turns.put_nowait((context, end))
        try:
            return await end
        finally:
            self.held -= 1


DONE = TurnResult(StatusChange(states.COMPLETED))


@asynccontextmanager
async def served(tmp_path: Path, *agents: Far, **options: Any) -> AsyncIterator[Harness]:
    store = open_store(tmp_path / "tasks.db")
    try:
        async with open_runtime(store, LocalBus(), agents, **options) as runtime:
            yield Harness(runtime, store)
    finally:
        await store.close()


def test_far_is_an_agent_elsewhere() -> None:
    assert isinstance(Far(), RemoteAgent)


async def test_no_more_turns_begin_than_the_capacity_allows(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(capacity=2)) as here:
        tasks = [await here.start(str(number)) for number in range(5)]
        assert sorted(state(task) for task in tasks) == ["SUBMITTED"] * 5
        order = []
        for _ in range(5):
            context, end = await far.turns.get()
            assert far.held <= 2
            order.append(context.message.parts[0].text)
            end.set_result(DONE)
        for task in tasks:
            assert state(await here.ended(task.id)) == "COMPLETED"
        assert sorted(order) == ["0", "1", "2", "3", "4"]


async def test_a_turn_that_is_begun_again_knows_how_many_messages_its_first_attempt_may_have_had(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, far := Far(retries=1)) as here:
        task = await here.start("first")
        context, end = await far.turns.get()
        assert context.waiting_messages == 0
        for text in ("second", "third"):
            await here.start(text, task_id=task.id)
        end.set_exception(WorkerLost())
        context, end = await far.turns.get()
        assert (context.attempt, context.message.parts[0].text, context.waiting_messages) == (2, "first", 2)
        incoming = context.incoming()
        assert [(await anext(incoming))[0].parts[0].text for _ in range(2)] == ["second", "third"]
        end.set_result(DONE)
        assert state(await here.ended(task.id)) == "COMPLETED"


async def test_new_tasks_do_not_overtake_waiting_ones(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(capacity=0)) as here:
        first = await here.start("first")
        far.room = 1  # and nobody was told yet
        second = await here.start("second")
        here.runtime.registry.capacity_changed()
        context, end = await far.turns.get()
        assert context.task_id == first.id
        end.set_result(DONE)
        context, end = await far.turns.get()
        assert context.task_id == second.id
        end.set_result(DONE)
        await here.ended(second.id)


async def test_only_processes_that_can_run_an_agent_get_its_jobs(tmp_path: Path) -> None:
    """The bus tells each job to one of those who ask, in turn: here the other one is the test."""
    store, bus, mine = open_store(tmp_path / "tasks.db"), LocalBus(), list[Job]()
    far = Far(capacity=0)
    await bus.subscribe_jobs(["far"], mine.append)

    async def job_count() -> int:
        """Of how many of a hundred jobs the runtime hears."""
        for _ in range(3):
            await asyncio.sleep(0)
        mine.clear()
        for _ in range(100):
            bus.publish_job(Job("far", new_ref()))
        for _ in range(3):
            await asyncio.sleep(0)
        return 100 - len(mine)

    async with open_runtime(store, bus, [far]) as runtime:
        assert await job_count() == 0
        for room, jobs in ((1, 50), (2, 50), (0, 0), (1, 50)):
            far.room = room
            runtime.registry.capacity_changed()
            assert await job_count() == jobs
        await runtime.scheduler.drain(0)
        runtime.registry.capacity_changed()
        assert await job_count() == 0
    await store.close()


async def test_a_fetch_of_waiting_tasks_delays_no_new_task_where_there_is_room(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(capacity=4)) as here:
        await eventually(lambda: here.runtime.scheduler.remote_capacity.accepts_message("far"))
        looked, go_on = asyncio.Event(), asyncio.Event()
        store: Any = here.store
        waiting = store.ready_tasks

        async def slow(*arguments: Any) -> Any:
            looked.set()
            await go_on.wait()
            return await waiting(*arguments)

        store.ready_tasks = slow
        here.runtime.scheduler.remote_capacity.assume_backlog()
        here.runtime.registry.capacity_changed()
        await looked.wait()
        task = await here.start()
        _, end = await far.turns.get()  # though somebody is still looking
        end.set_result(DONE)
        assert state(await here.ended(task.id)) == "COMPLETED"
        go_on.set()


async def test_slots_count_for_agents_elsewhere_as_well(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(capacity=10), slots=1) as here:
        tasks = [await here.start(str(number)) for number in range(3)]
        for _ in tasks:
            _, end = await far.turns.get()
            assert far.held == 1
            end.set_result(DONE)
        for task in tasks:
            assert state(await here.ended(task.id)) == "COMPLETED"


@pytest.mark.parametrize(("retries", "expected"), [(0, "FAILED"), (1, "COMPLETED")])
async def test_a_turn_of_a_lost_worker_fails_or_is_repeated(tmp_path: Path, retries: int, expected: str) -> None:
    async with served(tmp_path, far := Far(retries=retries)) as here:
        task = await here.start()
        _, end = await far.turns.get()
        end.set_exception(WorkerLost)
        if retries:
            context, end = await far.turns.get()
            assert context.attempt == 2
            end.set_result(DONE)
        ended = await here.ended(task.id)
        assert state(ended) == expected
        assert status_text(ended) == ("" if retries else "INTERRUPTED: The worker running this task was lost.")


async def test_a_turn_that_never_began_is_given_back_in_any_case(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(retries=0)) as here:
        task = await here.start()
        _, end = await far.turns.get()
        end.set_exception(WorkerLost("too late", may_have_started=False))
        _, end = await far.turns.get()
        end.set_result(DONE)
        assert state(await here.ended(task.id)) == "COMPLETED"


async def test_tasks_wait_a_limited_time_for_an_absent_agent(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(capacity=0), worker_wait=60) as here:
        far.seconds_absent = 59.0
        task = await here.start()
        assert await here.runtime.registry.end_abandoned_tasks() == 0
        far.seconds_absent = 61.0
        with pytest.raises(Unavailable, match='no worker of agent "far" has been connected for 61 s'):
            await here.start("other")
        assert await here.runtime.registry.end_abandoned_tasks() == 1
        assert status_text(await here.get(task.id)).startswith("NO_WORKER: ")
        assert (await here.list()).total_size == 1


async def test_an_agent_may_come_while_the_server_runs_and_go(tmp_path: Path) -> None:
    shown: list[str] = []
    async with served(tmp_path, near := Far("near")) as here:
        registry = here.runtime.registry
        registry.add_listener(lambda spec: shown.append(spec.name), lambda id: shown.append(f"no {id}"))
        late = Far("late")
        assert not registry.is_local("near")
        await registry.register(late)
        assert list(here.runtime.service.agents) == ["near", "late"]
        assert await registry.unregister("late") == 0
        assert list(here.runtime.service.agents) == ["near"]
        assert shown == ["late", "no late"]
        task = await here.start()
        _, end = await near.turns.get()
        end.set_result(DONE)
        await here.ended(task.id)


# Those that are removed --------------------------------------------------------------------------------------------


class Slow(UnavailableStore):
    """Writes no task before it may."""

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
    """A world from which `far` was removed while a send to it is being written, which `store.may` lets go on."""
    store: Any = Slow(tmp_path / "tasks.db")
    try:
        async with open_runtime(store, LocalBus(), [Far("near"), far], root="far") as runtime:
            here = Harness(runtime, store)
            await eventually(lambda: runtime.scheduler.remote_capacity.accepts_message("far") or not far.room)
            sending = asyncio.ensure_future(here.send())
            await store.arguments.wait()
            assert await runtime.registry.unregister("far") == 0
            yield here, store, sending
    finally:
        await store.close()


async def outcome(here: Harness, task_id: str) -> int:
    """The state of a task whose agent is gone, with whom its caller is, when nobody has it and it waits no more."""
    async with asyncio.timeout(60):
        while True:
            (head,) = await here.store.locate(task_id)
            if not (head.ready or head.running):
                return head.state


@pytest.mark.parametrize(("dials_in", "why"), [(True, "NO_WORKER"), (False, "UPSTREAM_AWAY")])
@pytest.mark.parametrize("capacity", [1, 0])
async def test_a_task_that_is_written_when_its_agent_was_removed_ends(
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


async def test_a_turn_that_is_given_back_after_its_agent_was_removed_ends(tmp_path: Path) -> None:
    async with served(tmp_path, Far("near"), far := Far("far", retries=1), root="far") as here:
        task = await here.start()
        _, end = await far.turns.get()
        await here.runtime.registry.unregister("far")
        end.set_exception(WorkerLost())
        assert await outcome(here, task.id) == states.FAILED


async def test_waiting_tasks_end_once_the_store_is_available(tmp_path: Path) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    async with open_runtime(store, LocalBus(), [Far("near"), Far("far", 0)], root="far") as runtime:
        here = Harness(runtime, store)
        task = await here.start()
        store.unavailable.add("ready_tasks")
        with pytest.raises(Unavailable):
            await runtime.registry.unregister("far")
        store.unavailable.clear()
        assert await runtime.registry.end_abandoned_tasks() == 1
        store.unavailable.add("ready_tasks")
        assert await runtime.registry.end_abandoned_tasks() == 0, (
            "what another process makes of such an agent is not ours to end"
        )
        assert await outcome(here, task.id) == states.FAILED
    await store.close()
