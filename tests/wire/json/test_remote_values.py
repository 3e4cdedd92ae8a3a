"""JSON of other servers: integers keep their digits, and times are read in the forms that older agents write."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.wire.json.remote_values import LongInteger, exact_integers, loads, loads_numbers, rfc3339

LONG = 2**53 + 1
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.integers().map(str),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
)  # fmt: skip


@given(VALUES, st.sampled_from([None, 1]))
def test_only_integers_beyond_two_to_the_53rd_become_text(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    read = loads(text.encode())
    assert read == exact_integers(value)
    assert str(read).replace("'", "") == str(value).replace("'", ""), "the digits are the same"
    assert exact_integers(read) == read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740992", 2**53),
        ("-9007199254740993", str(-LONG)),
        ("[1,9007199254740993]", [1, str(LONG)]),
        ('{"a": 12345678901234567890123}', {"a": "12345678901234567890123"}),
        ('{"a": "9007199254740993"}', {"a": str(LONG)}),
        ("9007199254740993.0", 2.0**53),
        ("9" * 300, "9" * 300),
    ],
)
def test_an_integer_of_another_server_keeps_its_digits(text: str, value: Any) -> None:
    assert loads(text) == value
    assert type(loads(text)) is type(value)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[" * 1025 + str(LONG) + "]" * 1025, b"\xff"])
def test_what_is_not_json_is_a_value_error(text: str | bytes) -> None:
    for read in (loads, cast(Any, loads_numbers)):
        with pytest.raises(ValueError, match=r"."):
            read(text)


@pytest.mark.parametrize(("read", "integer"), [(loads, str(LONG)), (loads_numbers, LONG)])
def test_a_long_integer_in_deep_nesting_is_read_or_a_value_error(read: Callable[[str], Any], integer: object) -> None:
    """orjson reads 1024 levels; the parser that reads the digits reads fewer on Python 3.11."""
    with suppress(ValueError):
        value = read("[" * 1020 + str(LONG) + "]" * 1020)
        for _ in range(1020):
            (value,) = value
        assert value == integer


@pytest.mark.parametrize("number", [LONG, -(2**63), 2**64 - 1])
def test_a_callers_number_of_64_bits_is_passed_on_as_a_number(number: int) -> None:
    assert loads_numbers(json.dumps({"a": [number]})) == {"a": [number]}


@pytest.mark.parametrize("number", ["-9223372036854775809", "18446744073709551616", "9" * 300])
def test_a_callers_longer_number_is_rejected_with_advice(number: str) -> None:
    with pytest.raises(LongInteger, match=r"^the integer -?[0-9]{19,24} has more than 64 bits; send it as a string$"):
        loads_numbers(number)


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("2026-11-27T10:00:00Z", "2026-11-27T10:00:00Z"),
        ("2026-11-27T10:00:00+0000", "2026-11-27T10:00:00Z"),
        ("2026-11-27T10:00Z", "2026-11-27T10:00:00Z"),
        ("2026-11-27T10:00:00+01:00[Europe/Berlin]", "2026-11-27T09:00:00Z"),
        ("20261127T100000Z", "2026-11-27T10:00:00Z"),
        ("2026-11-27 10:00:00,5", "2026-11-27T10:00:00.500000Z"),
        ("2026-11-27", "2026-11-27T00:00:00Z"),
        (1764201600.5, "2025-11-27T00:00:00.500000Z"),
        (1764201600500, "2025-11-27T00:00:00.500000Z"),
        ("yesterday", None),
        ("0001-01-01T00:00:00+01:00", None),
        (10**400, None),
        (float("nan"), None),
        (True, None),
        ({"seconds": 1}, None),
    ],
)
def test_a_time_is_read_in_every_form_of_iso_8601(value: object, time: str | None) -> None:
    assert rfc3339(value) == time
