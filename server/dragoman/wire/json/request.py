"""Request bodies: a strict JSON parser, and the envelopes of JSON-RPC 2.0.

The parser rejects input that parsers interpret differently. orjson does the parsing. It silently keeps the last of two
equal keys and rounds integers of twenty digits, so a few checks at memory speed decide whether a body can contain
either. Only then the standard library parses it again, to report the path. RFC 8259 §4 and §6 leave both cases to the
parser, hence the rejection.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import isinf
from typing import Any, Final, cast

import orjson

from dragoman.core.errors import InvalidParams, InvalidRequest, ParseError
from dragoman.core.limits.message_limits import MAX_VALUES

MAX_JSON_INTEGER = 2**53  # largest integer up to which all are exact as doubles (RFC 7493 §2.2)

MAX_JSON_DEPTH = 254
"""Containers around a value, orjson's limit for writing. It bounds recursion in hostile input; the limit for client
data, for all bindings, is in `core/limits/message_limits.py`."""

_DIGITS = bytes(48 if 48 <= byte <= 57 or byte == 45 else 32 for byte in range(256))
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG_INTEGER = re.compile(rb"(?:^|[\s:,\[])(?:[0-9]{20,}|-[0-9]{19,})(?=[\s,\]}]|$)")


class AmbiguousJson(InvalidParams):
    """The JSON is valid, but readers differ in what it means (duplicate key, number, text), or it is too deep."""

    def __init__(self, error: InvalidParams, value: object) -> None:
        super().__init__(error.message, violations=error.violations)
        wrong = {violation.field for violation in error.violations}
        self.value = {key: own for key, own in value.items() if key not in wrong} if isinstance(value, dict) else value
        """The parsed value without the invalid member, so that the error response can name the request id."""


LARGE_BODY_BYTES: Final = 64 * 1024
MEMORY_FACTOR: Final = 16
"""Bytes that orjson may request for each byte of a large body, to parse or to encode it. Without them it calls the body
invalid, or crashes the process, so they are requested before: then a MemoryError is raised."""


def loads(body: bytes, *, lossy_numbers: bool = False) -> object:
    """Parses a JSON text (dicts, lists, strings, numbers, booleans, None).

    `lossy_numbers` accepts large integer literals, rounded to a double if necessary. Raises ParseError for invalid
    JSON, InvalidParams for too many values, and AmbiguousJson with the path for duplicate keys, integer literals
    beyond 2**53, numbers beyond doubles, halves of surrogate pairs and deep nesting.
    """
    if len(body) > LARGE_BODY_BYTES:
        bytes(MEMORY_FACTOR * len(body))  # untouched, so that this costs next to nothing
    # Few bodies are so large, and most of those are long texts.
    if len(body) > MAX_VALUES and _count_structure(body) > MAX_VALUES:
        _check_count(body)
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        _check_unreadable(body, error.msg, integers=not lossy_numbers)
        raise _malformed(body, error) from None
    try:
        _check(body, value, lossy_numbers=lossy_numbers)
    except InvalidParams as error:
        raise AmbiguousJson(error, value) from None
    return value


def _check(body: bytes, value: object, *, lossy_numbers: bool) -> None:
    try:
        if len(body) > LARGE_BODY_BYTES:
            bytes(MEMORY_FACTOR * len(body))
        # The re-encoded value shows what parsing dropped. orjson fails here if the value is too deep or an integer too
        # large.
        reencoded = orjson.dumps(value, option=0 if lossy_numbers else orjson.OPT_STRICT_INTEGER)
    except orjson.JSONEncodeError:
        _check_depth(value)
        _check_with_paths(body, integers=True)
        return  # 2**53 itself, which orjson's option rejects
    # Identical bytes hide nothing, and most clients send compact JSON.
    if reencoded != body and (
        _may_have_duplicate_key(body, reencoded) or not (lossy_numbers or _has_no_huge_integer(body))
    ):
        _check_with_paths(body, integers=not lossy_numbers)


def _count_structure(body: bytes) -> int:
    """An upper bound of the number of values, less one: each follows a comma or an opening bracket."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _check_count(body: bytes) -> None:
    # Without escapes every quote starts or ends a string, so every other piece between quotes is outside of strings.
    # A string is a value or the key of one; four quotes per value are the maximum.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * MAX_VALUES or _count_structure(b"".join(bare.split(b'"')[::2])) > MAX_VALUES:
        raise InvalidParams.field("body", f"holds more than {MAX_VALUES} values")


def _may_have_duplicate_key(body: bytes, reencoded: bytes) -> bool:
    """Whether parsing may have dropped a key. Sound: never False if it did.

    A colon of the body either separates a pair or is inside a string. The re-encoded value has one for each remaining
    pair and those in the remaining strings, so a dropped pair lowers the count. Only an escaped colon could compensate
    for it, because only the second count includes it; a body with such an escape is always suspicious.
    """
    return body.count(b":") != reencoded.count(b":") or body.find(b"\\u003") >= 0


def _has_no_huge_integer(body: bytes) -> bool:
    """Whether no integer literal has twenty characters. Sound: never True if one has.

    64-bit integers stay integers in orjson and are checked by its strict option. Longer ones become doubles; they
    have at least twenty digits, or a minus and nineteen, because unsigned integers reach further than negative ones.
    Such a run covers five consecutive bytes of every fourth, so a quarter of the body is scanned first; then all of it;
    then the surroundings of the run, which excludes long digits in a string.
    """
    return (
        body[::4].translate(_DIGITS).find(b"00000") < 0
        or body.translate(_DIGITS).find(b"0" * 20) < 0
        or _LONG_INTEGER.search(body) is None
    )


def _check_depth(value: object) -> None:
    # Iterative, because the value may be as deep as the parser allows.
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
    """An object with its keys as written, duplicates included."""


def _check_with_paths(body: bytes, *, integers: bool) -> None:
    # The depth is bounded by now, so neither this parser nor the walk recurses deeply.
    for path, rule in _violations(_tree(body, integers=integers), "", integers):
        raise InvalidParams.field(path or "body", rule)


def _check_unreadable(body: bytes, problem: str, *, integers: bool) -> None:
    """Raises AmbiguousJson for JSON that only orjson cannot read: a number beyond doubles, half of a surrogate pair."""
    if "infinity" not in problem and "surrogate" not in problem:
        return
    with suppress(ValueError, RecursionError):  # it is no JSON for other reasons
        tree = _tree(body, integers=integers)
        members = tree if isinstance(tree, _Pairs) else ()
        for path, rule in _violations(tree, "", integers):
            valid = {key: own for key, own in members if not any(_violations(own, "", integers))}
            raise AmbiguousJson(InvalidParams.field(path or "body", rule), valid)


def _tree(body: bytes, *, integers: bool) -> object:
    """The value as the standard library reads it, with `_Pairs` as objects. Raises ValueError, RecursionError."""
    # Python rejects conversions of thousands of digits to an integer; twenty are already too many.
    parse_int = (lambda digits: int(digits[:20])) if integers else float
    return json.loads(body.decode(), object_pairs_hook=_Pairs, parse_int=parse_int)


def _violations(value: object, path: str, integers: bool) -> Iterator[tuple[str, str]]:
    match value:
        case _Pairs():
            seen = set()
            for key, child in cast(list[tuple[str, object]], value):
                inner = f"{path}.{_short(key)}" if path else _short(key)
                if _SURROGATE.search(key):
                    yield inner, _HALF_PAIR
                if key in seen:
                    yield inner, "the key is given twice in one object; a key is allowed once"
                seen.add(key)
                yield from _violations(child, inner, integers)
        case list():
            for index, child in enumerate(value):
                yield from _violations(child, f"{path}[{index}]", integers)
        case str() if _SURROGATE.search(value):
            yield path, _HALF_PAIR
        case float() if isinf(value):
            yield path, f"a number must lie between -{sys.float_info.max} and {sys.float_info.max}"
        case int() if integers and abs(value) > MAX_JSON_INTEGER:
            yield (
                path,
                f"an integer must lie between -{MAX_JSON_INTEGER} and {MAX_JSON_INTEGER}, so that no reader rounds it; "
                "send it as a string",
            )
        case _:
            pass


_HALF_PAIR: Final = "a text must not have half of a surrogate pair (\\ud800 to \\udfff), which is no character"


def _short(key: str) -> str:
    return key if len(key) <= 64 else key[:61] + "..."


# ---- the envelopes of JSON-RPC 2.0, the same in all versions of the protocol (1.0 §9)
#
# A response repeats the request's id with its type, because clients compare it. A request without an id, or with null,
# is answered too: some clients send null and wait for the response.

JSONRPC_VERSION: Final = "2.0"


@dataclass(slots=True)
class JsonRpcRequest:
    """One request, not changed but not frozen. `params` is None if absent."""

    id: str | int | None
    method: str
    params: object


def request_id(body: object) -> str | int | None:
    """The id of a request that may be invalid otherwise; None for a missing or invalid id."""
    id = body.get("id") if isinstance(body, dict) else None
    return id if isinstance(id, str | int) and not isinstance(id, bool) else None


def partial_request(body: object) -> JsonRpcRequest:
    """The valid members of a request that may be invalid, for logs and error responses."""
    members = body if isinstance(body, dict) else {}
    method, params = members.get("method"), members.get("params")
    return JsonRpcRequest(
        request_id(body), method if isinstance(method, str) else "", params if isinstance(params, dict) else None
    )


def within_params(error: Exception) -> Exception:
    """The error of a call, with a field of `params` named as other errors name it: without `params.`."""
    if not isinstance(error, AmbiguousJson):
        return error
    return InvalidParams.field(error.violations[0].field.removeprefix("params."), error.violations[0].description)


def parse_request(body: object) -> JsonRpcRequest:
    """Parses a request from JSON. Raises InvalidRequest or InvalidParams, naming the member and the rule."""
    if isinstance(body, list):
        raise InvalidRequest("Request payload validation error: a batch is not supported; send one call at a time")
    if not isinstance(body, dict):
        raise InvalidRequest("Request payload validation error: the request must be a JSON object")
    if body.get("jsonrpc") != JSONRPC_VERSION:
        raise InvalidRequest(f'Request payload validation error: jsonrpc: must be "{JSONRPC_VERSION}"')
    id = request_id(body)
    if id is None and body.get("id") is not None:
        raise InvalidRequest("Request payload validation error: id: must be a string, an integer or null")
    method = body.get("method")
    if not isinstance(method, str) or not method:
        raise InvalidRequest("Request payload validation error: method: must be a string that is not empty")
    params = body.get("params")
    if params is not None and not isinstance(params, dict):
        raise InvalidParams.field("params", "must be a JSON object")
    return JsonRpcRequest(id, method, params)


def result_prefix(id: str | int | None) -> bytes:
    """The bytes of a response before its result; `}` follows the result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":' % orjson.dumps(id)


def encode_result(id: str | int | None, result: bytes) -> bytes:
    """Encodes a response. `result` is JSON, `null` if it is empty."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (orjson.dumps(id), result)


def encode_error(id: str | int | None, error: dict[str, Any]) -> bytes:
    """Encodes the response to a failed request. `error` is the object of `wire.errors.jsonrpc_error`."""
    return orjson.dumps({"jsonrpc": JSONRPC_VERSION, "id": id, "error": error})
