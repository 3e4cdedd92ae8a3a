"""Events of an executor as frames, and the end of the turn."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf import json_format

from dragoman import AgentError
from dragoman.core.exceptions import generic_error_text
from dragoman.extensions.frameworks.child import turn as turns
from dragoman.extensions.frameworks.child.turn import CallRejected, ExecutorTurn
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

DONE = "TASK_STATE_COMPLETED"
WORKING = "TASK_STATE_WORKING"
AUTH = "TASK_STATE_AUTH_REQUIRED"


class SentFrames:
    """Records frames in place of a FramePipe."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.event_sent = asyncio.Event()

    def __call__(self, **frame: Any) -> int:
        self.frames.append(frame)
        self.event_sent.set()
        return 100

    @property
    def events(self) -> list[dict[str, Any]]:
        return [one for frame in self.frames if "events" in frame for one in frame["events"]["events"]]

    @property
    def end(self) -> dict[str, Any]:
        (end,) = [frame["turnEnd"] for frame in self.frames if "turnEnd" in frame]
        assert end.pop("turnId") == "1"
        return dict(end)

    @property
    def text(self) -> str:
        """The text of the final status."""
        return str(self.end["status"]["message"]["parts"][0]["text"])


@pytest.fixture
def sent() -> SentFrames:
    return SentFrames()


@pytest.fixture
async def turn(sent: SentFrames) -> ExecutorTurn:
    return ExecutorTurn(START, sent, 10_000)


START: Final = {"turnId": "1", "taskId": "t", "agentId": "a"}


async def test_metadata_is_sent_with_the_next_event_and_each_change_once(
    turn: ExecutorTurn, sent: SentFrames, caplog: pytest.LogCaptureFixture
) -> None:
    turn.merge_metadata({"a": {"x": 1}, "b": 1})
    turn.merge_metadata({"b": 2, "usage": {"tokens": 1}})
    await turn.status(WORKING)
    turn.merge_metadata({"a": {"x": 1}})
    await turn.status(WORKING, metadata={"b": True})
    turn.merge_metadata({"b": True})
    await turn.artifact(artifact("x"))
    turn.merge_metadata({"c": None})
    await turn.status(DONE)
    assert [frame["events"].get("stateUpdate") for frame in sent.frames if "events" in frame] == [
        {"taskMetadata": {"a": {"x": 1}, "b": 2}},
        {"taskMetadata": {"b": True}},
        None,
    ]
    assert sent.events[1]["status"]["metadata"] == {"b": True}
    assert sent.end == {"status": {"state": DONE}, "stateUpdate": {"taskMetadata": {"c": None}}}
    assert '"usage" in metadata is dropped' in caplog.text


async def test_metadata_that_the_task_has_already_is_not_sent(sent: SentFrames) -> None:
    turn = ExecutorTurn({"turnId": "1", "taskId": "t", "taskMetadata": {"a": 1.0, "usage": {}}}, sent, 10_000)
    turn.merge_metadata({"a": 1.0, "usage": {}})
    await turn.status(DONE)
    assert sent.end == {"status": {"state": DONE}}


def artifact(text: str, id: str = "a") -> dict[str, Any]:
    return {"artifactId": id, "parts": [{"text": text}]}


def test_each_field_read_from_a_turn_start_is_in_the_protocol() -> None:
    """The child has no generated code, so no type checker finds a misspelled field."""
    sources = [file.read_text() for file in Path(turns.__file__).parent.glob("*.py")]
    names = {name for source in sources for name in re.findall(r"\bstart(?:\.get\(|\[)\"(\w+)\"", source)}
    assert "taskId" in names
    assert names <= {field.json_name for field in wk.TurnStart.DESCRIPTOR.fields}


async def test_events_are_numbered_from_one(turn: ExecutorTurn, sent: SentFrames) -> None:
    await turn.status(WORKING, {"parts": [{"text": "so"}]}, {"key": 1})
    await turn.artifact(artifact("x"), last_chunk=True)
    numbers = [frame["events"]["number"] for frame in sent.frames]
    assert numbers == ["1", "2"]
    assert sent.events == [
        {"status": {"state": WORKING, "message": {"parts": [{"text": "so"}]}, "metadata": {"key": 1}}},
        {"artifact": {"artifact": artifact("x"), "lastChunk": True}},
    ]


async def test_repeated_working_is_sent_only_after_another_event(turn: ExecutorTurn, sent: SentFrames) -> None:
    await turn.ensure_started()
    await turn.status(WORKING)
    await turn.status(WORKING)
    await turn.artifact(artifact("x"))
    await turn.status(WORKING)
    assert [next(iter(event)) for event in sent.events] == ["status", "artifact", "status"]


async def test_submitted_is_not_sent(turn: ExecutorTurn, sent: SentFrames) -> None:
    await turn.status("TASK_STATE_SUBMITTED")
    assert sent.frames == []


async def test_the_first_chunk_of_an_artifact_replaces_and_later_ones_append(
    turn: ExecutorTurn, sent: SentFrames
) -> None:
    for _ in range(2):
        await turn.artifact(artifact("x"), append=True)
    assert [event["artifact"].get("append", False) for event in sent.events] == [False, True]


async def test_a_follow_up_can_append_to_an_earlier_artifact(sent: SentFrames) -> None:
    turn = ExecutorTurn({"turnId": "1", "taskId": "t", "turnsBefore": 1}, sent, 10_000)
    await turn.artifact(artifact("x"), append=True)
    assert sent.events[0]["artifact"]["append"]


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "REJECTED", "INPUT_REQUIRED"])
async def test_a_final_state_ends_the_turn_immediately(turn: ExecutorTurn, sent: SentFrames, state: str) -> None:
    await turn.status(f"TASK_STATE_{state}", {"parts": [{"text": "so"}]})
    assert sent.end == {"status": {"state": f"TASK_STATE_{state}", "message": {"parts": [{"text": "so"}]}}}
    assert turn.is_over


async def test_events_after_the_end_are_dropped_and_logged(
    turn: ExecutorTurn, sent: SentFrames, caplog: pytest.LogCaptureFixture
) -> None:
    await turn.status(DONE)
    await turn.status(WORKING)
    await turn.artifact(artifact("x"))
    turn.reply({"parts": [{"text": "late"}]})
    turn.on_returned(None)
    assert len(sent.frames) == 1
    assert caplog.text.count("was sent after the end of the turn") == 3


async def test_a_message_ends_the_turn(turn: ExecutorTurn, sent: SentFrames) -> None:
    turn.reply({"parts": [{"text": "hi"}]})
    turn.on_returned(None)
    assert sent.end == {"reply": {"parts": [{"text": "hi"}]}}


async def test_an_unknown_state_raises(turn: ExecutorTurn) -> None:
    with pytest.raises(ValueError, match="is not a task state"):
        await turn.status("TASK_STATE_DREAMING")


async def test_auth_required_ends_the_turn_if_execute_returns(turn: ExecutorTurn, sent: SentFrames) -> None:
    await turn.status(AUTH, {"parts": [{"text": "log in"}]})
    turn.on_returned(None)
    assert sent.events == []
    assert sent.end["status"] == {"state": AUTH, "message": {"parts": [{"text": "log in"}]}}


async def test_auth_required_is_an_event_if_execute_continues(turn: ExecutorTurn, sent: SentFrames) -> None:
    await turn.status(AUTH)
    await turn.artifact(artifact("x"))
    await turn.status(DONE)
    assert [next(iter(event)) for event in sent.events] == ["status", "artifact"]
    assert sent.end == {"status": {"state": DONE}}


async def test_auth_required_is_shown_while_the_executor_waits(sent: SentFrames) -> None:
    turn = ExecutorTurn(START, sent, 10_000, auth_hold=0.0)
    await turn.status(AUTH, {"parts": [{"text": "log in"}]})
    async with asyncio.timeout(60):
        await sent.event_sent.wait()
    turn.on_returned(None)
    assert sent.end == {"status": {"state": AUTH}}


async def test_an_error_fails_the_task_with_its_name(turn: ExecutorTurn, sent: SentFrames) -> None:
    turn.on_returned(KeyError("x"))
    assert sent.end["status"]["state"] == "TASK_STATE_FAILED"


async def test_an_error_whose_text_is_hidden_has_an_id_for_its_caller(turn: ExecutorTurn, sent: SentFrames) -> None:
    error = KeyError("host.internal")
    error_id = turn.new_error_id(error)
    assert len(error_id) == 12
    turn.on_returned(error, error_id)
    status = sent.end["status"]
    (part,) = status["message"]["parts"]
    assert part["text"] == generic_error_text(error_id)
    failure = json_format.ParseDict(status["failure"], wk.Failure())
    assert (failure.type, failure.text) == ("KeyError", "'host.internal'")


async def test_errors_for_callers_and_all_errors_of_a_server_that_shows_them_have_no_id(sent: SentFrames) -> None:
    protocol_error = type("InvalidParamsError", (Exception,), {"__module__": "a2a.utils.errors"})
    derived = type("Derived", (protocol_error,), {})
    hidden = ExecutorTurn(START, sent, 10_000)
    shown = ExecutorTurn({**START, "showErrorTexts": True}, sent, 10_000)
    for error in (AgentError("closed"), derived("closed")):
        assert hidden.new_error_id(error) == ""
    assert hidden.new_error_id(ValueError("x")) != hidden.new_error_id(ValueError("x")) != ""
    assert shown.new_error_id(ValueError("x")) == ""
    assert turns.describe_error(AgentError("closed")) == "closed"


def test_a_wrapped_sdk_error_is_described_by_its_cause() -> None:
    class Inner:
        message = "not like this"

    class Wrapping(Exception):
        error = Inner()

    assert turns.describe_error(Wrapping()) == "Inner: not like this"
    assert turns.describe_error(ValueError("x")) == "ValueError: x"
    assert turns.describe_error(ValueError()) == "ValueError"
    inner = ExceptionGroup("inner", [AgentError("closed"), KeyError("k")])
    assert turns.describe_error(ExceptionGroup("outer", [inner, ValueError("x")])) == "closed (and 2 more)"


async def test_execute_without_a_final_state_fails_the_task(turn: ExecutorTurn, sent: SentFrames) -> None:
    await turn.status(WORKING)
    turn.on_returned(None)
    assert "returned without a final state" in sent.text


async def test_a_stopped_turn_is_canceled(turn: ExecutorTurn, sent: SentFrames) -> None:
    turn.canceled, turn.cancel_reason = True, "client"
    await turn.status("TASK_STATE_CANCELED", {"parts": [{"text": "cleaned up"}]})
    assert sent.events == [{"status": {"state": WORKING, "message": {"parts": [{"text": "cleaned up"}]}}}]
    turn.on_returned(asyncio.CancelledError())
    assert sent.end == {"canceled": {}}


async def test_a_result_before_the_stop_wins(turn: ExecutorTurn, sent: SentFrames) -> None:
    turn.canceled, turn.cancel_reason = True, "client"
    await turn.status(DONE)
    turn.on_returned(asyncio.CancelledError())
    assert sent.end == {"status": {"state": DONE}}


async def test_a_turn_stopped_by_a_drain_is_returned_to_the_server(turn: ExecutorTurn, sent: SentFrames) -> None:
    turn.canceled, turn.cancel_reason = True, "drain"
    turn.on_returned(asyncio.CancelledError())
    assert sent.end == {"released": {}}


async def test_canceled_without_a_request_is_the_end_that_the_executor_chose(
    turn: ExecutorTurn, sent: SentFrames
) -> None:
    await turn.status("TASK_STATE_CANCELED", {"parts": [{"text": "not worth it"}]})
    status = {"state": "TASK_STATE_CANCELED", "message": {"parts": [{"text": "not worth it"}]}}
    assert sent.end == {"status": status}


async def test_a_cancellation_by_the_executors_own_code_fails_the_task(turn: ExecutorTurn, sent: SentFrames) -> None:
    turn.on_returned(asyncio.CancelledError())
    assert sent.text.startswith("CancelledError")


async def test_state_is_sent_with_the_next_frame(turn: ExecutorTurn, sent: SentFrames) -> None:
    turn.set_state(context_state='{"a":1}')
    await turn.artifact(artifact("x"))
    turn.set_state(task_state='{"b":1}')
    await turn.status(DONE)
    assert sent.frames[0]["events"]["stateUpdate"] == {"contextState": '{"a":1}'}
    assert sent.end["stateUpdate"] == {"taskState": '{"b":1}'}


async def test_an_oversized_event_raises(turn: ExecutorTurn, sent: SentFrames) -> None:
    with pytest.raises(ValueError, match=r"Send it in several chunks, or .* --message-bytes"):
        await turn.artifact(artifact("x" * 10_001))
    await turn.artifact(artifact("x"))
    assert [frame["events"]["number"] for frame in sent.frames][-1:] == ["2"]


async def test_an_event_waits_while_too_many_are_unconfirmed(sent: SentFrames) -> None:
    turn = ExecutorTurn(START, sent, 10_000, max_unconfirmed_events=2)
    await turn.artifact(artifact("1"))
    second = asyncio.create_task(turn.artifact(artifact("2")))
    await asyncio.sleep(0)
    assert not second.done()
    turn.on_committed(1)
    await second


async def test_an_event_waits_while_too_many_bytes_are_unconfirmed(sent: SentFrames) -> None:
    turn = ExecutorTurn(START, sent, 10_000, max_unconfirmed_bytes=50)
    first = asyncio.create_task(turn.artifact(artifact("1")))
    await asyncio.sleep(0)
    assert not first.done()
    turn.abort()
    await first


async def test_a_call_returns_the_task_none_for_an_unknown_id_and_raises_what_the_server_says(
    turn: ExecutorTurn, sent: SentFrames
) -> None:
    calls = [asyncio.create_task(turn.call(get={"id": id})) for id in ("a", "b", "c")]
    while len(sent.frames) < 3:
        sent.event_sent.clear()
        await sent.event_sent.wait()
    assert sent.frames[0] == {"taskCall": {"turnId": "1", "number": "1", "get": {"id": "a"}}}
    turn.on_call_result({"number": "1", "task": {"id": "a"}})
    turn.on_call_result({"number": "2", "error": "Task not found", "reason": "TASK_NOT_FOUND"})
    turn.on_call_result({"number": "3", "error": "too many requests", "reason": "RATE_LIMITED"})
    assert await calls[0] == {"id": "a"}
    assert await calls[1] is None
    with pytest.raises(CallRejected, match="too many requests"):
        await calls[2]


async def test_a_hundred_calls_wait_at_once_and_a_canceled_one_counts_until_its_answer(
    turn: ExecutorTurn, sent: SentFrames
) -> None:
    calls = [asyncio.create_task(turn.call(get={"id": "a"})) for _ in range(101)]
    await asyncio.sleep(0)
    assert len(sent.frames) == 100
    calls[0].cancel()
    await asyncio.wait([calls[0]])
    assert len(sent.frames) == 100
    sent.event_sent.clear()
    turn.on_call_result({"number": "1", "task": {"id": "a"}})
    await sent.event_sent.wait()
    assert sent.frames[-1]["taskCall"]["number"] == "101"
    turn.end({"state": DONE})
    rejected = await asyncio.gather(*calls[1:], return_exceptions=True)
    assert {type(one) for one in rejected} == {CallRejected}
    for _ in range(turns.MAX_CALLS + 1):  # a rejected call takes no room
        with pytest.raises(CallRejected, match="the turn has ended"):
            await asyncio.wait_for(turn.call(get={"id": "a"}), 1)
