"""The event reducer: with any missed events, content is reported once, and the task is complete at the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client import Artifact, Event, Question, Status, Text
from dragoman.client.event_reducer import EventReducer
from dragoman.core.task import projection
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

UPDATES = st.lists(
    st.tuples(
        st.sampled_from("xy"),  # the artifact
        st.text("ab", min_size=1, max_size=3),
        st.integers(0, 9),  # 0: the artifact is replaced
        st.sampled_from(["heard", "missed", "seen", "seen joined"]),
    ),
    max_size=14,
)


def taken(texts: dict[str, str], events: list[Event]) -> None:
    """Collects texts as the documentation describes."""
    for event in events:
        if isinstance(event, Artifact):
            assert event.replaces == (event.id in texts)
            texts[event.id] = ""
        elif isinstance(event, Text):
            texts[event.artifact_id] += event.text


@given(UPDATES)
def test_missed_content_comes_from_the_task_without_repeats(updates: list[tuple[str, str, int, str]]) -> None:
    there = pb.Task(id="t", status=pb.TaskStatus(state=pb.TASK_STATE_WORKING))
    parts: dict[str, list[pb.Part]] = {}
    reducer, texts = EventReducer(), dict[str, str]()
    missed = False
    for id, text, anew, how in updates:
        append = id in parts and anew > 0
        parts[id] = [*(parts[id] if append else []), pb.Part(text=text)]
        update = pb.TaskArtifactUpdateEvent(
            task_id="t", artifact=pb.Artifact(artifact_id=id, parts=[pb.Part(text=text)]), append=append
        )
        missed = missed or how != "heard"
        if not missed:
            taken(texts, list(reducer.reduce(pb.StreamResponse(artifact_update=update))))
        if how.startswith("seen"):
            taken(texts, list(reducer.reduce(pb.StreamResponse(task=shown(there, parts, joined="joined" in how)))))
            missed = False
    taken(texts, list(reducer.reduce(pb.StreamResponse(task=shown(there, parts, joined=True)))))
    assert texts == {id: "".join(part.text for part in own) for id, own in parts.items()}
    assert {one.artifact_id: projection.join_texts(one.parts) for one in reducer.result.task.artifacts} == {
        id: projection.join_texts(own) for id, own in parts.items()
    }


def shown(task: pb.Task, parts: dict[str, list[pb.Part]], *, joined: bool) -> pb.Task:
    result = pb.Task()
    result.CopyFrom(task)
    for id, own in parts.items():
        result.artifacts.add(artifact_id=id, parts=projection.join_texts(own) if joined else own)
    return result


@pytest.mark.parametrize("text", ["", "what else?"])
def test_a_repeated_question_is_reported_again_after_an_answer(text: str) -> None:
    def asking(seconds: int) -> pb.StreamResponse:
        status = pb.TaskStatus(state=pb.TASK_STATE_INPUT_REQUIRED)
        status.timestamp.FromSeconds(seconds)
        if text:
            status.message.CopyFrom(pb.Message(message_id="m", role=pb.ROLE_AGENT, parts=[pb.Part(text=text)]))
        return pb.StreamResponse(task=pb.Task(id="t", context_id="c", status=status))

    reducer = EventReducer()
    assert [type(event) for event in reducer.reduce(asking(1))] == [Question]
    assert list(reducer.reduce(asking(1))) == []
    reducer.mark_answered()
    assert list(reducer.reduce(asking(1))) == []  # a poll from before the answer was read
    assert not reducer.awaits_caller
    assert [type(event) for event in reducer.reduce(asking(2))] == [Question]
    assert list(reducer.reduce(asking(2))) == []


def test_a_state_of_a_later_version_is_reported_by_its_number_and_the_task_goes_on() -> None:
    reducer = EventReducer()
    for number in (99, 300):
        status = pb.TaskStatus()
        status.state = number  # type: ignore[assignment]  # enums of protobuf are open
        update = pb.TaskStatusUpdateEvent(task_id="t", status=status)
        assert list(reducer.reduce(pb.StreamResponse(status_update=update))) == [Status(str(number))]
        assert not reducer.is_over


def test_the_task_has_the_metadata_of_the_update_that_ends_a_turn() -> None:
    """Servers repeat in it what a turn has set in the task; the metadata of other updates is their own."""
    reducer = EventReducer()
    task = pb.Task(id="t", status=pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED), metadata={"first": 1, "both": 1})
    working = pb.TaskStatusUpdateEvent(
        task_id="t", status=pb.TaskStatus(state=pb.TASK_STATE_WORKING), metadata={"percent": 50}
    )
    completed = pb.TaskStatusUpdateEvent(
        task_id="t", status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED), metadata={"both": 2}
    )
    for response in (
        pb.StreamResponse(task=task),
        pb.StreamResponse(status_update=working),
        pb.StreamResponse(status_update=completed),
    ):
        list(reducer.reduce(response))
    assert reducer.result.task.metadata == pb.Task(metadata={"first": 1, "both": 2}).metadata


@pytest.mark.parametrize(
    ("text", "shown"),
    [("Sign in first.", "Sign in first.\nhttps://login.example/?x=1"), ("", "https://login.example/?x=1")],
)
def test_a_question_keeps_its_link(text: str, shown: str) -> None:
    parts = [pb.Part(text=text)] if text else []
    message = pb.Message(message_id="m", parts=[*parts, pb.Part(url="https://login.example/?x=1", filename="Sign in")])
    status = pb.TaskStatus(state=pb.TASK_STATE_AUTH_REQUIRED, message=message)
    reducer = EventReducer()
    (question,) = reducer.reduce(pb.StreamResponse(task=pb.Task(id="t", status=status)))
    assert isinstance(question, Question)
    assert (question.text, question.links) == (shown, ["https://login.example/?x=1"])
    assert reducer.result.question == shown
