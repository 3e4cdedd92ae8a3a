from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass
from tests.wire.random_messages import Sink

from dragoman.core.errors import InvalidParams
from dragoman.wire.dialects.json_proto import PROTOJSON_V03, PROTOJSON_V1
from dragoman.wire.http.transcode import WHOLE_REQUEST, ResponseEncoder, Transcoder
from dragoman.wire.json.protojson import JsonDialect
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1

GET = Transcoder(v1.GetTaskRequest, PROTOJSON_V1)
LIST = Transcoder(v1.ListTasksRequest, PROTOJSON_V1)
SEND = Transcoder(v1.SendMessageRequest, PROTOJSON_V1, body="*")
CANCEL = Transcoder(v03.CancelTaskRequest, PROTOJSON_V03, body="*")
PUSH = Transcoder(
    v03.CreateTaskPushNotificationConfigRequest,
    PROTOJSON_V03,
    body="config",
    shapes=(WHOLE_REQUEST, "config", "config.push_notification_config"),
)


def test_a_request_is_built_from_path_and_query_alone() -> None:
    request = GET.request({"tenant": "acme", "id": "42"}, [("historyLength", "0")])
    assert request == v1.GetTaskRequest(tenant="acme", id="42", history_length=0)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ([("pageSize", "10")], {"page_size": 10}),
        ([("page_size", "10")], {"page_size": 10}),
        ([("pageSize", "")], {}),
        ([("status", "TASK_STATE_WORKING")], {"status": 2}),
        ([("status", "2")], {"status": 2}),
        ([("status", "TASK_STATE_CANCELLED")], {"status": 5}),
        ([("includeArtifacts", "true")], {"include_artifacts": True}),
        ([("includeArtifacts", "False")], {"include_artifacts": False}),
        ([("includeArtifacts", "1")], {"include_artifacts": True}),
        ([("pageToken", "")], {}),
        ([("contextId", "a b&c")], {"context_id": "a b&c"}),
        ([("$.xgafv", "1"), ("alt", "json"), ("key", "k"), ("fields", "*"), ("A2A-Version", "1.0")], {}),
        ([("unknown", "1"), ("contextId.more", "1"), ("", ""), (".", "")], {}),
    ],
)
def test_query_parameters_are_converted_and_unknown_ones_ignored(
    query: list[tuple[str, str]], expected: dict[str, Any]
) -> None:
    assert LIST.request({}, query) == v1.ListTasksRequest(**expected)


MISSPELLED = {
    "pageSze": "pageSize", "page-size": "pageSize", "pagesize": "pageSize", "contextID": "contextId",
    "include_artefacts": "includeArtifacts", "historyLenght": "historyLength", "tenantId": "tenant",
}  # fmt: skip
FOREIGN = (
    "key", "alt", "$alt", "fields", "$fields", "$.xgafv", "prettyPrint", "access_token", "token", "quotaUser",
    "callback", "A2A-Version",
    "utm_source", "fbclid", "gclid", "_", "t", "sid", "uid", "lang", "page", "X-Amz-Signature",
)  # fmt: skip
"""Parameters that Google's clients, grpc-gateway, browsers, proxies and advertisements add."""


@pytest.mark.parametrize(("name", "right"), MISSPELLED.items())
def test_a_misspelled_parameter_is_refused_with_the_one_that_is_meant_where_that_is_wanted(
    name: str, right: str
) -> None:
    assert LIST.request({}, [(name, "1")]) == v1.ListTasksRequest()
    with pytest.raises(InvalidParams, match=f"^{name}: is not a parameter of this method; did you mean {right}"):
        Transcoder(v1.ListTasksRequest, JsonDialect("plain"), refuses_misspelled=True).request({}, [(name, "1")])


@pytest.mark.parametrize("cls", [v1.ListTasksRequest, v1.GetTaskRequest, v1.SubscribeToTaskRequest])
def test_no_parameter_of_browsers_proxies_and_google_is_taken_for_a_misspelled_one(cls: type[Any]) -> None:
    transcoder = Transcoder(cls, JsonDialect("plain"), refuses_misspelled=True)
    assert transcoder.request({}, [(name, "1") for name in FOREIGN]) == cls()


@pytest.mark.parametrize("name", ["statusTimestampAfter", "status_timestamp_after", "lastUpdatedAfter"])
def test_a_time_in_the_query_is_accepted_under_every_spelling_of_its_field(name: str) -> None:
    request = LIST.request({}, [(name, "2026-11-20T10:00:00+00:00")])
    assert request.status_timestamp_after.seconds == 1795168800


def test_an_empty_text_is_a_value_of_strings_bytes_and_masks_and_absent_for_others() -> None:
    names = ("one_StringValue", "one_BytesValue", "one_mask", "many_raw", "many_text", "one_time", "one_Int32Value")
    message = Transcoder(Sink, JsonDialect("plain")).request({}, [(name, "") for name in names])
    assert [field.name for field, _ in message.ListFields()] == [
        "many_text", "many_raw", "one_mask", "one_StringValue", "one_BytesValue",
    ]  # fmt: skip


def test_a_plus_that_is_not_encoded_is_named() -> None:
    with pytest.raises(InvalidParams, match=r"RFC 3339 time .*; a \+ in a query is a space, so write it as %2B$"):
        LIST.request({}, [("statusTimestampAfter", "2026-11-20T10:00:00 01:00")])


def test_nested_fields_are_named_with_dots_and_repeated_ones_by_repetition() -> None:
    request = SEND.request(
        {},
        [
            ("message.taskId", "t"),
            ("configuration.acceptedOutputModes", "text/plain"),
            ("configuration.accepted_output_modes", "text/html"),
        ],
    )
    assert request == v1.SendMessageRequest(
        message={"task_id": "t"}, configuration={"accepted_output_modes": ["text/plain", "text/html"]}
    )


@pytest.mark.parametrize(
    ("query", "field", "rule"),
    [
        ([("page_size", "many")], "pageSize", "must be an integer from -2147483648 to 2147483647"),
        ([("pageSize", "2147483648")], "pageSize", "must be an integer from -2147483648 to 2147483647"),
        ([("pageSize", "1"), ("page_size", "1")], "pageSize", "is given 2 times; it is allowed once"),
        ([("status", "DONE")], "status", "must be one of TASK_STATE_UNSPECIFIED, "),
        ([("includeArtifacts", "perhaps")], "includeArtifacts", "must be true or false"),
        ([("statusTimestampAfter", "today")], "statusTimestampAfter", "must be an RFC 3339 time"),
        ([("contextId", "\ud800")], "contextId", "must be valid Unicode"),
        ([("contextId", "a\ufffd")], "contextId", "must be percent-encoded UTF-8"),
    ],
)
def test_an_invalid_query_parameter_is_rejected_with_its_field_and_rule(
    query: list[tuple[str, str]], field: str, rule: str
) -> None:
    with pytest.raises(InvalidParams) as caught:
        LIST.request({}, query)
    (violation,) = caught.value.violations
    assert violation.field == field
    assert violation.description.startswith(rule)


@pytest.mark.parametrize(
    ("query", "field", "rule"),
    [
        ([("message", "hi")], "message", "is an object"),
        ([("metadata", "hi")], "metadata", "is an object"),
        ([("message.parts", "hi")], "message.parts", "send it in the body"),
        ([("message.role", "ROLE_KING")], "message.role", "must be one of ROLE_USER, ROLE_AGENT"),
    ],
)
def test_an_object_cannot_be_a_query_parameter(query: list[tuple[str, str]], field: str, rule: str) -> None:
    with pytest.raises(InvalidParams, match=rule) as caught:
        SEND.request({}, query)
    assert caught.value.violations[0].field == field


def test_the_path_takes_precedence_over_body_and_query() -> None:
    request = SEND.request({"tenant": "path"}, [("tenant", "query")], {"tenant": "body", "message": {"taskId": "t"}})
    assert request == v1.SendMessageRequest(tenant="path", message={"task_id": "t"})


def test_the_query_sets_only_fields_that_the_body_omits() -> None:
    request = SEND.request({}, [("tenant", "query"), ("message.taskId", "query")], {"message": {"contextId": "c"}})
    assert request == v1.SendMessageRequest(tenant="query", message={"context_id": "c"})


def test_an_invalid_path_value_is_rejected_with_its_field() -> None:
    numbered = Transcoder(v1.ListTasksRequest, PROTOJSON_V1)
    with pytest.raises(InvalidParams, match="pageSize: must be an integer"):
        numbered.request({"page_size": "x"})


@pytest.mark.parametrize("body", [None, {}, {"name": "tasks/7"}, {"name": "tasks/42", "kind": "x"}])
def test_a_cancel_accepts_an_empty_body_or_a_complete_request(body: object) -> None:
    assert CANCEL.request({"name": "tasks/42"}, (), body) == v03.CancelTaskRequest(name="tasks/42")


@pytest.mark.parametrize("body", [[], "x", 1, True])
def test_a_required_body_that_is_not_an_object_is_rejected(body: object) -> None:
    with pytest.raises(InvalidParams, match="body: must be a JSON object"):
        SEND.request({}, (), body)
    with pytest.raises(InvalidParams, match=r"config\.pushNotificationConfig: must be a JSON object"):
        Transcoder(
            v03.CreateTaskPushNotificationConfigRequest,
            PROTOJSON_V03,
            body="config",
            shapes=("config.push_notification_config",),
        ).request({}, (), body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"id": "7", "historyLength": 3}, {"id": "42", "history_length": 3}),
        ({}, {"id": "42"}),
        ([], {"id": "42"}),
        ("x", {"id": "42"}),
    ],
)
def test_an_undeclared_body_is_merged_only_as_an_object_of_a_declared_shape(
    body: object, expected: dict[str, Any]
) -> None:
    shaped = Transcoder(v1.GetTaskRequest, PROTOJSON_V1, shapes=(WHOLE_REQUEST,))
    assert shaped.request({"id": "42"}, (), body) == v1.GetTaskRequest(**expected)
    assert GET.request({"id": "42"}, (), body) == v1.GetTaskRequest(id="42")


CONFIG = {"name": "n", "push_notification_config": {"url": "u"}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"parent": "other", "configId": "c", "config": {"name": "n", "pushNotificationConfig": {"url": "u"}}},
            {"parent": "tasks/1", "config_id": "c", "config": CONFIG},
        ),
        ({"name": "n", "pushNotificationConfig": {"url": "u"}}, {"parent": "tasks/1", "config": CONFIG}),
        (
            {"url": "u", "token": "t"},
            {"parent": "tasks/1", "config": {"push_notification_config": {"url": "u", "token": "t"}}},
        ),
        ({}, {"parent": "tasks/1"}),
        (None, {"parent": "tasks/1"}),
    ],
)
def test_the_shape_with_most_known_keys_is_used(body: object, expected: dict[str, Any]) -> None:
    assert PUSH.request({"parent": "tasks/1"}, (), body) == v03.CreateTaskPushNotificationConfigRequest(**expected)


def test_the_query_sets_fields_beside_an_annotated_body() -> None:
    request = PUSH.request({"parent": "tasks/1"}, [("configId", "c"), ("config.name", "x")], CONFIG)
    assert request == v03.CreateTaskPushNotificationConfigRequest(parent="tasks/1", config_id="c", config=CONFIG)


def test_an_error_in_the_body_has_its_path_within_the_request() -> None:
    with pytest.raises(InvalidParams, match=r"config\.pushNotificationConfig\.url: must be a string"):
        PUSH.request({"parent": "tasks/1"}, (), {"name": "n", "pushNotificationConfig": {"url": 1}})


@pytest.mark.parametrize("path", ["nothing", "parent", "config.name", "config.nothing"])
def test_a_shape_that_is_not_a_message_is_rejected_at_start(path: str) -> None:
    with pytest.raises(TypeError, match=f"no message {path}"):
        Transcoder(v03.CreateTaskPushNotificationConfigRequest, PROTOJSON_V03, body="*", shapes=(path,))


def test_an_unknown_path_variable_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="no field nothing"):
        GET.request({"nothing": "x"})


Field = descriptor_pb2.FieldDescriptorProto


def build() -> Any:

    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="M")
    message.oneof_decl.add(name="which")
    for number, (name, type_) in enumerate(
        (("text", Field.TYPE_STRING), ("number", Field.TYPE_INT64), ("flag", Field.TYPE_BOOL)), start=1
    ):
        message.field.add(name=name, number=number, type=type_, label=Field.LABEL_OPTIONAL, oneof_index=0)
    message.field.add(name="raw", number=4, type=Field.TYPE_BYTES, label=Field.LABEL_OPTIONAL)
    message.field.add(name="ratio", number=5, type=Field.TYPE_DOUBLE, label=Field.LABEL_OPTIONAL)
    message.field.add(name="counts", number=6, type=Field.TYPE_INT32, label=Field.LABEL_REPEATED)
    message.field.add(
        name="times",
        number=7,
        type=Field.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=Field.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("t.M"))


M = build()


def test_every_kind_of_scalar_is_accepted_in_the_query() -> None:
    request = Transcoder(M, JsonDialect("t")).request(
        {}, [("number", "-5"), ("raw", "YQ"), ("ratio", "1.5"), ("counts", "1"), ("counts", ""), ("counts", "2")]
    )
    assert request == M(number=-5, raw=b"a", ratio=1.5, counts=[1, 2])


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ([("text", "a"), ("flag", "true")], "flag: cannot stand beside text; give only one of text, number, flag"),
        ([("raw", "%")], "raw: must be valid base64"),
        ([("ratio", "x")], "ratio: must be a number"),
        ([("counts", "1"), ("counts", "x")], "counts: must be an integer"),
        ([("times", "2026-11-20T10:00:00Z")], "times: cannot be given in a query"),
    ],
)
def test_invalid_scalars_and_two_members_of_a_oneof_are_rejected(query: list[tuple[str, str]], rule: str) -> None:
    with pytest.raises(InvalidParams, match=rule):
        Transcoder(M, JsonDialect("t")).request({}, query)


def test_a_oneof_member_beside_one_from_the_body_is_rejected() -> None:
    with pytest.raises(InvalidParams, match="flag: cannot stand beside text"):
        Transcoder(M, JsonDialect("t"), body="*").request({}, [("flag", "true")], {"text": "a"})


# ---- other services: bodies of one field, messages with a string form, response bodies of one field

PLAIN = JsonDialect("json_format")


@pytest.mark.parametrize(
    ("body", "sent", "expected"),
    [
        ("many_text", ["a", "b"], {"many_text": ["a", "b"]}),
        ("one_text", "a", {"one_text": "a"}),
        ("one_int64", "7", {"one_int64": 7}),
        ("text_to_text", {"k": "v"}, {"text_to_text": {"k": "v"}}),
        ("one_duration", "1.5s", {"one_duration": {"seconds": 1, "nanos": 500_000_000}}),
        ("many_child", [{"oneText": "a"}], {"many_child": [{"one_text": "a"}]}),
    ],
)
def test_a_body_has_the_type_of_the_field_in_the_rule(body: str, sent: object, expected: dict[str, Any]) -> None:
    transcoder = Transcoder(Sink, PLAIN, body=body)
    assert transcoder.request({}, [("oneFlag", "true")], sent) == Sink(one_flag=True, **expected)


@pytest.mark.parametrize(
    ("body", "sent", "rule"),
    [
        ("many_text", "a", "manyText: must be a JSON array"),
        ("many_child", [{"oneInt32": "x"}], r"manyChild\[0\].oneInt32: must be an integer"),
        ("one_text", 1, "oneText: must be a string"),
        ("one_child", {"oneInt32": "x"}, "oneChild.oneInt32: must be an integer"),
    ],
)
def test_an_error_in_a_field_body_has_its_path_within_the_request(body: str, sent: object, rule: str) -> None:
    with pytest.raises(InvalidParams, match=rule):
        Transcoder(Sink, PLAIN, body=body).request({}, (), sent)


def test_messages_with_a_string_form_are_accepted_in_the_query() -> None:
    query = [
        ("oneDuration", "-1.5s"),
        ("one_mask", "title,author.full_name"),
        ("oneTime", "2026-11-20T10:00:00Z"),
        ("oneInt64Value", "0"),
        ("oneBoolValue", "false"),
        ("oneStringValue", "x"),
        ("oneBytesValue", "YQ"),
        ("oneFloat", "0.5"),
    ]
    expected = Sink(one_int64=0, one_float=0.5)
    expected.one_duration.FromJsonString("-1.5s")
    expected.one_mask.paths.extend(["title", "author.full_name"])
    expected.one_time.FromJsonString("2026-11-20T10:00:00Z")
    expected.one_Int64Value.value, expected.one_BoolValue.value = 0, False
    expected.one_StringValue.value, expected.one_BytesValue.value = "x", b"a"
    assert Transcoder(Sink, PLAIN).request({}, query) == expected


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("oneDuration", "1", "oneDuration: must be seconds with an s"),
        ("oneMask", "a b", "oneMask: 'a b' is not a path"),
        ("oneUInt32Value", "-1", "oneUInt32Value: must be an integer from 0"),
        ("oneChild", "{}", "oneChild: is an object and cannot be given as text; name one of its fields"),
        ("oneStruct", "{}", "oneStruct: is an object"),
    ],
)
def test_an_invalid_string_form_is_rejected(name: str, text: str, rule: str) -> None:
    with pytest.raises(InvalidParams, match=rule):
        Transcoder(Sink, PLAIN).request({}, [(name, text)])


@pytest.mark.parametrize("path", ["no_such", "many_text", "one_child", "one_child.no_such", "text_to_text"])
def test_a_path_variable_that_is_not_a_scalar_is_rejected_at_start(path: str) -> None:
    with pytest.raises(TypeError, match="has no scalar"):
        Transcoder(Sink, PLAIN).check_variable(path)
    Transcoder(Sink, PLAIN).check_variable("one_child.one_text")


@pytest.mark.parametrize(
    ("field", "message", "expected"),
    [
        ("", {"one_int64": 7}, b'{"oneInt64":"7"}'),
        ("many_text", {"many_text": ["a"]}, b'["a"]'),
        ("many_text", {"one_text": "a"}, b"[]"),
        ("text_to_text", {}, b"{}"),
        ("one_child", {"one_child": {"one_text": "a"}}, b'{"oneText":"a"}'),
        ("one_child", {}, b"{}"),
        ("one_time", {}, b"null"),
        ("one_text", {}, b'""'),
        ("one_raw", {}, b'""'),
        ("one_flag", {}, b"false"),
        ("one_int64", {}, b'"0"'),
        ("one_int32", {}, b"0"),
        ("one_kind", {}, b'"KIND_NONE"'),
    ],
)
def test_a_response_is_the_response_body_field_even_if_empty(
    field: str, message: dict[str, Any], expected: bytes
) -> None:
    assert ResponseEncoder(Sink, PLAIN, response_body=field).encode(Sink(**message)) == expected


def test_an_unknown_response_body_is_rejected_at_start() -> None:
    with pytest.raises(TypeError, match="has no field no_such"):
        ResponseEncoder(Sink, PLAIN, response_body="no_such")
