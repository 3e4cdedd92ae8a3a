"""Queues of a process: slots, remote agents, capacity, backlog, and lost processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.runtime.harness import open_harness, state, status_text
from tests.runtime.remote_agent import DONE, Far, served

from dragoman import Turn
from dragoman.bus.local import LocalBus
from dragoman.ports import Job, WorkerLost, is_remote
from dragoman.runtime import Ports, open_runtime
from dragoman.runtime.scheduler import AgentQueue, AgentQueues, Backlog, RunRegistry
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import new_ref


def test_the_stub_implements_the_remote_agent_port() -> None:
    assert is_remote(Far())


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


async def test_a_repeated_turn_knows_how_many_messages_its_first_attempt_may_have_received(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, far := Far(crash_retries=1)) as here:
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
        far.room = 1  # without a notification yet
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
    """The bus gives each job to one subscriber, in turn; the test is the other one."""
    store, bus, mine = open_store(tmp_path / "tasks.db"), LocalBus(), list[Job]()
    far = Far(capacity=0)
    await bus.subscribe_jobs(["far"], mine.append)

    async def job_count() -> int:
        """How many of a hundred jobs the runtime receives."""
        for _ in range(3):
            await asyncio.sleep(0)
        mine.clear()
        for _ in range(100):
            bus.publish_job(Job("far", new_ref()))
        for _ in range(3):
            await asyncio.sleep(0)
        return 100 - len(mine)

    async with open_runtime(Ports(store, bus, [far])) as runtime:
        assert await job_count() == 0
        for room, jobs in ((1, 50), (2, 50), (0, 0), (1, 50)):
            far.room = room
            runtime.registry.capacity_changed()
            assert await job_count() == jobs
        await runtime.scheduler.drain(0)
        runtime.registry.capacity_changed()
        assert await job_count() == 0
    await store.close()


async def test_a_fetch_of_waiting_tasks_does_not_delay_a_new_task(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(capacity=4)) as here:
        await eventually(lambda: here.runtime.scheduler.queues.of("far").backlog is not Backlog.EXCEEDING)
        looked, go_on = asyncio.Event(), asyncio.Event()
        store: Any = here.store
        waiting = store.ready_tasks

        async def slow(*arguments: Any) -> Any:
            looked.set()
            await go_on.wait()
            return await waiting(*arguments)

        store.ready_tasks = slow
        here.runtime.scheduler.queues.of("far").assume_backlog()
        here.runtime.registry.capacity_changed()
        await looked.wait()
        task = await here.start()
        _, end = await far.turns.get()  # during the fetch
        end.set_result(DONE)
        assert state(await here.ended(task.id)) == "COMPLETED"
        go_on.set()


async def test_slots_limit_remote_agents_as_well(tmp_path: Path) -> None:
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
    async with served(tmp_path, far := Far(crash_retries=retries)) as here:
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


async def test_a_turn_that_never_started_is_released_without_retries(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(crash_retries=0)) as here:
        task = await here.start()
        _, end = await far.turns.get()
        end.set_exception(WorkerLost("too late", may_have_started=False))
        _, end = await far.turns.get()
        end.set_result(DONE)
        assert state(await here.ended(task.id)) == "COMPLETED"


@pytest.mark.parametrize("lost", [WorkerLost(may_have_started=False), WorkerLost()], ids=["not begun", "begun"])
async def test_a_task_that_waits_for_its_agent_again_is_found_by_its_sender(tmp_path: Path, lost: WorkerLost) -> None:
    """A direct agent may replace its task by a Message, so the task is invisible until the agent's first response."""
    async with served(tmp_path, far := Far(crash_retries=1, direct=True)) as here:
        await eventually(lambda: here.runtime.scheduler.queues.of("far").backlog is Backlog.EMPTY)
        sending = asyncio.create_task(here.start())
        _, end = await far.turns.get()
        assert not sending.done()
        far.room = 0
        end.set_exception(lost)
        task = await sending
        assert state(await here.get(task.id)) == "WORKING"
        far.room = 1
        here.runtime.registry.capacity_changed()
        _, end = await far.turns.get()
        end.set_result(DONE)
        assert state(await here.ended(task.id)) == "COMPLETED"


# One queue ---------------------------------------------------------------------------------------------------------


def queue_of(far: Far, slots: int = 10) -> AgentQueue:
    return AgentQueue(RunRegistry(slots), ("far",), far)


def test_a_queue_has_the_room_that_slots_and_capacity_leave() -> None:
    queue = queue_of(far := Far(capacity=3), slots=2)
    assert (queue.capacity, queue.room) == (3, 2)
    assert [queue.try_reserve() for _ in range(3)] == [True, True, False]
    queue.release()
    assert (queue.room, queue.reserved) == (1, 1)
    far.room = 0
    assert (queue.room, queue.try_reserve()) == (0, False)


def test_the_queue_of_local_agents_has_no_room_without_them() -> None:
    runs = RunRegistry(2)
    assert [AgentQueue(runs, agents).room for agents in ((), ("echo",))] == [0, 2]


@pytest.mark.parametrize(
    ("found", "noted", "backlog"),
    [
        (2, False, Backlog.EXCEEDING),
        (1, False, Backlog.EMPTY),
        (1, True, Backlog.POSSIBLE),
        (0, False, Backlog.EMPTY),
        (0, True, Backlog.POSSIBLE),
    ],
)
def test_a_query_shows_whether_tasks_wait(found: int, noted: bool, backlog: Backlog) -> None:
    queue = queue_of(Far(capacity=2))
    assert (queue.begin_fetch(), queue.begin_fetch(), queue.begin_query()) == (True, False, 2)
    if noted:
        queue.note_backlog()
    queue.end_query(2, found)
    assert queue.backlog is backlog
    queue.end_fetch()
    assert queue.begin_fetch() is (backlog is not Backlog.EMPTY)


def test_new_tasks_wait_after_one_that_found_no_room() -> None:
    queue = queue_of(far := Far(capacity=1))
    queue.backlog = Backlog.EMPTY
    assert queue.try_reserve()
    queue.note_backlog()
    far.room = 5
    assert queue.backlog is Backlog.EXCEEDING


def test_the_turns_of_a_removed_agent_count_again_when_it_returns() -> None:
    queues = AgentQueues({}, RunRegistry(10), 60, runs_agents=True)
    queues.add(Far(capacity=2))
    queues.of("far").running = 1
    queues.remove("far")
    assert (queues.remote("far"), queues.of("far") is queues.local) == (None, True)
    queues.add(Far(capacity=2))
    assert (queues.of("far").room, queues.of("far").backlog) == (1, Backlog.EXCEEDING)


async def test_reserved_slots_are_not_free_and_not_idle() -> None:
    runs = RunRegistry(2)
    runs.reserved = 1
    waiting = asyncio.ensure_future(runs.wait_idle())
    await asyncio.sleep(0)
    runs.wake_if_idle()
    assert (runs.free_slots, runs.idle, waiting.done()) == (1, False, False)
    runs.reserved = 0
    runs.wake_if_idle()
    await waiting
    assert runs.free_slots == 2


async def test_running_turns_are_found_by_task(tmp_path: Path) -> None:
    async def waits(turn: Turn) -> None:
        await here.at("go").wait()

    async with open_harness(tmp_path, waits, slots=5) as here:
        tasks = [await here.start() for _ in range(3)]
        runs = here.runtime.scheduler.runs
        await eventually(lambda: len(runs) == 3)
        assert {runner.context.task_id for runner in runs} == {task.id for task in tasks}
        assert all(runs.find(runner.context.record.ref) is runner for runner in runs)
        assert runs.free_slots == 2
        here.at("go").set()
        await runs.wait_idle()
        assert (len(runs), runs.free_slots) == (0, 5)
