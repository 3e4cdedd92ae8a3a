"""Converts between A2A 0.1 JSON as fasta2a 0.2 to 0.4.0 has it, and ProtoJSON of A2A 1.0.

Keys are in camelCase on both sides. In 0.1 messages and artifacts have no ids, parts are told apart by `type`, and a
file has `data` or `url`, and always a media type.
"""

from __future__ import annotations

from typing import Any

from . import json_v03

DEFAULT_MEDIA_TYPE = "application/octet-stream"


def message_to_v01(message: dict[str, Any]) -> dict[str, Any]:
    """Converts a 1.0 message to 0.1."""
    converted = {
        "role": "user" if message.get("role") == "ROLE_USER" else "agent",
        "parts": [part_to_v01(part) for part in message.get("parts", [])],
    }
    return {**converted, "metadata": message["metadata"]} if message.get("metadata") else converted


def message_from_v01(message: dict[str, Any]) -> dict[str, Any]:
    """Converts a 0.1 message to 1.0, without an id."""
    return json_v03.message_from_v03({**message, "parts": [_to_kind(part) for part in message.get("parts") or []]})


def artifact_to_v01(artifact: dict[str, Any], index: int) -> dict[str, Any]:
    """Converts a 1.0 artifact to 0.1. `index`: its position in the task."""
    kept = {key: artifact[key] for key in ("name", "description", "metadata") if artifact.get(key)}
    return {**kept, "parts": [part_to_v01(part) for part in artifact.get("parts", [])], "index": index}


def artifact_from_v01(artifact: dict[str, Any], id: str) -> dict[str, Any]:
    """Converts a 0.1 artifact to 1.0. `id`: its id there."""
    kept = {key: artifact[key] for key in ("name", "description", "metadata") if artifact.get(key)}
    parts = [json_v03.part_from_v03(_to_kind(part)) for part in artifact.get("parts") or []]
    return {"artifactId": id, **kept, "parts": parts}


def part_to_v01(part: dict[str, Any]) -> dict[str, Any]:
    """Converts a 1.0 part to 0.1."""
    converted = json_v03.part_to_v03(part)
    converted["type"] = converted.pop("kind")
    if file := converted.get("file"):
        file["mimeType"] = file.get("mimeType") or DEFAULT_MEDIA_TYPE
        for name_v03, name in (("bytes", "data"), ("uri", "url")):
            if name_v03 in file:
                file[name] = file.pop(name_v03)
    return converted


def _to_kind(part: dict[str, Any]) -> dict[str, Any]:
    """A 0.1 part as a 0.3 one."""
    converted = {key: value for key, value in part.items() if key != "type"}
    converted["kind"] = part.get("type")
    if converted["kind"] not in ("text", "data", "file"):
        raise ValueError(f'a part has the unknown type "{part.get("type")}"; known types: text, file, data')
    if file := converted.get("file"):
        names = {"data": "bytes", "url": "uri"}
        converted["file"] = {names.get(key, key): value for key, value in file.items()}
    return converted
