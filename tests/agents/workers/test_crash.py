"""Workers lost during turns: killed, frozen, blocked, drained, disconnected; and lost servers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.agents.workers.conftest import Open
from tests.agents.workers.fake_registries import MemoryAgentRegistry, MemoryWorkerRegistry
from tests.agents.workers.fake_worker import connected_worker, registration
from tests.agents.workers.tasks import NOW, status_text, texts, wait_for_state, wait_for_text
from tests.agents.workers.worker_process import worker_process
from tests.cli.server import Server, serving

from dragoman.agents.workers.connection import HeartbeatTimings
from dragoman.agents.workers.hub import LocalWorkerHub
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.core.access.identity import ANONYMOUS
from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

pytestmark = pytest.mark.longest


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(cwd=tmp_path_factory.mktemp("lost")) as server:
        yield server


async def test_a_turn_whose_worker_is_killed_ends_as_failed(server: Server, tmp_path: Path) -> None:
    with worker_process(server=server.grpc, cwd=tmp_path):
        async with Client(server.grpc, agent="hangs") as client:
            task = (await client.send(message("x"), configuration=NOW)).task.id
            os.kill(int(await wait_for_text(client, task)), signal.SIGKILL)
            ended = await wait_for_state(client, task, states.FAILED)
            assert status_text(ended) == "INTERRUPTED: The worker running this task was lost."
            assert ended.status.message.metadata["reason"] == "INTERRUPTED"


async def test_a_retryable_turn_is_repeated_at_another_worker(server: Server, tmp_path: Path) -> None:
    with worker_process(server=server.grpc, cwd=tmp_path), worker_process(server=server.grpc, cwd=tmp_path):
        async with Client(server.grpc, agent="tries-again") as client:
            task = (await client.send(message("x"), configuration=NOW)).task.id
            os.kill(int(await wait_for_text(client, task)), signal.SIGKILL)
            done = await wait_for_state(client, task, states.COMPLETED)
            assert texts(done)["output"] == "attempt 2"


async def test_committed_output_of_a_killed_worker_is_kept(server: Server, tmp_path: Path) -> None:
    with worker_process(server=server.grpc, cwd=tmp_path) as worker:
        async with Client(server.grpc, agent="plain") as client:
            seen, state, task = 0, 0, ""
            async for event in client.stream(message("1000000")):
                task = task or event.task.id
                state = event.status_update.status.state or state
                seen += event.HasField("artifact_update")
                if seen == 500:
                    worker.process.kill()
            assert state == states.FAILED
            kept = texts(await client.get(task))["output"].split()
            assert kept == [str(number) for number in range(len(kept))]
            assert len(kept) >= seen >= 500


async def test_a_drained_worker_finishes_its_turns_and_gets_no_more(server: Server, tmp_path: Path) -> None:
    with (
        worker_process(server=server.grpc, cwd=tmp_path) as worker,
        worker_process(server=server.grpc, cwd=tmp_path) as other,
    ):
        async with Client(server.grpc, agent="together") as client:
            tasks = [(await client.send(message("x"), configuration=NOW)).task.id for _ in range(2)]
            pids = {int(await wait_for_text(client, task)): task for task in tasks}
            assert set(pids) == {worker.pid, other.pid}
            worker.signal(signal.SIGTERM)
            worker.err.until("stopping: waiting up to")
            later = [(await client.send(message("x"), configuration=NOW)).task.id for _ in range(3)]
            assert {int(await wait_for_text(client, task)) for task in later} == {other.pid}
            await client.send(message("bye", task=pids[worker.pid]), configuration=NOW)
            assert list(texts(await wait_for_state(client, pids[worker.pid], states.COMPLETED)).values()) == ["bye"]
            assert worker.ends() == 0
            for task in later:
                await client.cancel(task)


@pytest.mark.parametrize(("agent", "state"), [("hangs", states.FAILED), ("tries-again", states.COMPLETED)])
async def test_turns_that_outlast_a_drain_are_returned_to_the_server(
    server: Server, tmp_path: Path, agent: str, state: int
) -> None:
    with ExitStack() as stack:
        worker = stack.enter_context(worker_process("--drain", "0", server=server.grpc, cwd=tmp_path))
        async with Client(server.grpc, agent=agent) as client:
            task = (await client.send(message("x"), configuration=NOW)).task.id
            assert int(await wait_for_text(client, task)) == worker.pid
            stack.enter_context(worker_process(server=server.grpc, cwd=tmp_path))
            worker.signal(signal.SIGTERM)
            ended = await wait_for_state(client, task, state)
            if state == states.FAILED:
                assert status_text(ended).startswith("INTERRUPTED: The worker running this task was lost.")
            assert worker.ends() == 0


async def test_a_worker_reconnects_after_the_server_was_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(serving(cwd=tmp_path))
        worker = stack.enter_context(worker_process(server=first.grpc, cwd=tmp_path))
        async with Client(first.grpc, agent="hangs") as client:
            task = (await client.send(message("x"), configuration=NOW)).task.id
            await wait_for_text(client, task)
            first.process.kill()
            first.process.wait()
        worker.err.until("is broken")
        again = stack.enter_context(serving(cwd=tmp_path, grpc=first.grpc))
        worker.await_ready()
        async with Client(again.grpc, agent="hangs") as client:
            assert status_text(await wait_for_state(client, task, states.FAILED)).startswith("INTERRUPTED")
            other = (await client.send(message("x"), configuration=NOW)).task.id
            assert int(await wait_for_text(client, other)) == worker.pid
            assert (await client.cancel(other)).status.state == states.CANCELED


async def test_a_frozen_worker_counts_as_lost_but_a_blocked_event_loop_does_not(server: Server, tmp_path: Path) -> None:
    with ExitStack() as stack:
        # Both are up before the freeze: the frozen one gets turns only as long as it has its last lease.
        workers = [stack.enter_context(worker_process(server=server.grpc, cwd=tmp_path)) for _ in range(2)]
        async with Client(server.grpc, agent="hangs") as client, Client(server.grpc, agent="blocks") as other:
            lost = (await client.send(message("x"), configuration=NOW)).task.id
            pid = int(await wait_for_text(client, lost))
            (frozen,) = [worker for worker in workers if worker.pid == pid]
            frozen.signal(signal.SIGSTOP)
            # Turns go to workers in rotation: one of these two is at the frozen worker.
            tasks = [(await other.send(message("13"), configuration=NOW)).task.id for _ in range(2)]
            ended = [await wait_for_end(other, task) for task in tasks]
            assert sorted(task.status.state for task in ended) == sorted([states.COMPLETED, states.FAILED])
            assert status_text(await wait_for_state(client, lost, states.FAILED)).startswith("INTERRUPTED")
            frozen.signal(signal.SIGCONT)
            frozen.err.until("is broken")
            frozen.await_ready()
            assert (await client.get(lost)).status.state == states.FAILED


async def wait_for_end(client: Client, task: str) -> Any:
    """Waits for the end of the task and returns it."""
    async with asyncio.timeout(60):
        async for _ in client.subscribe(task, after="0"):
            pass
    return await client.get(task)


# Fake workers --------------------------------------------------------------------------------------------------------


async def test_frames_of_a_lost_turn_are_rejected(opened: Open) -> None:
    async with opened() as app, Client(str(app.grpc), agent="desk") as client:
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration())
            task = (await client.send(message("x"), configuration=NOW)).task.id
            turn = await fake_worker.receive("turn_start")
        await wait_for_state(client, task, states.FAILED)
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration())
            await fake_worker.end(turn.turn_id)
            code, text = await fake_worker.status()
            assert code == "INVALID_ARGUMENT"
            assert "is not a turn that was started on this stream" in text
        assert (await client.get(task)).status.state == states.FAILED


async def test_a_worker_that_disconnects_loses_its_turns(opened: Open) -> None:
    async with (
        opened() as app,
        Client(str(app.grpc), agent="desk") as client,
        connected_worker(str(app.grpc)) as fake_worker,
    ):
        await fake_worker.register(registration(direct=True))
        sending = asyncio.create_task(client.send(message("x")))
        await fake_worker.receive("turn_start")
        await fake_worker.half_close()
        assert (await fake_worker.status())[0] == "OK"
        task = (await sending).task
        assert status_text(task).startswith("INTERRUPTED")


async def test_a_canceled_turn_ends_as_canceled_when_the_lease_of_its_lost_worker_is_over(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.agents.workers.hub.HeartbeatTimings", lambda: HeartbeatTimings(lease=4.0))
    async with (
        opened() as app,
        Client(str(app.grpc), agent="desk") as client,
        connected_worker(str(app.grpc)) as fake_worker,
    ):
        await fake_worker.register(registration(crash_retries=3))
        task = (await client.send(message("x"), configuration=NOW)).task.id
        await fake_worker.receive("turn_start")
        canceling = asyncio.create_task(client.cancel(task))
        await fake_worker.receive("cancel")
        fake_worker.cancel()
        assert (await canceling).status.state == states.CANCELED


async def test_a_stopping_server_finishes_turns_and_rejects_new_workers(opened: Open) -> None:
    async with (
        opened() as app,
        Client(str(app.grpc), agent="desk") as client,
        connected_worker(str(app.grpc)) as fake_worker,
    ):
        await fake_worker.register(registration())
        task = (await client.send(message("x"), configuration=NOW)).task.id
        turn = await fake_worker.receive("turn_start")
        draining = asyncio.create_task(app.drain(20))
        await app.draining.wait()
        async with connected_worker(str(app.grpc)) as other:
            await other.send(hello=wk.Hello(agents=[registration()]))
            assert await other.status() == ("UNAVAILABLE", "the server is shutting down and takes no new workers")
        await fake_worker.receive("stopping")
        await fake_worker.end(turn.turn_id)
        await draining
        assert (await client.get(task)).status.state == states.COMPLETED
        with pytest.raises(ClientError, match="UNAVAILABLE"):
            await client.send(message("y"))


async def test_a_silent_worker_is_disconnected() -> None:
    async def frames() -> AsyncIterator[wk.ConnectRequest]:
        yield wk.ConnectRequest(hello=wk.Hello(agents=[registration()]))
        await asyncio.Event().wait()

    now, agent_registry = 1_000_000, MemoryAgentRegistry()
    hub = LocalWorkerHub(
        MemoryWorkerRegistry(), agent_registry, [], clock=lambda: now, timings=HeartbeatTimings(0.001, 0.01)
    )
    kinds = []

    async def connect() -> None:
        async for frame in hub.connect(frames(), ANONYMOUS, "here"):
            kinds.append(frame.WhichOneof("frame"))
            assert agent_registry.agents[0].seconds_absent == 0

    with pytest.raises(Unavailable, match=r"the worker has sent nothing for \d+\.\d s"):
        await connect()
    assert kinds[0] == "welcome"
    assert set(kinds[1:]) == {"heartbeat"}
    now += 5_000
    assert agent_registry.agents[0].seconds_absent == 5
