"""Messages of A2A 0.3 JSON, as a2a-sdk 0.3 and fasta2a up to 0.6 speak it, from and to ProtoJSON of A2A 1.0.

Keys are spelled in camelCase on both sides. Data that is no object travels in 0.3 as `{"value": ...}` under the part
metadata `data_part_compat`, as the official converters have it.
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
_STATES_V1 = {word: name for name, word in _STATES_V03.items()}


def state_from_v03(word: str) -> str:
    """The 1.0 name of a state; what 1.0 does not know counts as going on."""
    return _STATES_V1.get(word, "TASK_STATE_WORKING")


def state_to_v03(name: str) -> str:
    """The 0.3 word of a state."""
    return _STATES_V03.get(name, "unknown")


def message_from_v03(message: dict[str, Any]) -> dict[str, Any]:
    """1.0 of a 0.3 message, or of a fasta2a 2.x one with flat parts."""
    made = {key: value for key, value in message.items() if key not in ("kind", "role", "parts") and value is not None}
    made["role"] = "ROLE_USER" if message.get("role") == "user" else "ROLE_AGENT"
    made["parts"] = [part_from_v03(part) for part in message.get("parts") or []]
    return made


def message_to_v03(message: dict[str, Any], *, flat: bool = False) -> dict[str, Any]:
    """0.3 of a 1.0 message. `flat`: with the parts of fasta2a 2.x, and no kinds."""
    made = {key: value for key, value in message.items() if key not in ("role", "parts")}
    made.setdefault("messageId", "")
    made["role"] = "user" if message.get("role") == "ROLE_USER" else "agent"
    made["parts"] = [dict(part) if flat else part_to_v03(part) for part in message.get("parts", [])]
    return made if flat else {"kind": "message", **made}


def artifact_from_v03(artifact: dict[str, Any]) -> dict[str, Any]:
    """1.0 of a 0.3 artifact."""
    made = {key: value for key, value in artifact.items() if key != "parts" and value is not None}
    made["parts"] = [part_from_v03(part) for part in artifact.get("parts") or []]
    return made


def artifact_to_v03(artifact: dict[str, Any], *, flat: bool = False) -> dict[str, Any]:
    """0.3 of a 1.0 artifact."""
    return {**artifact, "parts": [dict(part) if flat else part_to_v03(part) for part in artifact.get("parts", [])]}


def part_from_v03(part: dict[str, Any]) -> dict[str, Any]:
    """1.0 of a 0.3 part; a flat one is 1.0 already."""
    metadata = dict(part.get("metadata") or {})
    made: dict[str, Any] = {}
    kind = part.get("kind")
    if kind is None:
        return {key: value for key, value in part.items() if value is not None}
    if kind == "text":
        made["text"] = part["text"]
    elif kind == "data":
        made["data"] = part["data"]
        if metadata.get(WRAPPED_DATA_KEY) is True and set(part["data"]) == {"value"}:
            made["data"] = part["data"]["value"]
            del metadata[WRAPPED_DATA_KEY]
    elif kind == "file":
        file = part["file"]
        if file.get("bytes") is not None:
            made["raw"] = file["bytes"]
        else:
            made["url"] = file.get("uri", "")
        made.update({"filename": file["name"]} if file.get("name") else {})
        made.update({"mediaType": file["mimeType"]} if file.get("mimeType") else {})
    else:
        raise ValueError(f'a part of kind "{kind}"; there are text, file, data')
    if metadata:
        made["metadata"] = metadata
    return made


def part_to_v03(part: dict[str, Any]) -> dict[str, Any]:
    """0.3 of a 1.0 part."""
    metadata = dict(part.get("metadata") or {})
    made: dict[str, Any]
    if "text" in part:
        made = {"kind": "text", "text": part["text"]}
    elif "data" in part:
        data = part["data"]
        if not isinstance(data, dict):
            data, metadata[WRAPPED_DATA_KEY] = {"value": data}, True
        made = {"kind": "data", "data": data}
    else:
        file = {"bytes": part["raw"]} if "raw" in part else {"uri": part.get("url", "")}
        file.update({"name": part["filename"]} if part.get("filename") else {})
        file.update({"mimeType": part["mediaType"]} if part.get("mediaType") else {})
        made = {"kind": "file", "file": file}
    if metadata:
        made["metadata"] = metadata
    return made
