"""Limits of a request, the same for every binding, and the checks of a sent message that need no store."""

from __future__ import annotations

import math
from typing import Any, Final

from google.protobuf import struct_pb2

from dragoman.core.errors import InvalidParams, PayloadTooLarge

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024  # default maximum size of a decoded request, in every wire form

MAX_NESTING_DEPTH: Final = 24
"""Levels of arrays and objects in data and metadata. An object takes three protobuf levels; parsers stop at 100."""

MAX_VALUES: Final = 50_000
"""Values in the data or metadata of one field, or in one JSON body. Parsing seven million would block everyone."""

MAX_TASK_METADATA_BYTES: Final = 256 * 1024
"""Bytes of a task's metadata (1.0 §4.1.1), as protobuf. Each change of it writes all of them."""

MAX_CANCEL_METADATA_BYTES: Final = 64 * 1024
"""Bytes of the metadata of a cancel request, as protobuf. Servers poll for stored requests and read it each time."""

MAX_PARTS: Final = 10_000  # parts in a message
MAX_ID_LENGTH: Final = 512  # characters in an id that a client chose


def check_size(size: int, limit: int) -> None:
    """Raises PayloadTooLarge when a decoded request has more than `limit` bytes."""
    if size > limit:
        raise PayloadTooLarge(f"request: {size} bytes decoded; at most {limit} are accepted")


def check_value(field: str, value: Any) -> None:
    """Validates a Struct or Value of any descriptor pool.

    Raises InvalidParams for too many levels or values, and for numbers that JSON cannot express (NaN, infinity).
    """
    if problem := value_problem(value):
        raise InvalidParams.field(field, problem)


def checked_cancel_metadata(metadata: struct_pb2.Struct) -> bytes:
    """Serializes the metadata of a cancel request. Raises InvalidParams, also above MAX_CANCEL_METADATA_BYTES."""
    check_value("metadata", metadata)
    if (size := metadata.ByteSize()) > MAX_CANCEL_METADATA_BYTES:
        raise InvalidParams.field("metadata", f"has {size} bytes; at most {MAX_CANCEL_METADATA_BYTES} are accepted")
    return metadata.SerializeToString()


def check_parts(field: str, count: int) -> None:
    """Raises InvalidParams for more than MAX_PARTS parts."""
    if count > MAX_PARTS:
        raise InvalidParams.field(field, f"holds {count} parts; at most {MAX_PARTS} are accepted")


def value_problem(value: Any, max_values: int = MAX_VALUES) -> str:
    """Why a Struct or Value of any descriptor pool is not accepted; empty if it is."""
    return _value_problem(value, MAX_NESTING_DEPTH, [max_values])


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
