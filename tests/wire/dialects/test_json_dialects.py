"""JSON dialects without a proto definition: what holds in every one of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.dialects.test_v03 import metadata, new_messages, parts, texts, with_metadata

from dragoman.core.errors import InvalidParams
from dragoman.wire.dialects import json_mixed, json_proto, json_v03, v03
from dragoman.wire.json import protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

M = Message

DIALECTS = {
    "0.3": json_v03.JSON_V03,
    "fasta2a": json_mixed.JSON_FASTA2A,
    "a2a-rust": json_mixed.JSON_RUST,
    "1.0": json_proto.PROTOJSON_V1,
}
EVERY = pytest.mark.parametrize("name", DIALECTS)


def timestamped(status: pb.TaskStatus, seconds: int, millis: int) -> pb.TaskStatus:
    status.timestamp.seconds, status.timestamp.nanos = seconds, millis * 1_000_000
    return status


def with_message(status: pb.TaskStatus, message: pb.Message | None) -> pb.TaskStatus:
    if message is not None:
        status.message.CopyFrom(message)
    return status


all_states = st.sampled_from(sorted(pb.TaskState.values()))
statuses = st.builds(
    with_message,
    st.builds(
        timestamped,
        st.builds(pb.TaskStatus, state=all_states),
        st.integers(0, 2**32),
        st.integers(0, 999),
    ),
    st.none() | new_messages,
)
artifacts = st.builds(
    with_metadata,
    st.builds(
        pb.Artifact,
        artifact_id=texts,
        name=texts,
        description=texts,
        parts=st.lists(parts, max_size=2),
        extensions=st.lists(texts, max_size=2),
    ),
    metadata,
)
tasks = st.builds(
    with_metadata,
    st.builds(
        pb.Task,
        id=texts,
        context_id=texts,
        status=statuses,
        artifacts=st.lists(artifacts, max_size=2),
        history=st.lists(new_messages, max_size=2),
    ),
    metadata,
)
updates = st.one_of(
    st.builds(pb.StreamResponse, task=tasks),
    st.builds(pb.StreamResponse, message=new_messages),
    st.builds(
        pb.StreamResponse,
        status_update=st.builds(
            with_metadata,
            st.builds(pb.TaskStatusUpdateEvent, task_id=texts, context_id=texts, status=statuses),
            metadata,
        ),
    ),
    st.builds(
        pb.StreamResponse,
        artifact_update=st.builds(
            with_metadata,
            st.builds(
                pb.TaskArtifactUpdateEvent,
                task_id=texts,
                context_id=texts,
                artifact=artifacts,
                append=st.booleans(),
                last_chunk=st.booleans(),
            ),
            metadata,
        ),
    ),
)
pushes = st.builds(
    pb.TaskPushNotificationConfig,
    id=texts,
    task_id=texts,
    url=texts,
    token=texts,
    authentication=st.none() | st.builds(pb.AuthenticationInfo, scheme=texts, credentials=texts),
)


def configured(request: pb.SendMessageRequest, push: pb.TaskPushNotificationConfig | None) -> pb.SendMessageRequest:
    if push is not None:
        push = pb.TaskPushNotificationConfig.FromString(push.SerializeToString())
        push.ClearField("task_id")  # in a send there is no task yet
        request.configuration.task_push_notification_config.CopyFrom(push)
    return request


requests = st.builds(
    configured,
    st.builds(
        with_metadata,
        st.builds(
            pb.SendMessageRequest,
            message=new_messages,
            configuration=st.builds(
                pb.SendMessageConfiguration,
                accepted_output_modes=st.lists(texts, max_size=2),
                history_length=st.none() | st.integers(1, 9),
                return_immediately=st.booleans(),
            ),
        ),
        metadata,
    ),
    st.none() | pushes,
)


def through(message: M, dialect: protojson.JsonDialect) -> M:
    """The message encoded and decoded again."""
    codec: protojson.Codec[Any] = protojson.compile(type(message), dialect)
    return codec.decode(json.loads(codec.encode(message)))  # type: ignore[no-any-return]  # of the codec's own type


@EVERY
@given(data=st.data())
def test_every_message_round_trips(name: str, data: st.DataObject) -> None:
    kinds = st.one_of(new_messages, tasks, updates, requests, pushes, st.builds(pb.SendMessageResponse, task=tasks))
    message = data.draw(kinds)
    assert through(message, DIALECTS[name]) == message


@EVERY
@given(data=st.data())
def test_enum_spellings_of_all_versions_are_accepted_in_every_dialect(name: str, data: st.DataObject) -> None:
    other = data.draw(st.sampled_from(sorted(DIALECTS)))
    task = data.draw(tasks)
    written = protojson.compile(pb.Task, DIALECTS[other]).to_dict(task)
    assert protojson.compile(pb.Task, DIALECTS[name]).decode(written) == task


# Errors name the caller's own fields ----------------------------------------------------------------------------


def message(*given: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "user", "parts": list(given)}}


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"kind": "text"}, "message.parts[0].text"),
        ({"kind": "text", "text": 5}, "message.parts[0].text"),
        ({"kind": "poem", "text": "x"}, "message.parts[0].kind"),
        ({"type": "poem", "text": "x"}, "message.parts[0].type"),
        ({"kind": "file", "file": {}}, "message.parts[0].file"),
        ({"kind": "file", "file": {"bytes": "aGk=", "uri": "http://x"}}, "message.parts[0].file"),
        ({"kind": "file", "file": {"bytes": "a*"}}, "message.parts[0].file.bytes"),
        ({"kind": "file", "file": {"bytes": 3}}, "message.parts[0].file.bytes"),
        ({"kind": "file", "file": {"uri": 3}}, "message.parts[0].file.uri"),
        ({"kind": "file", "file": "x"}, "message.parts[0].file"),
        ({"kind": "data", "data": [1]}, "message.parts[0].data"),
        ({"kind": "data", "data": None}, "message.parts[0].data"),
        ({"kind": "text", "text": "x", "data": {}}, "message.parts[0].data"),
        ({"kind": "text", "text": "x", "metadata": 1}, "message.parts[0].metadata"),
    ],
)
@EVERY
def test_an_invalid_part_is_rejected_with_its_path(name: str, part: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        protojson.compile(pb.SendMessageRequest, DIALECTS[name]).decode(message(part))
    assert [violation.field for violation in caught.value.violations] == [field]


@given(tasks)
def test_a_task_round_trips_through_protobuf_of_0_3(task: pb.Task) -> None:
    assert v03.convert(v03.convert(task, v03_pb.Task()), pb.Task()) == task
    page = pb.ListTasksResponse(tasks=[task], next_page_token="n", total_size=1)
    assert v03.convert(v03.convert(page, v03_pb.ListTasksResponse()), pb.ListTasksResponse()) == page


@given(updates)
def test_an_event_round_trips_through_protobuf_of_0_3(event: pb.StreamResponse) -> None:
    assert v03.convert(v03.write_stream(event), pb.StreamResponse()) == event


@given(requests)
def test_a_send_round_trips_through_protobuf_of_0_3(request: pb.SendMessageRequest) -> None:
    request = pb.SendMessageRequest.FromString(request.SerializeToString())
    request.configuration.task_push_notification_config.ClearField("task_id")
    request.configuration.task_push_notification_config.ClearField("tenant")
    assert v03.read_request(v03.write_request(request, v03_pb.SendMessageRequest()), pb.SendMessageRequest()) == request
