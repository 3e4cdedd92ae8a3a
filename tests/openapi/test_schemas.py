"""Schemas of messages and fields, parameters, and comments of the protos."""

from __future__ import annotations

from typing import Any, cast

import pytest
from google.protobuf import empty_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from tools.openapi.schemas import (
    SchemaBuilder,
    is_query_field,
    parameter_ref,
    parse_comments,
    path_parameter,
    proto_comments,
    query_parameter,
    schema_ref,
)


def descriptor(message: type[Message]) -> Descriptor:
    return cast(Descriptor, message.DESCRIPTOR)


def field_schema(message: type[Message], name: str, **comments: str) -> dict[str, Any]:
    builder = SchemaBuilder({f"lf.a2a.v1.{key.replace('__', '.')}": text for key, text in comments.items()})
    return builder.field_schema(descriptor(message).fields_by_name[name])


@pytest.mark.parametrize(
    ("message", "name", "schema"),
    [
        (pb.Task, "id", {"type": "string"}),
        (pb.Part, "raw", {"type": "string", "contentEncoding": "base64"}),
        (pb.TaskArtifactUpdateEvent, "append", {"type": "boolean"}),
        (pb.ListTasksRequest, "page_size", {"type": "integer", "format": "int32", "minimum": 1, "maximum": 100}),
        (
            pb.ListTasksResponse,
            "page_size",
            {"type": "integer", "format": "int32", "minimum": -2147483648, "maximum": 2147483647},
        ),
        (pb.Message, "message_id", {"type": "string", "minLength": 1}),
        (pb.Message, "extensions", {"type": "array", "items": {"type": "string"}}),
        (pb.Task, "history", {"type": "array", "items": schema_ref("lf.a2a.v1.Message")}),
        (pb.Task, "metadata", {"type": "object"}),
        (pb.Part, "data", {}),
        (pb.TaskStatus, "timestamp", {"type": "string", "format": "date-time"}),
        (pb.TaskStatus, "state", schema_ref("lf.a2a.v1.TaskState")),
        (
            pb.AgentCard,
            "security_schemes",
            {"type": "object", "additionalProperties": schema_ref("lf.a2a.v1.SecurityScheme")},
        ),
    ],
)
def test_a_field_has_the_schema_of_its_json(message: type[Message], name: str, schema: dict[str, Any]) -> None:
    assert field_schema(message, name) == schema


def test_the_comment_of_a_field_is_its_description_beside_a_reference() -> None:
    assert field_schema(pb.Task, "status", Task__status="Where it is.") == {
        **schema_ref("lf.a2a.v1.TaskStatus"),
        "description": "Where it is.",
    }


def test_a_reference_adds_the_schemas_of_all_messages_in_reach_once() -> None:
    builder = SchemaBuilder({})
    reference = builder.message_ref(descriptor(pb.Task))
    assert reference == schema_ref("lf.a2a.v1.Task")
    assert {name.rpartition(".")[2] for name in builder.schemas} == {
        "Task",
        "TaskStatus",
        "TaskState",
        "Message",
        "Role",
        "Part",
        "Artifact",
    }
    assert builder.resolve(reference) is builder.schemas["lf.a2a.v1.Task"]
    before = dict(builder.schemas)
    assert builder.message_ref(descriptor(pb.Message)) == schema_ref("lf.a2a.v1.Message")
    assert builder.schemas == before


@pytest.mark.parametrize(
    ("message", "schema"),
    [
        (timestamp_pb2.Timestamp, {"type": "string", "format": "date-time"}),
        (struct_pb2.Struct, {"type": "object"}),
        (struct_pb2.Value, {}),
        (empty_pb2.Empty, {"type": "object"}),
    ],
)
def test_a_well_known_type_is_written_in_place(message: type[Message], schema: dict[str, Any]) -> None:
    builder = SchemaBuilder({})
    found = builder.message_ref(descriptor(message))
    assert found == schema
    found["description"] = "changed"
    assert builder.message_ref(descriptor(message)) == schema
    assert builder.schemas == {}


def test_required_fields_are_those_of_the_proto_and_those_always_written() -> None:
    builder = SchemaBuilder({})
    assert builder.message_schema(descriptor(pb.Message), frozenset())["required"] == ["messageId", "role", "parts"]
    page = builder.message_schema(descriptor(pb.ListTasksResponse), frozenset())
    assert page["required"] == ["tasks", "nextPageToken", "pageSize", "totalSize"]
    assert "required" not in builder.message_schema(descriptor(pb.GetExtendedAgentCardRequest), frozenset())


def test_a_body_without_the_fields_of_its_path_has_a_name() -> None:
    builder = SchemaBuilder({})
    message = descriptor(pb.CancelTaskRequest)
    assert builder.partial_ref(message, set()) == schema_ref("lf.a2a.v1.CancelTaskRequest")
    assert builder.partial_ref(message, {"tenant", "id"}) == schema_ref("lf.a2a.v1.CancelTaskRequestWithoutIdTenant")
    assert builder.schemas["lf.a2a.v1.CancelTaskRequestWithoutIdTenant"]["properties"].keys() == {"metadata"}


def test_fields_in_the_path_are_left_out() -> None:
    schema = SchemaBuilder({}).message_schema(descriptor(pb.CancelTaskRequest), {"id"})
    assert sorted(schema["properties"]) == ["metadata", "tenant"]
    assert "required" not in schema


def test_exactly_one_member_of_a_union_is_required() -> None:
    schema = SchemaBuilder({}).message_schema(descriptor(pb.Part), frozenset())
    assert schema["then"]["oneOf"] == [{"required": [name]} for name in ("text", "raw", "url", "data")]
    assert "then" not in SchemaBuilder({}).message_schema(descriptor(pb.GetTaskRequest), frozenset())


def test_an_enum_with_a_comment_describes_its_values() -> None:
    comments = {"lf.a2a.v1.Role": "Who wrote it.", "lf.a2a.v1.ROLE_USER": "The\n  caller."}
    builder = SchemaBuilder(comments)
    builder.field_schema(descriptor(pb.Message).fields_by_name["role"])
    role = builder.schemas["lf.a2a.v1.Role"]
    assert role["enum"] == ["ROLE_USER", "ROLE_AGENT"], "no message has the role of the default value"
    assert role["description"] == "Who wrote it.\n\n- `ROLE_USER`: The caller.\n- `ROLE_AGENT`: "


# Parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tenant", "agent"])
def test_an_agent_in_a_path_has_the_pattern_of_ids_and_an_existing_one_as_example(name: str) -> None:
    parameter = path_parameter(name)
    assert (parameter["name"], parameter["in"], parameter["required"]) == (name, "path", True)
    assert parameter["schema"]["pattern"] == "^[a-z][a-z0-9-]{0,62}$"
    assert (parameter["example"], parameter["description"]) == ("playground", "The id of the agent.")


def test_another_variable_of_a_path_has_its_own_example() -> None:
    parameter = path_parameter("project")
    assert parameter["schema"] == {"type": "string", "minLength": 1}
    assert (parameter["example"], parameter["description"]) == ("my-project", "The id of the project.")


def test_a_query_parameter_has_the_comment_beside_its_schema() -> None:
    builder = SchemaBuilder({"lf.a2a.v1.ListTasksRequest.page_size": "How many."})
    field = descriptor(pb.ListTasksRequest).fields_by_name["page_size"]
    parameter = query_parameter(field, builder)
    assert (parameter["name"], parameter["in"], parameter["description"]) == ("pageSize", "query", "How many.")
    assert "description" not in parameter["schema"]
    assert parameter["example"] == 20


@pytest.mark.parametrize(
    ("message", "name", "possible"),
    [
        (pb.ListTasksRequest, "page_size", True),
        (pb.ListTasksRequest, "status", True),
        (pb.ListTasksRequest, "status_timestamp_after", True),
        (pb.CancelTaskRequest, "metadata", False),
        (pb.SendMessageRequest, "message", False),
    ],
)
def test_scalars_and_times_can_be_query_parameters(message: type[Message], name: str, possible: bool) -> None:
    assert is_query_field(descriptor(message).fields_by_name[name]) is possible


def test_shared_parameters_are_referenced_by_key() -> None:
    assert parameter_ref("xgafv") == {"$ref": "#/components/parameters/xgafv"}


# Comments ----------------------------------------------------------------------------------------------------------


def test_an_empty_descriptor_image_has_no_comments() -> None:
    assert parse_comments(b"") == {}
    assert proto_comments()["lf.a2a.v1.Task.id"].startswith("Names the task.")


def test_comments_are_found_by_full_name_in_the_packages_of_a2a_only() -> None:
    image = FileDescriptorSet()
    for package in ("lf.a2a.v1", "other"):
        file = image.file.add(package=package)
        message = file.message_type.add(name="Task")
        message.field.add(name="id")
        message.nested_type.add(name="Part")
        file.enum_type.add(name="Role").value.add(name="ROLE_USER")
        for path, text in (
            ((4, 0), " A task.\n\n  Indented. \n"),
            ((4, 0, 2, 0), " Names it.\n"),
            ((4, 0, 3, 0), " Nested.\n"),
            ((5, 0, 2, 0), " The caller.\n"),
            ((4, 0, 9, 0), " A reserved range.\n"),
        ):
            file.source_code_info.location.add(path=path, leading_comments=text)
    assert parse_comments(image.SerializeToString()) == {
        "lf.a2a.v1.Task": "A task.\n\n Indented.",
        "lf.a2a.v1.Task.id": "Names it.",
        "lf.a2a.v1.Task.Part": "Nested.",
        "lf.a2a.v1.ROLE_USER": "The caller.",
    }
