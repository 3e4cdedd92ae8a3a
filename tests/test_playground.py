"""The commands of the playground."""

from __future__ import annotations

import asyncio

import pytest
from tests.agents.turn_context import RecordingTurnContext, run_turn, state_of, status_text

from dragoman import types
from dragoman.agents.functions.declaration import agents_in
from dragoman.agents.values import value_to_json
from dragoman.core.task.log import ArtifactChange
from dragoman.playground import playground
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def texts(task: pb.Task) -> list[str]:
    return ["".join(part.text for part in artifact.parts) for artifact in task.artifacts]


def test_the_playground_is_the_root_agent_and_may_answer_directly() -> None:
    spec = playground.spec
    assert (spec.id, spec.default, spec.direct, spec.cancelable) == ("playground", True, True, True)
    assert spec.input_modes == ("text/plain", "application/json", "application/octet-stream", "text/csv")
    assert [skill.id for skill in spec.skills] == ["echo", "stream", "sleep", "ends", "parts", "help"]
    assert all(skill.examples for skill in spec.skills)


def test_the_example_is_the_installed_playground() -> None:
    from examples import playground as example

    assert agents_in(example) == [playground]


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("echo hello there", "hello there"),
        ("echo  two  spaces ", " two  spaces "),
        ("echo", "echo"),
        ("echo ", "echo "),
        ("reply", "reply"),
        ("anything else", "anything else"),
        ("echoes", "echoes"),
        ("Grüße\nzwei Zeilen", "Grüße\nzwei Zeilen"),
    ],
)
async def test_text_is_echoed_as_one_artifact(message: str, answer: str) -> None:
    task, ending = await run_turn(playground, message)
    assert (state_of(task), texts(task)) == ("COMPLETED", [answer])
    assert ending.reply is None


@pytest.mark.parametrize("message", ["help", "?", "", "  ", "help "])
async def test_help_lists_every_command(message: str) -> None:
    task, _ = await run_turn(playground, message)
    commands = {line.split()[0] for line in texts(task)[0].split("\n\n")[1].splitlines()}
    examples = {example.split()[0] for skill in playground.spec.skills for example in skill.examples}
    assert commands == examples - {"hello"}  # which is echoed


async def test_a_message_without_text_is_echoed_part_by_part() -> None:
    parts = [types.data({"n": 1}), types.file(b"x", name="x.bin")]
    task, _ = await run_turn(playground, *parts)
    assert list(task.artifacts[0].parts) == parts


async def test_stream_appends_chunks_to_one_artifact() -> None:
    context = RecordingTurnContext("stream 3")
    task = context.task(await playground.take_turn(context))
    assert (state_of(task), texts(task)) == ("COMPLETED", ["chunk-1 chunk-2 chunk-3 "])
    changes = [change for change in context.changes if isinstance(change, ArtifactChange)]
    assert [(change.text, change.append) for change in changes] == [
        ("chunk-1 ", False),
        ("chunk-2 ", True),
        ("chunk-3 ", True),
    ]


async def test_stream_waits_between_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    task, _ = await run_turn(playground, "stream 3 250")
    assert texts(task) == ["chunk-1 chunk-2 chunk-3 "]
    assert pauses == [0.25, 0.25]


@pytest.mark.parametrize(
    "message",
    [
        "stream",
        "stream x",
        "stream 0",
        "stream -1",
        "stream 1.5",
        "stream ٣",
        "stream 100001",
        f"stream {'9' * 5000}",
        "stream 3 x",
        "stream 3 60001",
        "stream 3 1 1",
        "sleep",
        "sleep x",
        "sleep -1",
        "sleep nan",
        "sleep inf",
        "sleep 3601",
    ],
)
async def test_invalid_numbers_are_rejected_with_the_range(message: str) -> None:
    task, _ = await run_turn(playground, message)
    assert state_of(task) == "REJECTED"
    assert "N" in status_text(task) or "S is a number of seconds from 0 to 3600" in status_text(task)
    assert len(status_text(task)) < 200
    assert not task.artifacts


async def test_sleep_is_working_and_then_completed_without_an_artifact() -> None:
    context = RecordingTurnContext("sleep 0")
    ending = await playground.take_turn(context)
    states = [event.status_update.status.state for event in context.events(ending)[1:]]
    assert states == [pb.TASK_STATE_WORKING, pb.TASK_STATE_COMPLETED]
    assert not context.task(ending).artifacts


async def test_sleep_can_be_canceled() -> None:
    context = RecordingTurnContext("sleep 3600")
    run = asyncio.create_task(playground.take_turn(context))
    await context.event_put.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


@pytest.mark.parametrize(("command", "state"), [("ask", "INPUT_REQUIRED"), ("auth", "AUTH_REQUIRED")])
async def test_a_question_waits_and_its_answer_completes(command: str, state: str) -> None:
    task, _ = await run_turn(playground, command)
    assert state_of(task) == state
    assert status_text(task)
    assert not task.artifacts

    context = RecordingTurnContext("fail", question=task.status.message)  # the answer to a question is not a command
    task = context.task(await playground.take_turn(context))
    assert (state_of(task), texts(task)) == ("COMPLETED", ["you said: fail"])


@pytest.mark.parametrize(("command", "state"), [("fail", "FAILED"), ("reject", "REJECTED")])
async def test_fail_and_reject_end_the_task(command: str, state: str) -> None:
    task, _ = await run_turn(playground, command)
    assert state_of(task) == state
    assert "as asked" in status_text(task)


async def test_reply_is_a_message() -> None:
    _, ending = await run_turn(playground, "reply hello there")
    assert ending.reply is not None
    assert [part.text for part in ending.reply.parts] == ["hello there"]
    assert ending.reply.task_id == ""


async def test_file_is_a_small_text_file() -> None:
    task, _ = await run_turn(playground, "file")
    [part] = task.artifacts[0].parts
    assert part.raw.startswith(b"hello")
    assert (part.filename, part.media_type) == ("hello.txt", "text/plain")


async def test_data_is_an_object() -> None:
    task, _ = await run_turn(playground, "data")
    [part] = task.artifacts[0].parts
    assert part.WhichOneof("content") == "data"
    assert isinstance(value_to_json(part.data), dict)
    assert value_to_json(part.data)
