"""Results of steps as bytes: equal and of the same type after they were stored."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from dragoman.agents.functions.step_values import BYTES_MEDIA_TYPE, JSON_MEDIA_TYPE, decode_result, encode_result
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class Color(Enum):
    RED = "r"


class Size(IntEnum):
    LARGE = 3


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    tags: tuple[str, ...] = ()
    length: float = field(init=False, default=2.5)


class Author(BaseModel):
    name: str
    born: date | None = None


def stored(value: Any) -> Any:
    """The value after it was stored and read."""
    return decode_result(*encode_result(value))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda items: (
        st.lists(items)
        | st.dictionaries(st.text() | st.integers(), items)
        | st.lists(items).map(tuple)
        | st.frozensets(st.text() | st.integers())
    ),
    max_leaves=20,
)


@given(json_values)
def test_a_value_is_equal_after_it_was_stored(value: Any) -> None:
    assert repr(stored(value)) == repr(value) or stored(value) == value
    assert type(stored(value)) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        2**70,
        "\ud800",
        {"$bytes": "a key of the caller"},
        {1: "one", (2, 3): b"x"},
        {"a", "b"},
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        datetime(2026, 1, 2),
        date(2026, 1, 2),
        time(3, 4),
        timedelta(days=-1, seconds=5, microseconds=7),
        Decimal("1.10"),
        UUID(int=7),
        PurePosixPath("a/b"),
        Path("a/b"),
        Color.RED,
        Size.LARGE,
        Point(1, ("a",)),
        [Author(name="Ada", born=date(1815, 12, 10))],
        {"message": pb.Message(message_id="m", parts=[pb.Part(text="hi")])},
    ],
)
def test_a_value_keeps_its_type(value: Any) -> None:
    found = stored(value)
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_kept() -> None:
    assert math.isnan(stored(float("nan")))


def test_plain_values_are_stored_as_plain_json() -> None:
    data, media_type = encode_result({"papers": [1, "two", None]})
    assert (json.loads(data), media_type) == ({"papers": [1, "two", None]}, JSON_MEDIA_TYPE)
    assert encode_result(b"\x00\xff") == (b"\x00\xff", BYTES_MEDIA_TYPE)


def test_a_value_without_a_stored_form_is_named() -> None:
    with pytest.raises(TypeError, match=r"a builtins.object cannot be stored; return JSON values, bytes, a dataclass"):
        encode_result({"a": [object()]})


def test_a_class_inside_a_function_is_rejected() -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(TypeError, match="is defined inside a function, where it cannot be found again"):
        encode_result(Local(1))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"$model": ["no_such_module:Author", "{}"]}, "is a no_such_module:Author, which no longer exists"),
        ({"$dataclass": [f"{__name__}:Gone", {}]}, "which no longer exists"),
        ({"$enum": [f"{__name__}:stored", "RED"]}, "which is now another thing"),
        ({"$enum": [f"{__name__}:Author", "RED"]}, "which is now another thing"),
        ({"$matrix": []}, 'has the unknown kind "matrix": it was written by a newer Dragoman'),
    ],
)
def test_a_stored_value_that_cannot_be_read_is_explained(content: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        decode_result(json.dumps(content).encode(), JSON_MEDIA_TYPE)
