"""Protobuf messages as JSON Schema 2020-12, in ProtoJSON's form, and OpenAPI parameters.

One schema describes requests and responses: the JSON that the server writes. In requests the server also ignores
unknown keys and accepts both spellings of a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

from google.api import field_behavior_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import EnumDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message

from dragoman.bindings.pipeline import SUPPORTED_VERSIONS, VERSION_HEADER
from dragoman.core.limits.message_limits import MAX_ID_LENGTH
from dragoman.core.task.cursors import MAX_PAGE_SIZE
from dragoman.runtime.push_configs import MAX_CONFIG_PAGE_SIZE
from dragoman.wire.dialects import json_proto
from dragoman.wire.json.protojson import is_map
from tools.openapi import examples

Schema = dict[str, Any]

_SCALARS: Final[Mapping[int, Schema]] = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1},
}
_WELL_KNOWN: Final[Mapping[str, Schema]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {},
    "google.protobuf.Empty": {"type": "object"},
}
_ALWAYS_PRESENT: Final[Mapping[str, Set[str]]] = {
    **json_proto.PROTOJSON_V1.always_emitted,
    **json_proto.PROTOJSON_V03.always_emitted,
}

_NOT_EMPTY: Final[Schema] = {"minLength": 1}
_SOME: Final[Schema] = {"minItems": 1}
_CONFIG_ID: Final[Schema] = {"maxLength": MAX_ID_LENGTH, "pattern": r"^[^/\x00-\x1f\x7f]*$"}
_CONFIG_PAGE: Final[Schema] = {"minimum": 0, "maximum": MAX_CONFIG_PAGE_SIZE}
_BOUNDS: Final[Mapping[str, Schema]] = {
    "Message.message_id": _NOT_EMPTY,
    "Message.parts": _SOME,
    "Message.content": _SOME,
    "SendMessageConfiguration.history_length": {"minimum": 0},
    "GetTaskRequest.history_length": {"minimum": 0},
    "ListTasksRequest.history_length": {"minimum": 0},
    "lf.a2a.v1.ListTasksRequest.page_size": {"minimum": 1, "maximum": MAX_PAGE_SIZE},
    "a2a.v1.ListTasksRequest.page_size": {"minimum": 0, "maximum": MAX_PAGE_SIZE},
    "ListTaskPushNotificationConfigsRequest.page_size": _CONFIG_PAGE,
    "ListTaskPushNotificationConfigRequest.page_size": _CONFIG_PAGE,
    "TaskPushNotificationConfig.id": _CONFIG_ID,
    "TaskPushNotificationConfig.url": _NOT_EMPTY,
    "PushNotificationConfig.id": _CONFIG_ID,
    "PushNotificationConfig.url": _NOT_EMPTY,
}
"""Bounds that the server checks and the type of a field does not have, by message and field of one or both packages."""

_REQUIRED: Final = {"a2a.v1.Message": ("message_id", "role", "content")}
"""Fields that the server requires and the proto does not mark."""

_NOT_REQUIRED: Final = ("lf.a2a.v1.AuthenticationInfo.scheme",)
"""Fields that the proto marks and the server does not require: clients send credentials alone, as in 0.3."""

_CLOSED: Final = ("a2a.v1.DataPart",)
"""Messages of which the server reads no object with an unknown key, on any path."""


def schema_ref(name: str) -> Schema:
    """Returns a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


class SchemaBuilder:
    """Builds the schemas of a document; each referenced message adds its own."""

    def __init__(self, comments: Mapping[str, str]) -> None:
        self.schemas: dict[str, Schema] = {}
        """By the full name of the message or enum."""
        self._comments = comments

    def message_ref(self, message: Descriptor) -> Schema:
        """Returns a reference to the schema of a message, or the schema of a well-known type."""
        name = message.full_name
        if name in _WELL_KNOWN:
            return dict(_WELL_KNOWN[name])
        if name not in self.schemas:
            schema: Schema = {}
            self.schemas[name] = schema  # before its fields, which may refer to it
            schema |= self.message_schema(message, frozenset())
        return schema_ref(name)

    def partial_ref(self, message: Descriptor, excluded: Set[str]) -> Schema:
        """Returns a reference to the schema of a message without the excluded fields.

        It has a name of its own, because generators of clients name the type of an unnamed body once for each media
        type, and keep none of those that collide.
        """
        if not excluded:
            return self.message_ref(message)
        words = "".join(word.capitalize() for field in sorted(excluded) for word in field.split("_"))
        name = f"{message.full_name}Without{words}"
        if name not in self.schemas:
            self.schemas[name] = self.message_schema(message, excluded)
        return schema_ref(name)

    def resolve(self, schema: Schema) -> Schema:
        """Returns the schema that a reference names, or the schema itself."""
        return self.schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    def message_schema(self, message: Descriptor, excluded: Set[str]) -> Schema:
        """Returns the schema of a message without the excluded fields, which a request has in its path."""
        fields = [field for field in message.fields if field.name not in excluded]
        schema = self._with_description(message.full_name, {"type": "object"})
        schema["properties"] = {field.json_name: self.field_schema(field) for field in fields}
        always = {*_ALWAYS_PRESENT.get(message.full_name, ()), *_REQUIRED.get(message.full_name, ())}
        if message.full_name in _CLOSED:
            schema["additionalProperties"] = False
        if required := [field.json_name for field in fields if field.name in always or _is_required(field)]:
            schema["required"] = required
        choices = [
            [{"required": [member.json_name]} for member in oneof.fields]
            for oneof in message.oneofs
            if len(oneof.fields) > 1  # an `optional` scalar has a oneof of its own
        ]
        if choices:
            (one_of,) = choices
            # Below `then`, because generators of clients make a type of each branch of a `oneOf` beside properties.
            schema |= {"if": {"type": "object"}, "then": {"oneOf": one_of}}
        return schema

    def field_schema(self, field: FieldDescriptor) -> Schema:
        """Returns the schema of a field, with its comment as description."""
        if is_map(field):
            value_field = cast(Descriptor, field.message_type).fields_by_name["value"]
            schema: Schema = {"type": "object", "additionalProperties": self._element_schema(value_field)}
        else:
            schema = self._element_schema(field)
            if field.is_repeated:
                schema = {"type": "array", "items": schema}
            name = f"{cast(Descriptor, field.containing_type).name}.{field.name}"
            schema |= _BOUNDS.get(field.full_name, _BOUNDS.get(name, {}))
        if field.GetOptions().deprecated:
            schema["deprecated"] = True
        return self._with_description(field.full_name, schema)

    def _element_schema(self, field: FieldDescriptor) -> Schema:
        if field.message_type is not None:
            return self.message_ref(field.message_type)
        if field.enum_type is not None:
            return self._enum_ref(field.enum_type)
        return dict(_SCALARS[field.type])

    def _enum_ref(self, enum: EnumDescriptor) -> Schema:
        if enum.full_name not in self.schemas:
            names = [value.name for value in enum.values if value.name != "ROLE_UNSPECIFIED"]  # never accepted or sent
            schema = self._with_description(enum.full_name, {"type": "string", "enum": names})
            if "description" in schema:
                scope = enum.full_name.removesuffix(enum.name)
                comments = {name: self._comments.get(scope + name, "") for name in names}
                lines = [f"- `{name}`: {' '.join(comment.split())}" for name, comment in comments.items()]
                schema["description"] += "\n\n" + "\n".join(lines)
            self.schemas[enum.full_name] = schema
        return schema_ref(enum.full_name)

    def _with_description(self, name: str, schema: Schema) -> Schema:
        if comment := self._comments.get(name):
            schema["description"] = comment
        return schema


def _is_required(field: FieldDescriptor) -> bool:
    # Options are in the default pool even when the message is not, so the extension is read from the generated module.
    behavior = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    return field_behavior_pb2.REQUIRED in behavior and field.full_name not in _NOT_REQUIRED


_PROTO_PACKAGES: Final = ("a2a.v1", "lf.a2a.v1")

_NAMED_CHILDREN: Final = ("service", "method", "message_type", "nested_type", "field", "enum_type", "value")
"""The fields in which messages of descriptor.proto hold what has a name and a comment."""


@cache
def proto_comments() -> Mapping[str, str]:
    """Returns the comments of the A2A packages by full name; empty in installations without the descriptor image."""
    package = files("dragoman_pb")
    for path in (package / "dragoman.binpb", package / ".." / "dragoman.binpb"):  # a wheel, a source tree
        if path.is_file():
            return parse_comments(path.read_bytes())
    return {}


def parse_comments(image: bytes) -> dict[str, str]:
    """Returns the comments in a serialized FileDescriptorSet by full name."""
    comments: dict[str, str] = {}
    for file in FileDescriptorSet.FromString(image).file:
        if file.package in _PROTO_PACKAGES:
            locations = {tuple(location.path): location.leading_comments for location in file.source_code_info.location}
            for name, path in _named_paths(file, f"{file.package}.", ()):
                if comment := locations.get(path):
                    lines = (line.removeprefix(" ").rstrip() for line in comment.splitlines())
                    comments[name] = "\n".join(lines).strip()
    return comments


def _named_paths(node: Message, scope: str, path: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the full names below a node of descriptor.proto, each with the path of its source location."""
    for field in node.DESCRIPTOR.fields:
        if field.name not in _NAMED_CHILDREN:
            continue
        for index, child in enumerate(getattr(node, field.name)):
            name, child_path = scope + child.name, (*path, field.number, index)
            yield name, child_path
            # The values of an enum are in the scope of the enum itself.
            yield from _named_paths(child, scope if isinstance(child, EnumDescriptorProto) else f"{name}.", child_path)


SHARED_PARAMETERS: Final[dict[str, Any]] = {
    VERSION_HEADER: {
        "name": VERSION_HEADER,
        "in": "header",
        "description": "The caller's version of A2A. Needed only where a path serves several versions.",
        "schema": {"type": "string", "enum": list(SUPPORTED_VERSIONS)},
    },
    "alt": {
        "name": "alt",
        "in": "query",
        "description": "Google's form: `json`. `;enum-encoding=int` after it writes enums as numbers, which the "
        "schemas of responses do not describe.",
        "schema": {"type": "string", "enum": ["json"]},
    },
    "altStream": {
        "name": "alt",
        "in": "query",
        "description": "Google's form: `json` for an array, or `sse`. Default: `json`, and `sse` if `Accept` names it. "
        "`;enum-encoding=int` after it writes enums as numbers, which the schemas of responses do not describe.",
        "schema": {"type": "string", "enum": ["json", "sse"]},
    },
    "fields": {
        "name": "fields",
        "in": "query",
        "description": "Google's form: the fields of the response to send, such as `id,status/state`, or `*` for all.",
        "schema": {"type": "string", "minLength": 1, "pattern": r"^[\w\s/,.()*]+$"},
        "example": "*",
    },
    "prettyPrint": {
        "name": "prettyPrint",
        "in": "query",
        "description": "Google's form: whether JSON is indented.",
        "schema": {"type": "boolean", "default": False},
    },
    "xgafv": {
        "name": "$.xgafv",
        "in": "query",
        "description": "Google's form: `1` adds the list `errors` to errors.",
        "schema": {"type": "string", "enum": ["1", "2"], "default": "2"},
    },
}
"""Parameters that several routes have, by key: the name, reduced to the characters that a key may have."""

GOOGLE_PARAMETERS: Final = ("fields", "prettyPrint", "xgafv")
"""The keys of SHARED_PARAMETERS that resource paths have, beside `alt` or, for streams, `altStream`."""

_PATH_SAMPLES: Final = {
    **dict.fromkeys(("tenant", "agent"), "playground"),
    "project": "my-project",
    "location": "global",
    "collection": "default_collection",
    "engine": "my-engine",
    "assistant": "default_assistant",
    "task": examples.EXAMPLE_TASK_ID,
    "pushNotificationConfig": examples.EXAMPLE_CONFIG_ID,
}
_QUERY_SAMPLES: Final = {"pageSize": 20, "historyLength": 10, "includeArtifacts": True}

_AGENT_ID_PATTERN: Final = "^[a-z][a-z0-9-]{0,62}$"


def path_parameter(name: str) -> dict[str, Any]:
    """Returns the parameter for a path variable."""
    schema: Schema = {"type": "string", "minLength": 1}
    if names_agent := name in ("tenant", "agent"):
        schema["pattern"] = _AGENT_ID_PATTERN
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": "The id of the agent." if names_agent else f"The id of the {name}.",
        "schema": schema,
        "example": _PATH_SAMPLES[name],
    }


def query_parameter(field: FieldDescriptor, schemas: SchemaBuilder) -> dict[str, Any]:
    """Returns the parameter for a request field that is neither in the path nor in the body."""
    schema = schemas.field_schema(field)
    parameter: dict[str, Any] = {"name": field.json_name, "in": "query", "schema": schema}
    if description := schema.pop("description", ""):
        parameter["description"] = description
    if (sample := _QUERY_SAMPLES.get(field.json_name)) is not None:
        parameter["example"] = sample
    return parameter


def is_query_field(field: FieldDescriptor) -> bool:
    """Whether a field can be a query parameter."""
    return field.message_type is None or field.message_type.full_name == "google.protobuf.Timestamp"


def parameter_ref(name: str) -> dict[str, Any]:
    """Returns a reference to one of SHARED_PARAMETERS."""
    return {"$ref": f"#/components/parameters/{name}"}
