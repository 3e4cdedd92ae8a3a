"""How turns stop: CANCELED is written when the agent has stopped, and never because time has passed."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.conftest import set_timings, timings
from tests.eventually import eventually
from tests.runtime.harness import open_harness, state, status_text

from dragoman import Turn
from dragoman.core.errors import TaskNotCancelable
from dragoman.runtime.turn.stop import Stop, StopReason, StopToken
from dragoman.stores.sqlite import open_store


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

    async with open_harness(tmp_path, deaf, timings=timings(fence_timeout=0.0)) as here:
        task = await here.start()
        await eventually(begun.is_set)
        (runner,) = here.runtime.scheduler.runs
        await here.cancel(task.id)
        await eventually(lambda: runner.stop.state is Stop.FENCED)
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

    async with open_harness(tmp_path, stubborn, time_limit=0.2, timings=timings(fence_timeout=0.0)) as here:
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

    async with open_harness(tmp_path, deaf, timings=timings(fence_timeout=0.0)) as here:
        task = await here.start()
        await eventually(begun.is_set)
        (runner,) = here.runtime.scheduler.runs
        await here.cancel(task.id)
        await eventually(lambda: runner.stop.state is Stop.FENCED)
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
    assert stop.escalate() is (Stop.FENCED if reason == "client" else Stop.ENDED)
    assert stop.reason == (reason if reason == "client" else "fenced")


def test_a_fenced_turn_can_still_be_ended_by_a_deadline() -> None:
    stop = StopToken()
    stop.request("client")
    assert [stop.escalate(), stop.escalate()] == [Stop.FENCED, Stop.ENDED]
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
