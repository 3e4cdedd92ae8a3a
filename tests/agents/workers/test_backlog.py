"""Tasks of agents whose workers are busy or absent, and the choice of the worker."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.agents.workers.conftest import Open
from tests.agents.workers.fake_worker import connected_worker, registration
from tests.agents.workers.tasks import NOW, status_text, wait_for_state
from tests.eventually import eventually

from dragoman.client import Client, ClientError, message
from dragoman.client.operations import Operator
from dragoman.core.task import states
from dragoman.wiring.app import App
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk


async def next_of(app: App, task: str) -> str:
    """The `next` field of explain."""
    async with Operator(str(app.grpc)) as operator:
        (one,) = (await operator.explain(ops.ExplainRequest(task_id=task))).tasks
        return str(one.next)


async def test_a_task_waits_as_submitted_until_there_is_a_credit(opened: Open) -> None:
    async with opened() as app, connected_worker(str(app.grpc)) as line, Client(str(app.grpc), agent="desk") as client:
        await line.register(registration(), credit=0)
        tasks = [(await client.send(message("x"), configuration=NOW)).task.id for _ in range(3)]
        assert {(await client.get(task)).status.state for task in tasks} == {states.SUBMITTED}
        assert "It waits for capacity at a worker" in await next_of(app, tasks[0])
        await line.send(credit=wk.Credit(agent_id="desk", turns=2))
        turns = [await line.receive("turn_start") for _ in range(2)]
        (left,) = set(tasks) - {turn.task_id for turn in turns}
        await line.end(turns[0].turn_id)
        await wait_for_state(client, turns[0].task_id, states.COMPLETED)
        assert (await client.get(left)).status.state == states.SUBMITTED
        await line.send(credit=wk.Credit(agent_id="desk", turns=1))
        assert (await line.receive("turn_start")).task_id == left


async def test_a_task_without_a_worker_waits_for_one_also_across_a_restart(opened: Open) -> None:
    async with opened() as app:
        async with connected_worker(str(app.grpc)) as line:
            await line.register(registration())
        await eventually(lambda: not app.worker_hub.list_agents()[0].workers)
        async with Client(str(app.grpc), agent="desk") as client:
            task = (await client.send(message("x"), configuration=NOW)).task
            assert task.status.state == states.SUBMITTED
    async with opened() as app, Client(str(app.grpc), agent="desk") as client:
        assert (await client.get(task.id)).status.state == states.SUBMITTED
        assert 'It waits for a worker of agent "desk". None' in await next_of(app, task.id)
        async with connected_worker(str(app.grpc)) as line:
            await line.register(registration())
            turn = await line.receive("turn_start")
            await line.end(turn.turn_id)
            await wait_for_state(client, task.id, states.COMPLETED)


async def test_an_agent_that_stays_away_takes_no_more_and_its_tasks_end(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.runtime.registry.ABSENCE_POLL_INTERVAL", 3600.0)
    async with opened(worker_wait=0) as app, Client(str(app.grpc), agent="desk") as client:
        async with connected_worker(str(app.grpc)) as line:
            await line.register(registration(), credit=0)
            task = (await client.send(message("x"), configuration=NOW)).task.id
            assert await app.runtime.registry.end_abandoned_tasks() == 0
            line.cancel()
            await wait_until_absent(app)
        with pytest.raises(ClientError, match='no worker of agent "desk" has been connected for') as caught:
            await client.send(message("y"))
        assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "UNAVAILABLE")
        assert await app.runtime.registry.end_abandoned_tasks() == 1
        ended = await client.get(task)
        assert (ended.status.state, status_text(ended)) == (
            states.FAILED,
            "NO_WORKER: No worker of this agent connected in time to run this task.",
        )
        assert [one.id async for one in client.list()] == [task]


async def wait_until_absent(app: App) -> None:
    """Waits until no worker is connected."""
    await eventually(lambda: app.runtime.scheduler.remote_capacity.seconds_absent("desk") != 0)


async def test_a_waiting_task_can_be_canceled(opened: Open) -> None:
    async with opened() as app, connected_worker(str(app.grpc)) as line, Client(str(app.grpc), agent="desk") as client:
        await line.register(registration(), credit=0)
        task = (await client.send(message("x"), configuration=NOW)).task
        assert (await client.cancel(task.id)).status.state == states.CANCELED
        other = (await client.send(message("y"), configuration=NOW)).task
        await line.send(credit=wk.Credit(agent_id="desk", turns=1))
        assert (await line.receive("turn_start")).task_id == other.id


async def test_turns_go_to_the_workers_with_credits_one_after_the_other(opened: Open) -> None:
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


async def test_a_worker_that_drains_is_given_nothing_and_ends_what_it_has(opened: Open) -> None:
    async with opened() as app, connected_worker(str(app.grpc)) as line, Client(str(app.grpc), agent="desk") as client:
        await line.register(registration(), credit=5)
        running = (await client.send(message("x"), configuration=NOW)).task
        turn = await line.receive("turn_start")
        await line.send(drain=wk.Drain())
        await line.send(credit=wk.Credit(agent_id="desk", turns=1))  # void
        await line.put_text(turn.turn_id, 1, "a", append=False)
        await line.receive("committed")
        waiting = (await client.send(message("y"), configuration=NOW)).task
        assert waiting.status.state == states.SUBMITTED
        async with connected_worker(str(app.grpc)) as other:
            await other.register(registration())
            assert (await other.receive("turn_start")).task_id == waiting.id
            await line.end(turn.turn_id)
            await wait_for_state(client, running.id, states.COMPLETED)


async def test_agents_of_workers_do_not_hold_up_those_of_the_server(opened: Open) -> None:
    async with opened() as app, connected_worker(str(app.grpc)) as line:
        await line.register(registration(), credit=0)
        async with Client(str(app.grpc), agent="desk") as client:
            for _ in range(5):
                await client.send(message("x"), configuration=NOW)
        async with Client(str(app.grpc)) as client:
            assert (await client.send(message("x"))).task.status.state == states.COMPLETED
