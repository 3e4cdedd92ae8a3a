"""Conversion of returned and yielded values, row by row of the table in `values`."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pydantic
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.turn_context import run_turn, state_of, status_text

from dragoman import Turn, agent, types
from dragoman.agents.values import MAX_EXACT_INTEGER, parts_of, to_json, value_to_json
from dragoman.core.errors import InvalidAgentResponse
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass
class Point:
    x: int
    y: list[float]


class City(pydantic.BaseModel):
    name: str
    at: Point


class Pair(NamedTuple):
    left: int
    right: str


def foreign(message: Any) -> Any:
    """The same message in a class of another descriptor pool, as in a2a-sdk."""
    pool = descriptor_pool.DescriptorPool()

    def copy(file: Any) -> None:
        for dependency in file.dependencies:
            copy(dependency)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        pool.Add(proto)

    copy(message.DESCRIPTOR.file)
    foreign_class = message_factory.GetMessageClass(pool.FindMessageTypeByName(message.DESCRIPTOR.full_name))
    assert foreign_class is not type(message)
    return foreign_class.FromString(message.SerializeToString())


async def returned(value: object) -> pb.Task:
    @agent
    async def it(turn: Turn) -> object:
        return value

    return (await run_turn(it, "go"))[0]


async def yielded(*values: object) -> pb.Task:
    @agent
    async def it(turn: Turn) -> AsyncIterator[object]:
        for value in values:
            yield value

    return (await run_turn(it, "go"))[0]


TEXT = pb.Part(text="hi")
PNG = b"\x89PNG\r\n\x1a\nrest"
DATA: list[tuple[object, object]] = [
    ({"a": 1}, {"a": 1}),
    ([1, "two", None], [1, "two", None]),
    ((1, 2), [1, 2]),
    (Pair(1, "r"), [1, "r"]),
    ([], []),
    ({}, {}),
    (42, 42),
    (-0.5, -0.5),
    (True, True),
    (False, False),
    (Point(1, [2.5]), {"x": 1, "y": [2.5]}),
    (City(name="Rome", at=Point(3, [])), {"name": "Rome", "at": {"x": 3, "y": []}}),
    ({"deep": [{"inside": Point(1, [])}]}, {"deep": [{"inside": {"x": 1, "y": []}}]}),
]


@pytest.mark.parametrize(("value", "json"), DATA, ids=repr)
async def test_returned_and_yielded_data_become_one_data_part(value: object, json: object) -> None:
    for task in (await returned(value), await yielded(value)):
        assert state_of(task) == "COMPLETED"
        [artifact] = task.artifacts
        [part] = artifact.parts
        assert part.WhichOneof("content") == "data"
        assert value_to_json(part.data) == json
        assert type(value_to_json(part.data)) is type(json)


async def test_a_returned_string_is_an_artifact_with_one_text_part() -> None:
    task = await returned("hi")
    [artifact] = task.artifacts
    assert list(artifact.parts) == [TEXT]
    assert artifact.artifact_id
    assert not task.status.HasField("message")


async def test_yielded_strings_are_chunks_of_the_artifact_output() -> None:
    task = await yielded("one ", "two ", "")
    [artifact] = task.artifacts
    assert artifact.artifact_id == "output"
    assert [part.text for part in artifact.parts] == ["one ", "two ", ""]


async def test_yielded_data_and_parts_are_appended_to_the_same_artifact_as_text() -> None:
    task = await yielded("one", {"n": 1}, types.link("https://example.org/a.png"), [TEXT, TEXT])
    [artifact] = task.artifacts
    assert [part.WhichOneof("content") for part in artifact.parts] == ["text", "data", "url", "text", "text"]


FILES: list[tuple[object, str, str]] = [
    (PNG, "output.png", "image/png"),
    (b"anything", "output.bin", "application/octet-stream"),
    (bytearray(b"%PDF-1.7"), "output.pdf", "application/pdf"),
    (memoryview(b"GIF89a"), "output.gif", "image/gif"),
]


@pytest.mark.parametrize(
    ("value", "name", "media_type"), FILES, ids=lambda case: type(case).__name__ if not isinstance(case, str) else case
)
async def test_bytes_become_a_file_in_a_separate_artifact(value: bytes, name: str, media_type: str) -> None:
    for task in (await returned(value), await yielded("text", value)):
        artifact = task.artifacts[-1]
        assert list(artifact.parts) == [pb.Part(raw=bytes(value), filename=name, media_type=media_type)]
        assert artifact.artifact_id != "output"


async def test_a_path_becomes_a_file_with_its_name_and_type(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"hello")
    for task in (await returned(path), await yielded(path)):
        [artifact] = task.artifacts
        assert artifact.name == "notes.txt"
        assert list(artifact.parts) == [pb.Part(raw=b"hello", filename="notes.txt", media_type="text/plain")]


async def test_a_missing_path_fails_with_its_name(tmp_path: Path) -> None:
    task = await returned(tmp_path / "missing.txt")
    assert state_of(task) == "FAILED"
    assert "missing.txt cannot be read: No such file or directory" in status_text(task)
    assert str(tmp_path) not in status_text(task)


async def test_a_list_of_parts_becomes_one_artifact() -> None:
    task = await returned([TEXT, types.data({"a": 1})])
    [artifact] = task.artifacts
    assert [part.WhichOneof("content") for part in artifact.parts] == ["text", "data"]


async def test_an_artifact_is_sent_unchanged_and_replaces_one_with_the_same_id() -> None:
    first = types.artifact("old", id="report", name="Report")
    second = types.artifact("new", id="report", name="Report", metadata={"v": 2}, extensions=["urn:x"])
    assert list((await returned(second)).artifacts) == [second]
    assert list((await yielded(first, second)).artifacts) == [second]


async def test_a_chunk_is_appended_to_an_earlier_artifact_with_its_id() -> None:
    task = await yielded(types.artifact("first. ", id="output"), "more")
    [artifact] = task.artifacts
    assert [part.text for part in artifact.parts] == ["first. ", "more"]


async def test_a_message_becomes_the_status_message_of_working_or_completed() -> None:
    message = types.message("halfway", metadata={"k": "v"}, references=["task-0"])
    done = await returned(message)
    assert state_of(done) == "COMPLETED"
    assert done.status.message.parts == message.parts
    assert done.status.message.reference_task_ids == ["task-0"]

    task = await yielded(message)
    assert state_of(task) == "COMPLETED"
    assert status_text(task) == ""
    assert task.history[-1].parts == message.parts


async def test_a_message_gets_the_agents_role_ids_and_task() -> None:
    task = await returned(types.message("hi"))
    message = task.status.message
    assert (message.role, message.task_id, message.context_id) == (pb.ROLE_AGENT, "task-1", "context-1")
    assert message.message_id


async def test_a_returned_user_message_becomes_an_agent_message() -> None:
    @agent
    async def parrot(turn: Turn) -> types.Message:
        return turn.message

    task, _ = await run_turn(parrot, "hi")
    assert status_text(task) == "hi"
    assert task.status.message.role == pb.ROLE_AGENT
    assert task.status.message.message_id != task.history[0].message_id
    assert task.history[0].role == pb.ROLE_USER


async def test_a_returned_none_completes_without_an_artifact() -> None:
    task = await returned(None)
    assert state_of(task) == "COMPLETED"
    assert not task.artifacts


async def test_a_yielded_none_fails_and_names_agent_file_and_line() -> None:
    @agent(id="yields-none")
    async def yields_none(turn: Turn) -> AsyncIterator[object]:
        yield "fine"
        yield None  # <- here

    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# <- here"))
    task, _ = await run_turn(yields_none, "go")
    assert state_of(task) == "FAILED"
    assert status_text(task).startswith(
        f"InvalidAgentResponse: agent yields-none, test_values.py line {line}: yielded None"
    )
    assert task.artifacts[0].parts[0].text == "fine"


@pytest.mark.parametrize(
    "make", [lambda: TEXT, lambda: types.artifact("hi", id="a"), lambda: types.message("hi"), lambda: [TEXT, TEXT]]
)
async def test_objects_of_another_library_are_converted_through_their_bytes(make: Callable[[], Any]) -> None:
    ours = make()
    theirs = [foreign(part) for part in ours] if isinstance(ours, list) else foreign(ours)
    for ask in (returned, yielded):
        mine, other = await ask(ours), await ask(theirs)
        assert [a.parts for a in mine.artifacts] == [a.parts for a in other.artifacts]
        assert mine.status.message.parts == other.status.message.parts
        assert [m.parts for m in mine.history] == [m.parts for m in other.history]
        assert state_of(other) == "COMPLETED"


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def endless() -> object:
    value: list[object] = []
    value.append(value)
    return value


def data_with(number: float) -> pb.Part:
    part = pb.Part()
    part.data.number_value = number
    return part


def too_deep() -> pb.Artifact:
    artifact = types.artifact("x")
    value = artifact.metadata.fields["a"]
    for _ in range(24):
        value = value.list_value.values.add()
    value.bool_value = True
    return artifact


async def _never() -> None: ...


def _gen() -> Iterator[int]:
    yield 1


BROKEN: list[tuple[str, Callable[[], object], str]] = [
    ("empty artifact", pb.Artifact, "an Artifact has no parts"),
    ("empty message", pb.Message, "a Message has no parts"),
    ("part without content", pb.Part, "a Part has no content"),
    ("part without content in a list", lambda: [TEXT, pb.Part()], "a Part has no content"),
    ("part without content in an artifact", lambda: pb.Artifact(parts=[pb.Part()]), "a Part has no content"),
    ("part without content in a message", lambda: pb.Message(parts=[pb.Part()]), "a Part has no content"),
    ("parts and others", lambda: [TEXT, "text"], "a list of Parts contains str"),
    ("deep data", lambda: nested(25), "nests more than 24 levels"),
    ("endless data", endless, "nests more than 24 levels"),
    ("deep metadata", too_deep, "nests more than 24 levels"),
    ("nan", lambda: math.nan, "nan is not a JSON number"),
    ("infinity inside", lambda: {"a": [-math.inf]}, "-inf is not a JSON number"),
    ("nan in a part", lambda: data_with(math.nan), "data holds NaN or infinity"),
    ("number of a key", lambda: {1: "one"}, "the key 1 of an object is an int"),
    ("beyond 2^53", lambda: 2**53 + 1, "beyond 2^53"),
    ("far beyond 2^53", lambda: -(10**6000), "beyond 2^53"),
    ("lone surrogate", lambda: "a\ud800", "a lone surrogate"),
    ("lone surrogate in data", lambda: {"\udfff": 1}, "a lone surrogate"),
    ("bytes in data", lambda: {"a": b"b"}, "a bytes is not JSON"),
    ("a set", lambda: {1, 2}, "set is not content"),
    ("an object", object, "object is not content"),
    ("a class", lambda: Point, "type is not content"),
    ("a task", pb.Task, "lf.a2a.v1.Task cannot be a response"),
    ("a coroutine", _never, "an await is missing"),
    ("a generator", _gen, "iterate over it and yield its values"),
]


@pytest.mark.parametrize(("make", "reason"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
async def test_an_invalid_value_fails_the_task_with_the_reason(make: Callable[[], object], reason: str) -> None:
    for ask in (returned, yielded):
        task = await ask(make())
        assert state_of(task) == "FAILED"
        assert status_text(task).startswith("InvalidAgentResponse: agent it, test_values.py line ")
        assert reason in status_text(task)
        assert not task.artifacts


class Color(Enum):
    RED = "red"


class Size(Enum):
    SMALL = ("s", 1)


MOMENTS: list[object] = [
    datetime(2026, 1, 2, 3, 4, 5),
    datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-5, minutes=-30))),
    date(2026, 1, 2),
    time(3, 4),
    time(3, 4, 5, 7000, tzinfo=UTC),
    timedelta(),
    timedelta(days=1, hours=25, minutes=61, seconds=3),
    timedelta(seconds=-1.5),
    timedelta(minutes=5),
    timedelta(days=-300),
    UUID(int=1),
    Decimal("1.50"),
    Color.RED,
]


@dataclass
class Record:
    value: Any


class Model(pydantic.BaseModel):
    value: Any


@pytest.mark.parametrize("value", MOMENTS, ids=str)
def test_dates_and_their_like_are_encoded_as_in_pydantic_models(value: object) -> None:
    expected = Model(value=value).model_dump(mode="json")
    assert to_json(Record(value)) == to_json({"value": value}) == to_json(Model(value=value)) == expected
    assert to_json([Record([value])]) == [{"value": [expected["value"]]}]


@pytest.mark.parametrize("value", MOMENTS, ids=str)
async def test_dates_and_their_like_are_returned_as_the_text_that_they_are_in_data(value: object) -> None:
    task = await returned(value)
    (part,) = task.artifacts[0].parts
    assert (part.text, state_of(task)) == (to_json({"value": value})["value"], "COMPLETED")


async def test_the_member_of_an_enum_is_returned_as_its_value() -> None:
    assert parts_of(Size.SMALL) == parts_of(("s", 1))


async def test_data_of_24_levels_is_accepted() -> None:
    assert state_of(await returned(nested(24))) == "COMPLETED"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_EXACT_INTEGER, MAX_EXACT_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(JSON)
def test_any_json_value_survives_a_data_part(value: object) -> None:
    assert value_to_json(types.data(value).data) == value
    wire = types.data(value).SerializeToString()
    assert value_to_json(pb.Part.FromString(wire).data) == value


@given(st.text())
def test_any_string_becomes_a_text_part_or_is_rejected(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(InvalidAgentResponse):
            parts_of(text)
    else:
        assert parts_of(text) == [pb.Part(text=text)]


@given(st.binary())
def test_any_bytes_become_a_file_with_a_name_and_a_type(content: bytes) -> None:
    [part] = parts_of(content)
    assert part.raw == content
    assert part.filename
    assert "/" in part.media_type
