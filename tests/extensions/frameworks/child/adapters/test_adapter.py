"""What the adapters of all frameworks share: the caller's input, output, and states."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.extensions.frameworks.child.adapters.adapter import FrameworkTurn, InputFile
from dragoman.extensions.frameworks.child.turn import ExecutorTurn


class Frames:
    """Keeps the frames of a turn."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def __call__(self, **frame: Any) -> int:
        self.sent.append(frame)
        return 1


def framework_turn(*parts: dict[str, Any], **start: Any) -> tuple[FrameworkTurn, Frames]:
    frames = Frames()
    message = {"parts": list(parts)}
    turn = ExecutorTurn({"turnId": "1", "taskId": "task", "message": message, **start}, frames, 1_000_000)
    return FrameworkTurn(turn, "framework"), frames


def test_the_input_is_text_data_and_files() -> None:
    turn, _ = framework_turn(
        {"text": "one"},
        {"data": {"n": 1}},
        {"raw": "AAE=", "mediaType": "image/png", "filename": "a.png"},
        {"url": "https://example.org/b.pdf"},
        {"text": "two"},
    )
    assert (turn.text, turn.data) == ("one\ntwo", [{"n": 1}])
    assert turn.prompt == 'one\ntwo\n\n{"n": 1}'
    assert turn.files == [
        InputFile("a.png", "image/png", b"\x00\x01", ""),
        InputFile("", "application/octet-stream", b"", "https://example.org/b.pdf"),
    ]


@pytest.mark.parametrize(
    ("part", "approval"),
    [
        ({"text": "yes"}, True),
        ({"text": "OK."}, True),
        ({"text": "No!"}, False),
        ({"text": "why?"}, None),
        ({"data": {"approved": True}}, True),
        ({"data": {"approved": False}}, False),
        ({"data": {"approved": "yes"}}, None),
    ],
)
def test_an_approval_is_read_from_text_or_data(part: dict[str, Any], approval: bool | None) -> None:
    assert framework_turn(part)[0].approval is approval


async def test_text_is_streamed_to_the_output_of_the_turn() -> None:
    turn, frames = framework_turn(turnsBefore=1)
    await turn.chunk("one ")
    await turn.chunk("")
    await turn.chunk("two")
    assert [frame["events"]["events"] for frame in frames.sent] == [
        [{"text": {"artifactId": "output-2", "text": "one "}}],
        [{"text": {"artifactId": "output-2", "text": "two", "append": True}}],
    ]


async def test_states_of_others_are_kept() -> None:
    turn, frames = framework_turn(
        contextState='{"framework": {"seen": 1}, "other": 2}', taskState='{"framework": {"asks": true}}'
    )
    assert (turn.conversation, turn.pending) == ({"seen": 1}, {"asks": True})
    turn.save_states({"seen": 2})
    turn.complete()
    (end,) = [frame["turnEnd"] for frame in frames.sent]
    assert json.loads(end["stateUpdate"]["contextState"]) == {"framework": {"seen": 2}, "other": 2}
    assert json.loads(end["stateUpdate"]["taskState"]) == {"framework": None}
    assert end["status"] == {"state": "TASK_STATE_COMPLETED"}


async def test_a_question_keeps_what_its_answer_needs() -> None:
    turn, frames = framework_turn()
    turn.save_states(None, {"call": "1"})
    turn.ask("Really?", {"tool": "delete"})
    (end,) = [frame["turnEnd"] for frame in frames.sent]
    assert end["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert end["status"]["message"]["parts"] == [{"text": "Really?"}, {"data": {"tool": "delete"}}]
    assert json.loads(end["stateUpdate"]["taskState"]) == {"framework": {"call": "1"}}


async def test_progress_files_data_and_usage_are_sent() -> None:
    turn, frames = framework_turn()
    await turn.progress("tool_call", "search", "calls search", id="1")
    await turn.data_artifact({"n": 1})
    await turn.file_artifact(b"\x00\x01", "image/png", "a.png")
    turn.usage(7, 0.5)
    status, data, file, usage = frames.sent
    assert status["events"]["events"][0]["status"]["metadata"] == {
        "progress": {"kind": "tool_call", "name": "search", "id": "1"}
    }
    assert data["events"]["events"][0]["artifact"]["artifact"]["parts"] == [{"data": {"n": 1}}]
    (part,) = file["events"]["events"][0]["artifact"]["artifact"]["parts"]
    assert part == {"raw": "AAE=", "mediaType": "image/png", "filename": "a.png"}
    assert usage["usage"] == {"turnId": "1", "tokens": "7", "cost": "500000000", "key": ""}
