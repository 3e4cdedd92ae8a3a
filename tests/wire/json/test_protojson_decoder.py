import math
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from dragoman.core.errors import InvalidParams
from dragoman.wire.dialects.json_proto import PROTOJSON_V03, PROTOJSON_V1
from dragoman.wire.json import wellknown
from dragoman.wire.json.protojson import JsonDialect, compile
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1


@pytest.mark.parametrize(
    ("cls", "dialect", "data", "expected"),
    [
        (v03.SendMessageRequest, PROTOJSON_V03, {"message": {"messageId": "m"}}, {"request": {"message_id": "m"}}),
        (v03.SendMessageRequest, PROTOJSON_V03, {"request": {"message_id": "m"}}, {"request": {"message_id": "m"}}),
        (v03.SendMessageResponse, PROTOJSON_V03, {"msg": {"messageId": "m"}}, {"msg": {"message_id": "m"}}),
        (v03.StreamResponse, PROTOJSON_V03, {"message": {"messageId": "m"}}, {"msg": {"message_id": "m"}}),
        (v03.Message, PROTOJSON_V03, {"content": [{"text": "x"}]}, {"content": [{"text": "x"}]}),
        (v03.Message, PROTOJSON_V03, {"parts": [{"text": "x"}]}, {"content": [{"text": "x"}]}),
        (
            v03.SendMessageConfiguration,
            PROTOJSON_V03,
            {"pushNotificationConfig": {"url": "u"}},
            {"push_notification": {"url": "u"}},
        ),
        (
            v03.SendMessageConfiguration,
            PROTOJSON_V03,
            {"pushNotification": {"url": "u"}},
            {"push_notification": {"url": "u"}},
        ),
        (v03.TaskStatus, PROTOJSON_V03, {"update": {"messageId": "m"}}, {"update": {"message_id": "m"}}),
        (v03.TaskStatus, PROTOJSON_V03, {"message": {"messageId": "m"}}, {"update": {"message_id": "m"}}),
        (v03.TaskStatus, PROTOJSON_V03, {"state": "TASK_STATE_CANCELED"}, {"state": 5}),
        (v03.TaskStatus, PROTOJSON_V03, {"state": "TASK_STATE_CANCELLED"}, {"state": 5}),
        (v03.Message, PROTOJSON_V03, {"role": "user"}, {"role": 1}),
        (v03.TaskStatus, PROTOJSON_V03, {"state": "canceled"}, {"state": 5}),
        (v03.Part, PROTOJSON_V03, {"kind": "text", "text": "x"}, {"text": "x"}),
        (
            v03.Part,
            PROTOJSON_V03,
            {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "text/csv", "name": "n.csv"}},
            {"file": {"file_with_bytes": b"hi", "mime_type": "text/csv", "name": "n.csv"}},
        ),
        (
            v03.Part,
            PROTOJSON_V03,
            {"kind": "file", "file": {"uri": "http://x"}},
            {"file": {"file_with_uri": "http://x"}},
        ),
        (v03.Part, PROTOJSON_V03, {"kind": "data", "data": {"a": "b"}}, {"data": {"data": {"a": "b"}}}),
        (v03.Part, PROTOJSON_V03, {"kind": "data", "data": {"data": {"a": "b"}}}, {"data": {"data": {"a": "b"}}}),
        (v03.Part, PROTOJSON_V03, {"data": {"data": {"a": "b"}}}, {"data": {"data": {"a": "b"}}}),
        (v1.TaskStatus, PROTOJSON_V1, {"state": "TASK_STATE_CANCELLED"}, {"state": 5}),
        (v1.TaskStatus, PROTOJSON_V1, {"state": "5"}, {"state": 5}),
        (v1.TaskStatus, PROTOJSON_V1, {"state": "ON_FIRE"}, {"state": 0}),
        (v03.TaskStatus, PROTOJSON_V03, {"state": "ON_FIRE"}, {"state": 0}),
        (v1.ListTasksRequest, PROTOJSON_V1, {"pageSize": "7", "page_token": "x"}, {"page_size": 7, "page_token": "x"}),
        (v1.ListTasksRequest, PROTOJSON_V1, {"pageSize": 7.0}, {"page_size": 7}),
        (v1.Task, PROTOJSON_V1, {"id": None, "history": None, "unknown": {"x": [1]}, "kind": "task"}, {}),
        (v1.Part, PROTOJSON_V1, {"text": None, "url": "u"}, {"url": "u"}),
        (v1.Task, PROTOJSON_V1, {"contextId": "c", "context_id": "c"}, {"context_id": "c"}),
        (v1.Task, PROTOJSON_V1, {"contextId": "c", "context_id": None}, {"context_id": "c"}),
        (v1.SendMessageRequest, PROTOJSON_V1, {"configuration": {}}, {"configuration": {}}),
    ],
)
def test_spellings_of_real_clients_are_accepted(
    cls: type[Message], dialect: JsonDialect, data: dict[str, object], expected: dict[str, Any]
) -> None:
    assert compile(cls, dialect).decode(data) == cls(**expected)


def test_the_filter_name_of_the_go_client_is_accepted() -> None:
    data = {"lastUpdatedAfter": "2026-11-20T10:00:00Z"}
    assert compile(v1.ListTasksRequest, PROTOJSON_V1).decode(data).status_timestamp_after.seconds == 1795168800
    assert compile(v03.ListTasksRequest, PROTOJSON_V03).decode(data).last_updated_time.seconds == 1795168800


def test_null_is_a_value_in_data_and_absence_elsewhere() -> None:
    part = compile(v1.Part, PROTOJSON_V1).decode({"data": None, "metadata": None})
    assert part.data.HasField("null_value")
    assert not part.HasField("metadata")


@pytest.mark.parametrize("data", [{"text": "x", "data": None}, {"data": None, "text": "x", "raw": None}])
def test_a_null_value_beside_another_member_is_absent(data: dict[str, object]) -> None:
    assert compile(v1.Part, PROTOJSON_V1).decode(data) == v1.Part(text="x")


def test_errors_quote_the_value_truncated() -> None:
    for given, text in (
        ("DONE", '; not "DONE"'),
        (99, "; not 99"),
        ([], "; not an array"),
        ("x" * 50_000, f'; not "{"x" * 38}…'),
        (10**5000, "; not a number of more than 64 bits"),
    ):
        with pytest.raises(InvalidParams) as caught:
            compile(v1.Message, PROTOJSON_V1).decode({"role": given})
        assert caught.value.message.endswith(text)


def test_errors_do_not_suggest_the_unspecified_role() -> None:
    with pytest.raises(InvalidParams, match="role: must be one of ROLE_USER, ROLE_AGENT; not 5"):
        compile(v1.Message, PROTOJSON_V1).decode({"role": 5})


STATES = "TASK_STATE_UNSPECIFIED, TASK_STATE_SUBMITTED, .*TASK_STATE_AUTH_REQUIRED"


@pytest.mark.parametrize(
    ("data", "field", "rule"),
    [
        ([], "body", "must be a JSON object"),
        ({"id": 5}, "id", "must be a string"),
        ({"context_id": 5}, "contextId", "must be a string"),
        ({"status": "x"}, "status", "must be a JSON object"),
        ({"history": [{"role": 99}]}, "history[0].role", "must be one of ROLE_USER, ROLE_AGENT"),
        ({"status": {"state": True}}, "status.state", f"must be one of {STATES}"),
        ({"status": {"state": []}}, "status.state", f"must be one of {STATES}"),
        ({"history": {}}, "history", "must be a JSON array"),
        ({"history": [{}, None]}, "history[1]", "must not be null"),
        ({"history": [{}, {"extensions": ["a", 1]}]}, "history[1].extensions[1]", "must be a string"),
        ({"history": [{"parts": [{"raw": "%%"}]}]}, "history[0].parts[0].raw", "must be valid base64"),
        (
            {"history": [{"parts": [{"text": "x", "url": "y"}]}]},
            "history[0].parts[0].url",
            "cannot stand beside text; give only one of text, raw, url, data",
        ),
        ({"metadata": []}, "metadata", "must be a JSON object"),
        ({"metadata": {"a": {"b": [1, math.inf]}}}, "metadata.a.b[1]", "must be a finite number"),
        ({"contextId": "a", "context_id": "b"}, "contextId", "given more than once, as context_id and contextId"),
    ],
)
def test_invalid_input_is_rejected_with_field_rule_and_allowed_values(data: object, field: str, rule: str) -> None:
    with pytest.raises(InvalidParams, match=rule) as caught:
        compile(v1.Task, PROTOJSON_V1).decode(data)
    (violation,) = caught.value.violations
    assert violation.field == field
    assert caught.value.message == f"{field}: {violation.description}"


def test_an_error_path_begins_with_the_given_path() -> None:
    codec = compile(v1.Message, PROTOJSON_V1)
    for data, field in (({"role": "X"}, "message.role"), ([], "message")):
        with pytest.raises(InvalidParams) as caught:
            codec.merge(codec.cls(), data, path="message")
        assert caught.value.violations[0].field == field


def test_merging_replaces_lists_and_keeps_other_fields() -> None:
    task = v1.Task(id="a", context_id="c", artifacts=[{"artifact_id": "1"}])
    compile(v1.Task, PROTOJSON_V1).merge(task, {"id": "b", "artifacts": [{"artifactId": "2"}]})
    assert task == v1.Task(id="b", context_id="c", artifacts=[{"artifact_id": "2"}])


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["array", "object"])
def test_data_nests_as_deep_as_a_task_can_be_parsed_again(wrap: Callable[[object], object]) -> None:
    data: object = 1
    for _ in range(wellknown.MAX_LEVELS):
        data = wrap(data)
    message = compile(v1.StreamResponse, PROTOJSON_V1).decode({"task": {"artifacts": [{"parts": [{"data": data}]}]}})
    assert v1.StreamResponse.FromString(message.SerializeToString()) == message
    with pytest.raises(InvalidParams, match="nests more than 30 levels of arrays and objects"):
        compile(v1.Part, PROTOJSON_V1).decode({"data": wrap(data)})
