"""ProtoJSON of 1.0 and 0.3, and the aliases of older clients that every decoder accepts."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.errors import InvalidParams
from dragoman.wire.dialects import json_proto, json_v01, json_v03
from dragoman.wire.json import protojson
from dragoman.wire.json.wellknown import FieldError
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("TASK_STATE_CANCELLED", pb.TASK_STATE_CANCELED),
        ("cancelled", pb.TASK_STATE_CANCELED),
        ("CANCELED", pb.TASK_STATE_CANCELED),
        ("input-required", pb.TASK_STATE_INPUT_REQUIRED),
        ("INPUT_REQUIRED", pb.TASK_STATE_INPUT_REQUIRED),
        ("unknown", pb.TASK_STATE_UNSPECIFIED),
        ("asleep", pb.TASK_STATE_UNSPECIFIED),
        (99, pb.TASK_STATE_UNSPECIFIED),
        (-(2**40), pb.TASK_STATE_UNSPECIFIED),
        (2, pb.TASK_STATE_WORKING),
        ("2", pb.TASK_STATE_WORKING),
    ],
)
def test_a_state_is_read_in_every_spelling_and_unknown_ones_as_unspecified(
    word: str | int, state: pb.TaskState
) -> None:
    assert protojson.compile(pb.TaskStatus, json_proto.PROTOJSON_V1).decode({"state": word}).state == state
    assert protojson.compile(v03.TaskStatus, json_proto.PROTOJSON_V03).decode({"state": word}).state == int(state)


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        ("2026-11-27T10:00:00.123456789Z", "2026-11-27T10:00:00.123456789Z"),
        ("2026-11-27T10:00+0100", "2026-11-27T09:00:00Z"),
        (1764201600, "2025-11-27T00:00:00Z"),
    ],
)
def test_the_time_of_a_status_is_read_in_every_form(timestamp: object, text: str) -> None:
    value = {"state": "completed", "timestamp": timestamp}
    for dialect in (json_proto.PROTOJSON_V1, json_v03.JSON_V03, json_v01.JSON_V01):
        status = protojson.compile(pb.TaskStatus, dialect).decode(value)
        assert (status.timestamp.ToJsonString(), status.state) == (text, pb.TASK_STATE_COMPLETED)
    old = protojson.compile(v03.TaskStatus, json_proto.PROTOJSON_V03).decode(value)
    assert old.timestamp.ToJsonString() == text


@pytest.mark.parametrize("timestamp", ["yesterday", {}, True, 1e300])
def test_a_time_that_cannot_be_read_loses_nothing_else_of_its_status(timestamp: object) -> None:
    value = {"status": {"state": "completed", "timestamp": timestamp}, "id": "t"}
    task = protojson.compile(pb.Task, json_proto.PROTOJSON_V1).decode(value)
    assert task == pb.Task(id="t", status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED))


@pytest.mark.parametrize(("blocking", "returns"), [(True, False), (False, True)])
def test_blocking_is_the_opposite_of_returning_immediately(blocking: bool, returns: bool) -> None:
    assert json_proto.read_blocking({"blocking": blocking}) == {"returnImmediately": returns}
    assert json_proto.read_blocking({"returnImmediately": returns}) == {"returnImmediately": returns}


def test_blocking_is_true_or_false() -> None:
    with pytest.raises(FieldError, match="must be true or false") as caught:
        json_proto.read_blocking({"blocking": 1})
    assert caught.value.path == ["blocking"]


@pytest.mark.parametrize(
    ("message", "context"),
    [
        ({"messageId": "m"}, "beside"),
        ({"messageId": "m", "contextId": ""}, "beside"),
        ({"messageId": "m", "contextId": "own"}, "own"),
        ({"messageId": "m", "context_id": "own"}, "own"),
    ],
)
def test_a_context_beside_the_message_moves_into_it_unless_it_has_one(message: dict[str, Any], context: str) -> None:
    codec = protojson.compile(pb.SendMessageRequest, json_proto.PROTOJSON_V1)
    assert codec.decode({"contextId": "beside", "message": message}).message.context_id == context


@pytest.mark.parametrize(("length", "read"), [(0, {}), (3, {"historyLength": 3}), (None, {"historyLength": None})])
def test_a_history_length_of_zero_means_absent_before_1_0(length: int | None, read: dict[str, Any]) -> None:
    assert json_proto.read_history({"historyLength": length}) == read


FLAT = {"url": "https://x", "taskId": "t", "tenant": None}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"url": "https://x", "id": "c", "taskId": "t"}, {"url": "https://x", "id": "c", "taskId": "t"}),
        ({"taskId": "t", "pushNotificationConfig": {"url": "https://x"}}, FLAT),
        ({"task_id": "t", "push_notification_config": {"url": "https://x"}}, FLAT),
        ({"id": "t", "pushNotificationConfig": {"url": "https://x"}}, FLAT),
        ({"id": "t", "pushNotificationConfig": {"url": "https://x", "id": "c"}}, {**FLAT, "id": "c"}),
        ({"taskId": "t", "id": "c", "pushNotificationConfig": {"url": "https://x"}}, {**FLAT, "id": "c"}),
        ({"taskId": "t", "id": "c", "pushNotificationConfig": {**FLAT, "id": "own"}}, {**FLAT, "id": "own"}),
    ],
)
def test_a_push_configuration_is_read_with_and_without_its_wrapper(value: dict[str, Any], read: dict[str, Any]) -> None:
    assert json_proto.read_push(value) == read


@pytest.mark.parametrize(
    ("authentication", "scheme"),
    [
        ({"schemes": ["Bearer"]}, "Bearer"),
        ({"schemes": ["Basic", "Bearer"], "scheme": "other"}, "Basic, Bearer"),
        ({"type": "http", "scheme": "Bearer"}, "Bearer"),
        ({"scheme": "Digest"}, "Digest"),
    ],
)
def test_every_form_of_push_authentication_has_its_scheme(authentication: dict[str, Any], scheme: str) -> None:
    codec = protojson.compile(pb.TaskPushNotificationConfig, json_proto.PROTOJSON_V1)
    read = codec.decode({"url": "https://x", "authentication": {**authentication, "credentials": "c"}})
    assert read.authentication == pb.AuthenticationInfo(scheme=scheme, credentials="c")


@pytest.mark.parametrize(
    ("value", "field", "rule"),
    [
        ({"pushNotificationConfig": 5}, "pushNotificationConfig", "must be a JSON object"),
        ({"authentication": {"schemes": "Bearer"}}, "authentication.schemes", "must be an array of strings"),
        ({"authentication": {"schemes": [1]}}, "authentication.schemes", "must be an array of strings"),
        ({"authentication": {"type": "apiKey"}}, "authentication.type", 'must be "http".*send the key as token'),
        ({"authentication": {"type": "oauth2"}}, "authentication.type", "fetches no access token; send one as cred"),
        ({"authentication": {"type": "openIdConnect"}}, "authentication.type", "fetches no access token"),
        ({"authentication": {"type": ["x"]}}, "authentication.type", "no delivery knows another type"),
        ({"authentication": {"type": "http", "scheme": "x", "description": 1}}, "authentication.description", "string"),
        ({"authentication": {"type": "http"}}, "authentication.scheme", "is required, such as Bearer"),
        ({"id": "", "pushNotificationConfig": {"url": "https://x"}}, "id", "is required"),
    ],
)
def test_an_invalid_push_configuration_names_its_field(value: dict[str, Any], field: str, rule: str) -> None:
    with pytest.raises(FieldError, match=rule) as caught:
        json_proto.read_push(value)
    assert caught.value.field() == field


def test_hooks_change_a_copy_and_leave_other_values_to_the_decoder() -> None:
    decoded: list[object] = []

    def rename(value: dict[str, Any]) -> dict[str, Any]:
        value["renamed"] = value.pop("a")
        return value

    read = json_proto.decode_hook(rename)(lambda message, value: decoded.append(value))
    original = {"a": 1}
    read(None, original)
    read(None, 7)
    assert decoded == [{"renamed": 1}, 7]
    assert original == {"a": 1}


# 0.3 as defined in protobuf -----------------------------------------------------------------------------------------

PART = protojson.compile(v03.Part, json_proto.PROTOJSON_V03)


@pytest.mark.parametrize(
    "value",
    [
        {"data": {"data": {"a": 1}}},
        {"kind": "data", "data": {"a": 1}},
        {"kind": "data", "data": {"data": {"a": 1}}},
    ],
)
def test_data_of_0_3_is_read_in_its_own_form_and_in_that_of_json_rpc(value: dict[str, Any]) -> None:
    assert PART.to_dict(PART.decode(value)) == {"data": {"data": {"a": 1}}}


@pytest.mark.parametrize("data", [{"a": 1}, {"data": {}, "a": 1}, [1], "x"])
def test_data_of_1_0_in_a_part_of_0_3_is_rejected_with_the_right_form(data: object) -> None:
    with pytest.raises(InvalidParams, match='must be an object with one key, "data"') as caught:
        PART.decode({"data": data})
    assert [violation.field for violation in caught.value.violations] == ["data"]


@pytest.mark.parametrize(
    ("cls", "value", "expected"),
    [
        (v03.SendMessageRequest, {"message": {"messageId": "m"}}, {"message": {"messageId": "m"}}),
        (v03.SendMessageRequest, {"request": {"messageId": "m"}}, {"message": {"messageId": "m"}}),
        (v03.Message, {"parts": [{"text": "x"}]}, {"content": [{"text": "x"}]}),
        (v03.FilePart, {"uri": "http://x"}, {"fileWithUri": "http://x"}),
        (v03.TaskStatus, {"update": {"messageId": "m"}}, {"message": {"messageId": "m"}}),
    ],
)
def test_renamed_fields_of_0_3_are_read_under_every_name(
    cls: Any, value: dict[str, Any], expected: dict[str, Any]
) -> None:
    codec = protojson.compile(cls, json_proto.PROTOJSON_V03)
    assert codec.to_dict(codec.decode(value)) == expected


@pytest.mark.parametrize("key", ["statusTimestampAfter", "lastUpdatedAfter", "last_updated_time"])
def test_the_filter_by_time_is_read_under_every_name(key: str) -> None:
    codec = protojson.compile(pb.ListTasksRequest, json_proto.PROTOJSON_V1)
    assert codec.decode({key: "2026-11-20T00:00:00Z"}).status_timestamp_after.seconds == 1_795_132_800


def test_a_page_of_1_0_has_all_its_fields_when_it_is_empty() -> None:
    codec = protojson.compile(pb.ListTasksResponse, json_proto.PROTOJSON_V1)
    assert codec.to_dict(pb.ListTasksResponse()) == {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}
    old = protojson.compile(v03.ListTasksResponse, json_proto.PROTOJSON_V03)
    assert old.to_dict(v03.ListTasksResponse()) == {"tasks": [], "nextPageToken": "", "totalSize": 0}
