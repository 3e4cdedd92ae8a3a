"""Readers of what MCP servers and callers send: a value, or why it cannot be read."""

from __future__ import annotations

import mcp_types as types
import pytest

from dragoman.calling.errors import ProtocolError
from dragoman.extensions.mcp.servers.readers import read_file, read_message, read_model, read_object


def test_a_model_is_read_by_its_names_in_json_only() -> None:
    value = {"content": [], "isError": True}
    assert read_model(types.CallToolResult, value).is_error
    with pytest.raises(ProtocolError, match=r"MCP server is not valid: content: must be a valid list$"):
        read_model(types.CallToolResult, {"content": 7})
    with pytest.raises(ProtocolError):
        read_model(types.Tool, ["a", "list"])


@pytest.mark.parametrize(
    ("part", "rule"),
    [
        ({"type": "text"}, "content[0].text: is required"),
        ({"type": "image", "data": 3, "mimeType": "x"}, "content[0].data: must be a valid string"),
        ({"type": "audio", "data": "", "mimeType": "x", "annotations": 7}, "content[0].annotations: "),
    ],
)
def test_an_error_names_field_and_rule_of_the_alternative_that_is_meant(part: dict[str, object], rule: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_model(types.CallToolResult, {"content": [part]})
    assert caught.value.message.startswith(f"the answer of the MCP server is not valid: {rule}")
    assert "errors.pydantic.dev" not in caught.value.message
    assert str(read_message(b'{"jsonrpc": "2.0", "id": 1, "error": "boom"}')).startswith("error: must be an object")


@pytest.mark.parametrize("line", [b"", b"log output", b'{"jsonrpc": "2.0"}', b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_message_has_a_reason(line: bytes) -> None:
    reason = read_message(line)
    assert isinstance(reason, str)
    assert 0 < len(reason) <= 200


def test_a_line_with_a_message_is_read() -> None:
    message = read_message(b'{"jsonrpc": "2.0", "id": 1, "result": {}}')
    assert isinstance(message, types.JSONRPCResponse)


def test_a_file_is_read_from_base64() -> None:
    assert read_file("aGk=") == read_file("aG\r\nk=\n") == b"hi"
    with pytest.raises(ProtocolError, match="not base64"):
        read_file("a?")


def test_a_text_is_a_json_object_or_has_a_reason() -> None:
    assert read_object('{"a": 1}') == {"a": 1}
    assert read_object("hello") == read_object("[1]") == "no JSON object"
    assert str(read_object("{a}")).startswith("not JSON: ")
    assert read_object(f'{{"a": {2**60}}}') == {"a": 2**60}
    assert str(read_object(f'{{"a": {2**70}}}')).endswith("has more than 64 bits; send it as a string")
