"""How much a stranger may send, and how deep (every binding asks here, so the answers are the same)."""

from __future__ import annotations

from typing import Any, Final

from dragoman.core.errors import InvalidParams, PayloadTooLarge

MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Default for the decoded request, whatever its wire form."""

DEPTH: Final = 24
"""Levels of arrays and objects in data and metadata. An object costs three protobuf levels, and readers stop at 100."""

ID_LENGTH: Final = 512
"""Characters of an id that a client chose."""


def check_size(size: int, limit: int) -> None:
    """Raises PayloadTooLarge when a decoded request of `size` bytes is over `limit`."""
    if size > limit:
        raise PayloadTooLarge(f"request: {size} bytes decoded; at most {limit} are accepted")


def check_depth(field: str, value: Any) -> None:
    """Raises InvalidParams when a Struct or Value (of any descriptor pool) nests arrays and objects too deeply."""
    if _too_deep(value, DEPTH):
        raise InvalidParams.field(field, f"nests more than {DEPTH} levels of arrays and objects")


def _too_deep(value: Any, left: int) -> bool:
    match value.DESCRIPTOR.name:
        case "Struct":
            inner = value.fields.values()
        case "ListValue":
            inner = value.values
        case _:
            kind = value.WhichOneof("kind")
            if kind not in ("struct_value", "list_value"):
                return False
            return _too_deep(getattr(value, kind), left)
    return left == 0 or any(_too_deep(item, left - 1) for item in inner)
