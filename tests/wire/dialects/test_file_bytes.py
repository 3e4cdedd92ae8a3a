"""Files of `a2a.v1` as bytes and as base64 text: what either kind of client sends is read exactly."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.dialects.test_json_dialects import tasks

from dragoman.core.errors import InvalidParams
from dragoman.wire.dialects import file_bytes
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

contents = st.lists(st.binary(max_size=40), max_size=4)


def message_of(*files: bytes) -> pb.Message:
    return pb.Message(parts=[pb.Part(text="x"), *(pb.Part(raw=file) for file in files)])


def files_of(message: pb.Message) -> list[bytes]:
    return [part.raw for part in message.parts if part.HasField("raw")]


@given(contents)
def test_every_message_of_a_client_that_sends_base64_text_is_read_exactly(files: list[bytes]) -> None:
    message = message_of(*map(b64encode, files))
    assert file_bytes.read_files(message) is (True if any(files) else None)
    assert files_of(message) == files


@given(contents)
def test_a_message_of_a_client_that_sends_bytes_is_read_exactly_unless_all_files_are_base64(files: list[bytes]) -> None:
    message = message_of(*files)
    ambiguous = any(files) and all(file_bytes.decode_base64(file) is not None for file in files if file)
    assert file_bytes.read_files(message) is (None if not any(files) else ambiguous)
    assert ambiguous or files_of(message) == files


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"hello world", b"hello", b"\x00\x01\xff\xfe", b"hi\n", b"test\n"),
        *(
            b"aGVsbG8",
            b"aGVsbG8==",
            b"=aGVsbG8",
            b"aGVs=bG8",
            b"aGVsbG9=",
            b"aGVsbG8=\n",
            b"aGVs\nbG8=",
        ),  # not canonical
        *(b"-_-_", b"550e8400-e29b-41d4-a716-446655440000"),  # the URL-safe alphabet: also that of many names
        "ähnlich!".encode(),
    ],
)
def test_what_is_not_base64_in_every_detail_is_the_file_itself(data: bytes) -> None:
    message = message_of(data)
    assert not file_bytes.read_files(message)
    assert files_of(message) == [data]


def test_a_file_that_is_base64_itself_is_read_as_text_unless_another_one_is_not() -> None:
    alone, with_other, forced = message_of(b"test"), message_of(b"test", b"hi\n"), message_of(b"test")
    assert file_bytes.read_files(alone) is True
    assert files_of(alone) == [b"\xb5\xeb-"]
    assert file_bytes.read_files(with_other) is False
    assert files_of(with_other) == [b"test", b"hi\n"]
    assert file_bytes.read_files(forced, "bytes") is False
    assert files_of(forced) == [b"test"]


def test_a_set_form_of_base64_rejects_anything_else() -> None:
    request = pb.SendMessageRequest(message=message_of(b"aGVsbG8=", b"hello"))
    with pytest.raises(InvalidParams, match=r"^message\.parts\[2\]\.file\.fileWithBytes: must be base64 text"):
        file_bytes.read_files(request, "base64")


@given(tasks)
def test_a_task_written_as_base64_text_is_read_as_it_was(task: pb.Task) -> None:
    written = pb.Task.FromString(task.SerializeToString())
    file_bytes.write_base64(written)
    events = [pb.StreamResponse(task=written), pb.SendMessageResponse(task=written)]
    page = pb.ListTasksResponse(tasks=[written])
    for message in (*events, page):
        file_bytes.read_files(message, "base64")
    assert [events[0].task, events[1].task, page.tasks[0]] == [task] * 3  # type: ignore[attr-defined]
