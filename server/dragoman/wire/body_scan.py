"""JSON bodies, read strictly: what two readers could understand differently is refused.

orjson does the parsing. It keeps the last of two equal keys and rounds integers of twenty digits without a
word, so a few tests at memory speed decide whether a body can hide such a thing; only then the standard
library reads it again and names the offence with its path. RFC 8259 §4 and §6 leave both cases to the reader,
which is why we refuse them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import cast

import orjson

from dragoman.core.errors import InvalidParams, ParseError
from dragoman.core.limits.message_limits import MAX_VALUES

MAX_JSON_INTEGER = 2**53
"""Up to here every integer is a double too (RFC 7493 §2.2)."""

MAX_JSON_DEPTH = 254
"""Containers around a value: what orjson writes. It keeps hostile nesting from recursing deeply; how deep a
client's data may be is the business of `core/limits/message_limits.py`, which sees every binding."""

_DIGITS = bytes(48 if 48 <= byte <= 57 or byte == 45 else 32 for byte in range(256))
_LONG_INTEGER = re.compile(rb"(?:^|[\s:,\[])(?:[0-9]{20,}|-[0-9]{19,})(?=[\s,\]}]|$)")


class AmbiguousJson(InvalidParams):
    """JSON that was read, and is refused: two readers could understand it differently, or it is too deep."""

    def __init__(self, error: InvalidParams, value: object) -> None:
        super().__init__(error.message, violations=error.violations)
        wrong = {violation.field for violation in error.violations}
        self.value = {key: own for key, own in value.items() if key not in wrong} if isinstance(value, dict) else value
        """What was read, without the member that is wrong; for who has to say which request it is about."""


def loads(body: bytes, *, lossy_numbers: bool = False) -> object:
    """The value of a JSON text (dicts, lists, strings, numbers, booleans, None).

    `lossy_numbers` lets large integer literals pass, rounded like a double where they do not fit. Raises
    ParseError for what is no JSON, InvalidParams for too many values, and Ambiguous with the path for duplicate
    keys, integer literals beyond 2**53 and nesting.
    """
    if (
        len(body) > MAX_VALUES and _count_structure(body) > MAX_VALUES
    ):  # few bodies are so large, and fewer of them are no text
        _check_count(body)
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _malformed(body, error) from None
    try:
        _check(body, value, lossy_numbers=lossy_numbers)
    except InvalidParams as error:
        raise AmbiguousJson(error, value) from None
    return value


def _check(body: bytes, value: object, *, lossy_numbers: bool) -> None:
    try:
        # Written again, a value shows what was dropped from it; and it is refused where it is too deep or an
        # integer too large.
        again = orjson.dumps(value, option=0 if lossy_numbers else orjson.OPT_STRICT_INTEGER)
    except orjson.JSONEncodeError:
        _check_depth(value)
        _check_with_paths(body, integers=True)
        return  # 2**53 itself, which orjson's option refuses
    # The same bytes hide nothing, and compact JSON is what most clients send.
    if again != body and (_may_have_duplicate_key(body, again) or not (lossy_numbers or _has_no_huge_integer(body))):
        _check_with_paths(body, integers=not lossy_numbers)


def _count_structure(body: bytes) -> int:
    """At least as many as there are values, less one: each follows a comma or is in what a bracket opens."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _check_count(body: bytes) -> None:
    # Without escapes every quote begins or ends a string, and every other piece between quotes is outside of strings.
    # A string is a value or the key of one, so that more than so many need not be looked at.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * MAX_VALUES or _count_structure(b"".join(bare.split(b'"')[::2])) > MAX_VALUES:
        raise InvalidParams.field("body", f"holds more than {MAX_VALUES} values")


def _may_have_duplicate_key(body: bytes, reencoded: bytes) -> bool:
    """Whether a key may have been dropped while parsing. Sound: never False when one was.

    Every colon of the body either separates a pair or stands in a string, and writing the value again writes
    both kinds: one for each pair that is left, and those in the strings that are left. So a dropped pair
    shows as a smaller count. Only a colon written as an escape could make up for it, because it is not in the
    first count but in the second; a body with such an escape is suspicious at once.
    """
    return body.count(b":") != reencoded.count(b":") or body.find(b"\\u003") >= 0


def _has_no_huge_integer(body: bytes) -> bool:
    """Whether no integer literal has twenty characters. Sound: never True when one has.

    Integers of 64 bits stay integers in orjson and meet its own strict option; longer ones become doubles,
    and those have twenty digits or more, or a minus and nineteen, since there are more integers above zero than
    below. Such a run covers five bytes in a row of every fourth, so a quarter of the body is looked at first; then
    all of it; then what stands around the run, which spares long digits in a string.
    """
    return (
        body[::4].translate(_DIGITS).find(b"00000") < 0
        or body.translate(_DIGITS).find(b"0" * 20) < 0
        or _LONG_INTEGER.search(body) is None
    )


def _check_depth(value: object) -> None:
    # Level by level and not by recursion: the value may nest as deep as the parser allows.
    level: list[object] = [[value]]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else cast("list[object]", node))
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> InvalidParams:
    return InvalidParams.field("body", f"nests too deeply; at most {MAX_JSON_DEPTH} levels are allowed")


def _malformed(body: bytes, error: orjson.JSONDecodeError) -> Exception:
    if not body.strip(b" \t\r\n"):
        return ParseError("Invalid JSON payload: the body is empty")
    if body.startswith(b"\xef\xbb\xbf"):
        return ParseError("Invalid JSON payload: the body starts with a byte order mark")
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        return ParseError(f"Invalid JSON payload: the body is not UTF-8 at byte {wrong.start}")
    if "depth" in error.msg:
        return _too_deep()
    return ParseError(f"Invalid JSON payload: {error}")


class _Pairs(list[tuple[str, object]]):
    """An object with its keys as they were written."""


class _Fraction:
    """A number with a fraction or an exponent: its size is no offence."""


_FRACTION = _Fraction()


def _check_with_paths(body: bytes, *, integers: bool) -> None:
    # The depth is bounded by now, so neither this parser nor the walk goes far down.
    tree = json.loads(
        body,
        object_pairs_hook=_Pairs,
        parse_float=lambda _: _FRACTION,
        # Python refuses to convert thousands of digits; twenty are already too many.
        parse_int=lambda digits: int(digits[:20]),
    )
    for path, rule in _violations(tree, "", integers):
        raise InvalidParams.field(path or "body", rule)


def _violations(value: object, path: str, integers: bool) -> Iterator[tuple[str, str]]:
    match value:
        case _Pairs():
            seen = set()
            for key, child in cast(list[tuple[str, object]], value):
                inner = f"{path}.{_short(key)}" if path else _short(key)
                if key in seen:
                    yield inner, "the key is given twice in one object; a key is allowed once"
                seen.add(key)
                yield from _violations(child, inner, integers)
        case list():
            for index, child in enumerate(value):
                yield from _violations(child, f"{path}[{index}]", integers)
        case int() if integers and abs(value) > MAX_JSON_INTEGER:
            yield (
                path,
                f"an integer must lie between -{MAX_JSON_INTEGER} and {MAX_JSON_INTEGER}, so that no reader rounds it; "
                "send it as a string",
            )
        case _:
            pass


def _short(key: str) -> str:
    return key if len(key) <= 64 else key[:61] + "..."
