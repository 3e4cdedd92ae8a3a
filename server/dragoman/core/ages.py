"""Ages as people write them: `30d`, `12h`, `90m`, `45s`, `2w`; a bare number is seconds."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
_FORM: Final = re.compile(r"(\d{1,9})\s*([wdhms]?)", re.ASCII)

FORM: Final = "a number with w, d, h, m or s, such as 30d; a bare one is seconds"


def parse_age(text: str) -> int:
    """Milliseconds. Raises ValueError, naming the form."""
    found = _FORM.fullmatch(text.strip())
    if not found:
        raise ValueError(f'"{text}" is no age: {FORM}')
    return int(found[1]) * _UNITS[found[2] or "s"]


def write_age(milliseconds: int) -> str:
    """The shortest form that `parse_age` reads back as the same; below a second, what is left is dropped."""
    for unit, size in _UNITS.items():
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds // 1000}s" if milliseconds else "0"
