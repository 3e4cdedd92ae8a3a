"""Results of tools as artifacts."""

from __future__ import annotations

from itertools import count

import mcp_types as types
import pytest
from google.protobuf.json_format import MessageToDict

from dragoman.calling.errors import ProtocolError
from dragoman.extensions.mcp.servers.content import (
    error_text,
    progress_metadata,
    progress_text,
    result_artifacts,
    result_parts,
)

NOTES = types.TextResourceContents(uri="file:///a/notes.md", text="# Notes", mime_type="text/markdown")


def test_every_kind_of_content_becomes_a_part_in_order() -> None:
    result = types.CallToolResult(
        content=[
            types.TextContent(text="text", annotations=types.Annotations(audience=["user"], priority=0.5)),
            types.ImageContent(data="iVBORw0KGgo=", mime_type="image/png"),
            types.AudioContent(data="AAEC", mime_type="audio/x-wav"),
            types.ResourceLink(name="report", uri="https://x.example/report.pdf"),
            types.EmbeddedResource(resource=NOTES),
            types.EmbeddedResource(resource=types.BlobResourceContents(uri="demo://b.zip", blob="UEsDBA==")),
        ],
        structured_content={"a": [1, 2.5, None]},
    )
    assert [MessageToDict(part) for part in result_parts(result)] == [
        {"text": "text", "metadata": {"annotations": {"audience": ["user"], "priority": 0.5}}},
        {"raw": "iVBORw0KGgo=", "mediaType": "image/png", "filename": "output.png"},
        {"raw": "AAEC", "mediaType": "audio/x-wav", "filename": "output.wav"},
        {"url": "https://x.example/report.pdf", "mediaType": "application/pdf", "filename": "report"},
        {
            "text": "# Notes",
            "mediaType": "text/markdown",
            "filename": "notes.md",
            "metadata": {"uri": "file:///a/notes.md"},
        },
        {"raw": "UEsDBA==", "mediaType": "application/zip", "filename": "b.zip", "metadata": {"uri": "demo://b.zip"}},
        {"data": {"a": [1, 2.5, None]}},
    ]


def test_a_result_is_one_artifact_named_after_its_tool_and_an_empty_one_is_none() -> None:
    ids = count()
    result = types.CallToolResult(content=[types.TextContent(text="x")])
    (change,) = result_artifacts("echo", result, lambda: f"id-{next(ids)}")
    assert (change.artifact_id, change.last_chunk, b"echo" in change.head) == ("id-0", True, True)
    assert result_artifacts("echo", types.CallToolResult(content=[]), lambda: "id") == []


def test_the_text_of_an_error_is_that_of_the_tool() -> None:
    texts: list[types.ContentBlock] = [types.TextContent(text="bad"), types.TextContent(text="worse")]
    assert error_text(types.CallToolResult(content=texts, is_error=True)) == "bad\nworse"
    assert error_text(types.CallToolResult(content=[], is_error=True)) == "the tool failed without a text"


def test_a_file_that_is_not_base64_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="not base64"):
        result_parts(types.CallToolResult(content=[types.ImageContent(data="?", mime_type="image/png")]))


def test_an_integer_that_would_be_rounded_is_text_and_the_rest_of_the_result_is_kept() -> None:
    result = types.CallToolResult(
        content=[types.TextContent(text="done", annotations=types.Annotations.model_validate({"id": 2**60}))],
        structured_content={"a": [2**60, 1]},
    )
    text, data = result_parts(result)
    assert (text.text, MessageToDict(data.data)) == ("done", {"a": [str(2**60), 1.0]})


@pytest.mark.parametrize(
    ("progress", "total", "message", "text"),
    [(1, None, None, "1"), (1, 4, None, "1 of 4"), (0.5, 1, "half", "half")],
)
def test_progress_has_a_text_and_numbers(progress: float, total: float | None, message: str | None, text: str) -> None:
    assert progress_text(progress, total, message) == text
    assert progress_metadata(progress, total) == {"progress": progress, **({"total": total} if total else {})}
