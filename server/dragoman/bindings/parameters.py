"""Parameters of the routes, for their description: what stands in a path, in a query, in a header."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from dragoman.bindings import examples, versions
from dragoman.bindings.schemas import Schema, Schemas

SHARED: Final[dict[str, Any]] = {
    versions.HEADER: {
        "name": versions.HEADER,
        "in": "header",
        "description": "The version that the caller speaks. Whatever the path does not say already is served by shape.",
        "schema": {"type": "string", "enum": list(versions.SUPPORTED)},
    },
    "alt": {
        "name": "alt",
        "in": "query",
        "description": "How the stream comes: `json` for an array, `sse` for events. Absent: as `Accept` says.",
        "schema": {"type": "string", "enum": ["json", "sse"]},
    },
}
"""Those that more than one route has, by name."""

_SAMPLES: Final = {
    "project": "my-project",
    "location": "global",
    "collection": "default_collection",
    "engine": "my-engine",
    "assistant": "default_assistant",
    "task": examples.TASK_ID,
    "pushNotificationConfig": examples.CONFIG_ID,
}
_QUERY_SAMPLES: Final = {"pageSize": 20, "historyLength": 10, "includeArtifacts": True}

_AGENT_ID: Final = "^[a-z][a-z0-9-]{0,62}$"


def in_path(name: str, root: str) -> dict[str, Any]:
    """A variable of a path. `root` is the id of an agent that exists."""
    schema: Schema = {"type": "string", "minLength": 1}
    if names_agent := name in ("tenant", "agent"):
        schema["pattern"] = _AGENT_ID
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": "The id of the agent." if names_agent else f"The id of the {name}.",
        "schema": schema,
        "example": _SAMPLES.get(name, root),
    }


def in_query(field: FieldDescriptor, schemas: Schemas) -> dict[str, Any]:
    """A field of the request that neither the path nor the body has."""
    schema = schemas.field(field)
    parameter: dict[str, Any] = {"name": field.json_name, "in": "query", "schema": schema}
    if text := schema.pop("description", ""):
        parameter["description"] = text
    if (sample := _QUERY_SAMPLES.get(field.json_name)) is not None:
        parameter["example"] = sample
    return parameter


def fits_a_query(field: FieldDescriptor) -> bool:
    """Whether a field can be given as text."""
    return field.message_type is None or field.message_type.full_name == "google.protobuf.Timestamp"


def shared(name: str) -> dict[str, Any]:
    """A reference to a parameter that more than one route has."""
    return {"$ref": f"#/components/parameters/{name}"}
