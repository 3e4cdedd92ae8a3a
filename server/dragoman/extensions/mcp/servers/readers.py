"""Readers of what MCP servers and callers send, in the SDK's types: a value, or ProtocolError with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import mcp_types as types
from pydantic import BaseModel, ValidationError

from dragoman.calling.errors import ProtocolError
from dragoman.wire.json import remote_values
from dragoman.wire.json.wellknown import FieldError, decode_bytes

M = TypeVar("M", bound=BaseModel)


@contextmanager
def valid_answers() -> Iterator[None]:
    """Raises ProtocolError for what the SDK cannot read in the block."""
    try:
        yield
    except ValidationError as error:
        raise ProtocolError(f"the answer of the MCP server is not valid: {problem_of(error)}") from None


def problem_of(error: ValidationError) -> str:
    """The field and the rule of the SDK's error, without names of the SDK's types.

    Of the alternatives of a union, the one that the value violates least is meant; of equals the last.
    """
    alternatives: dict[tuple[str, ...], list[str]] = {}
    for found in error.errors(include_url=False, include_context=False, include_input=False):
        # Fields are in camelCase, and the alternatives have the names of classes.
        alternative = tuple(step for step in found["loc"] if isinstance(step, str) and step[:1].isupper())
        path = "".join(
            f"[{step}]" if isinstance(step, int) else f".{step}" for step in found["loc"] if step not in alternative
        )
        rule = found["msg"].replace("Input should be", "must be").replace("Field required", "is required")
        alternatives.setdefault(alternative, []).append(f"{path.lstrip('.')}: {rule}".removeprefix(": ")[:200])
    if not alternatives:
        return "it has another form"
    return min(reversed(alternatives.values()), key=len)[0]


def read_model(kind: type[M], value: object) -> M:
    """A value in its JSON form as the SDK's type."""
    with valid_answers():
        return kind.model_validate(value, by_name=False)


def read_message(line: bytes) -> types.JSONRPCMessage | str:
    """The message of JSON-RPC in a line, or the reason why it is none."""
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        return problem_of(error)
    except ValueError as error:
        return str(error)[:200]


def read_file(text: str) -> bytes:
    """The bytes of a file in base64."""
    try:
        return decode_bytes(text)
    except FieldError:
        raise ProtocolError("the MCP server sent a file that is not base64") from None


def read_object(text: str) -> dict[str, Any] | str:
    """The JSON object in the text of a message, or why it cannot be read."""
    if not text.startswith("{"):
        return "no JSON object"
    try:
        value: Any = remote_values.loads_numbers(text)
    except ValueError as error:
        return f"not JSON: {error}"
    return value if isinstance(value, dict) else "no JSON object"
