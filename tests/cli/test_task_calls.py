"""Files of the command line as message parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.cli.task_calls import FileError, file_parts
from dragoman.client.content import media_type


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
