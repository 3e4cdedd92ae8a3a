"""The process of an executor, under its supervisor: start, restart, and isolation of turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.agents.turn_context import RecordingTurnContext, state_of, status_text
from tests.agents.workers.fake_registries import MemoryAgentRegistry
from tests.extensions.agent_host import agent_host

from dragoman.agents.workers.connection import HeartbeatTimings
from dragoman.core.errors import InvalidParams
from dragoman.extensions.frameworks.sources import ExecutorSpec, FrameworkSettings
from dragoman.extensions.frameworks.supervisor import ExecutorStartFailed, ExecutorSupervisor
from dragoman.ports import WorkerLost
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EXECUTOR = ExecutorSpec("desk", "app:Desk")
SLOW = HeartbeatTimings(60, 120)


class FakeProcess:
    """A process that the test controls. Implements `FrameChannel`."""

    name = "pid 1"

    def __init__(self, *first: wk.ConnectRequest, last: str = "ended with code 1") -> None:
        self.received: asyncio.Queue[wk.ConnectResponse] = asyncio.Queue()
        self.ended = False
        self.send_error: type[Exception] | None = None
        self._emitted: asyncio.Queue[wk.ConnectRequest | Exception | None] = asyncio.Queue()
        self._last = last
        for frame in first:
            self._emitted.put_nowait(frame)

    def emit(self, **frame: Any) -> None:
        self._emitted.put_nowait(wk.ConnectRequest(**frame))

    def break_off(self, error: Exception | None = None) -> None:
        self._emitted.put_nowait(error)

    async def receive(self, kind: str) -> Any:
        async with asyncio.timeout(60):
            frame = await self.received.get()
        assert frame.WhichOneof("frame") == kind
        return getattr(frame, kind)

    async def frames(self) -> AsyncIterator[wk.ConnectRequest]:
        while (frame := await self._emitted.get()) is not None:
            if isinstance(frame, Exception):
                raise frame
            yield frame

    async def send(self, frame: wk.ConnectResponse) -> None:
        if self.send_error is not None:
            error, self.send_error = self.send_error, None
            raise error("no JSON for that")
        self.received.put_nowait(frame)

    async def stop(self) -> str:
        self.ended = True
        return self._last


def hello(**registration: Any) -> wk.ConnectRequest:
    card = pb.AgentCard(name="Desk", description="A desk")
    one = wk.AgentRegistration(**{"id": "executor", "card": card, "direct": True, **registration})
    return wk.ConnectRequest(hello=wk.Hello(name="test", agents=[one]))


def finished(turn: str, text: str) -> dict[str, Any]:
    status = wk.StatusChange(state="TASK_STATE_COMPLETED", message=pb.Message(parts=[pb.Part(text=text)]))
    return {"turn_end": wk.TurnEnd(turn_id=turn, status=status)}


class Supervised:
    """A supervisor with fake processes and fake time. `lives`: the results of its starts, in order."""

    def __init__(
        self,
        *lives: FakeProcess | OSError,
        timings: HeartbeatTimings = SLOW,
        registry: MemoryAgentRegistry | None = None,
        **settings: Any,
    ) -> None:
        self.waits: list[float] = []
        self.restarted = asyncio.Event()
        self.now = 0.0
        self._lives = iter(lives)
        self.supervisor = ExecutorSupervisor(
            EXECUTOR,
            FrameworkSettings(python="python", **settings),
            agent_host(registry=registry),
            timings=timings,
            start_process=self._start,
            sleep=self._sleep,
            now=lambda: self.now,
            new_id=lambda: "id",
        )

    async def _start(self) -> FakeProcess:
        life = next(self._lives, None)
        if life is None:
            await asyncio.Event().wait()
        if isinstance(life, OSError):
            raise life
        assert life is not None
        return life

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.restarted.set()


async def test_the_agent_has_the_registered_card_and_the_configured_id() -> None:
    supervised = Supervised(FakeProcess(hello(crash_retries=9, turns=1)), turns=3, retries=2)
    agent = await supervised.supervisor.open()
    assert (agent.spec.id, agent.spec.name, agent.spec.direct) == ("desk", "Desk", True)
    assert (agent.capacity, agent.spec.crash_retries, agent.seconds_absent) == (3, 2, 0)
    await supervised.supervisor.close()
    assert agent.seconds_absent > 0


async def test_a_turn_runs_in_the_process() -> None:
    process = FakeProcess(hello())
    supervised = Supervised(process)
    agent = await supervised.supervisor.open()
    assert (await process.receive("welcome")).max_frame_bytes == 100_000
    turn_context = RecordingTurnContext("hello")
    turn = asyncio.create_task(agent.take_turn(turn_context))
    start = await process.receive("turn_start")
    assert (start.agent_id, start.message.parts[0].text) == ("desk", "hello")
    process.emit(**finished(start.turn_id, "hi"))
    task = turn_context.task(await turn)
    assert (state_of(task), status_text(task)) == ("COMPLETED", "hi")
    await supervised.supervisor.close()


async def test_a_credit_reports_more_capacity() -> None:
    capacity_changed = asyncio.Event()

    class Registry(MemoryAgentRegistry):
        def capacity_changed(self) -> None:
            capacity_changed.set()

    process = FakeProcess(hello())
    supervised = Supervised(process, turns=1, registry=Registry())
    agent = await supervised.supervisor.open()
    capacity_changed.clear()
    process.emit(credit=wk.Credit(agent_id="desk", turns=1))
    async with asyncio.timeout(60):
        await capacity_changed.wait()
    assert agent.capacity == 2
    await supervised.supervisor.close()


@pytest.mark.parametrize(
    ("life", "reason"),
    [
        (
            OSError(2, "No such file"),
            "python cannot be started: No such file; pass another interpreter with --executor-python",
        ),
        (FakeProcess(wk.ConnectRequest(heartbeat=wk.Heartbeat())), "hello.agents: has 0 agents"),
        (FakeProcess(hello(card=pb.AgentCard(default_input_modes=["?"]))), "default_input_modes"),
    ],
    ids=["no interpreter", "no hello", "an invalid card"],
)
async def test_a_process_that_cannot_start_is_an_error(life: Any, reason: str) -> None:
    supervised = Supervised(life)
    with pytest.raises(ExecutorStartFailed, match=reason):
        await supervised.supervisor.open()
    await supervised.supervisor.close()
    assert isinstance(life, OSError) or life.ended


async def test_a_process_that_exits_before_its_hello_is_an_error_with_its_exit_reason() -> None:
    process = FakeProcess(last="module app is missing")
    process.break_off()
    supervised = Supervised(process)
    with pytest.raises(ExecutorStartFailed, match=r"^module app is missing$"):
        await supervised.supervisor.open()


async def test_a_process_that_dies_loses_its_turns_and_is_restarted() -> None:
    first, second = FakeProcess(hello()), FakeProcess(hello())
    supervised = Supervised(first, second)
    agent = await supervised.supervisor.open()
    await first.receive("welcome")
    turn = asyncio.create_task(agent.take_turn(RecordingTurnContext("hello")))
    await first.receive("turn_start")
    first.break_off()
    with pytest.raises(WorkerLost):
        await turn
    await second.receive("welcome")
    assert first.ended
    assert supervised.waits == [0.5]
    assert agent.capacity == 100
    await supervised.supervisor.close()


async def test_the_restart_delay_grows_and_is_reset_after_a_stable_run() -> None:
    lives = [FakeProcess(hello()) for _ in range(8)]
    for life in lives[:7]:
        life.break_off()
    supervised = Supervised(*lives)
    await supervised.supervisor.open()
    await lives[7].receive("welcome")
    assert supervised.waits == [0.5, 1, 2, 4, 8, 15, 15]
    supervised.now = 10.0
    lives[7].break_off()
    supervised.restarted.clear()
    async with asyncio.timeout(60):
        await supervised.restarted.wait()
    assert supervised.waits[-1] == 0.5
    await supervised.supervisor.close()


async def test_a_failed_restart_is_retried() -> None:
    first, third = FakeProcess(hello()), FakeProcess(hello())
    first.break_off()
    supervised = Supervised(first, OSError(12, "Cannot allocate memory"), third)
    agent = await supervised.supervisor.open()
    await third.receive("welcome")
    assert supervised.waits == [0.5, 1]
    assert agent.seconds_absent == 0
    await supervised.supervisor.close()


async def test_a_process_that_violates_the_protocol_is_stopped() -> None:
    first, second = FakeProcess(hello()), FakeProcess(hello())
    supervised = Supervised(first, second)
    await supervised.supervisor.open()
    first.break_off(InvalidParams("a line of the process is not a frame"))
    await second.receive("welcome")
    assert first.ended
    await supervised.supervisor.close()


async def test_a_silent_process_is_stopped() -> None:
    first, second = FakeProcess(hello()), FakeProcess(hello())
    supervised = Supervised(first, second, timings=HeartbeatTimings(0.01, 0.05))
    await supervised.supervisor.open()
    await second.receive("welcome")
    assert first.ended
    await supervised.supervisor.close()


async def test_an_oversized_event_fails_only_its_turn() -> None:
    process = FakeProcess(hello())
    supervised = Supervised(process)
    agent = await supervised.supervisor.open()
    await process.receive("welcome")
    turn_context, other = RecordingTurnContext("big"), RecordingTurnContext("small")
    turns = [asyncio.create_task(agent.take_turn(one)) for one in (turn_context, other)]
    starts = [await process.receive("turn_start") for _ in turns]
    process.emit(**finished(starts[0].turn_id, "x" * 100_000))
    task = turn_context.task(await turns[0])
    assert state_of(task) == "FAILED"
    assert "this server accepts at most 100000." in status_text(task)
    assert (await process.receive("turn_revoked")).turn_id == starts[0].turn_id
    process.emit(**finished(starts[1].turn_id, "fine"))
    assert state_of(other.task(await turns[1])) == "COMPLETED"
    await supervised.supervisor.close()


async def test_a_message_without_a_json_form_fails_only_its_turn() -> None:
    process = FakeProcess(hello())
    supervised = Supervised(process, turns=1)
    agent = await supervised.supervisor.open()
    await process.receive("welcome")
    process.send_error = ValueError
    turn_context = RecordingTurnContext("not a number")
    task = turn_context.task(await agent.take_turn(turn_context))
    assert (state_of(task), status_text(task)) == ("FAILED", "the message has no JSON form: no JSON for that")
    turn = asyncio.create_task(agent.take_turn(RecordingTurnContext("next")))
    start = await process.receive("turn_start")  # the credit was given back
    process.emit(**finished(start.turn_id, "fine"))
    await turn
    await supervised.supervisor.close()


async def test_close_stops_the_process_without_a_restart() -> None:
    process = FakeProcess(hello())
    supervised = Supervised(process, FakeProcess(hello()))
    await supervised.supervisor.open()
    await supervised.supervisor.close()
    assert process.ended
    assert supervised.waits == []
