"""Whether a value arrives as it was given: A2A's values are JSON, and know one kind of number, the double
(`google.protobuf.Value`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

WHOLE: Final = 2**53
"""The largest distance from zero at which every whole number is a double of its own."""


def check(value: object, field: str) -> None:
    """Raises ValueError, naming the field, for what would be rounded on the way, or has no place in JSON."""
    match value:
        case None | bool() | str():
            pass
        case int():
            if abs(value) > WHOLE:
                said = value if abs(value) < 10**40 else "of more than 40 digits"
                raise ValueError(f"{field}: the number {said} is beyond 2^53 and would be rounded; give it as text")
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{field}: {value} is no JSON number; give None or text instead")
        case list():
            for number, item in enumerate(value):
                check(item, f"{field}[{number}]")
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ValueError(f"{field}: the key {str(key)[:40]!r} must be text")
                check(item, f"{field}.{key[:40]}")
        case _:
            kind = type(value).__name__
            raise ValueError(f"{field}: {kind} is not JSON; use dict, list, str, int, float, bool or None")
