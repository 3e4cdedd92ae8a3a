"""Files of the command line as message parts."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from dragoman.calling.errors import ServerUnavailable
from dragoman.calling.transport import StreamResponses
from dragoman.cli.output import ConsoleOutput
from dragoman.cli.task_calls import FileError, _TaskView, file_parts
from dragoman.client import Client
from dragoman.client.content import media_type
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_what_follows_half_a_chunk_on_a_terminal_begins_on_a_new_line() -> None:
    async def broken() -> StreamResponses:
        status = pb.TaskStatus(state=pb.TASK_STATE_WORKING)
        yield pb.StreamResponse(task=pb.Task(id="t", status=status))
        artifact = pb.Artifact(artifact_id="a", parts=[pb.Part(text="half a li")])
        yield pb.StreamResponse(artifact_update=pb.TaskArtifactUpdateEvent(task_id="t", artifact=artifact))
        raise ServerUnavailable.for_reason("it is gone")

    for screen, written in ((Terminal(), "half a li\n"), (io.StringIO(), "half a li")):
        view = _TaskView(Client("127.0.0.1:1"), ConsoleOutput(out=screen), json=False, live=True)
        with pytest.raises(ServerUnavailable):
            await view.follow(broken())
        assert screen.getvalue() == written


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sales.csv", "text/csv"),
        ("SALES.CSV", "text/csv"),
        ("data.json", "application/json"),
        ("rows.jsonl", "application/jsonl"),
        ("photo.png", "image/png"),
        ("notes.md", "text/markdown"),
        ("plain.txt", "text/plain"),
        ("server.log", "text/plain"),
        ("dragoman.yaml", "application/yaml"),
        ("paper.pdf", "application/pdf"),
        ("sales.csv.gz", "application/octet-stream"),
        ("README", "application/octet-stream"),
        ("strange.zzz", "application/octet-stream"),
    ],
)
def test_the_file_name_determines_the_media_type(name: str, expected: str) -> None:
    assert media_type(name) == expected


def test_files_keep_their_order_and_base_name(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(b"1")
    (tmp_path / "a.csv").write_bytes(b"22")
    parts = file_parts([tmp_path / "b.csv", tmp_path / "a.csv"], limit=3)
    assert [(part.filename, part.raw) for part in parts] == [("b.csv", b"1"), ("a.csv", b"22")]


def test_the_limit_applies_to_all_files_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"22")
    with pytest.raises(FileError, match=r"a.csv: 2 bytes; the files of a message may have 3 bytes in all"):
        file_parts([tmp_path / "a.csv", tmp_path / "a.csv"], limit=3)
