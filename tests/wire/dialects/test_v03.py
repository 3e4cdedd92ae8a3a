"""Conversion between A2A 0.3 and 1.0 messages."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.errors import InvalidParams
from dragoman.core.limits import message_checks
from dragoman.core.task import states
from dragoman.wire.dialects import v03 as codec
from dragoman.wire.dialects.parts import DATA_WRAPPER_KEY
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

AGENT = "projects/p/locations/l/collections/c/engines/e/assistants/a/agents/echo"


# What travels in either direction ------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"), max_size=8)
scalars = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
objects = st.dictionaries(texts, values, max_size=3)
metadata = st.none() | st.dictionaries(
    texts.filter(lambda key: key != DATA_WRAPPER_KEY), values, min_size=1, max_size=2
)


M = TypeVar("M", pb.Part, v03.Part, pb.Message, v03.Message)


def with_metadata(message: M, given: dict[str, Any] | None) -> M:
    if given is not None:
        message.metadata.update(given)
    return message


def data_part(value: Any) -> pb.Part:
    part = pb.Part()
    json_format.ParseDict(value, part.data)
    return part


def v03_data_part(value: dict[str, Any]) -> v03.Part:
    part = v03.Part()
    part.data.data.SetInParent()
    part.data.data.update(value)
    return part


files = {"filename": texts, "media_type": texts}
contents = st.one_of(
    st.builds(pb.Part, text=texts),
    st.builds(pb.Part, raw=st.binary(max_size=8), **files),
    st.builds(pb.Part, url=texts, **files),
    values.map(data_part),
)
parts = st.builds(with_metadata, contents, metadata)
fields = {
    "message_id": texts,
    "context_id": texts,
    "task_id": texts,
    "role": st.sampled_from(["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"]),
    "extensions": st.lists(texts, max_size=2),
    "reference_task_ids": st.lists(texts, max_size=2),
}
new_messages = st.builds(with_metadata, st.builds(pb.Message, parts=st.lists(parts, max_size=3), **fields), metadata)

old_files = st.one_of(
    st.builds(v03.FilePart, file_with_bytes=st.binary(max_size=8), name=texts, mime_type=texts),
    st.builds(v03.FilePart, file_with_uri=texts, name=texts, mime_type=texts),
)
old_contents = st.one_of(
    st.builds(v03.Part, text=texts), st.builds(v03.Part, file=old_files), objects.map(v03_data_part)
)
old_parts = st.builds(with_metadata, old_contents, metadata)
old_messages = st.builds(
    with_metadata, st.builds(v03.Message, content=st.lists(old_parts, max_size=3), **fields), metadata
)


@given(new_messages)
def test_a_1_0_message_round_trips_through_0_3(message: pb.Message) -> None:
    assert read_message(write_message(message)) == message


@given(old_messages)
def test_a_0_3_message_round_trips_through_1_0(message: v03.Message) -> None:
    assert write_message(read_message(message)) == message


def read_message(message: v03.Message) -> pb.Message:
    return codec.convert(message, pb.Message())


def write_message(message: pb.Message) -> v03.Message:
    return codec.convert(message, v03.Message())


def read_send_message(request: v03.SendMessageRequest) -> pb.SendMessageRequest:
    return codec.read_request(request, pb.SendMessageRequest())


# Names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tenant", "expected"),
    [
        ("tasks/42", "", ("", "42")),
        ("42", "", ("", "42")),
        ("tasks/42", "echo", ("echo", "42")),
        ("tasks/tasks/42", "", ("", "tasks/42")),
        ("tasks/a/b", "", ("", "a/b")),
        (f"{AGENT}/tasks/42", "", (AGENT, "42")),
        (f"{AGENT}/tasks/42", AGENT, (AGENT, "42")),
        (f"{AGENT}/tasks/42", f"/{AGENT}/", (AGENT, "42")),
        ("tasks/42", AGENT, (AGENT, "42")),
    ],
)
def test_a_resource_name_is_parsed_to_tenant_and_task(name: str, tenant: str, expected: tuple[str, str]) -> None:
    assert codec.parse_task_name("name", name, tenant) == expected


@pytest.mark.parametrize("name", ["", "tasks/", AGENT, f"{AGENT}/42", f"{AGENT}/tasks/", "projects/p/tasks/42", "a/b"])
def test_an_invalid_resource_name_is_rejected_with_its_field(name: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        codec.parse_task_name("parent", name)
    assert [violation.field for violation in caught.value.violations] == ["parent"]


@pytest.mark.parametrize("tenant", ["echo", AGENT.replace("echo", "other")])
def test_a_name_with_another_tenant_than_the_request_is_rejected(tenant: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        codec.read_request(v03.GetTaskRequest(name=f"{AGENT}/tasks/42", tenant=tenant), pb.GetTaskRequest())
    assert [violation.field for violation in caught.value.violations] == ["tenant"]


# Requests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configuration", "returns_at_once"),
    [
        (None, False),
        (v03.SendMessageConfiguration(), True),
        (v03.SendMessageConfiguration(blocking=False, history_length=1), True),
        (v03.SendMessageConfiguration(blocking=True), False),
    ],
)
def test_only_a_non_blocking_configuration_returns_immediately(
    configuration: v03.SendMessageConfiguration | None, returns_at_once: bool
) -> None:
    read = read_send_message(v03.SendMessageRequest(configuration=configuration))
    assert read.configuration.return_immediately is returns_at_once
    assert read.HasField("configuration") is (configuration is not None)


def test_a_send_request_keeps_message_metadata_tenant_and_modes() -> None:
    request = v03.SendMessageRequest(
        request=v03.Message(message_id="m", role=v03.ROLE_USER, content=[v03.Part(text="hi")]),
        configuration=v03.SendMessageConfiguration(accepted_output_modes=["text/plain"], blocking=True),
        tenant="echo",
    )
    request.metadata.update({"a": {"b": 1}})
    expected = pb.SendMessageRequest(
        tenant="echo",
        message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")]),
        configuration=pb.SendMessageConfiguration(accepted_output_modes=["text/plain"]),
    )
    expected.metadata.update({"a": {"b": 1}})
    assert read_send_message(request) == expected


def test_a_request_without_a_message_stays_without_one() -> None:
    assert not read_send_message(v03.SendMessageRequest()).HasField("message")
    assert read_send_message(v03.SendMessageRequest(request=v03.Message())).HasField("message")


def test_an_inline_push_config_is_converted_completely() -> None:
    push = v03.PushNotificationConfig(id="c", url="http://x", token="t")
    push.authentication.schemes.extend(["Bearer", "Basic"])
    push.authentication.credentials = "secret"
    configuration = v03.SendMessageConfiguration(push_notification=push)
    read = read_send_message(v03.SendMessageRequest(configuration=configuration)).configuration
    assert read.task_push_notification_config == pb.TaskPushNotificationConfig(
        id="c",
        url="http://x",
        token="t",
        authentication=pb.AuthenticationInfo(scheme="Bearer, Basic", credentials="secret"),
    )


@pytest.mark.parametrize("length", [0, 1, -1])
def test_a_history_length_of_zero_is_unset(length: int) -> None:
    configuration = v03.SendMessageConfiguration(history_length=length)
    for read in (
        read_send_message(v03.SendMessageRequest(configuration=configuration)).configuration,
        codec.read_request(v03.GetTaskRequest(name="tasks/42", history_length=length), pb.GetTaskRequest()),
        codec.read_request(v03.ListTasksRequest(history_length=length), pb.ListTasksRequest()),
    ):
        assert read.HasField("history_length") is (length != 0)
        assert read.history_length == length


def test_the_filters_of_a_list_request_are_renamed() -> None:
    request = v03.ListTasksRequest(
        tenant="echo",
        context_id="c",
        status=v03.TASK_STATE_CANCELLED,
        page_size=7,
        page_token="t",
        last_updated_time={"seconds": 5},
        include_artifacts=True,
    )
    assert codec.read_request(request, pb.ListTasksRequest()) == pb.ListTasksRequest(
        tenant="echo",
        context_id="c",
        status=pb.TASK_STATE_CANCELED,
        page_size=7,
        page_token="t",
        status_timestamp_after={"seconds": 5},
        include_artifacts=True,
    )


def test_an_empty_list_request_uses_the_defaults() -> None:
    assert codec.read_request(v03.ListTasksRequest(), pb.ListTasksRequest()) == pb.ListTasksRequest()


def test_task_names_in_requests_become_task_ids() -> None:
    name = f"{AGENT}/tasks/42"
    assert codec.read_request(v03.GetTaskRequest(name=name), pb.GetTaskRequest()) == pb.GetTaskRequest(
        tenant=AGENT, id="42"
    )
    assert codec.read_request(v03.CancelTaskRequest(name=name), pb.CancelTaskRequest()) == pb.CancelTaskRequest(
        tenant=AGENT, id="42"
    )
    assert codec.read_request(
        v03.TaskSubscriptionRequest(name=name), pb.SubscribeToTaskRequest()
    ) == pb.SubscribeToTaskRequest(tenant=AGENT, id="42")


def test_a_card_request_keeps_its_tenant() -> None:
    read = codec.read_request(v03.GetAgentCardRequest(tenant="echo"), pb.GetExtendedAgentCardRequest())
    assert read == pb.GetExtendedAgentCardRequest(tenant="echo")


# Parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part", [v03.Part(), v03.Part(file=v03.FilePart(mime_type="text/plain", name="a"))], ids=["nothing", "empty file"]
)
def test_a_part_without_content_is_rejected_with_its_path(part: v03.Part) -> None:
    message = v03.Message(message_id="m", role=v03.ROLE_USER, content=[v03.Part(text="a"), part])
    with pytest.raises(InvalidParams, match=r"message\.parts\[1\]"):
        message_checks.check_message(read_send_message(v03.SendMessageRequest(request=message)), ["*/*"])


def test_an_empty_file_and_an_empty_url_are_content() -> None:
    read = read_message(
        v03.Message(
            content=[
                v03.Part(file=v03.FilePart(file_with_bytes=b"")),
                v03.Part(file=v03.FilePart(file_with_uri="")),
            ]
        )
    )
    assert [part.WhichOneof("content") for part in read.parts] == ["raw", "url"]


def test_bytes_are_not_decoded() -> None:
    part = v03.Part(file=v03.FilePart(file_with_bytes=b"aGVsbG8="))
    assert read_message(v03.Message(content=[part])).parts[0].raw == b"aGVsbG8="


def test_fields_unknown_to_a_0_3_text_part_are_omitted() -> None:
    part = pb.Part(text="a", filename="a.txt", media_type="text/markdown")
    assert write_message(pb.Message(parts=[part])).content == [v03.Part(text="a")]


@pytest.mark.parametrize("value", [None, True, 1.5, "a", [1, {"b": 2}]], ids=repr)
def test_data_that_is_not_an_object_is_wrapped_and_marked(value: object) -> None:
    written = write_message(pb.Message(parts=[data_part(value)])).content[0]
    assert json_format.MessageToDict(written) == {
        "data": {"data": {"value": value}},
        "metadata": {"data_part_compat": True},
    }


def test_an_empty_data_part_becomes_null() -> None:
    part = pb.Part()
    part.data.SetInParent()
    assert json_format.MessageToDict(write_message(pb.Message(parts=[part])).content[0].data) == {
        "data": {"value": None}
    }


@pytest.mark.parametrize(
    ("data", "mark"),
    [({"value": 1}, None), ({"value": 1}, False), ({"value": 1}, "yes"), ({"value": 1, "b": 2}, True), ({}, True)],
)
def test_data_that_only_looks_wrapped_is_unchanged(data: dict[str, Any], mark: Any) -> None:
    part = v03_data_part(data)
    if mark is not None:
        part.metadata.update({"data_part_compat": mark})
    read = read_message(v03.Message(content=[part])).parts[0]
    assert json_format.MessageToDict(read.data) == data
    assert read.metadata.fields.keys() == part.metadata.fields.keys()


# Answers -------------------------------------------------------------------------------------------------------


def a_task(state: pb.TaskState = pb.TASK_STATE_CANCELED) -> pb.Task:
    task = pb.Task(
        id="42",
        context_id="c",
        status=pb.TaskStatus(
            state=state, message=pb.Message(message_id="s", parts=[pb.Part(text="stop")]), timestamp={"seconds": 5}
        ),
        artifacts=[
            pb.Artifact(artifact_id="a", name="n", description="d", parts=[pb.Part(raw=b"x")], extensions=["urn:x"])
        ],
        history=[pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="go")])],
    )
    task.metadata.update({"k": 1})
    task.artifacts[0].metadata.update({"l": 2})
    return task


def a_v03_task(state: v03.TaskState = v03.TASK_STATE_CANCELLED) -> v03.Task:
    task = v03.Task(
        id="42",
        context_id="c",
        status=v03.TaskStatus(
            state=state, update=v03.Message(message_id="s", content=[v03.Part(text="stop")]), timestamp={"seconds": 5}
        ),
        artifacts=[
            v03.Artifact(
                artifact_id="a",
                name="n",
                description="d",
                parts=[v03.Part(file=v03.FilePart(file_with_bytes=b"x"))],
                extensions=["urn:x"],
            )
        ],
        history=[v03.Message(message_id="m", role=v03.ROLE_USER, content=[v03.Part(text="go")])],
    )
    task.metadata.update({"k": 1})
    task.artifacts[0].metadata.update({"l": 2})
    return task


def test_a_task_is_converted_completely() -> None:
    assert codec.convert(a_task(), v03.Task()) == a_v03_task()


def test_a_send_response_is_a_task_or_a_message() -> None:
    assert codec.convert(pb.SendMessageResponse(task=a_task()), v03.SendMessageResponse()) == v03.SendMessageResponse(
        task=a_v03_task()
    )
    message = pb.Message(message_id="m", parts=[pb.Part(text="hi")])
    assert codec.convert(pb.SendMessageResponse(message=message), v03.SendMessageResponse()) == v03.SendMessageResponse(
        msg=v03.Message(message_id="m", content=[v03.Part(text="hi")])
    )


def test_a_page_keeps_its_tasks_token_and_total() -> None:
    page = pb.ListTasksResponse(tasks=[a_task()], next_page_token="t", page_size=50, total_size=9)
    assert codec.convert(page, v03.ListTasksResponse()) == v03.ListTasksResponse(
        tasks=[a_v03_task()], next_page_token="t", total_size=9
    )


def status_update(state: pb.TaskState) -> pb.StreamResponse:
    update = pb.TaskStatusUpdateEvent(task_id="42", context_id="c", status=pb.TaskStatus(state=state))
    update.metadata.update({"k": 1})
    return pb.StreamResponse(status_update=update)


@pytest.mark.parametrize("state", pb.TaskState.values())
def test_a_status_is_final_at_the_end_of_the_stream_or_the_task(state: pb.TaskState) -> None:
    going_on, last = (codec.write_stream(status_update(state), is_last=ends).status_update for ends in (False, True))
    assert last.final
    assert going_on.final is states.is_terminal(state)
    assert int(going_on.status.state) == int(state)
    assert (going_on.task_id, going_on.context_id, dict(going_on.metadata)) == ("42", "c", {"k": 1})


def test_an_artifact_update_keeps_its_flags() -> None:
    update = pb.TaskArtifactUpdateEvent(
        task_id="42", context_id="c", artifact=a_task().artifacts[0], append=True, last_chunk=True
    )
    update.metadata.update({"k": 1})
    written = codec.write_stream(pb.StreamResponse(artifact_update=update), is_last=True).artifact_update
    expected = v03.TaskArtifactUpdateEvent(
        task_id="42", context_id="c", artifact=a_v03_task().artifacts[0], append=True, last_chunk=True
    )
    expected.metadata.update({"k": 1})
    assert written == expected


def test_a_stream_can_contain_a_task_or_a_message() -> None:
    assert codec.write_stream(pb.StreamResponse(task=a_task())) == v03.StreamResponse(task=a_v03_task())
    assert codec.write_stream(pb.StreamResponse(message=pb.Message(message_id="m"))) == v03.StreamResponse(
        msg=v03.Message(message_id="m")
    )


@pytest.mark.parametrize(
    ("empty", "target"),
    [(pb.SendMessageResponse(), v03.SendMessageResponse()), (pb.StreamResponse(), v03.StreamResponse())],
)
def test_a_response_without_payload_stays_empty(empty: Any, target: Any) -> None:
    assert not codec.convert(empty, target).ByteSize()


# Clients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "old"),
    [
        (pb.GetTaskRequest(tenant="a", id="t", history_length=2), v03.GetTaskRequest()),
        (pb.CancelTaskRequest(tenant="a", id="t"), v03.CancelTaskRequest()),
        (pb.SubscribeToTaskRequest(tenant="a", id="t"), v03.TaskSubscriptionRequest()),
        (
            pb.ListTasksRequest(
                tenant="a",
                context_id="c",
                status=pb.TASK_STATE_WORKING,
                page_size=5,
                page_token="p",
                status_timestamp_after={"seconds": 5},
            ),
            v03.ListTasksRequest(),
        ),
    ],
)
def test_requests_name_their_task(request_: Any, old: Any) -> None:
    assert codec.read_request(codec.write_request(request_, old), type(request_)()) == request_
