"""Ages: durations as people write them, such as `30d`, and milliseconds."""

from __future__ import annotations

import re
from typing import Final

_AGE_UNITS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
_AGE_PATTERN: Final = re.compile(r"(\d{1,9})\s*([wdhms]?)", re.ASCII)

AGE_FORMAT: Final = "a number with w, d, h, m or s, such as 30d; a bare one is seconds"


def parse_age(text: str) -> int:
    """Milliseconds. Raises ValueError, naming the form."""
    found = _AGE_PATTERN.fullmatch(text.strip())
    if not found:
        raise ValueError(f'"{text}" is not an age: {AGE_FORMAT}')
    return int(found[1]) * _AGE_UNITS[found[2] or "s"]


def format_age(milliseconds: int) -> str:
    """The shortest form that `parse_age` reads back as the same; below a second, what is left is dropped."""
    for unit, size in _AGE_UNITS.items():
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds // 1000}s" if milliseconds else "0"
