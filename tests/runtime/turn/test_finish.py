"""How turns stop and finish, and strict transitions.

CANCELED is written when the agent has stopped, and never because time has passed.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, Final

import pytest
from tests.conftest import set_timings, timings
from tests.eventually import eventually
from tests.runtime.harness import collect, kinds, open_harness, state, status_text, texts

from dragoman import Turn
from dragoman.core.errors import InvalidAgentResponse, TaskNotCancelable
from dragoman.core.task import states
from dragoman.core.task.log import CHANGED, FENCED, AppendRejected, ArtifactChange, StatusChange, TaskRecord
from dragoman.ports import LeaseLost, StateUpdate, TurnResult, WorkerLost
from dragoman.runtime.turn.events import Change
from dragoman.runtime.turn.finish import Finish, FinishKind, Output, Stop, StopReason, StopToken, decide, with_working
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DONE: Final = TurnResult(StatusChange(states.COMPLETED), [ArtifactChange("a", b"")])
FAILED: Final = TurnResult(StatusChange(states.FAILED))
CANCELED: Final = StatusChange(states.CANCELED)
REPLY: Final = TurnResult(StatusChange(states.COMPLETED), reply=pb.Message(message_id="m"))
CHUNK: Final = ArtifactChange("a", b"", text="one")


def record(*, state: int = states.WORKING, visible: bool = True, attempt: int = 1) -> TaskRecord:
    return TaskRecord(new_ref(), "echo", "task", "context", state, 0, 1, visible=visible, attempt=attempt)


def finish_of(
    result: TurnResult,
    *changes: Change,
    failure: Exception | None = None,
    reason: StopReason | None = None,
    ended: bool = False,
    lost: WorkerLost | None = None,
    retries: int = 0,
    begun: bool = True,
    **task: Any,
) -> Finish:
    stop = StopToken()
    if reason is not None:
        stop.request(reason)
    if ended:
        stop.escalate()
    output = Output(changes, StateUpdate(b"task", b"context"), failure)
    return decide(result, output, stop, lambda: CANCELED, lost, record(**task), retries, begun=begun)


def states_of(finish: Finish) -> list[int | str]:
    """The states of the changes, and the ids of artifacts."""
    return [change.state if isinstance(change, StatusChange) else change.artifact_id for change in finish.changes]


@pytest.mark.parametrize(
    ("result", "options", "kind", "changes"),
    [
        (DONE, {}, FinishKind.END, ["a", states.COMPLETED]),
        (FAILED, {}, FinishKind.END, [states.FAILED]),
        (FAILED, {"retries": 1}, FinishKind.END, [states.FAILED]),  # its own failure is no interruption
        (DONE, {"reason": "drain", "retries": 1}, FinishKind.END, ["a", states.COMPLETED]),  # in time
        (FAILED, {"reason": "drain"}, FinishKind.END, [states.FAILED]),
        (FAILED, {"reason": "drain", "retries": 1}, FinishKind.RETRY, [states.WORKING]),
        (FAILED, {"reason": "drain", "retries": 1, "attempt": 2}, FinishKind.END, [states.FAILED]),
        (FAILED, {"reason": "drain", "retries": 1, "visible": False}, FinishKind.RETRY, [states.WORKING]),
        (FAILED, {"reason": "lease_lost", "retries": 1}, FinishKind.RETRY, [states.WORKING]),
        (FAILED, {"reason": "deadline", "retries": 1}, FinishKind.END, [states.FAILED]),
        (FAILED, {"reason": "client", "retries": 1}, FinishKind.END, [states.FAILED]),
        (FAILED, {"lost": WorkerLost()}, FinishKind.END, [states.FAILED]),
        (FAILED, {"lost": WorkerLost(), "retries": 1}, FinishKind.RETRY, [states.WORKING]),
        (FAILED, {"lost": WorkerLost(may_have_started=False), "begun": False}, FinishKind.REQUEUE, []),
        (
            FAILED,
            {"lost": WorkerLost(may_have_started=False), "begun": False, "visible": False},
            FinishKind.REQUEUE,
            [states.WORKING],
        ),
        (FAILED, {"reason": "lease_lost", "begun": False}, FinishKind.REQUEUE, []),
        (FAILED, {"reason": "lease_lost", "begun": False, "failure": LeaseLost()}, FinishKind.REQUEUE, []),
        (FAILED, {"reason": "drain", "begun": False, "attempt": 3}, FinishKind.REQUEUE, []),
        (FAILED, {"reason": "deadline", "begun": False}, FinishKind.END, [states.FAILED]),
        (TurnResult(CANCELED), {"reason": "client", "begun": False}, FinishKind.END, [states.CANCELED]),
        (TurnResult(CANCELED), {"lost": WorkerLost(), "retries": 1}, FinishKind.END, [states.CANCELED]),
        (REPLY, {"visible": False}, FinishKind.REPLY, []),
        (REPLY, {}, FinishKind.END, [states.COMPLETED]),
        (DONE, {"failure": RuntimeError("no")}, FinishKind.END, [states.FAILED]),
        (DONE, {"failure": AppendRejected(CHANGED, None)}, FinishKind.END, [states.FAILED]),
        (DONE, {"failure": AppendRejected(FENCED, None)}, FinishKind.NOTHING, []),
        (DONE, {"failure": LeaseLost(), "reason": "client"}, FinishKind.END, [states.CANCELED]),
        (DONE, {"failure": LeaseLost(), "reason": "deadline", "ended": True}, FinishKind.NOTHING, []),
    ],
)
def test_the_end_of_a_turn(result: TurnResult, options: dict[str, Any], kind: FinishKind, changes: list[Any]) -> None:
    finish = finish_of(result, **options)
    assert (finish.kind, states_of(finish)) == (kind, changes)


def test_a_message_does_not_replace_a_task_with_output() -> None:
    finish = finish_of(REPLY, CHUNK, visible=False)
    assert (finish.kind, states_of(finish)) == (FinishKind.END, ["a", states.COMPLETED])


def test_a_release_for_a_retry_leaves_the_state_of_the_conversation_to_the_next_attempt() -> None:
    finish = finish_of(FAILED, CHUNK, reason="drain", retries=1)
    assert (finish.state_update, states_of(finish)) == (StateUpdate(b"task"), ["a", states.WORKING])


@pytest.mark.parametrize(
    ("changes", "visible", "kept"),
    [((), False, True), ((CHUNK,), False, False), ((), True, False)],
)
def test_an_error_replaces_only_a_task_that_nobody_has_seen(changes: Any, visible: bool, kept: bool) -> None:
    result = TurnResult(StatusChange(states.FAILED), error=InvalidAgentResponse("bad"))
    assert (finish_of(result, *changes, visible=visible).error is not None) is kept


def test_working_is_written_before_the_first_output_of_a_submitted_task() -> None:
    submitted, working = record(state=states.SUBMITTED), record(state=states.WORKING)
    assert with_working([CHUNK], submitted) == [StatusChange(states.WORKING), CHUNK]
    assert with_working([CHUNK], working) == [CHUNK]
    assert with_working([CANCELED], submitted) == [CANCELED]
    assert with_working([], submitted) == []


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """CancelTask does not wait for agents."""
    set_timings(monkeypatch, cancel_timeout=0.0)


async def test_a_canceled_thread_keeps_its_task_active_until_it_returns(tmp_path: Path) -> None:
    begun, release = threading.Event(), threading.Event()

    def deaf(turn: Turn) -> str:
        begun.set()
        assert release.wait(60)
        return "never seen"

    async with open_harness(tmp_path, deaf, timings=timings(mute_timeout=0.0)) as here:
        task = await here.start()
        await eventually(begun.is_set)
        (runner,) = here.runtime.scheduler.runs
        await here.cancel(task.id)
        await eventually(lambda: runner.stop.state is Stop.MUTED)
        assert state(await here.cancel(task.id)) in ("SUBMITTED", "WORKING")
        release.set()
        assert state(await here.ended(task.id)) == "CANCELED"
        with pytest.raises(TaskNotCancelable):
            await here.cancel(task.id)


async def test_a_time_limit_ends_a_canceled_task_whose_agent_does_not_stop(tmp_path: Path) -> None:
    async def stubborn(turn: Turn) -> None:
        turn.status("at it")
        while not here.at("go").is_set():
            try:
                await here.at("go").wait()
            except asyncio.CancelledError:
                continue

    async with open_harness(tmp_path, stubborn, time_limit=0.2, timings=timings(mute_timeout=0.0)) as here:
        task = await here.start()
        await eventually(lambda: here.runtime.scheduler.running)
        await here.cancel(task.id)
        ended = await here.ended(task.id)
        assert (state(ended), status_text(ended).partition(":")[0]) == ("FAILED", "TIMED_OUT")
        here.at("go").set()


async def test_a_canceled_thread_that_outlasts_its_server_is_canceled_by_the_next_start(tmp_path: Path) -> None:
    begun, release = threading.Event(), threading.Event()

    def deaf(turn: Turn) -> None:
        begun.set()
        assert release.wait(60)

    async with open_harness(tmp_path, deaf, timings=timings(mute_timeout=0.0)) as here:
        task = await here.start()
        await eventually(begun.is_set)
        (runner,) = here.runtime.scheduler.runs
        await here.cancel(task.id)
        await eventually(lambda: runner.stop.state is Stop.MUTED)
        await here.runtime.scheduler.drain(0)
        await here.idle()
        assert state(await here.get(task.id)) in ("SUBMITTED", "WORKING")
    release.set()
    async with open_harness(tmp_path, deaf, store=open_store(tmp_path / "tasks.db")) as there:
        assert state(await there.get(task.id)) == "CANCELED"


# The token ---------------------------------------------------------------------------------------------------------


def test_the_first_request_counts_and_later_ones_are_noted() -> None:
    stop = StopToken()
    assert (stop.requested, stop.reason) == (False, "")
    assert stop.request("client", b"why")
    assert not stop.request("deadline", b"other")
    assert (stop.state, stop.reason, stop.metadata) == (Stop.REQUESTED, "client", b"why")
    assert stop.requests == {"client", "deadline"}


@pytest.mark.parametrize("reason", ["client", "deadline"])
def test_only_the_cancel_of_a_client_waits_for_its_agent(reason: StopReason) -> None:
    stop = StopToken()
    stop.request(reason)
    assert stop.escalate() is (Stop.MUTED if reason == "client" else Stop.ENDED_WITHOUT_AGENT)
    assert stop.reason == (reason if reason == "client" else "lease_lost")


def test_a_fenced_turn_can_still_be_ended_by_a_deadline() -> None:
    stop = StopToken()
    stop.request("client")
    assert [stop.escalate(), stop.escalate()] == [Stop.MUTED, Stop.ENDED_WITHOUT_AGENT]
    with pytest.raises(AssertionError):
        stop.escalate()


@pytest.mark.parametrize(("reason", "stops"), [("client", False), ("deadline", False), ("drain", True)])
def test_only_a_drain_stops_the_next_turn_as_well(reason: StopReason, stops: bool) -> None:
    stop = StopToken()
    stop.note(reason)
    assert not stop.requested
    stop.begin_turn()
    assert (stop.requested, bool(stop.reason)) == (stops, stops)
    assert stop.requests == {reason}


async def echo(turn: Turn) -> str:
    return turn.text


async def test_strict_transitions_put_working_before_the_result(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo, strict=True) as here:
        assert kinds(await collect(here.stream())) == ["task SUBMITTED", "WORKING", "hello", "COMPLETED"]


@pytest.mark.parametrize("end", ["COMPLETED", "INPUT_REQUIRED", "REJECTED"])
async def test_strict_transitions_accept_an_end_after_working_written_by_the_server(tmp_path: Path, end: str) -> None:
    """A silent agent is shown as WORKING by the server, which permits every end."""

    async def thinks(turn: Turn) -> str:
        await here.at("go").wait()
        if end == "INPUT_REQUIRED":
            turn.ask("which?")
        if end == "REJECTED":
            turn.reject("not this")
        return turn.text

    async with open_harness(tmp_path, thinks, strict=True) as here:
        following = here.follow((await here.start()).id)
        async for event in following:
            if kinds([event])[0].endswith("WORKING"):
                break
        here.at("go").set()
        assert kinds([await anext(following) for _ in range(2 if end == "COMPLETED" else 1)])[-1] == end


async def test_strict_transitions_fail_an_agent_that_violates_them(tmp_path: Path) -> None:
    async def repeats(turn: Turn) -> str:
        turn.status("one")
        turn.status("two")
        return "never"

    async def rejects_late(turn: Turn) -> None:
        turn.status("working")
        turn.reject("no")

    async with open_harness(tmp_path, repeats, strict=True) as here:
        task = await here.send()
        assert (state(task), texts(task)) == ("FAILED", [])
        assert "TASK_STATE_WORKING may not be followed by TASK_STATE_WORKING" in status_text(task)
    (tmp_path / "other").mkdir()
    async with open_harness(tmp_path / "other", rejects_late, strict=True) as here:
        assert "TASK_STATE_REJECTED" in status_text(await here.send())
