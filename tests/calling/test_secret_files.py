"""Secrets from files: their text, and errors that name the file and the rule."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.calling.secret_files import check_header_secret, read_secret


def test_a_secret_is_the_text_of_its_file_without_white_space_around_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(" a b\n")
    (tmp_path / "link").symlink_to("secret")  # as Kubernetes mounts them
    assert read_secret(tmp_path / "secret") == read_secret(str(tmp_path / "link")) == "a b"
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfa b\r\n")  # as editors on Windows write it
    assert read_secret(tmp_path / "marked") == "a b"


@pytest.mark.parametrize("secret", ["a\nb", "a\tb", "a\x7f", "\u00e9", " a", "a "])
def test_a_secret_that_no_header_can_carry_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match=r"^must be printable ASCII on one line, without leading or trailing spaces"):
        check_header_secret(secret)
    assert (check_header_secret("a b"), check_header_secret("")) == ("a b", "")


def test_a_file_without_a_secret_is_named_with_the_rule(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "binary").write_bytes(b"\xff")
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it
    for name, rule in (
        ("empty", "is empty; write the value into it"),
        ("binary", "cannot be read: it is not text in UTF-8"),
        ("absent", "cannot be read: No such file or directory"),
        ("pipe", "is not a regular file"),
        (".", "is not a regular file"),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # compared below
            read_secret(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name} {rule}"
