"""The response of a blocking send equals the stored task, whether or not it was read back."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from tests.runtime.harness import open_harness, request

from dragoman import Turn
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def does(turn: Turn) -> object:
    match turn.text:
        case "returns":
            return {"told": turn.text}
        case "says":
            turn.status("first")
            turn.status("second")
        case "replaces":
            turn.artifact("one", id="a")
            turn.artifact("two", id="a", metadata={"b": 1, "a": [2]})
        case "fails":
            raise ValueError("no")
        case "asks":
            turn.ask("which?")
        case "streams":
            for word in ("a", "b", "c"):
                await turn.chunk(word)
        case "large":
            return "x" * 100_000
        case "many":
            for number in range(40):
                turn.status(str(number))
    return None


@pytest.mark.parametrize("history", [None, 0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "reads"),
    [
        ("nothing", 0),
        ("returns", 0),
        ("says", 0),
        ("replaces", 0),
        ("fails", 0),
        ("asks", 0),
        ("streams", 1),  # chunks of text, which the store shows as one part
        ("large", 1),
        ("many", 1),
    ],
)
async def test_the_projection_equals_the_stored_task(
    tmp_path: Path, kind: str, reads: int, history: int | None
) -> None:
    async with open_harness(tmp_path, does) as here:
        send_request, get = request(kind), pb.GetTaskRequest()
        if history is not None:
            send_request.configuration.history_length = get.history_length = history
        with patch.object(here.store, "read", wraps=here.store.read) as read:
            answer = pb.SendMessageResponse.FromString(
                await here.runtime.operations.send.send_message(here.call, send_request)
            )
        assert read.call_count == reads
        get.id = answer.task.id
        assert pb.Task.FromString(await here.runtime.operations.read.get_task(here.call, get)) == answer.task


async def test_a_task_with_a_follow_up_is_read_from_the_store(tmp_path: Path) -> None:
    async with open_harness(tmp_path, does) as here:
        first = await here.send("asks")
        second = await here.send("returns", task_id=first.id)
        assert second == await here.get(first.id)
        assert [message.parts[0].text for message in second.history] == ["asks", "which?", "returns"]
