"""Results of steps as bytes: equal and of the same type after they were stored."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from dragoman.agents.functions.step_values import (
    BYTES_MEDIA_TYPE,
    decode_result,
    encode_input,
    encode_result,
)
from dragoman.core.task.steps import JSON_MEDIA_TYPE, result_text
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


# For people -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ({"b": (1, {"a"}), "a": date(2026, 1, 2)}, {"b": [1, ["a"]], "a": "2026-01-02"}),
        ({3: Color.RED, "$x": Size.LARGE}, {"3": "RED", "$x": "LARGE"}),
        (Point(1, ("t",)), {"x": 1, "tags": ["t"], "length": 2.5}),
        (Author(name="Ada"), {"name": "Ada", "born": None}),
        (PurePosixPath("/a/b"), "/a/b"),
        (Decimal("1.10"), "1.10"),
        ([b"ab"], ["YWI="]),
    ],
)
def test_a_result_for_people_has_no_classes_and_the_author_s_order(value: Any, plain: Any) -> None:
    text, media_type = result_text(*encode_result(value))
    if isinstance(plain, str):
        assert (text, media_type) == (plain, "text/markdown")
    else:
        assert (text, media_type) == (json.dumps(plain, indent=2), "application/json")


def shown_input(*args: Any, **named: Any) -> Any:
    """The arguments of a function as they are stored."""

    def search(query: Any = None, *rest: Any, **more: Any) -> None: ...

    return json.loads(encode_input(partial(search, *args, **named)))


def test_arguments_are_shown_by_name_and_objects_by_their_class() -> None:
    shown = shown_input(Point(1), Author(name="Ada"), {3: Color.RED, (1, 2): None}, found=[b"abc", object(), 1.5])
    assert shown == {
        "query": {"x": 1, "tags": [], "length": 2.5},
        "rest": [{"name": "Ada", "born": None}, {"3": "RED", "(1, 2)": None}],
        "more": {"found": ["(3 bytes)", "(object)", 1.5]},
    }
    assert json.loads(encode_input(partial(max, 1, 2, key=len))) == {
        "1": 1,
        "2": 2,
        "key": "(builtin_function_or_method)",
    }
    assert encode_input(None) == encode_input(lambda: 1) == ""


def test_large_arguments_say_how_much_is_missing() -> None:
    shown = shown_input(*("x" * 10_000 for _ in range(6)), note="y")
    assert shown["query"] == "x" * 2_000 + "… 8,000 more characters"
    assert [len(shown["rest"]), shown["rest"][-1], shown["…"]] == [4, "… 2 more", "… 1 more"]
    long = shown_input(list(range(60)))["query"]
    assert (len(long), long[-1]) == (51, "… 10 more")
    many = shown_input({str(key): key for key in range(60)})["query"]
    assert (len(many), many["…"]) == (51, "… 10 more")


def test_texts_of_secrets_are_not_stored() -> None:
    shown = shown_input(api_key="k", headers={"Authorization": "Bearer x", "accept": "json"}, max_tokens=5)
    headers = {"Authorization": "(not stored)", "accept": "json"}
    assert shown == {"more": {"api_key": "(not stored)", "headers": headers, "max_tokens": 5}}
    shown = shown_input(tokens=["k", {"of": b"k"}], credentials={"user": "u", "uses": 3})
    credentials = {"user": "(not stored)", "uses": 3}
    assert shown == {"more": {"tokens": ["(not stored)", {"of": "(not stored)"}], "credentials": credentials}}


def test_arguments_of_any_kind_are_bounded_and_never_raise() -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("no")

    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    for value in (Hostile(), deep, 10**5_000, math.nan, "\ud800", {"a": {"b": deep}}):
        assert len(encode_input(partial(print, value))) < 40_000
    wide: Any = ["\x00" * 100]
    for _ in range(6):
        wide = [wide] * 50
    assert len(encode_input(partial(print, wide))) < 60_000


def test_an_odd_argument_hides_no_other() -> None:
    class Key:
        def __str__(self) -> str:
            raise RuntimeError

    assert shown_input({Key(): 1}, 10**5_000, topic="moon") == {
        "query": "(dict)",
        "rest": ["(int)"],
        "more": {"topic": "moon"},
    }


@given(json_values)
def test_arguments_are_json_whatever_they_are(value: Any) -> None:
    json.loads(encode_input(partial(print, value)))
