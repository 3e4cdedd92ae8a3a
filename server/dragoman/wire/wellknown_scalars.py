"""The well-known types that are one scalar in JSON: Duration, FieldMask and the wrappers; and `float`, of which JSON
knows nothing (ProtoJSON format guide, "Well-known types").

Readers raise FieldError, as those of `wellknown.py` do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import pack
from typing import Any, Final

from dragoman.wire.wellknown import FieldError

WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages around one field `value`: in JSON they are that value, and null when they are absent."""

_DURATION: Final = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")
_DURATION_RULE: Final = "must be seconds with an s, such as 1.5s, from -315576000000s to 315576000000s"
_LONGEST: Final = 315_576_000_000
"""Seconds: ten thousand years (google/protobuf/duration.proto)."""

_PATH: Final = re.compile(r"[^\s,]+")  # also `*`, and keys of maps in backticks (AIP-161)
_SAYABLE: Final = re.compile(r"(?:[^A-Z_\s,]|_(?=[a-z]))+")


# ---- Duration


def encode_duration(message: Any) -> str:
    """Seconds with `s` and 0, 3, 6 or 9 fraction digits. Raises ValueError outside of ten thousand years, and for
    seconds and nanoseconds of two signs."""
    seconds, nanos = message.seconds, message.nanos
    if abs(seconds) > _LONGEST or abs(nanos) > 999_999_999 or (seconds < 0 < nanos) or (nanos < 0 < seconds):
        raise ValueError(f"a Duration of {seconds} s and {nanos} ns cannot be written")
    sign = "-" if seconds < 0 or nanos < 0 else ""
    seconds, nanos = abs(seconds), abs(nanos)
    if not nanos:
        return f"{sign}{seconds}s"
    if not nanos % 1_000_000:
        return f"{sign}{seconds}.{nanos // 1_000_000:03}s"
    if not nanos % 1_000:
        return f"{sign}{seconds}.{nanos // 1_000:06}s"
    return f"{sign}{seconds}.{nanos:09}s"


def decode_duration(message: Any, data: object) -> None:
    """Reads seconds such as `1.5s`."""
    found = _DURATION.fullmatch(data) if type(data) is str else None
    if found is None or (seconds := int(found[2])) > _LONGEST:
        raise FieldError(_DURATION_RULE)
    sign = -1 if found[1] else 1
    message.seconds = sign * seconds
    message.nanos = sign * int((found[3] or "").ljust(9, "0"))


# ---- FieldMask


def encode_mask(message: Any) -> str:
    """Paths in lowerCamelCase, with commas between. Raises ValueError for a path that would not come back as it was."""
    for path in message.paths:
        if not _SAYABLE.fullmatch(path):
            raise ValueError(f"a FieldMask with the path {path!r} cannot be written")
    return ",".join(re.sub("_([a-z])", lambda found: found[1].upper(), path) for path in message.paths)


def decode_mask(message: Any, data: object) -> None:
    """Reads paths in lowerCamelCase or, as people write them into a query, in the spelling of the proto."""
    if type(data) is not str:
        raise FieldError("must be a string of paths with commas between, such as title,pageCount")
    for path in data.split(",") if data else ():
        if not _PATH.fullmatch(path):
            raise FieldError(f"{path[:64]!r} is no path; write names of fields with commas between")
        message.paths.append(re.sub("[A-Z]", lambda found: "_" + found[0].lower(), path))


# ---- wrappers


def wrapped(convert: Callable[[object], Any]) -> Callable[[Any, object], None]:
    """The reader of a wrapper around a value that `convert` reads."""

    def decode(message: Any, data: object) -> None:
        message.value = convert(data)

    return decode


# ---- float


def encode_float(value: float) -> float | str:
    """The shortest number that is the same float of 32 bits: 0.1, and not 0.10000000149011612."""
    if value - value != 0:
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if _stored(short) == _stored(value):
            return short
    return float(f"{value:.9g}")


def narrow(value: float) -> float:
    """A double that a field of 32 bits can hold, to the next float. Raises FieldError for one too large."""
    if not _stored(value):
        raise FieldError("must be a number that a float of 32 bits can hold")
    return value


def _stored(value: float) -> bytes:
    """The four bytes that hold it, none for a number too large."""
    try:
        return pack("<f", value)
    except OverflowError:
        return b""
