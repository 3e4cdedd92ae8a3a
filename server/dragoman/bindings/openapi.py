"""OpenAPI 3.1 of everything REST, made from the same rules that route it.

OpenAPI has no variable with slashes, so a resource name in a path is written out: `{name=tasks/*}` becomes
`tasks/{task}`. Every wildcard is called after the literal before it, or else after its field, so that one path is
one key whichever package it came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from dragoman.bindings.methods import Row
from dragoman.wire.httprule import Rule, Template, Wildcard

_SCALARS: Final[dict[int, dict[str, Any]]] = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number"},
}
_WELL_KNOWN: Final[dict[str, dict[str, Any]]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {"description": "Any JSON value."},
    "google.protobuf.ListValue": {"type": "array"},
    "google.protobuf.Empty": {"type": "object"},
}
_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "description": "AIP-193 under `error`; 0.3 routes add `code`, `type` and `message` beside it.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer"},
                "status": {"type": "string"},
                "message": {"type": "string"},
                "details": {"type": "array", "items": {"type": "object"}},
            },
        }
    },
}


def document(rules: Iterable[tuple[Rule, Row]]) -> bytes:
    """The description, as JSON. Where two packages share a path, both schemas are allowed."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, dict[str, Any]] = {}
    counts: dict[str, int] = {}
    for rule, row in rules:
        path, names = _path(rule.template)
        name = row.method.full_name
        counts[name] = counts.get(name, 0) + 1
        operation = _operation(rule, row.method, names, schemas)
        operation["operationId"] = name if counts[name] == 1 else f"{name}.{counts[name]}"
        methods = paths.setdefault(path, {})
        verb = rule.http_method.lower()
        methods[verb] = _both(methods[verb], operation) if verb in methods else operation
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "Dragoman", "version": version("dragoman")},
            "paths": paths,
            "components": {"schemas": dict(sorted(schemas.items()))},
        }
    )


def _path(template: Template) -> tuple[str, list[str]]:
    fields = {v.start: v.field[-1] for v in template.variables if v.is_single}
    parts: list[str] = []
    names: list[str] = []
    for at, segment in enumerate(template.segments):
        if not isinstance(segment, Wildcard):
            parts.append(segment)
            continue
        before = template.segments[at - 1] if at else None
        name = before.removesuffix("s") if isinstance(before, str) else fields.get(at, f"part{at}")
        names.append(name)
        parts.append(f"{{{name}}}")
    return "/" + "/".join(parts) + (f":{template.verb}" if template.verb else ""), names


def _operation(rule: Rule, method: MethodDescriptor, names: list[str], schemas: dict[str, Any]) -> dict[str, Any]:
    request = method.input_type
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    bound = {v.field[0] for v in rule.template.variables} | {rule.body}
    if rule.body != "*":
        parameters += [
            {"name": field.json_name, "in": "query", "schema": _field(field, schemas)}
            for field in request.fields
            if field.name not in bound and _fits_a_query(field)
        ]
    answer = {"schema": _message(method.output_type, schemas)}
    content = {"text/event-stream": answer} if method.server_streaming else {"application/json": answer}
    if method.server_streaming and "projects" in rule.template.segments:
        content["application/json"] = {"schema": {"type": "array", "items": answer["schema"]}}
    operation: dict[str, Any] = {
        "tags": [method.containing_service.full_name],
        "parameters": parameters,
        "responses": {
            "200": {"description": "OK", "content": content},
            "default": {
                "description": "An error.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if rule.body:
        schema = _message(request, schemas) if rule.body == "*" else _one(request.fields_by_name[rule.body], schemas)
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


def _fits_a_query(field: FieldDescriptor) -> bool:
    return field.message_type is None or field.message_type.full_name == "google.protobuf.Timestamp"


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """One operation that two packages serve: `A2A-Version` decides, so either schema may stand."""
    known = {parameter["name"] for parameter in one["parameters"]}
    one["parameters"] += [parameter for parameter in other["parameters"] if parameter["name"] not in known]
    one["tags"] += other["tags"]
    one["description"] = "Served as 1.0 when `A2A-Version: 1.0` says so, otherwise as 0.3."
    for mine, theirs in (
        (one.get("requestBody"), other.get("requestBody")),
        (one["responses"]["200"], other["responses"]["200"]),
    ):
        for media_type, content in (theirs or {}).get("content", {}).items():
            if mine and media_type in mine["content"]:
                schema = mine["content"][media_type]["schema"]
                mine["content"][media_type] = {"schema": {"anyOf": [schema, content["schema"]]}}
    return one


def _message(descriptor: Descriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    name = descriptor.full_name
    if name in _WELL_KNOWN:
        return _WELL_KNOWN[name]
    if name not in schemas:
        made: dict[str, Any] = {"type": "object"}
        schemas[name] = made  # before its fields: messages hold each other
        made["properties"] = {field.json_name: _field(field, schemas) for field in descriptor.fields}
    return {"$ref": f"#/components/schemas/{name}"}


def _field(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _one(message.fields_by_name["value"], schemas)}
    one = _one(field, schemas)
    return {"type": "array", "items": one} if field.is_repeated else one


def _one(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None:
        return _message(field.message_type, schemas)
    if field.enum_type is not None:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    return _SCALARS[field.type]
