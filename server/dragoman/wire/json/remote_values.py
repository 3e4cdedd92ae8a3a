"""JSON of other servers: integers that no reader rounds, and times in forms that older agents write.

The rule for integers: one beyond 2**53, which a double may round and a protobuf Value is one, becomes a string of its
digits. Requests to us are rejected instead (`wire/json/request.py`), because their sender can correct them; the work
behind an answer has been done, and must not be lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from dragoman.wire.json.request import MAX_JSON_INTEGER

_DIGITS: Final = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_INTEGER: Final = re.compile(rb"(?:^|[\s:,\[])-?[0-9]{16,}(?=[\s,\]}]|$)")
"""2**53 has sixteen digits."""


class LongInteger(ValueError):
    """An integer of more than 64 bits, which would be rounded."""


def loads(data: bytes | str) -> Any:
    """Parses JSON of another server; an integer beyond 2**53 becomes a string of its digits.

    Raises ValueError for text that is not JSON.
    """
    value = orjson.loads(data)
    return _parsed_again(data, _exact_integer) if _may_have_long_integer(data) else value


def loads_numbers(text: str) -> Any:
    """Parses JSON in a text of a caller, whose integers are passed on as numbers, with all digits.

    Raises ValueError for text that is not JSON, and LongInteger.
    """
    value = orjson.loads(text)  # keeps 64 bits, and rounds what is longer
    if _may_have_long_integer(text):
        _parsed_again(text, _check_integer)
    return value


def _parsed_again(data: bytes | str, parse_int: Callable[[str], object]) -> Any:
    try:
        return json.loads(data, parse_int=parse_int)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _check_integer(digits: str) -> None:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise LongInteger(f"the integer {digits[:24]} has more than 64 bits; send it as a string")


def _may_have_long_integer(data: bytes | str) -> bool:
    """Sound: never False if `data` has an integer of sixteen digits. Every fourth byte is searched first, because that
    runs at the speed of memory, and four of these bytes are digits of it."""
    data = data.encode() if isinstance(data, str) else data
    return data[::4].translate(_DIGITS).find(b"0000") >= 0 and _LONG_INTEGER.search(data) is not None


def _exact_integer(digits: str) -> int | str:
    if len(digits) < 18:  # int() refuses thousands of digits
        number = int(digits)
        if abs(number) <= MAX_JSON_INTEGER:
            return number
    return digits


def exact_integers(value: Any) -> Any:
    """A JSON value that another library has parsed, with the integers as `loads` returns them."""
    # Exact types, as parsers return them: a bool is none of these.
    kind = type(value)
    if kind is int:
        return value if abs(value) <= MAX_JSON_INTEGER else str(value)
    if kind is dict:
        return {key: exact_integers(item) for key, item in value.items()}
    if kind is list:
        return [exact_integers(item) for item in value]
    return value


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in a JSON array; empty for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# ---- times
#
# Before 1.0 a timestamp was any ISO 8601 text, and SDKs kept what they got; some servers send seconds of the epoch.

_ZONE_NAME: Final = re.compile(r"\[[^\]]*\]$")
"""The suffix of RFC 9557, as in `+01:00[Europe/Berlin]`. The offset says the same."""

_FIRST_MILLISECONDS: Final = 1e11
"""A larger number is milliseconds: as seconds it would be after the year 5000."""


def rfc3339(value: object) -> str | None:
    """A time as RFC 3339, in UTC, from ISO 8601 or a number of seconds or milliseconds; None if it cannot be read.

    A time without a zone is UTC.
    """
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(_ZONE_NAME.sub("", value.strip()))
            if time.tzinfo is None:
                time = time.replace(tzinfo=UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            time = datetime.fromtimestamp(value / 1000 if value >= _FIRST_MILLISECONDS else value, UTC)
        else:
            return None
        return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
