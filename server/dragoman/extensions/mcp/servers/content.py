"""Turns results of tools into artifacts."""

from __future__ import annotations

import mimetypes
from typing import Any

import mcp_types as types

from dragoman.agents.values import (
    NewId,
    artifact_change,
    artifact_of,
    checked_string,
    data_part,
    file_part,
    set_metadata,
)
from dragoman.core.task.log import ArtifactChange
from dragoman.extensions.mcp.servers.readers import read_file
from dragoman.wire.json.remote_values import exact_integers
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def result_artifacts(tool: str, result: types.CallToolResult, new_id: NewId) -> list[ArtifactChange]:
    """The artifact of a result; none for an empty one. That of an error has no texts.

    Raises ProtocolError, InvalidAgentResponse.
    """
    parts = result_parts(result)
    if result.is_error:  # the texts are the status message
        parts = [part for part in parts if not (part.HasField("text") and not part.filename)]
    if not parts:
        return []
    return [artifact_change(artifact_of(pb.Artifact(parts=parts), new_id, name=tool), last=True)]


def result_parts(result: types.CallToolResult) -> list[pb.Part]:
    """The parts of a result: its content in order, then its structured content.

    Raises ProtocolError, InvalidAgentResponse.
    """
    parts = [_part(block) for block in result.content]
    if result.structured_content is not None:
        parts.append(data_part(exact_integers(result.structured_content)))
    return parts


def error_text(result: types.CallToolResult) -> str:
    """The text of a result that is an error."""
    texts = [block.text for block in result.content if isinstance(block, types.TextContent) and block.text]
    return "\n".join(texts) or "the tool failed without a text"


def _part(block: types.ContentBlock) -> pb.Part:
    match block:
        case types.TextContent():
            part = pb.Part(text=checked_string(block.text))
        case types.ImageContent() | types.AudioContent():
            part = file_part(read_file(block.data), media_type=block.mime_type)
        case types.ResourceLink():
            part = pb.Part(
                url=checked_string(block.uri), filename=block.name, media_type=block.mime_type or _type_of(block.uri)
            )
        case types.EmbeddedResource():
            part = _resource_part(block.resource)
    if block.annotations is not None:
        annotations = block.annotations.model_dump(by_alias=True, mode="json", exclude_none=True)
        set_metadata(part, {"annotations": exact_integers(annotations)})
    return part


def _resource_part(resource: types.TextResourceContents | types.BlobResourceContents) -> pb.Part:
    """A text or file part with the URI of the resource in its metadata."""
    name = resource.uri.rpartition("/")[2]
    if isinstance(resource, types.TextResourceContents):
        part = pb.Part(text=checked_string(resource.text), filename=name, media_type=resource.mime_type or "text/plain")
    else:
        part = file_part(read_file(resource.blob), name=name, media_type=resource.mime_type or "")
    set_metadata(part, {"uri": resource.uri})
    return part


def _type_of(uri: str) -> str:
    return mimetypes.guess_type(uri)[0] or ""


def progress_text(progress: float, total: float | None, message: str | None) -> str:
    """The text of a progress notification."""
    if message:
        return message
    return f"{progress:g} of {total:g}" if total else f"{progress:g}"


def progress_metadata(progress: float, total: float | None) -> dict[str, Any]:
    """The numbers of a progress notification."""
    return {"progress": progress} if total is None else {"progress": progress, "total": total}
