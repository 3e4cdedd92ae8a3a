"""Files of `a2a.v1` as base64 text, for callers and servers that say so."""

from __future__ import annotations

import re
from base64 import b64encode, encodebytes
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.dialects.test_json_dialects import tasks

from dragoman.core.agent_sources import FILE_FORMS
from dragoman.core.cards.agent_spec import BASE64_FILES_EXTENSION
from dragoman.core.errors import InvalidParams
from dragoman.wire.dialects import file_bytes
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

RESOURCE = "projects/p/locations/l/collections/c/engines/e/assistants/a/agents/lab"
URI = BASE64_FILES_EXTENSION.uri


def message_of(*files: bytes) -> pb.Message:
    return pb.Message(parts=[pb.Part(text="x"), *(pb.Part(raw=file) for file in files)])


def files_of(message: pb.Message) -> list[bytes]:
    return [part.raw for part in message.parts if part.HasField("raw")]


def test_files_are_bytes_unless_a_setting_or_the_caller_says_otherwise() -> None:
    assert not file_bytes.are_base64("bytes", "lab")
    assert not file_bytes.are_base64("bytes", "lab", ("urn:other",))
    assert file_bytes.are_base64("base64", "lab")
    assert file_bytes.are_base64("bytes", "", ("urn:other", URI))


@pytest.mark.parametrize("form", FILE_FORMS)
@pytest.mark.parametrize("tenant", [RESOURCE, f"/{RESOURCE}"])
def test_files_of_resource_names_are_always_bytes(form: str, tenant: str) -> None:
    assert not file_bytes.are_base64(form, tenant, (URI,))  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_base64_text_is_read_exactly(files: list[bytes]) -> None:
    message = message_of(*map(b64encode, files))
    file_bytes.read_base64(message)
    assert files_of(message) == files


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_base64_text_may_have_the_lines_of_mime(end: bytes) -> None:
    message = message_of(encodebytes(b"x" * 100).replace(b"\n", end))
    file_bytes.read_base64(message)
    assert files_of(message) == [b"x" * 100]


@pytest.mark.parametrize(
    "data",
    [
        *(b"hello world", b"\x00\x01\xff\xfe", "ähnlich!".encode(), b"test\n"),
        *(b"aGVsbG8", b"aGVsbG8==", b"=aGVsbG8", b"aGVs=bG8", b"aGVsbG9=", b"aGVsbG8=\n", b"aGVs\nbG8="),
        *(b"-_-_", b"550e8400-e29b-41d4-a716-446655440000"),
    ],
)
def test_anything_but_canonical_base64_text_is_refused_with_its_place(data: bytes) -> None:
    request = pb.SendMessageRequest(message=message_of(b"aGVsbG8=", data))
    with pytest.raises(InvalidParams, match=r"^message\.parts\[2\]\.file\.fileWithBytes: must be base64 text"):
        file_bytes.read_base64(request)


@given(tasks)
def test_a_task_written_as_base64_text_is_read_as_it_was(task: pb.Task) -> None:
    written = pb.Task.FromString(task.SerializeToString())
    file_bytes.write_base64(written)
    events = [pb.StreamResponse(task=written), pb.SendMessageResponse(task=written)]
    page = pb.ListTasksResponse(tasks=[written])
    for message in (*events, page):
        file_bytes.read_base64(message)
    assert [events[0].task, events[1].task, page.tasks[0]] == [task] * 3  # type: ignore[attr-defined]


def test_nothing_else_on_the_way_of_a_file_decodes_or_encodes_base64() -> None:
    package = Path(file_bytes.__file__).parents[2]
    texts = {str(path.relative_to(package)): path.read_text("utf-8") for path in package.rglob("*.py")}
    way = ("wire/dialects/", "wire/json/", "calling/", "agents/upstream/", "bindings/http/", "bindings/grpc/")
    importing = re.compile(r"^(from|import) (base64|binascii)\b", re.MULTILINE)
    own = {name for name, text in texts.items() if name.startswith(way) and importing.search(text)}
    assert own == {"wire/dialects/file_bytes.py", "wire/json/wellknown.py"}  # the second: `bytes` in ProtoJSON
    using = {name for name, text in texts.items() if re.search(r"file_bytes\.(are|read|write)_base64", text)}
    assert using == {"bindings/event_encoders.py", "bindings/method_table.py", "calling/transport.py"}
