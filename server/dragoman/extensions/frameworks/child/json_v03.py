"""Converts between A2A 0.3 JSON (a2a-sdk 0.3, fasta2a up to 0.6) and ProtoJSON of A2A 1.0.

Keys are in camelCase on both sides. In 0.3, data that is not an object becomes `{"value": ...}` with the part metadata
`data_part_compat`, as in the official converters.
"""

from __future__ import annotations

from typing import Any

WRAPPED_DATA_KEY = "data_part_compat"
_STATES_V03 = {
    "TASK_STATE_SUBMITTED": "submitted",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_CANCELED": "canceled",
    "TASK_STATE_INPUT_REQUIRED": "input-required",
    "TASK_STATE_REJECTED": "rejected",
    "TASK_STATE_AUTH_REQUIRED": "auth-required",
}
_STATES_V1 = {state_v03: state for state, state_v03 in _STATES_V03.items()}


def state_from_v03(state: str) -> str:
    """Converts a 0.3 state to 1.0. A state that 1.0 does not have becomes WORKING."""
    return _STATES_V1.get(state, "TASK_STATE_WORKING")


def state_to_v03(state: str) -> str:
    """Converts a 1.0 state to 0.3."""
    return _STATES_V03.get(state, "unknown")


def message_from_v03(message: dict[str, Any]) -> dict[str, Any]:
    """Converts a 0.3 message, or a fasta2a 2.x one with flat parts, to 1.0."""
    converted = {
        key: value for key, value in message.items() if key not in ("kind", "role", "parts") and value is not None
    }
    converted["role"] = "ROLE_USER" if message.get("role") == "user" else "ROLE_AGENT"
    converted["parts"] = [part_from_v03(part) for part in message.get("parts") or []]
    return converted


def message_to_v03(message: dict[str, Any], *, flat: bool = False) -> dict[str, Any]:
    """Converts a 1.0 message to 0.3. `flat`: with the parts of fasta2a 2.x and without `kind`."""
    converted = {key: value for key, value in message.items() if key not in ("role", "parts")}
    converted.setdefault("messageId", "")
    converted["role"] = "user" if message.get("role") == "ROLE_USER" else "agent"
    converted["parts"] = [dict(part) if flat else part_to_v03(part) for part in message.get("parts", [])]
    return converted if flat else {"kind": "message", **converted}


def artifact_from_v03(artifact: dict[str, Any]) -> dict[str, Any]:
    """Converts a 0.3 artifact to 1.0."""
    converted = {key: value for key, value in artifact.items() if key != "parts" and value is not None}
    converted["parts"] = [part_from_v03(part) for part in artifact.get("parts") or []]
    return converted


def artifact_to_v03(artifact: dict[str, Any], *, flat: bool = False) -> dict[str, Any]:
    """Converts a 1.0 artifact to 0.3. `flat`: with the parts of fasta2a 2.x."""
    return {**artifact, "parts": [dict(part) if flat else part_to_v03(part) for part in artifact.get("parts", [])]}


def part_from_v03(part: dict[str, Any]) -> dict[str, Any]:
    """Converts a 0.3 part to 1.0. A flat part has the form of 1.0 already."""
    metadata = dict(part.get("metadata") or {})
    converted: dict[str, Any] = {}
    kind = part.get("kind")
    if kind is None:
        return {key: value for key, value in part.items() if value is not None}
    if kind == "text":
        converted["text"] = part["text"]
    elif kind == "data":
        converted["data"] = part["data"]
        if metadata.get(WRAPPED_DATA_KEY) is True and set(part["data"]) == {"value"}:
            converted["data"] = part["data"]["value"]
            del metadata[WRAPPED_DATA_KEY]
    elif kind == "file":
        file = part["file"]
        if file.get("bytes") is not None:
            converted["raw"] = file["bytes"]
        else:
            converted["url"] = file.get("uri", "")
        converted.update({"filename": file["name"]} if file.get("name") else {})
        converted.update({"mediaType": file["mimeType"]} if file.get("mimeType") else {})
    else:
        raise ValueError(f'a part has the unknown kind "{kind}"; known kinds: text, file, data')
    if metadata:
        converted["metadata"] = metadata
    return converted


def part_to_v03(part: dict[str, Any]) -> dict[str, Any]:
    """Converts a 1.0 part to 0.3."""
    metadata = dict(part.get("metadata") or {})
    converted: dict[str, Any]
    if "text" in part:
        converted = {"kind": "text", "text": part["text"]}
    elif "data" in part:
        data = part["data"]
        if not isinstance(data, dict):
            data, metadata[WRAPPED_DATA_KEY] = {"value": data}, True
        converted = {"kind": "data", "data": data}
    else:
        file = {"bytes": part["raw"]} if "raw" in part else {"uri": part.get("url", "")}
        file.update({"name": part["filename"]} if part.get("filename") else {})
        file.update({"mimeType": part["mediaType"]} if part.get("mediaType") else {})
        converted = {"kind": "file", "file": file}
    if metadata:
        converted["metadata"] = metadata
    return converted
