"""Canonical JSON (JCS, RFC 8785): one text for each value, so that whoever has the value can check a signature over it.

Keys are in the order of their UTF-16 code units (§3.2.3), numbers as ECMAScript writes them (§3.2.2.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

DEEPEST: Final = 128
"""Objects and arrays inside each other."""

_EXACT: Final = 2**53
"""Up to it every integer is a double, which is what all numbers are here (I-JSON, RFC 7493 §2.2)."""

_ESCAPES: Final = {
    **{code: f"\\u{code:04x}" for code in range(0x20)},
    **{ord(letter): f"\\{name}" for letter, name in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)},
}


def canonical(value: Any) -> bytes:
    """The canonical text of a JSON value. Raises ValueError for what has none: NaN and infinity, integers that are not
    exact everywhere, halves of surrogate pairs, keys that are no text, and too much depth."""
    parts: list[str] = []
    _write(value, parts.append, DEEPEST)
    return "".join(parts).encode()  # UnicodeEncodeError is a ValueError


def cleaned(value: Any) -> Any:
    """The value without empty texts, arrays and objects, on all levels; None when nothing is left."""
    if isinstance(value, Mapping):
        kept = {key: less for key, one in value.items() if (less := cleaned(one)) is not None}
        return kept or None
    if isinstance(value, list | tuple):
        return [less for one in value if (less := cleaned(one)) is not None] or None
    return None if value == "" else value


def _write(value: Any, out: Any, depth: int) -> None:
    match value:
        case None | True | False:
            out("null" if value is None else "true" if value else "false")
        case str():
            out(_text(value))
        case int() | float():
            out(_number(value))
        case Mapping():
            _check(depth)
            out("{")
            for index, (key, one) in enumerate(_ordered(value)):
                out(f"{',' if index else ''}{_text(key)}:")
                _write(one, out, depth - 1)
            out("}")
        case list() | tuple():
            _check(depth)
            out("[")
            for index, one in enumerate(value):
                if index:
                    out(",")
                _write(one, out, depth - 1)
            out("]")
        case _:
            raise ValueError(f"{type(value).__name__} is no JSON")


def _check(depth: int) -> None:
    if not depth:
        raise ValueError(f"more than {DEEPEST} objects and arrays are inside each other")


def _ordered(value: Mapping[Any, Any]) -> Iterable[tuple[str, Any]]:
    if not all(isinstance(key, str) for key in value):
        raise ValueError("keys must be texts")
    return sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))


def _text(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _number(number: float) -> str:
    """ECMAScript's Number::toString (ECMA-262 §6.1.6.1.20)."""
    if isinstance(number, int):
        if abs(number) < _EXACT:
            return str(number)
        if not abs(number) < 1 << 1023 or int(float(number)) != number:
            raise ValueError(f"{str(number)[:40]} is no double")
        number = float(number)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no JSON")
    if not number:
        return "0"  # also -0
    sign = "-" if number < 0 else ""
    # Python's repr is the shortest text that is read as the same number, as ECMAScript wants it; only its form differs.
    _, figures, exponent = Decimal(repr(abs(number))).normalize().as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, figures))
    point = len(digits) + exponent
    if len(digits) <= point <= 21:
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"
