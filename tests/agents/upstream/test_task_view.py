"""Upstream content is written once, whatever is repeated or missed."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.agents.turn_context import RecordingTurnContext

from dragoman.agents.upstream import task_view as mirrors
from dragoman.agents.upstream.task_view import ArtifactSync
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task import projection
from dragoman.core.task.log import ArtifactChange
from dragoman.core.task.projection import is_plain_text
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

PARTS = st.one_of(
    st.text("ab", max_size=3).map(lambda text: pb.Part(text=text)),
    st.binary(min_size=1, max_size=2).map(lambda raw: pb.Part(raw=raw)),
    st.just(pb.Part(text="a", media_type="text/markdown")),
)
UPDATES = st.builds(
    lambda id, name, parts, append: pb.TaskArtifactUpdateEvent(
        artifact=pb.Artifact(artifact_id=id, name=name, parts=parts), append=append
    ),
    st.sampled_from("xy"),
    st.sampled_from(["", "n"]),
    st.lists(PARTS, min_size=1, max_size=3),
    st.booleans(),
)
STEPS = st.lists(st.tuples(UPDATES, st.sampled_from(["streamed", "missed", "polled", "polled joined"])), max_size=12)


def ids() -> ArtifactSync:
    numbers = count(1)
    return ArtifactSync(lambda: f"id-{next(numbers)}")


def joined(task: pb.Task) -> dict[str, tuple[str, list[pb.Part]]]:
    """Artifacts by id, with adjacent plain texts joined."""
    return {one.artifact_id: (one.name, projection.join_texts(one.parts)) for one in task.artifacts}


def shown(task: pb.Task) -> pb.Task:
    """The task as a server that joins chunks shows it."""
    out = pb.Task()
    for id, (name, parts) in joined(task).items():
        out.artifacts.add(artifact_id=id, name=name, parts=parts)
    return out


EMPTY_THEN_BYTES = [
    (pb.TaskArtifactUpdateEvent(artifact=pb.Artifact(artifact_id="x", parts=[part])), received)
    for part, received in ((pb.Part(text=""), "streamed"), (pb.Part(raw=b"x"), "missed"))
]


@example(EMPTY_THEN_BYTES)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_the_result_is_the_same_whatever_events_were_received(
    steps: list[tuple[pb.TaskArtifactUpdateEvent, str]],
) -> None:
    asyncio.run(follow(steps))


async def follow(steps: list[tuple[pb.TaskArtifactUpdateEvent, str]]) -> None:
    context, remote, sync, complete = RecordingTurnContext("x"), pb.Task(), ids(), True
    for update, received in steps:
        changes: list[ArtifactChange] = []
        if received == "streamed" and not complete:  # after a gap the task is read first
            changes, complete = sync.snapshot(remote), True
        projection.fold(remote, pb.StreamResponse(artifact_update=update))
        if received == "streamed":
            changes += filter(None, [sync.update(update)])
        elif received == "missed":
            complete = False
        else:
            changes, complete = sync.snapshot(shown(remote) if received == "polled joined" else remote), True
        for change in changes:
            context.put(change)
    for change in sync.snapshot(remote):
        context.put(change)
    assert joined(context.task()) == joined(remote)
    assert sync.snapshot(remote) == []
    assert sync.snapshot(shown(remote)) == []


def task(*texts: str, id: str = "a") -> pb.Task:
    result = pb.Task()
    result.artifacts.add(artifact_id=id, parts=[pb.Part(text=text) for text in texts])
    return result


def test_a_text_that_grows_between_two_polls_stays_one_text() -> None:
    sync = ids()
    first = sync.snapshot(task("one "))
    second = sync.snapshot(task("one two"))
    assert [(change.text, change.append) for change in (*first, *second)] == [("one ", False), ("two", True)]


def test_a_changed_text_replaces_the_written_one() -> None:
    sync = ids()
    sync.snapshot(task("one "))
    (change,) = sync.snapshot(task("two "))
    assert (change.text, change.append) == ("two ", False)


def test_an_empty_last_chunk_is_forwarded() -> None:
    sync = ids()
    update = pb.TaskArtifactUpdateEvent(artifact=pb.Artifact(artifact_id="a"), append=True, last_chunk=True)
    assert sync.update(update) is None  # of an unknown artifact
    sync.snapshot(task("one"))
    change = sync.update(update)
    assert change is not None
    assert (change.append, change.last_chunk, change.parts) == (True, True, b"")


def test_an_artifact_without_an_id_gets_one() -> None:
    (change,) = ids().snapshot(task("one", id=""))
    assert change.artifact_id == "id-1"


def test_the_metadata_of_an_event_is_kept() -> None:
    update = pb.TaskArtifactUpdateEvent(artifact=task("one").artifacts[0])
    update.metadata.update({"k": "v"})
    change = ids().update(update)
    assert change is not None
    assert change.metadata == update.metadata.SerializeToString()


def test_a_part_without_content_is_invalid() -> None:
    result = pb.Task()
    result.artifacts.add(artifact_id="a", parts=[pb.Part(media_type="text/plain")])
    with pytest.raises(InvalidAgentResponse, match="no content"):
        ids().snapshot(result)


@pytest.mark.parametrize("place", ["artifact", "update"])
def test_metadata_that_nests_too_deeply_is_invalid(place: str) -> None:
    update = pb.TaskArtifactUpdateEvent(artifact=task("one").artifacts[0])
    deep: Any = 1
    for _ in range(25):
        deep = [deep]
    (update if place == "update" else update.artifact).metadata.update({"deep": deep})
    with pytest.raises(InvalidAgentResponse, match="nests more than 24 levels"):
        ids().update(update)


def test_too_many_artifacts_are_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "MAX_TASK_ARTIFACTS", 2)
    sync = ids()
    for id in "ab":
        sync.snapshot(task("x", id=id))
    sync.snapshot(task("x more", id="a"))
    with pytest.raises(InvalidAgentResponse, match="more than 2 artifacts"):
        sync.snapshot(task("x", id="c"))


def test_a_text_with_other_fields_is_not_plain() -> None:
    beside = pb.Part(text="x")
    beside.metadata.update({"k": 1})
    assert [is_plain_text(part) for part in (pb.Part(text="x"), beside, pb.Part(text="x", filename="f"))] == [
        True,
        False,
        False,
    ]
