"""Canonical JSON: the examples of RFC 8785, and equivalence of the result."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from dragoman.wire.cards.card_security import without_empty

# RFC 8785 appendix B: the bits of a double, and its text.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_numbers_are_written_as_in_the_rfc(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert rfc8785.dumps(number).decode() == text


def test_keys_are_sorted_by_utf_16_code_units() -> None:
    """RFC 8785 §3.2.3."""
    given = {"€": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One"}
    given |= {"\U0001f600": "Emoji: Grinning Face", "\u0080": "Control", "ö": "Latin Small Letter O With Diaeresis"}
    assert list(json.loads(rfc8785.dumps(given)).values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


def test_the_example_of_the_rfc() -> None:
    """RFC 8785 §3.2.2 to §3.2.4."""
    given: Any = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '€$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert rfc8785.dumps(given).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**53 + 1, -(2**53) - 1, 10**400, "\ud800", {"\udfff": 1}, {1: 2}, {1, 2}, b"x"],
)
def test_values_without_a_canonical_form_are_rejected(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (each has its own text)
        rfc8785.dumps({"a": [value]})


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(values)
def test_canonical_json_is_equivalent_and_idempotent(value: Any) -> None:
    text = rfc8785.dumps(value)
    read = json.loads(text, parse_int=float)  # as parsed by clients that have only doubles
    assert read == value
    assert rfc8785.dumps(read) == text


@given(values)
def test_without_empty_removes_all_empty_values(value: Any) -> None:
    def check(kept: Any) -> None:
        assert kept not in ("", [], {})
        for inner in kept.values() if isinstance(kept, dict) else kept if isinstance(kept, list) else ():
            check(inner)

    cleaned = without_empty(value)
    if cleaned is not None:
        check(cleaned)
    assert without_empty(cleaned) == cleaned
