"""Protobuf messages as JSON Schema 2020-12, in the form that ProtoJSON gives them.

One schema serves requests and answers. Requests may have more: keys that nobody knows are skipped, and both spellings
of a key are read; what is written here is what we write ourselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final, cast

from google.api import field_behavior_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

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
_ALWAYS: Final[Mapping[str, Set[str]]] = {
    **json_proto.PROTOJSON_V1.always_emitted,
    **json_proto.PROTOJSON_V03.always_emitted,
}


def pointer(name: str) -> Schema:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


class Schemas:
    """The schemas of a document, which grow as its messages are asked for."""

    def __init__(self, comments: Mapping[str, str]) -> None:
        self.found: dict[str, Schema] = {}
        """By full name of the message or enum."""
        self._comments = comments

    def message(self, message: Descriptor) -> Schema:
        """A reference to the schema of a message; a well-known type stands for itself."""
        name = message.full_name
        if name in _WELL_KNOWN:
            return dict(_WELL_KNOWN[name])
        if name not in self.found:
            made: Schema = {}
            self.found[name] = made  # before its fields: messages hold each other
            made |= self.without(message, frozenset())
        return pointer(name)

    def without(self, message: Descriptor, left_out: Set[str]) -> Schema:
        """The schema of a message less some of its fields: those that the path of a request has."""
        fields = [field for field in message.fields if field.name not in left_out]
        schema = self._described(message.full_name, {"type": "object"})
        schema["properties"] = {field.json_name: self.field(field) for field in fields}
        always = _ALWAYS.get(message.full_name, frozenset())
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

    def field(self, field: FieldDescriptor) -> Schema:
        """The schema of a field, with what its comment says."""
        if is_map(field):
            value = cast(Descriptor, field.message_type).fields_by_name["value"]
            schema: Schema = {"type": "object", "additionalProperties": self._one(value)}
        else:
            schema = self._one(field)
            if field.is_repeated:
                schema = {"type": "array", "items": schema}
        if field.GetOptions().deprecated:
            schema["deprecated"] = True
        return self._described(field.full_name, schema)

    def _one(self, field: FieldDescriptor) -> Schema:
        if field.message_type is not None:
            return self.message(field.message_type)
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        return dict(_SCALARS[field.type])

    def _enum(self, enum: EnumDescriptor) -> Schema:
        if enum.full_name not in self.found:
            schema = self._described(enum.full_name, {"type": "string", "enum": [value.name for value in enum.values]})
            scope = enum.full_name.removesuffix(enum.name)
            texts = {value.name: self._comments.get(scope + value.name, "") for value in enum.values}
            if "description" in schema:
                lines = [f"- `{name}`: {' '.join(text.split())}" for name, text in texts.items()]
                schema["description"] += "\n\n" + "\n".join(lines)
            self.found[enum.full_name] = schema
        return pointer(enum.full_name)

    def _described(self, name: str, schema: Schema) -> Schema:
        if text := self._comments.get(name):
            schema["description"] = text
        return schema


def _is_required(field: FieldDescriptor) -> bool:
    # Options live in the default pool also when the message does not, hence this spelling of the extension.
    behavior = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    return field_behavior_pb2.REQUIRED in behavior
