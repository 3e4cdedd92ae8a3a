"""`turn.state` and `turn.metadata`, and `metadata=` on status updates and chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from tests.agents.functions.test_turn import make_turn
from tests.agents.turn_context import RecordingTurnContext

from dragoman import Turn, agent
from dragoman.agents.functions.runner import DeclaredAgent
from dragoman.agents.values import struct_of, struct_to_json
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.limits.message_limits import MAX_TASK_METADATA_BYTES
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.ports import NO_CHANGE, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def stored(context: RecordingTurnContext) -> dict[str, Any]:
    return struct_to_json(struct_of(context.task_metadata))


def context_with(metadata: dict[str, object]) -> RecordingTurnContext:
    context = RecordingTurnContext("x")
    context.task_metadata = pb.Task(metadata=metadata).metadata.SerializeToString()
    return context


async def test_a_turn_reads_the_metadata_of_its_task_and_stores_changed_keys_with_the_next_event() -> None:
    context = context_with({"kept": [1, {"a": None}], "changed": {"deep": 1}})
    turn = make_turn(context)
    assert turn.metadata == {"kept": [1, {"a": None}], "changed": {"deep": 1}}
    turn.status()
    assert context.metadata_updates == []
    turn.metadata["changed"]["deep"] = 2
    turn.metadata["new"] = True
    turn.chunk("x")
    turn.chunk("y")
    assert context.metadata_updates == [{"changed": {"deep": 2}, "new": True}]
    turn.metadata["new"] = 1  # in Python this equals True
    turn.metadata["whole"] = 2.0
    turn.status()
    turn.status()
    assert context.metadata_updates[1:] == [{"new": 1, "whole": 2}]
    assert stored(context) == {"kept": [1, {"a": None}], "changed": {"deep": 2}, "new": 1, "whole": 2}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"usage": {"tokens": 0}}, r"turn\.metadata\.usage: the server writes this key"),
        ({"x": float("nan")}, r"turn\.metadata: nan is not a JSON number"),
        ({"x": 2**53 + 1}, r"turn\.metadata: .* is beyond 2\^53"),
        ({1: "x"}, r"turn\.metadata: the key 1 of an object is an int"),
        ({"x": object()}, r"turn\.metadata: an object is not JSON"),
        ({"x": "a" * MAX_TASK_METADATA_BYTES}, rf"would have \d+ bytes; at most {MAX_TASK_METADATA_BYTES} are"),
        ({"x": [0] * 50_001}, r"turn\.metadata holds more than 50000 values"),
    ],
)
async def test_metadata_that_cannot_be_stored_is_rejected_with_its_field(change: dict[Any, object], error: str) -> None:
    context = context_with({"before": 1})
    turn = make_turn(context)
    turn.metadata.update(change)
    with pytest.raises(InvalidAgentResponse, match=error):
        turn.status()
    assert context.changes == []
    assert stored(context) == {"before": 1}


async def test_metadata_nests_24_levels_at_most() -> None:
    def nested(levels: int) -> object:
        return {"a": nested(levels - 1)} if levels else 1

    turn = make_turn(context := RecordingTurnContext("x"))
    turn.metadata["ok"] = nested(23)
    turn.status()
    assert stored(context)["ok"] == nested(23)
    turn.metadata["deep"] = nested(24)
    with pytest.raises(InvalidAgentResponse, match=r"turn\.metadata: data nests more than 24 levels"):
        turn.status()


async def test_a_key_cannot_be_removed() -> None:
    turn = make_turn(context := context_with({"a": 1}))
    del turn.metadata["a"]
    with pytest.raises(InvalidAgentResponse, match='the key "a" was removed, but keys of a task stay; set it to None'):
        turn.status()
    turn.metadata["a"] = None
    turn.status()
    assert stored(context) == {"a": None}


async def take_turn(context: RecordingTurnContext, function: Any) -> TurnResult:
    return await DeclaredAgent(function, AgentSpec(id="a", name="A", description="")).take_turn(context)


async def test_metadata_is_stored_at_the_end_of_a_turn_also_when_it_fails() -> None:
    async def works(turn: Turn) -> None:
        turn.metadata["result"] = "good"

    async def fails(turn: Turn) -> None:
        turn.state["lost"] = True
        turn.metadata["phase"] = "parsing"
        raise ValueError("no")

    async def invalid(turn: Turn) -> None:
        turn.metadata["usage"] = 1

    result = await take_turn(RecordingTurnContext("x"), works)
    assert struct_to_json(struct_of(result.state_update.task_metadata)) == {"result": "good"}
    result = await take_turn(RecordingTurnContext("x"), fails)
    assert result.status.state == pb.TASK_STATE_FAILED
    assert struct_to_json(struct_of(result.state_update.task_metadata)) == {"phase": "parsing"}
    assert result.state_update.task_state is None
    result = await take_turn(RecordingTurnContext("x"), invalid)
    assert result.status.state == pb.TASK_STATE_FAILED
    assert result.state_update == NO_CHANGE
    assert b"turn.metadata.usage" in result.status.message


# Metadata of events ------------------------------------------------------------------------------------------------


async def test_status_updates_and_chunks_have_metadata_of_their_own() -> None:
    turn = make_turn(context := RecordingTurnContext("x"))
    turn.status("half", metadata={"percent": 50})
    turn.chunk("a")
    turn.chunk("b", metadata={"line": 2})
    turn.chunk({"n": 1}, metadata={"row": [None]}, last=True)
    _, status, first, second, third = (MessageToDict(event) for event in context.events())
    assert status["statusUpdate"]["metadata"] == {"percent": 50}
    assert "metadata" not in first["artifactUpdate"]
    assert second["artifactUpdate"]["metadata"] == {"line": 2}
    assert third["artifactUpdate"]["metadata"] == {"row": [None]}
    assert "metadata" not in third["artifactUpdate"]["artifact"]
    task = context.task()
    assert not task.HasField("metadata")
    assert stored(context) == {}


async def test_metadata_of_an_event_is_checked() -> None:
    turn = make_turn(context := RecordingTurnContext("x"))
    with pytest.raises(InvalidAgentResponse, match="metadata: inf is not a JSON number"):
        turn.status(metadata={"x": float("inf")})
    with pytest.raises(InvalidAgentResponse, match="metadata: a set is not JSON"):
        turn.chunk("x", metadata={"x": {1}})
    assert context.changes == []


async def test_the_chunk_after_a_rejected_one_creates_the_artifact() -> None:
    turn = make_turn(context := RecordingTurnContext("x"))
    with pytest.raises(InvalidAgentResponse):
        turn.chunk("x", metadata={"x": {1}})
    turn.chunk("y")
    (change,) = context.changes
    assert not isinstance(change, StatusChange)
    assert not change.append


async def test_changed_state_is_stored_with_the_next_event() -> None:
    turn_context = RecordingTurnContext(task_state=b'{"count":1}')
    turn = make_turn(turn_context)
    turn.chunk("a")
    turn.state["count"] += 1
    turn.state["names"] = ["x"]
    turn.chunk("b")
    turn.chunk("c")
    assert turn_context.task_states == [b'{"count":1}', b'{"count":2,"names":["x"]}']


async def ended(change: Callable[[Turn], None], memory: bytes = b"") -> TurnResult:
    @agent
    async def it(turn: Turn) -> None:
        change(turn)
        turn.ask("more?")

    return await it.take_turn(RecordingTurnContext("go", task_state=memory))


async def test_state_is_stored_with_the_end_of_the_turn() -> None:
    result = await ended(lambda turn: turn.state.update(step=2))
    assert result.state_update.task_state is not None
    assert orjson.loads(result.state_update.task_state) == {"step": 2}


async def test_unchanged_state_is_not_stored() -> None:
    assert (await ended(lambda turn: None, b'{"a":1}')).state_update.task_state is None
    assert (await ended(lambda turn: turn.state.get("a"), b'{"a":1}')).state_update.task_state is None
    assert (await ended(lambda turn: turn.state.update(a=1), b'{"a":1}')).state_update.task_state is None


@pytest.mark.parametrize(
    "value",
    [float("nan"), (1, 2), date(2026, 1, 1), {1: 2}, object(), b"x", 2**70],
    ids=lambda value: type(value).__name__,
)
async def test_state_that_is_not_json_fails_the_task(value: object) -> None:
    def store_set(turn: Turn) -> None:
        turn.state["x"] = value

    result = await ended(store_set)
    assert result.status.state == states.FAILED
    assert 'TypeError: turn.state["x"]' in pb.Message.FromString(result.status.message).parts[0].text


@dataclass
class Page:
    seen: datetime


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"pages": [{"at": 1}, {"at": date(2026, 1, 1)}]}, '["pages"][1]["at"] is a date'),
        ({"page": Page(datetime(2026, 1, 1))}, '["page"] is a Page'),
        ({"a": {"b": (1, 2)}}, '["a"]["b"] is a tuple'),
        ({"a": [1.5, float("nan")]}, '["a"][1] is nan'),
        ({"a": {1: 2}}, '["a"] has the key 1, and keys must be str'),
        ({"a": 2**70}, '["a"] is 1180591620717411303424'),
        ({"a": ["\ud800"]}, """["a"][0] is '\\ud800'"""),
        ({"a": [object()]}, '["a"][0] is an object'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_value_that_state_cannot_store_is_named_by_its_path(state: dict[str, object], problem: str) -> None:
    result = await ended(lambda turn: turn.state.update(state))
    text = pb.Message.FromString(result.status.message).parts[0].text
    assert text.startswith(f"TypeError: turn.state{problem}")
    assert text.endswith("; use dict, list, str, int, float, bool, None only")


async def test_a_state_that_contains_itself_fails_the_task() -> None:
    def store(turn: Turn) -> None:
        turn.state["a"] = turn.state

    result = await ended(store)
    assert "nests more than 250 levels" in pb.Message.FromString(result.status.message).parts[0].text
