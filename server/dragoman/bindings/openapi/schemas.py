"""Protobuf messages as JSON Schema 2020-12, in the form that ProtoJSON gives them.

One schema serves requests and answers. Requests may have more: keys that nobody knows are skipped, and both spellings
of a key are read; what is written here is what we write ourselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

from google.api import field_behavior_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

from dragoman.bindings import a2a_headers
from dragoman.bindings.openapi import examples
from dragoman.wire.dialects import json_proto
from dragoman.wire.json.protojson_encoder import is_map

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


def schema_ref(name: str) -> Schema:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


class SchemaBuilder:
    """The schemas of a document, which grow as its messages are asked for."""

    def __init__(self, comments: Mapping[str, str]) -> None:
        self.schemas: dict[str, Schema] = {}
        """By full name of the message or enum."""
        self._comments = comments

    def message_ref(self, message: Descriptor) -> Schema:
        """A reference to the schema of a message; a well-known type stands for itself."""
        name = message.full_name
        if name in _WELL_KNOWN:
            return dict(_WELL_KNOWN[name])
        if name not in self.schemas:
            values: Schema = {}
            self.schemas[name] = values  # before its fields: messages hold each other
            values |= self.message_schema(message, frozenset())
        return schema_ref(name)

    def message_schema(self, message: Descriptor, excluded: Set[str]) -> Schema:
        """The schema of a message less some of its fields: those that the path of a request has."""
        fields = [field for field in message.fields if field.name not in excluded]
        schema = self._with_description(message.full_name, {"type": "object"})
        schema["properties"] = {field.json_name: self.field_schema(field) for field in fields}
        always = _ALWAYS_PRESENT.get(message.full_name, frozenset())
        if required := [field.json_name for field in fields if field.name in always or _is_required(field)]:
            schema["required"] = required
        choices = [
            [{"required": [member.json_name]} for member in oneof.fields]
            for oneof in message.oneofs
            if len(oneof.fields) > 1  # an `optional` scalar lives in a oneof of its own
        ]
        if choices:
            (schema["oneOf"],) = choices
        return schema

    def field_schema(self, field: FieldDescriptor) -> Schema:
        """The schema of a field, with what its comment says."""
        if is_map(field):
            value = cast(Descriptor, field.message_type).fields_by_name["value"]
            schema: Schema = {"type": "object", "additionalProperties": self._value_schema(value)}
        else:
            schema = self._value_schema(field)
            if field.is_repeated:
                schema = {"type": "array", "items": schema}
        if field.GetOptions().deprecated:
            schema["deprecated"] = True
        return self._with_description(field.full_name, schema)

    def _value_schema(self, field: FieldDescriptor) -> Schema:
        if field.message_type is not None:
            return self.message_ref(field.message_type)
        if field.enum_type is not None:
            return self._enum_ref(field.enum_type)
        return dict(_SCALARS[field.type])

    def _enum_ref(self, enum: EnumDescriptor) -> Schema:
        if enum.full_name not in self.schemas:
            schema = self._with_description(
                enum.full_name, {"type": "string", "enum": [value.name for value in enum.values]}
            )
            scope = enum.full_name.removesuffix(enum.name)
            texts = {value.name: self._comments.get(scope + value.name, "") for value in enum.values}
            if "description" in schema:
                lines = [f"- `{name}`: {' '.join(text.split())}" for name, text in texts.items()]
                schema["description"] += "\n\n" + "\n".join(lines)
            self.schemas[enum.full_name] = schema
        return schema_ref(enum.full_name)

    def _with_description(self, name: str, schema: Schema) -> Schema:
        if text := self._comments.get(name):
            schema["description"] = text
        return schema


def _is_required(field: FieldDescriptor) -> bool:
    # Options live in the default pool also when the message does not, hence this spelling of the extension.
    behavior = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    return field_behavior_pb2.REQUIRED in behavior


_PROTO_PACKAGES: Final = ("a2a.v1", "lf.a2a.v1")

# Numbers of fields in descriptor.proto, of which a location's path is made.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS, _NESTED, _NESTED_ENUMS = 2, 3, 4
_METHODS = _VALUES = 2


@cache
def proto_comments() -> Mapping[str, str]:
    """Comments of our packages by full name; none where the installation has no image."""
    package = files("dragoman_pb")
    for place in (package / "dragoman.binpb", package / ".." / "dragoman.binpb"):  # a wheel, a source tree
        if place.is_file():
            return parse_comments(place.read_bytes())
    return {}


def parse_comments(image: bytes) -> dict[str, str]:
    """The comments in a serialized FileDescriptorSet."""
    found: dict[str, str] = {}
    for file in FileDescriptorSet.FromString(image).file:
        if file.package in _PROTO_PACKAGES:
            texts = {
                tuple(location.path): location.leading_comments
                for location in file.source_code_info.location
                if location.leading_comments
            }
            found |= {
                f"{file.package}.{name}": _comment_text(texts[path])
                for name, path in _named_paths(file)
                if path in texts
            }
    return found


_NamedPaths = Iterator[tuple[str, tuple[int, ...]]]


def _named_paths(file: FileDescriptorProto) -> _NamedPaths:
    """Every name of a file with the path of its location."""
    for at, service in enumerate(file.service):
        yield service.name, (_SERVICES, at)
        for number, method in enumerate(service.method):
            yield f"{service.name}.{method.name}", (_SERVICES, at, _METHODS, number)
    yield from _enum_paths(file.enum_type, "", (_ENUMS,))
    yield from _message_paths(file.message_type, "", (_MESSAGES,))


def _message_paths(messages: Iterable[DescriptorProto], prefix: str, path: Sequence[int]) -> _NamedPaths:
    for at, message in enumerate(messages):
        name, here = prefix + message.name, (*path, at)
        yield name, here
        for number, field in enumerate(message.field):
            yield f"{name}.{field.name}", (*here, _FIELDS, number)
        yield from _message_paths(message.nested_type, f"{name}.", (*here, _NESTED))
        yield from _enum_paths(message.enum_type, f"{name}.", (*here, _NESTED_ENUMS))


def _enum_paths(enums: Iterable[EnumDescriptorProto], prefix: str, path: Sequence[int]) -> _NamedPaths:
    for at, enum in enumerate(enums):
        yield prefix + enum.name, (*path, at)
        for number, value in enumerate(enum.value):
            yield prefix + value.name, (*path, at, _VALUES, number)  # values are their enum's neighbours


def _comment_text(comment: str) -> str:
    return "\n".join(line.removeprefix(" ").rstrip() for line in comment.splitlines()).strip()


SHARED_PARAMETERS: Final[dict[str, Any]] = {
    a2a_headers.VERSION_HEADER: {
        "name": a2a_headers.VERSION_HEADER,
        "in": "header",
        "description": "The version that the caller speaks. Whatever the path does not say already is served by shape.",
        "schema": {"type": "string", "enum": list(a2a_headers.SUPPORTED_VERSIONS)},
    },
    "alt": {
        "name": "alt",
        "in": "query",
        "description": "How the stream comes: `json` for an array, `sse` for events. Absent: as `Accept` says.",
        "schema": {"type": "string", "enum": ["json", "sse"]},
    },
}
"""Those that more than one route has, by name."""

_PATH_SAMPLES: Final = {
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


def path_parameter(name: str, root: str) -> dict[str, Any]:
    """A variable of a path. `root` is the id of an agent that exists."""
    schema: Schema = {"type": "string", "minLength": 1}
    if names_agent := name in ("tenant", "agent"):
        schema["pattern"] = _AGENT_ID_PATTERN
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": "The id of the agent." if names_agent else f"The id of the {name}.",
        "schema": schema,
        "example": _PATH_SAMPLES.get(name, root),
    }


def query_parameter(field: FieldDescriptor, schemas: SchemaBuilder) -> dict[str, Any]:
    """A field of the request that neither the path nor the body has."""
    schema = schemas.field_schema(field)
    parameter: dict[str, Any] = {"name": field.json_name, "in": "query", "schema": schema}
    if text := schema.pop("description", ""):
        parameter["description"] = text
    if (sample := _QUERY_SAMPLES.get(field.json_name)) is not None:
        parameter["example"] = sample
    return parameter


def is_query_field(field: FieldDescriptor) -> bool:
    """Whether a field can be given as text."""
    return field.message_type is None or field.message_type.full_name == "google.protobuf.Timestamp"


def parameter_ref(name: str) -> dict[str, Any]:
    """A reference to a parameter that more than one route has."""
    return {"$ref": f"#/components/parameters/{name}"}
