from __future__ import annotations

from dragoman.core.task.projection import fold
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def artifact(*texts: str, append: bool = False, **fields: object) -> pb.StreamResponse:
    artifact = pb.Artifact(artifact_id="a", parts=[pb.Part(text=text) for text in texts], **fields)  # type: ignore[arg-type]
    return pb.StreamResponse(artifact_update=pb.TaskArtifactUpdateEvent(artifact=artifact, append=append))


def test_appending_adds_parts_metadata_and_extensions() -> None:
    task = pb.Task()
    fold(task, artifact("1", name="first", metadata={"a": 1}, extensions=["x"]))
    fold(task, artifact("2", append=True, name="ignored", metadata={"b": 2}, extensions=["y"]))
    (found,) = task.artifacts
    assert [part.text for part in found.parts] == ["1", "2"]
    assert dict(found.metadata) == {"a": 1, "b": 2}
    assert (found.name, list(found.extensions)) == ("first", ["x", "y"])


def test_appending_to_a_missing_artifact_creates_it() -> None:
    task = pb.Task()
    fold(task, artifact("1", append=True))
    assert len(task.artifacts) == 1


def test_without_append_the_artifact_is_replaced_in_place() -> None:
    task = pb.Task(artifacts=[pb.Artifact(artifact_id="a"), pb.Artifact(artifact_id="b")])
    fold(task, artifact("new"))
    assert [one.artifact_id for one in task.artifacts] == ["a", "b"]
    assert task.artifacts[0].parts[0].text == "new"


def test_the_message_of_a_status_becomes_history() -> None:
    task = pb.Task(status=pb.TaskStatus(message=pb.Message(message_id="old")))
    fold(
        task,
        pb.StreamResponse(status_update=pb.TaskStatusUpdateEvent(status=pb.TaskStatus(state="TASK_STATE_WORKING"))),
    )
    assert [message.message_id for message in task.history] == ["old"]
    assert task.status.state == pb.TASK_STATE_WORKING


def test_a_task_replaces_everything_and_a_message_nothing() -> None:
    task = pb.Task(id="1")
    fold(task, pb.StreamResponse(message=pb.Message(message_id="m")))
    assert task == pb.Task(id="1")
    fold(task, pb.StreamResponse(task=pb.Task(id="2")))
    assert task == pb.Task(id="2")
