"""Tasks of agents whose workers are busy or absent, and the choice of the worker."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.agents.workers.conftest import Open
from tests.agents.workers.fake_worker import connected_worker, registration
from tests.agents.workers.tasks import NOW, status_text, wait_for_state
from tests.conftest import set_timings
from tests.eventually import eventually
from tests.listing import list_tasks

from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.core.task import states
from dragoman.wiring.app import App
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

pytestmark = pytest.mark.long


async def next_of(app: App, task: str) -> str:
    """The `next` field of explain."""
    async with Operator(str(app.grpc)) as operator:
        (one,) = (await operator.explain(ops.ExplainRequest(task_id=task))).tasks
        return str(one.next)


async def test_a_task_stays_submitted_until_a_worker_has_a_credit(opened: Open) -> None:
    async with (
        opened() as app,
        connected_worker(str(app.grpc)) as fake_worker,
        Client(str(app.grpc), agent="desk") as client,
    ):
        await fake_worker.register(registration(), credit=0)
        tasks = [(await client.send(message("x"), configuration=NOW)).task.id for _ in range(3)]
        assert {(await client.get(task)).status.state for task in tasks} == {states.SUBMITTED}
        assert "It waits for capacity at a worker" in await next_of(app, tasks[0])
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=2))
        turns = [await fake_worker.receive("turn_start") for _ in range(2)]
        (left,) = set(tasks) - {turn.task_id for turn in turns}
        await fake_worker.end(turns[0].turn_id)
        await wait_for_state(client, turns[0].task_id, states.COMPLETED)
        assert (await client.get(left)).status.state == states.SUBMITTED
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        assert (await fake_worker.receive("turn_start")).task_id == left


async def test_a_task_waits_for_a_worker_even_across_a_restart(opened: Open) -> None:
    async with opened() as app:
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration())
        await eventually(lambda: not app.sources.worker_hub.list_agents()[0].workers)
        async with Client(str(app.grpc), agent="desk") as client:
            task = (await client.send(message("x"), configuration=NOW)).task
            assert task.status.state == states.SUBMITTED
    async with opened() as app, Client(str(app.grpc), agent="desk") as client:
        assert (await client.get(task.id)).status.state == states.SUBMITTED
        assert 'It waits for a worker of agent "desk". None' in await next_of(app, task.id)
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration())
            turn = await fake_worker.receive("turn_start")
            await fake_worker.end(turn.turn_id)
            await wait_for_state(client, task.id, states.COMPLETED)


async def test_an_absent_agent_rejects_new_tasks_and_its_waiting_tasks_fail(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timings(monkeypatch, absence_poll_interval=3600.0)
    async with opened(worker_wait=0) as app, Client(str(app.grpc), agent="desk") as client:
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration(), credit=0)
            task = (await client.send(message("x"), configuration=NOW)).task.id
            assert await app.runtime.absent_agents.end_abandoned_tasks() == 0
            fake_worker.cancel()
            await wait_until_absent(app)
        with pytest.raises(ClientError, match='no worker of agent "desk" has been connected for') as caught:
            await client.send(message("y"))
        assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "UNAVAILABLE")
        assert await app.runtime.absent_agents.end_abandoned_tasks() == 1
        ended = await client.get(task)
        assert (ended.status.state, status_text(ended)) == (
            states.FAILED,
            "NO_WORKER: No worker of this agent connected in time to run this task.",
        )
        assert [one.id async for one in list_tasks(client)] == [task]


async def wait_until_absent(app: App) -> None:
    """Waits until no worker is connected."""
    await eventually(lambda: app.runtime.scheduler.queues.seconds_absent("desk") != 0)


async def test_a_waiting_task_can_be_canceled(opened: Open) -> None:
    async with (
        opened() as app,
        connected_worker(str(app.grpc)) as fake_worker,
        Client(str(app.grpc), agent="desk") as client,
    ):
        await fake_worker.register(registration(), credit=0)
        task = (await client.send(message("x"), configuration=NOW)).task
        assert (await client.cancel(task.id)).status.state == states.CANCELED
        other = (await client.send(message("y"), configuration=NOW)).task
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))
        assert (await fake_worker.receive("turn_start")).task_id == other.id


async def test_turns_go_to_workers_with_credits_in_rotation(opened: Open) -> None:
    async with (
        opened() as app,
        connected_worker(str(app.grpc)) as first,
        connected_worker(str(app.grpc)) as second,
        Client(str(app.grpc), agent="desk") as client,
    ):
        await first.register(registration(), credit=3)
        await second.register(registration(), credit=1)
        for _ in range(4):
            await client.send(message("x"), configuration=NOW)
        started = Counter[str]()
        for _ in range(3):
            await first.receive("turn_start")
            started["first"] += 1
        await second.receive("turn_start")
        task = (await client.send(message("x"), configuration=NOW)).task
        assert task.status.state == states.SUBMITTED
        await second.send(credit=wk.Credit(agent_id="desk", turns=1))
        assert (await second.receive("turn_start")).task_id == task.id


async def test_a_draining_worker_gets_no_turns_and_finishes_the_running_ones(opened: Open) -> None:
    async with (
        opened() as app,
        connected_worker(str(app.grpc)) as fake_worker,
        Client(str(app.grpc), agent="desk") as client,
    ):
        await fake_worker.register(registration(), credit=5)
        running = (await client.send(message("x"), configuration=NOW)).task
        turn = await fake_worker.receive("turn_start")
        await fake_worker.send(drain=wk.Drain())
        await fake_worker.send(credit=wk.Credit(agent_id="desk", turns=1))  # ignored
        await fake_worker.put_text(turn.turn_id, 1, "a", append=False)
        await fake_worker.receive("committed")
        waiting = (await client.send(message("y"), configuration=NOW)).task
        assert waiting.status.state == states.SUBMITTED
        async with connected_worker(str(app.grpc)) as other:
            await other.register(registration())
            assert (await other.receive("turn_start")).task_id == waiting.id
            await fake_worker.end(turn.turn_id)
            await wait_for_state(client, running.id, states.COMPLETED)


async def test_a_backlog_of_workers_does_not_delay_local_agents(opened: Open) -> None:
    async with opened() as app, connected_worker(str(app.grpc)) as fake_worker:
        await fake_worker.register(registration(), credit=0)
        async with Client(str(app.grpc), agent="desk") as client:
            for _ in range(5):
                await client.send(message("x"), configuration=NOW)
        async with Client(str(app.grpc)) as client:
            assert (await client.send(message("x"))).task.status.state == states.COMPLETED
