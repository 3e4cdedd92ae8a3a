"""Messages of A2A 0.3 JSON, as a2a-sdk 0.3 and fasta2a up to 0.6 speak it, from and to ProtoJSON of A2A 1.0.

Keys are spelled in camelCase on both sides. Data that is no object travels in 0.3 as `{"value": ...}` under the part
metadata `data_part_compat`, as the official converters have it.
"""

from __future__ import annotations

from typing import Any

WRAPPED = "data_part_compat"
_STATES = {
    "TASK_STATE_SUBMITTED": "submitted",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_CANCELED": "canceled",
    "TASK_STATE_INPUT_REQUIRED": "input-required",
    "TASK_STATE_REJECTED": "rejected",
    "TASK_STATE_AUTH_REQUIRED": "auth-required",
}
_NAMES = {word: name for name, word in _STATES.items()}


def state_from(word: str) -> str:
    """The 1.0 name of a state; what 1.0 does not know counts as going on."""
    return _NAMES.get(word, "TASK_STATE_WORKING")


def state_to(name: str) -> str:
    """The 0.3 word of a state."""
    return _STATES.get(name, "unknown")


def message_from(said: dict[str, Any]) -> dict[str, Any]:
    """1.0 of a 0.3 message, or of a fasta2a 2.x one with flat parts."""
    made = {key: value for key, value in said.items() if key not in ("kind", "role", "parts") and value is not None}
    made["role"] = "ROLE_USER" if said.get("role") == "user" else "ROLE_AGENT"
    made["parts"] = [part_from(part) for part in said.get("parts") or []]
    return made


def message_to(said: dict[str, Any], *, flat: bool = False) -> dict[str, Any]:
    """0.3 of a 1.0 message. `flat`: with the parts of fasta2a 2.x, and no kinds."""
    made = {key: value for key, value in said.items() if key not in ("role", "parts")}
    made.setdefault("messageId", "")
    made["role"] = "user" if said.get("role") == "ROLE_USER" else "agent"
    made["parts"] = [dict(part) if flat else part_to(part) for part in said.get("parts", [])]
    return made if flat else {"kind": "message", **made}


def artifact_from(said: dict[str, Any]) -> dict[str, Any]:
    """1.0 of a 0.3 artifact."""
    made = {key: value for key, value in said.items() if key != "parts" and value is not None}
    made["parts"] = [part_from(part) for part in said.get("parts") or []]
    return made


def artifact_to(said: dict[str, Any], *, flat: bool = False) -> dict[str, Any]:
    """0.3 of a 1.0 artifact."""
    return {**said, "parts": [dict(part) if flat else part_to(part) for part in said.get("parts", [])]}


def part_from(said: dict[str, Any]) -> dict[str, Any]:
    """1.0 of a 0.3 part; a flat one is 1.0 already."""
    metadata = dict(said.get("metadata") or {})
    made: dict[str, Any] = {}
    kind = said.get("kind")
    if kind is None:
        return {key: value for key, value in said.items() if value is not None}
    if kind == "text":
        made["text"] = said["text"]
    elif kind == "data":
        made["data"] = said["data"]
        if metadata.get(WRAPPED) is True and set(said["data"]) == {"value"}:
            made["data"] = said["data"]["value"]
            del metadata[WRAPPED]
    elif kind == "file":
        file = said["file"]
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


def part_to(said: dict[str, Any]) -> dict[str, Any]:
    """0.3 of a 1.0 part."""
    metadata = dict(said.get("metadata") or {})
    made: dict[str, Any]
    if "text" in said:
        made = {"kind": "text", "text": said["text"]}
    elif "data" in said:
        data = said["data"]
        if not isinstance(data, dict):
            data, metadata[WRAPPED] = {"value": data}, True
        made = {"kind": "data", "data": data}
    else:
        file = {"bytes": said["raw"]} if "raw" in said else {"uri": said.get("url", "")}
        file.update({"name": said["filename"]} if said.get("filename") else {})
        file.update({"mimeType": said["mediaType"]} if said.get("mediaType") else {})
        made = {"kind": "file", "file": file}
    if metadata:
        made["metadata"] = metadata
    return made
