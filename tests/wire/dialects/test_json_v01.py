"""JSON of 0.1: round trips, its streams, and what it has no word for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.dialects.test_json_dialects import artifacts, with_message
from tests.wire.dialects.test_v03 import metadata, parts, texts, with_metadata

from dragoman.core.errors import InvalidParams
from dragoman.core.task import states
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect, json_v01
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SEND = protojson.compile(pb.SendMessageRequest, json_v01.JSON_V01)
RESPONSE = protojson.compile(pb.SendMessageResponse, json_v01.JSON_V01)
GET = protojson.compile(pb.GetTaskRequest, json_v01.JSON_V01)
TASK = protojson.compile(pb.Task, json_v01.JSON_V01)
EVENT = protojson.compile(pb.StreamResponse, json_v01.JSON_V01)

old_messages = st.builds(
    with_metadata,
    st.builds(pb.Message, role=st.sampled_from(["ROLE_USER", "ROLE_AGENT"]), parts=st.lists(parts, max_size=2)),
    metadata,
)
old_states = st.sampled_from([s for s in pb.TaskState.values() if s not in (states.REJECTED, states.AUTH_REQUIRED)])


def indexed(task: pb.Task) -> pb.Task:
    for index, artifact in enumerate(task.artifacts):
        artifact.artifact_id = str(index)
        del artifact.extensions[:]
    return task


old_tasks = st.builds(
    indexed,
    st.builds(
        pb.Task,
        id=texts,
        context_id=texts,
        status=st.builds(with_message, st.builds(pb.TaskStatus, state=old_states), st.none() | old_messages),
        artifacts=st.lists(artifacts, max_size=3),
        history=st.lists(old_messages, max_size=2),
    ),
)


def typed(task: pb.Task) -> pb.Task:
    """The task as 0.1 decodes it: every file has a media type."""
    messages = [*task.history, *([task.status.message] if task.status.HasField("message") else [])]
    every = [part for artifact in task.artifacts for part in artifact.parts]
    for part in [*every, *(part for message in messages for part in message.parts)]:
        if part.WhichOneof("content") in ("raw", "url") and not part.media_type:
            part.media_type = "application/octet-stream"
    return task


@given(old_tasks)
def test_a_0_1_task_round_trips(task: pb.Task) -> None:
    assert TASK.decode(json.loads(json.dumps(TASK.to_dict(task)))) == typed(task)


@given(old_messages, texts.filter(bool), texts, st.lists(texts.filter(bool), max_size=2), st.integers(0, 5))
def test_a_0_1_send_round_trips_with_a_generated_message_id(
    message: pb.Message, task: str, context: str, modes: list[str], history: int
) -> None:
    message.task_id, message.context_id = task, context
    request = pb.SendMessageRequest(message=message)
    if modes:
        request.configuration.accepted_output_modes.extend(modes)
    if history:
        request.configuration.history_length = history
    read = SEND.decode(json.loads(json.dumps(SEND.to_dict(request))))
    assert read.message.message_id
    read.message.message_id = ""
    expected = typed(pb.Task(history=[request.message])).history[0]
    assert read.message == expected
    assert read.configuration == request.configuration


@given(old_tasks)
def test_a_0_1_stream_encodes_a_task_as_artifacts_and_status(task: pb.Task) -> None:
    stream = json_v01.V01StreamWriter()
    valueses = [stream.write(update, False) for update in json_v01.to_updates(pb.StreamResponse(task=task))]
    assert [event["artifact"]["index"] for event in valueses[:-1]] == list(range(len(task.artifacts)))
    assert valueses[-1]["final"] == states.is_terminal(task.status.state)
    for event in valueses:
        assert event["id"] == task.id
        assert EVENT.decode(event).WhichOneof("payload") in ("artifact_update", "status_update")


@pytest.mark.parametrize(("state", "word"), [(states.REJECTED, "failed"), (states.AUTH_REQUIRED, "input-required")])
def test_0_1_encodes_later_states_with_its_own_words(state: pb.TaskState, word: str) -> None:
    task = pb.Task(id="t", status=pb.TaskStatus(state=state))
    assert TASK.to_dict(task)["status"]["state"] == word


@pytest.mark.parametrize("params", [None, [], {}, {"id": 5}, {"id": ""}, {"message": {}}])
def test_a_0_1_send_without_a_task_id_is_rejected(params: Any) -> None:
    with pytest.raises(InvalidParams):
        SEND.decode({**params, "message": {"role": "user", "parts": []}} if isinstance(params, dict) else params)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ([], "body"),
        ({"id": 5, "message": {}}, "id"),
        ({"id": "t", "message": {"role": "user", "parts": [{"type": "text"}]}}, "message.parts[0].text"),
        ({"id": "t", "message": {}, "acceptedOutputModes": "x"}, "acceptedOutputModes"),
        ({"id": "t", "message": {}, "pushNotification": 5}, "pushNotification"),
        (
            {"id": "t", "message": {}, "pushNotification": {"authentication": {"schemes": "x"}}},
            "pushNotification.authentication.schemes",
        ),
    ],
)
def test_an_invalid_0_1_send_names_its_field(params: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        SEND.decode(params)
    details = errors.jsonrpc_error(caught.value, Dialect.V01)["data"]["details"]
    (violation,) = next(detail["fieldViolations"] for detail in details if "fieldViolations" in detail)
    assert violation["field"] == field


def test_a_history_length_of_zero_means_absent_in_0_1() -> None:
    assert not GET.decode({"id": "t", "historyLength": 0}).HasField("history_length")
    assert GET.decode({"id": "t", "historyLength": 2}).history_length == 2
    assert GET.to_dict(pb.GetTaskRequest(id="t", history_length=0)) == {"id": "t"}
    assert GET.to_dict(pb.GetTaskRequest(id="t", history_length=2)) == {"id": "t", "historyLength": 2}
    send = SEND.decode({"id": "t", "message": {"role": "user", "parts": []}, "historyLength": 0})
    assert not send.HasField("configuration")


def test_a_push_configuration_of_a_0_1_send_has_no_id() -> None:
    push = {"url": "https://x", "id": "mine", "authentication": {"schemes": ["Bearer"], "credentials": "c"}}
    send = SEND.decode({"id": "t", "message": {"role": "user", "parts": []}, "pushNotification": push})
    config = send.configuration.task_push_notification_config
    assert (config.url, config.id, config.authentication.scheme) == ("https://x", "", "Bearer")
    assert SEND.to_dict(send)["pushNotification"] == {key: push[key] for key in ("url", "authentication")}


def test_an_empty_push_configuration_is_not_dropped() -> None:
    send = SEND.decode({"id": "t", "message": {"role": "user", "parts": []}, "pushNotification": {}})
    assert send.configuration.HasField("task_push_notification_config")


def test_a_message_without_a_task_becomes_a_completed_0_1_task() -> None:
    reply = pb.Message(message_id="m", task_id="t", context_id="c", role=pb.ROLE_AGENT, parts=[pb.Part(text="hi")])
    message = {"role": "agent", "parts": [{"type": "text", "text": "hi"}]}
    assert RESPONSE.to_dict(pb.SendMessageResponse(message=reply)) == {
        "id": "t",
        "sessionId": "c",
        "status": {"state": "completed", "message": message},
    }
    (update,) = json_v01.to_updates(pb.StreamResponse(message=reply))
    assert json_v01.V01StreamWriter().write(update, True) == {
        "id": "t",
        "status": {"state": "completed", "message": message},
        "final": True,
    }


def test_a_0_1_file_has_the_names_of_fasta2a_too_and_a_media_type() -> None:
    files = [pb.Part(raw=b"hi"), pb.Part(url="http://x", media_type="text/plain")]
    task = pb.Task(id="t", artifacts=[pb.Artifact(artifact_id="a", parts=files)])
    (artifact,) = TASK.to_dict(task)["artifacts"]
    assert [part["file"] for part in artifact["parts"]] == [
        {"bytes": "aGk=", "data": "aGk=", "mimeType": "application/octet-stream"},
        {"uri": "http://x", "url": "http://x", "mimeType": "text/plain"},
    ]


def chunk(id: str, **flags: Any) -> pb.StreamResponse:
    update = pb.TaskArtifactUpdateEvent(task_id="t", artifact=pb.Artifact(artifact_id=id), **flags)
    return pb.StreamResponse(artifact_update=update)


def test_a_0_1_stream_numbers_artifacts_by_their_first_updates() -> None:
    stream = json_v01.V01StreamWriter(["earlier"])
    events = [chunk("b"), chunk("a", append=True), chunk("earlier", last_chunk=True), chunk("b", append=True)]
    assert [stream.write(event, False)["artifact"] for event in events] == [
        {"parts": [], "index": 1},
        {"parts": [], "index": 2, "append": True},
        {"parts": [], "index": 0, "lastChunk": True},
        {"parts": [], "index": 1, "append": True},
    ]


def test_metadata_of_a_task_comes_with_each_update_of_a_0_1_stream() -> None:
    task = pb.Task(id="t", artifacts=[pb.Artifact(artifact_id="a")])
    task.metadata.update({"usage": 1})
    stream = json_v01.V01StreamWriter()
    events = [stream.write(update, False) for update in json_v01.to_updates(pb.StreamResponse(task=task))]
    assert [event["metadata"] for event in events] == [{"usage": 1}, {"usage": 1}]
    assert [EVENT.decode(event).WhichOneof("payload") for event in events] == [
        "artifact_update",
        "status_update",
    ]


def test_a_0_1_push_configuration_is_the_oldest_of_its_task() -> None:
    config = pb.TaskPushNotificationConfig(id="c", task_id="t", url="https://x")
    codec = protojson.compile(pb.TaskPushNotificationConfig, json_v01.JSON_V01)
    written = {"id": "t", "pushNotificationConfig": {"url": "https://x"}}
    assert codec.to_dict(config) == written
    assert codec.decode(written) == pb.TaskPushNotificationConfig(task_id="t", url="https://x")
    get = protojson.compile(pb.GetTaskPushNotificationConfigRequest, json_v01.JSON_V01)
    assert get.decode({"id": "t"}) == pb.GetTaskPushNotificationConfigRequest(task_id="t", id="/")
