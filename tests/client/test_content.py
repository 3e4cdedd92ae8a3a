"""Files of messages: names from others stay in their folder and overwrite nothing, and media types of our own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client import content
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("table.csv", "table.csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\system.ini", "system.ini"),
        (".bashrc", "bashrc"),
        ("...", "file"),
        ("", "file"),
        ("a\x00b\nc", "abc"),
        ("con", "_con"),
        ("NUL.txt", "_NUL.txt"),
        ('a<b>:"c|d?e*', "a_b___c_d_e_"),
        ("trailing. ", "trailing"),
        ("x" * 300 + ".csv", "x" * 196 + ".csv"),
    ],
)
def test_a_name_is_made_safe(name: str, safe: str) -> None:
    assert content.safe_name(name) == safe


@given(st.text(max_size=60) | st.text("aé.", min_size=150, max_size=300))
def test_every_safe_name_stays_in_the_folder(name: str) -> None:
    safe = content.safe_name(name)
    assert Path(safe).name == safe
    assert 0 < len(safe.encode("utf-8", "replace")) <= 200
    assert not safe.startswith(".")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    results = [content.write_file(tmp_path / "new", "a.txt", data) for data in (b"1", b"2", b"3")]
    assert [path.name for path in results] == ["a.txt", "a-1.txt", "a-2.txt"]
    assert [path.read_bytes() for path in results] == [b"1", b"2", b"3"]


def test_files_are_accepted_in_several_forms(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"x")
    ready = pb.Part(url="https://files.example/x")
    files: list[content.FileInput] = [path, str(path), b"y", ("b.md", b"z"), ready]
    results = list(map(content.to_part, files))
    assert [(part.filename, part.media_type, part.raw) for part in results[:4]] == [
        ("a.csv", "text/csv", b"x"),
        ("a.csv", "text/csv", b"x"),
        ("file", "application/octet-stream", b"y"),
        ("b.md", "text/markdown", b"z"),
    ]
    assert results[4] is ready
    with pytest.raises(OSError, match="none"):
        content.to_part(tmp_path / "none")


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
    assert content.media_type(name) == expected
