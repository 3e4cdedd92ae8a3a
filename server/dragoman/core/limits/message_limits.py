"""Limits on the size and depth of a request, the same for every binding."""

from __future__ import annotations

import math
from typing import Any, Final

from dragoman.core.errors import InvalidParams, PayloadTooLarge

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Default for the decoded request, whatever its wire form."""

MAX_NESTING_DEPTH: Final = 24
"""Levels of arrays and objects in data and metadata. An object costs three protobuf levels, and readers stop at 100."""

MAX_VALUES: Final = 50_000
"""Values in the data and metadata of one field, or in one JSON body: what seven million would cost, everybody waits
for."""

MAX_PARTS: Final = 10_000
"""Parts of a message."""

MAX_ID_LENGTH: Final = 512
"""Characters of an id that a client chose."""


def check_size(size: int, limit: int) -> None:
    """Raises PayloadTooLarge when a decoded request of `size` bytes is over `limit`."""
    if size > limit:
        raise PayloadTooLarge(f"request: {size} bytes decoded; at most {limit} are accepted")


def check_value(field: str, value: Any) -> None:
    """Raises InvalidParams for a Struct or Value (of any descriptor pool) that nests arrays and objects too deeply,
    or that holds a number JSON has no text for (NaN, infinity)."""
    if problem := _value_problem(value, MAX_NESTING_DEPTH, [MAX_VALUES]):
        raise InvalidParams.field(field, problem)


def check_parts(field: str, count: int) -> None:
    """Raises InvalidParams for more parts than a message may have."""
    if count > MAX_PARTS:
        raise InvalidParams.field(field, f"holds {count} parts; at most {MAX_PARTS} are accepted")


def _value_problem(value: Any, depth_left: int, values_left: list[int]) -> str:
    """`values_left`: one counter that all levels share and count down."""
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
            return _value_problem(getattr(value, kind), depth_left, values_left)
    values_left[0] -= len(inner)
    if values_left[0] < 0:
        return f"holds more than {MAX_VALUES} values"
    if depth_left == 0:
        return f"nests more than {MAX_NESTING_DEPTH} levels of arrays and objects"
    return next(filter(None, (_value_problem(item, depth_left - 1, values_left) for item in inner)), "")
