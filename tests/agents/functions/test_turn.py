"""The methods of Turn, and its view of the message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.agents.turn_context import RecordingTurnContext, state_of, status_text

from dragoman import Turn, TurnEnded, agent, types
from dragoman.agents.functions.turn import Incoming, TurnOutput
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task import states
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.ports import NO_CHANGE, StateUpdate
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def make_turn(turn_context: RecordingTurnContext) -> Turn:
    ids = iter(range(1, 1000))
    return Turn(TurnOutput(turn_context, lambda: f"id-{next(ids)}"), {})


# The message -------------------------------------------------------------------------------------------------------


async def test_a_turn_has_the_text_files_and_data_of_its_message() -> None:
    turn = make_turn(
        RecordingTurnContext(
            "one",
            types.file(b"a,b\n", name="t.csv"),
            types.data({"n": 3, "half": 0.5, "big": 1e300}),
            "two",
            types.link("https://example.org/x.png", name="x.png", media_type="image/png"),
            pb.Part(raw=b"?"),
        )
    )
    assert turn.text == "one\ntwo"
    assert turn.data == [{"n": 3, "half": 0.5, "big": 1e300}]
    assert type(turn.data[0]["n"]) is int
    assert type(turn.data[0]["big"]) is float
    assert turn.files == [
        types.ReceivedFile("t.csv", "text/csv", b"a,b\n"),
        types.ReceivedFile("x.png", "image/png", url="https://example.org/x.png"),
        types.ReceivedFile("", "application/octet-stream", b"?"),
    ]


async def test_a_turn_has_the_fields_of_its_task_and_request() -> None:
    envelope = pb.SendMessageRequest()
    envelope.configuration.accepted_output_modes.append("text/plain")
    envelope.metadata.update({"trace": [1, "a"]})
    question = types.message("which?")
    turn_context = RecordingTurnContext("x", history=[question], question=question, envelope=envelope)
    turn = make_turn(turn_context)
    assert (turn.task_id, turn.context_id, turn.principal) == ("task-1", "context-1", "anonymous")
    assert turn.accepts == ["text/plain"]
    assert turn.request_metadata == {"trace": [1, "a"]}
    assert turn.history == [question]
    assert turn.question == question
    assert turn.message is turn_context.message


async def test_integral_numbers_of_the_message_s_metadata_are_int() -> None:
    values: dict[str, Any] = {
        "big": 9007199254740991,
        "least": -9007199254740991,
        "half": 0.5,
        "inner": {"list": [1, True, None]},
    }
    turn_context = RecordingTurnContext("x")
    turn_context.message.metadata.update(values)
    assert repr(dict(sorted(make_turn(turn_context).message_metadata.items()))) == repr(dict(sorted(values.items())))
    assert make_turn(RecordingTurnContext("x")).message_metadata == {}


async def test_the_fields_of_an_empty_message_are_empty() -> None:
    turn = make_turn(RecordingTurnContext())
    assert (turn.text, turn.files, turn.data, turn.accepts, turn.request_metadata, turn.state) == (
        "",
        [],
        [],
        [],
        {},
        {},
    )
    assert turn.question is None


def incoming(*parts: pb.Part, envelope: pb.SendMessageRequest | None = None) -> Incoming:
    return Incoming(pb.Message(parts=parts), envelope or pb.SendMessageRequest())


def test_texts_are_joined_with_newlines() -> None:
    assert incoming(types.text("one"), types.data({"n": 1}), types.text("two")).text == "one\ntwo"


def test_files_keep_their_order_names_and_types() -> None:
    message = incoming(
        types.file(b"a,b\n", name="t.csv"),
        types.link("https://example.org/x.png", name="x.png", media_type="image/png"),
    )
    assert message.files == [
        types.ReceivedFile("t.csv", "text/csv", b"a,b\n"),
        types.ReceivedFile("x.png", "image/png", url="https://example.org/x.png"),
    ]


def test_integral_numbers_of_data_are_int() -> None:
    (value,) = incoming(types.data({"n": 3, "half": 0.5})).data
    assert (value, type(value["n"])) == ({"n": 3, "half": 0.5}, int)


def test_the_skill_is_named_in_the_metadata_of_the_message() -> None:
    message = pb.Message()
    message.metadata["skill"] = "buy"
    assert Incoming(message, pb.SendMessageRequest()).skill == "buy"
    message.metadata["skill"] = 3
    assert Incoming(message, pb.SendMessageRequest()).skill == ""
    assert incoming().skill == ""
    assert not incoming().message.HasField("metadata")


def test_the_request_of_a_message_is_read() -> None:
    envelope = pb.SendMessageRequest()
    envelope.configuration.accepted_output_modes.append("text/plain")
    envelope.message.extensions.append("https://example.org/extension")
    envelope.metadata.update({"trace": 1})
    message = incoming(envelope=envelope)
    assert (message.accepts, message.extensions, message.request_metadata) == (
        ["text/plain"],
        ["https://example.org/extension"],
        {"trace": 1},
    )


# Methods -----------------------------------------------------------------------------------------------------------


async def test_status_sends_working_with_or_without_a_message() -> None:
    turn_context = RecordingTurnContext()
    turn = make_turn(turn_context)
    turn.status()
    turn.status("halfway")
    turn.status({"percent": 50})
    quiet, text, data = turn_context.changes
    assert quiet == StatusChange(states.WORKING)
    assert isinstance(text, StatusChange)
    assert isinstance(data, StatusChange)
    message = pb.Message.FromString(text.message)
    assert (message.message_id, message.parts[0].text) == ("id-1", "halfway")
    assert pb.Message.FromString(data.message).parts[0].data.struct_value.fields["percent"].number_value == 50


async def test_status_can_send_auth_required() -> None:
    turn_context = RecordingTurnContext()
    make_turn(turn_context).status("log in at ...", state=types.AUTH_REQUIRED)
    assert state_of(turn_context.task()) == "AUTH_REQUIRED"


@pytest.mark.parametrize("state", sorted({*states.TERMINAL, states.INPUT_REQUIRED, states.SUBMITTED, 0}))
async def test_status_rejects_states_that_end_a_turn(state: int) -> None:
    turn_context = RecordingTurnContext()
    with pytest.raises(ValueError, match="ends a turn"):
        make_turn(turn_context).status("x", state=state)
    assert not turn_context.changes


async def test_artifact_accepts_any_value_and_its_fields() -> None:
    turn_context = RecordingTurnContext()
    turn = make_turn(turn_context)
    turn.artifact("hi", name="Greeting", description="Says hi", id="greeting", last=True, metadata={"k": [1]})
    turn.artifact({"n": 1})
    task = turn_context.task()
    first, second = task.artifacts
    assert (first.artifact_id, first.name, first.description) == ("greeting", "Greeting", "Says hi")
    assert first.metadata.fields["k"].list_value.values[0].number_value == 1
    assert second.artifact_id == "id-1"
    change = turn_context.changes[0]
    assert isinstance(change, ArtifactChange)
    assert (change.append, change.last_chunk) == (False, True)


async def test_artifact_replaces_and_appends_by_id() -> None:
    turn_context = RecordingTurnContext()
    turn = make_turn(turn_context)
    turn.artifact("one", id="a")
    turn.artifact("two", id="a", append=True)
    turn.artifact("other", id="b")
    turn.artifact("three", id="b")
    texts = {artifact.artifact_id: [part.text for part in artifact.parts] for artifact in turn_context.task().artifacts}
    assert texts == {"a": ["one", "two"], "b": ["three"]}


async def test_artifact_cannot_append_without_an_id() -> None:
    with pytest.raises(ValueError, match="append=True needs id="):
        make_turn(RecordingTurnContext()).artifact("x", append=True)


async def test_artifact_does_not_change_its_argument() -> None:
    artifact = types.artifact("hi")
    make_turn(RecordingTurnContext()).artifact(artifact, name="other")
    assert artifact == types.artifact("hi")


async def test_chunk_creates_an_artifact_and_then_appends_to_it() -> None:
    turn_context = RecordingTurnContext()
    turn = make_turn(turn_context)
    turn.chunk("a")
    turn.chunk("b", last=True)
    turn.chunk("log line", artifact="log")
    turn.chunk([types.text("x"), types.text("y")], artifact="log")
    changes = [change for change in turn_context.changes if isinstance(change, ArtifactChange)]
    assert [(c.artifact_id, c.append, c.last_chunk, c.text) for c in changes] == [
        ("output", False, False, "a"),
        ("output", True, True, "b"),
        ("log", False, False, "log line"),
        ("log", True, False, None),
    ]


async def test_the_response_to_a_follow_up_does_not_replace_earlier_artifacts() -> None:
    history = [pb.Message(role=pb.ROLE_USER), pb.Message(role=pb.ROLE_AGENT)]
    turn_context = RecordingTurnContext(history=history)
    make_turn(turn_context).chunk("second answer")
    [change] = turn_context.changes
    assert isinstance(change, ArtifactChange)
    assert (change.artifact_id, change.append) == ("output-2", False)


@pytest.mark.parametrize("value", [pb.Artifact(parts=[pb.Part(text="x")]), types.message("x"), None])
async def test_chunk_rejects_values_that_cannot_be_parts(value: object) -> None:
    with pytest.raises(InvalidAgentResponse):
        make_turn(RecordingTurnContext()).chunk(value)


async def test_chunk_rejects_an_empty_artifact_id() -> None:
    with pytest.raises(ValueError, match="artifact= is empty"):
        make_turn(RecordingTurnContext()).chunk("x", artifact="")


async def test_awaiting_an_event_is_optional() -> None:
    turn_context = RecordingTurnContext()
    turn = make_turn(turn_context)
    turn.chunk("a")
    assert turn_context.room.waits == 0
    await turn.chunk("b")
    await turn.status("c")
    await turn.artifact("d")
    assert turn_context.room.waits == 3


async def test_flush_waits_for_the_disk_on_the_loop_and_in_a_thread() -> None:
    turn_context = RecordingTurnContext()
    turn = make_turn(turn_context)
    await turn.flush()
    await asyncio.to_thread(turn.flush)
    assert turn_context.flushes == 2


async def test_messages_yields_messages_that_arrive_during_the_turn() -> None:
    turn_context = RecordingTurnContext()
    turn = make_turn(turn_context)
    turn_context.queued_messages.put_nowait(pb.Message(parts=[pb.Part(text="more"), types.data(7)]))
    async for message in turn.messages():
        assert (message.text, message.data) == ("more", [7])
        break


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (lambda turn: turn.ask("which?"), "INPUT_REQUIRED"),
        (lambda turn: turn.need_auth("which?"), "AUTH_REQUIRED"),
        (lambda turn: turn.reject("which?"), "REJECTED"),
        (lambda turn: turn.reply("which?"), "COMPLETED"),
    ],
)
async def test_turn_ending_methods_end_the_turn_from_any_call_depth_and_thread(
    end: Callable[[Turn], None], state: str
) -> None:
    def deep(turn: Turn) -> None:
        try:
            end(turn)
        except Exception:
            pytest.fail("no Exception may swallow the end of a turn")

    @agent
    async def plain(turn: Turn) -> None:
        deep(turn)

    @agent
    async def streaming(turn: Turn) -> AsyncIterator[str]:
        yield "first "
        deep(turn)

    @agent
    def sync(turn: Turn) -> None:
        deep(turn)

    @agent
    async def in_thread(turn: Turn) -> None:
        await asyncio.to_thread(deep, turn)

    @agent
    async def in_group(turn: Turn) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(deep, turn))

    for one in (plain, streaming, sync, in_thread, in_group):
        turn_context = RecordingTurnContext("go")
        task = turn_context.task(await one.take_turn(turn_context))
        assert (state_of(task), status_text(task)) == (state, "which?")


async def test_a_reply_is_a_message_without_a_task() -> None:
    @agent(direct=True)
    async def it(turn: Turn) -> None:
        turn.reply({"answer": 42})

    result = await it.take_turn(RecordingTurnContext("go"))
    assert result.reply is not None
    assert (result.reply.task_id, result.reply.context_id) == ("", "context-1")
    shown = pb.Message.FromString(result.status.message)
    assert shown.message_id == result.reply.message_id
    assert shown.task_id == "task-1"


@pytest.mark.parametrize("verb", ["ask", "need_auth", "reject", "reply"])
async def test_turn_ending_methods_require_content(verb: str) -> None:
    with pytest.raises(ValueError, match=f"turn.{verb}: the content is None"):
        getattr(make_turn(RecordingTurnContext()), verb)(None)


async def test_check_raises_only_for_a_canceled_run() -> None:
    turn_context = RecordingTurnContext()
    turn = make_turn(turn_context)
    turn.check()
    turn_context.canceled = True
    assert turn.canceled
    with pytest.raises(asyncio.CancelledError):
        turn.check()


def test_turn_ended_is_not_caught_by_except_exception() -> None:
    assert not issubclass(TurnEnded, Exception)


# Threads -----------------------------------------------------------------------------------------------------------


async def test_chunks_from_many_threads_all_arrive_and_only_the_first_creates_the_artifact() -> None:
    turn_context = RecordingTurnContext()
    turn = make_turn(turn_context)
    begin = threading.Barrier(8)

    def speak(name: int) -> None:
        begin.wait()
        for n in range(50):
            turn.chunk(f"{name}.{n} ")

    with ThreadPoolExecutor(8) as pool:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(pool, speak, name) for name in range(8)))

    changes = [change for change in turn_context.changes if isinstance(change, ArtifactChange)]
    assert [change.append for change in changes] == [False] + [True] * 399
    words = "".join(part.text for part in turn_context.task().artifacts[0].parts).split()
    assert len(words) == 400
    for name in range(8):
        assert [w for w in words if w.startswith(f"{name}.")] == [f"{name}.{n}" for n in range(50)]


async def test_the_loop_does_not_wait_for_a_thread_that_waits_for_room() -> None:
    turn_context = RecordingTurnContext()
    turn = make_turn(turn_context)
    full, room = threading.Event(), threading.Event()
    plain_put = turn_context.put

    def put(change: StatusChange | ArtifactChange, *, state_update: StateUpdate = NO_CHANGE) -> object:
        accepted = plain_put(change, state_update=state_update)
        if not full.is_set():
            full.set()
            assert room.wait(60)
        return accepted

    turn_context.put = put  # type: ignore[method-assign,assignment]
    thread = asyncio.create_task(asyncio.to_thread(turn.chunk, "from the thread "))
    await asyncio.to_thread(full.wait)
    turn.chunk("from the loop")
    room.set()
    await thread
    assert [part.text for part in turn_context.task().artifacts[0].parts] == ["from the thread ", "from the loop"]
