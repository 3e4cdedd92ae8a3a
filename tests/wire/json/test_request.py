import json
from typing import cast

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.core.errors import InvalidParams, InvalidRequest, ParseError
from dragoman.core.limits import message_limits
from dragoman.wire.json.request import (
    MAX_JSON_DEPTH,
    MAX_JSON_INTEGER,
    AmbiguousJson,
    JsonRpcRequest,
    encode_error,
    encode_result,
    loads,
    parse_request,
    partial_request,
)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (b" \r\n", "the body is empty"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b"{} x", "after document"),
        (b'{"a":1', "end of data"),
        (b"[1,]", "trailing comma"),
        (b"{'a':1}", "column 2"),
        (b"NaN", "column 1"),
        (b'{"a":"\\ud800","b":' + b"[" * 10_000, "surrogate"),
        (b"[1e999", "infinity"),
        (b'["\xed\xa0\x80"]', "not UTF-8 at byte 2"),
        (b"[01]", "column"),
    ],
)
def test_invalid_json_is_a_parse_error_with_the_position(body: bytes, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        loads(body)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"a":1,"a":1}', "a"),
        (b'{"message":{"parts":[{"text":"x"},{"data":{"k":1,"k":2}}]}}', "message.parts[1].data.k"),
        (b'{"a":{"b":{"c":1}},"a":{}}', "a"),
        (b'{"a":1,"\\u0061":2}', "a"),
        (b'{"a":1,"a":1,"b":"\\u003a"}', "a"),
        (b'{"a":1,"a":1,"b":"\\u003A"}', "a"),
        (b'{ "a:b" : ":" , "a:b" : ":" }', "a:b"),
        (b'[[{"":1,"":2}]]', "[0][0]"),
    ],
)
def test_a_duplicate_key_is_rejected_with_its_path(body: bytes, path: str) -> None:
    with pytest.raises(InvalidParams, match="given twice") as caught:
        loads(body)
    assert [violation.field.removesuffix(".") for violation in caught.value.violations] == [path]


def test_a_long_key_is_truncated_in_the_error() -> None:
    key = b"k" * 500
    with pytest.raises(InvalidParams) as caught:
        loads(b'{"%b":1,"%b":1}' % (key, key))
    assert len(caught.value.violations[0].field) == 64


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"9007199254740993", "body"),
        (b"-9007199254740993", "body"),
        (b'{"a":[1,{"n": 9007199254740993}]}', "a[1].n"),
        (b'{"a":18446744073709551616}', "a"),
        (b'{"a": -18446744073709551616 }', "a"),
        (b'{"a":\t100000000000000000000000000000\n}', "a"),
        (b"[" + b"9" * 300 + b"]", "[0]"),
    ],
)
def test_an_integer_beyond_2_to_the_53rd_is_rejected_with_its_path(body: bytes, path: str) -> None:
    with pytest.raises(InvalidParams, match=str(MAX_JSON_INTEGER)) as caught:
        loads(body)
    assert caught.value.violations[0].field == path


@pytest.mark.parametrize("lossy_numbers", [False, True])
@pytest.mark.parametrize(
    ("body", "path", "rule"),
    [
        (b"1e999", "body", "must lie between"),
        (b'{"a":[0,-1e999]}', "a[1]", "must lie between"),
        (b'{"a":1%b}' % (b"0" * 5000), "a", "must lie between"),
        (b'"\\ud800"', "body", "surrogate"),
        (b'{"a":{"b":"x\\udc00"}}', "a.b", "surrogate"),
        (b'{"a":{"x\\ud800y":1}}', "a.x\ud800y", "surrogate"),
    ],
)
def test_a_value_that_only_some_parsers_read_is_rejected_with_its_path(
    body: bytes, path: str, rule: str, lossy_numbers: bool
) -> None:
    with pytest.raises(AmbiguousJson, match=rule) as caught:
        loads(body, lossy_numbers=lossy_numbers)
    assert caught.value.violations[0].field == path


def test_a_value_that_only_some_parsers_read_leaves_the_other_members() -> None:
    with pytest.raises(AmbiguousJson) as caught:
        loads(b'{"id":7,"method":"\\ud800","params":{"a":1e999},"other":"x"}')
    assert caught.value.value == {"id": 7, "other": "x"}


@pytest.mark.parametrize(
    "body",
    [
        b"9007199254740992",
        b"-9007199254740992",
        b"18446744073709551616.0",
        b"9007199254740993e0",
        b"1E300",
        b'"123456789012345678901234567890"',
        b'{"a":":123456789012345678901234567890,","12345678901234567890123":1}',
        b"0.123456789012345678901234567890",
    ],
)
def test_exact_integers_fractions_exponents_and_digits_in_strings_pass(body: bytes) -> None:
    assert loads(body) == json.loads(body)


@pytest.mark.parametrize("body", [b"[9007199254740993]", b"[18446744073709551616]", b"[-99999999999999999999999]"])
def test_lossy_numbers_let_large_integers_pass(body: bytes) -> None:
    assert loads(body, lossy_numbers=True) == pytest.approx(json.loads(body))


def test_lossy_numbers_still_reject_duplicate_keys() -> None:
    with pytest.raises(InvalidParams, match="given twice"):
        loads(b'{"a":9007199254740993,"a":1}', lossy_numbers=True)


@pytest.mark.parametrize("levels", [MAX_JSON_DEPTH + 1, 1000, 5000, message_limits.MAX_VALUES - 1])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_hostile_nesting_is_rejected_without_recursion(levels: int, opening: bytes, closing: bytes) -> None:
    with pytest.raises(InvalidParams, match=f"at most {MAX_JSON_DEPTH} levels"):
        loads(opening * levels + b"1" + closing * levels)


def test_nesting_up_to_the_limit_passes() -> None:
    assert loads(b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH) is not None


def test_a_deeply_nested_duplicate_key_is_rejected_with_its_path() -> None:
    body = b'{"a":' * (MAX_JSON_DEPTH - 1) + b'{"k":1,"k":1}' + b"}" * (MAX_JSON_DEPTH - 1)
    with pytest.raises(InvalidParams, match=r"a\.a\.k: .*given twice"):
        loads(body)


KEYS = st.sampled_from(["a", "b", ":", "\\", '"', "a:b", "\u003a{", "é", "\U0001f600"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | KEYS
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=15
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_valid_json_passes_in_any_formatting(value: object, ascii_only: bool, indent: int | None) -> None:
    assert loads(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()) == value


@st.composite
def writings(draw: st.DrawFn) -> tuple[str, bool]:
    """A JSON text, and whether one of its objects has a duplicate key."""
    escape = draw(st.booleans())

    def text(value: str) -> str:
        if escape:
            return '"' + "".join(f"\\u{ord(char):04x}" for char in value) + '"'
        return json.dumps(value)

    def write(depth: int) -> tuple[str, bool]:
        if depth == 0 or draw(st.booleans()):
            return text(draw(st.sampled_from(["", "x", ":", "::", "a:b"]))), False
        keys = draw(st.lists(st.sampled_from(["", "a", ":", "\\:"]), max_size=4))
        children = [write(depth - 1) for _ in keys]
        pairs = ",".join(f"{text(key)}:{child}" for key, (child, _) in zip(keys, children, strict=True))
        return "{" + pairs + "}", len(set(keys)) < len(keys) or any(bad for _, bad in children)

    return write(3)


@given(writings())
@example(('{"a":"x","a":"\\u003a"}', True))
def test_every_duplicate_key_is_detected(writing: tuple[str, bool]) -> None:
    body, bad = writing
    if bad:
        with pytest.raises(InvalidParams, match="given twice"):
            loads(body.encode())
    else:
        assert loads(body.encode()) == json.loads(body)


FORMS = st.sampled_from(["%d", "[%d]", '{"a":%d}', "[ %d ,1]", "[-%d]", '{"k": [0,%d]}'])


@example(2**63 + 1, "[-%d]", 0)  # nineteen digits, but not a 64-bit integer
@example(2**63, "[ -%d]", 0)
@given(st.integers(10**15, 10**40), FORMS, st.integers(0, 5))
def test_every_large_integer_is_detected(number: int, form: str, shift: int) -> None:
    body = (" " * shift + form % number).encode()
    if number > MAX_JSON_INTEGER:
        with pytest.raises(InvalidParams, match="must lie between"):
            loads(body)
    else:
        assert loads(body) == json.loads(body)


def test_a_body_with_too_many_values_is_rejected_before_parsing() -> None:
    assert (
        len(cast("list[int]", loads(b"[" + b"0," * (message_limits.MAX_VALUES - 2) + b"0]")))
        == message_limits.MAX_VALUES - 1
    )
    for body in (
        b"[" + b"0," * message_limits.MAX_VALUES + b"0]",
        b"[" + b"{}," * message_limits.MAX_VALUES + b"0]",
        b"[" + b'"",' * 3 * message_limits.MAX_VALUES + b'""]',
    ):
        with pytest.raises(InvalidParams, match=f"more than {message_limits.MAX_VALUES} values"):
            loads(body)


@pytest.mark.parametrize("text", ["a,b[c{", 'a,\\"[', "\\\\,", '\\\\\\\\\\",'])
def test_brackets_and_commas_inside_strings_are_not_counted(text: str) -> None:
    body = b'{"a": "' + text.encode() * (message_limits.MAX_VALUES + 1) + b'"}'
    assert isinstance(loads(body), dict)


@pytest.mark.parametrize("id", ["1", 1, None])
def test_a_request_is_parsed_with_the_type_of_its_id(id: str | int | None) -> None:
    body = {"jsonrpc": "2.0", "id": id, "method": "GetTask", "params": {"id": "t"}}
    assert parse_request(body) == JsonRpcRequest(id, "GetTask", {"id": "t"})


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ([], "a batch is not supported"),
        ("x", "must be a JSON object"),
        ({"method": "GetTask"}, "jsonrpc: must be"),
        ({"jsonrpc": "2.0", "method": "GetTask", "id": True}, "id: must be"),
        ({"jsonrpc": "2.0", "method": ""}, "method: must be"),
    ],
)
def test_an_invalid_request_is_rejected_with_the_member(body: object, rule: str) -> None:
    with pytest.raises(InvalidRequest, match=rule):
        parse_request(body)


def test_params_must_be_an_object() -> None:
    with pytest.raises(InvalidParams, match="params: must be a JSON object"):
        parse_request({"jsonrpc": "2.0", "method": "GetTask", "params": []})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"id": 7, "method": 3, "params": "x"}, JsonRpcRequest(7, "", None)),
        ({"id": [], "method": "GetTask"}, JsonRpcRequest(None, "GetTask", None)),
        (None, JsonRpcRequest(None, "", None)),
    ],
)
def test_valid_members_of_an_invalid_request_are_kept(body: object, expected: JsonRpcRequest) -> None:
    assert partial_request(body) == expected


def test_responses_repeat_the_id() -> None:
    assert orjson.loads(encode_result("a", b'{"x":1}')) == {"jsonrpc": "2.0", "id": "a", "result": {"x": 1}}
    assert orjson.loads(encode_error(1, {"code": -1})) == {"jsonrpc": "2.0", "id": 1, "error": {"code": -1}}
