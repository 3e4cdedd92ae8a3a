"""Steps of an executor's turn: stored before their result is used, and found by the next run."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest
from google.protobuf import json_format
from tests.extensions.frameworks.child.test_turn import START, SentFrames

from dragoman.extensions.frameworks.child.steps import ExecutorSteps
from dragoman.extensions.frameworks.child.turn import ExecutorTurn
from dragoman.ports.remote_agents import MAX_DETAILS_BYTES
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk


class Executor:
    """A turn whose frames are recorded, and its steps."""

    def __init__(self, *stored: dict[str, Any], show_running_after: float = 60, **start: Any) -> None:
        self.sent = SentFrames()
        self.turn = ExecutorTurn({**START, "steps": list(stored), **start}, self.sent, 200_000)
        self.steps = ExecutorSteps(self.turn, show_running_after)
        self.calls = 0

    async def call(self) -> bytes:
        self.calls += 1
        return b"42"

    @property
    def stored(self) -> list[wk.Step]:
        """The steps that were sent, parsed as the server parses them."""
        frames = [json_format.ParseDict(frame, wk.ConnectRequest()) for frame in self.sent.frames]
        return [step for frame in frames for step in frame.events.state_update.steps]


def done(name: str, result: bytes) -> dict[str, Any]:
    """A step as the server sends it to the next run."""
    part = {"raw": b64encode(result).decode(), "mediaType": "text/plain"}
    return {"name": name, "number": 1, "position": -1, "state": "STEP_STATE_DONE", "attempt": 1, "result": part}


async def test_the_result_is_stored_before_it_is_returned() -> None:
    executor = Executor()
    running = asyncio.create_task(executor.steps.run("answer", executor.call, "text/plain"))
    await executor.sent.event_sent.wait()
    (step,) = executor.stored
    assert (step.name, step.number, step.position, step.state) == ("answer", 1, -1, wk.STEP_STATE_DONE)
    assert (step.result.raw, step.result.media_type, step.attempt) == (b"42", "text/plain", 1)
    assert step.started.ToMilliseconds() <= step.ended.ToMilliseconds()
    assert not running.done()
    executor.turn.on_committed(1)
    assert await running == b"42"


async def test_a_stored_step_does_not_run_again() -> None:
    executor = Executor(done("answer", b"41"))
    assert await executor.steps.run("answer", executor.call, "text/plain") == b"41"
    assert executor.steps.find("answer") == b"41"
    assert executor.steps.find("question") is None
    assert (executor.calls, executor.sent.frames) == (0, [])


async def test_a_step_that_failed_or_was_interrupted_runs_again() -> None:
    executor = Executor({"name": "answer", "number": 1, "state": "STEP_STATE_FAILED", "attempt": 2, "error": "no"})
    running = asyncio.create_task(executor.steps.run("answer", executor.call, "text/plain"))
    await executor.sent.event_sent.wait()
    executor.turn.on_committed(1)
    assert await running == b"42"
    assert executor.stored[0].attempt == 3


async def test_an_error_is_stored_and_raised() -> None:
    executor = Executor()

    async def fail() -> bytes:
        raise ConnectionError("the model is away")

    with pytest.raises(ConnectionError):
        await executor.steps.run("answer", fail, "text/plain", {"query": "tides"})
    (step,) = executor.stored
    assert (step.state, step.error) == (wk.STEP_STATE_FAILED, "ConnectionError: the model is away")
    assert step.details.input == '{"query": "tides"}'
    (failure,) = step.details.failures
    assert (failure.attempt, failure.type, failure.text) == (1, "ConnectionError", "the model is away")
    assert [frame.code for frame in failure.frames] == ['raise ConnectionError("the model is away")']


async def test_large_arguments_are_cut_to_what_the_server_takes() -> None:
    executor = Executor()

    async def fail() -> bytes:
        raise ConnectionError("\N{GRINNING FACE}" * 10_000)

    arguments = {str(number): "\N{GRINNING FACE}" * 2_000 for number in range(12)}
    with pytest.raises(ConnectionError):
        await executor.steps.run("answer", fail, "text/plain", arguments | {"0": "\ud800"})
    (step,) = executor.stored
    assert step.details.ByteSize() <= MAX_DETAILS_BYTES
    shown = json.loads(step.details.input)
    assert (len(shown), shown["…"], shown["0"]) == (11, "… 2 more", "\ud800")
    assert shown["1"].endswith("… 1,002 more characters")


async def test_a_long_step_is_shown_as_running() -> None:
    executor = Executor(show_running_after=0)

    async def wait() -> bytes:
        await executor.sent.event_sent.wait()
        return b"42"

    running = asyncio.create_task(executor.steps.run("answer", wait, "text/plain"))
    await executor.sent.event_sent.wait()
    assert executor.stored[0].state == wk.STEP_STATE_RUNNING
    executor.sent.event_sent.clear()
    running.cancel()


async def test_a_later_turn_of_the_task_has_steps_of_its_own() -> None:
    executor = Executor(done("answer", b"41"), done("answer, message 3", b"43"), turnsBefore=2)
    assert await executor.steps.run("answer", executor.call, "text/plain") == b"43"


async def test_a_saved_step_replaces_the_one_before() -> None:
    executor = Executor(done("checkpoint", b"1"))
    saving = asyncio.create_task(executor.steps.save("checkpoint", b"2", "text/plain"))
    await executor.sent.event_sent.wait()
    executor.turn.on_committed(1)
    await saving
    assert [step.result.raw for step in executor.stored] == [b"2"]


async def test_the_end_of_the_turn_ends_the_wait_for_the_store() -> None:
    executor = Executor()
    running = asyncio.create_task(executor.steps.run("answer", executor.call, "text/plain"))
    await executor.sent.event_sent.wait()
    executor.turn.abort()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(asyncio.CancelledError):
        await executor.steps.run("another", executor.call, "text/plain")
