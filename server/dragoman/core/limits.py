"""How much a stranger may send, and how deep (every binding asks here, so the answers are the same)."""

from __future__ import annotations

import math
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


def check_value(field: str, value: Any) -> None:
    """Raises InvalidParams for a Struct or Value (of any descriptor pool) that nests arrays and objects too deeply,
    or that holds a number JSON has no text for (NaN, infinity)."""
    if problem := _problem(value, DEPTH):
        raise InvalidParams.field(field, problem)


def _problem(value: Any, left: int) -> str:
    match value.DESCRIPTOR.name:
        case "Struct":
            inner = value.fields.values()
        case "ListValue":
            inner = value.values
        case _:
            kind = value.WhichOneof("kind")
            if kind == "number_value" and not math.isfinite(value.number_value):
                return "holds NaN or infinity; JSON has finite numbers only"
            if kind not in ("struct_value", "list_value"):
                return ""
            return _problem(getattr(value, kind), left)
    if left == 0:
        return f"nests more than {DEPTH} levels of arrays and objects"
    return next(filter(None, (_problem(item, left - 1) for item in inner)), "")
