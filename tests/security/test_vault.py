"""What is sealed in a store, who opens it, and which keys are taken."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dragoman.security.vault import PREFIX, BadKeys, Sealed, Vault, read

OLD, NEW = b"o" * 32, b"n" * 32


def test_what_was_sealed_opens_for_what_it_is_about_and_for_nothing_else() -> None:
    vault = Vault([OLD])
    kept = vault.seal("s3cret", "https://a.example/")
    assert kept.startswith(PREFIX)
    assert "s3cret" not in kept
    assert vault.seal("s3cret", "https://a.example/") != kept  # nobody sees that two are the same
    assert vault.open(kept, "https://a.example/") == "s3cret"
    with pytest.raises(Sealed, match="sealed for something else"):
        vault.open(kept, "https://b.example/")
    changed = kept[:-6] + ("A" if kept[-6] != "A" else "B") + kept[-5:]
    with pytest.raises(Sealed):
        vault.open(changed, "https://a.example/")
    with pytest.raises(Sealed):
        vault.open(kept[: len(PREFIX) + 12], "https://a.example/")


def test_nothing_is_made_of_nothing() -> None:
    assert Vault([OLD]).seal("", "x") == ""
    assert Vault([OLD]).open("", "x") == ""


def test_keys_rotate_the_first_seals_and_all_open() -> None:
    before = Vault([OLD]).seal("one", "x")
    both = Vault([NEW, OLD])
    after = both.seal("two", "x")
    assert (both.open(before, "x"), both.open(after, "x")) == ("one", "two")
    assert Vault([NEW]).open(after, "x") == "two"
    with pytest.raises(Sealed, match="not among --secrets-keys"):
        Vault([NEW]).open(before, "x")
    with pytest.raises(Sealed, match="not among --secrets-keys"):
        Vault().open(before, "x")


def test_what_was_written_before_there_were_keys_is_read_as_it_is() -> None:
    assert Vault([OLD]).open("plain", "x") == "plain"


def test_without_keys_the_log_says_once_that_nothing_is_sealed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "dragoman.security")
    vault = Vault()
    assert not vault.locked
    assert vault.seal("", "x") == ""
    assert not caplog.records
    assert [vault.seal("s3cret", "x") for _ in range(3)] == ["s3cret"] * 3
    (said,) = caplog.messages
    assert "--secrets-keys" in said
    assert "s3cret" not in said


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(
        "# the newest first\n\nbm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4=\n"
        "b29vb29vb29vb29vb29vb29vb29vb29vb29vb29vb28=  # until March\n"
    )
    assert read(file) == [NEW, OLD]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "holds no key; make one with: openssl rand -base64 32"),
        (b"# nothing\n", "holds no key"),
        (b"c2hvcnQ=\n", "line 1: a key is 32 bytes in base64"),
        (b"\n!!!\n", "line 2: a key is 32 bytes in base64"),
        (b"\xff\xfe", "must hold keys in base64"),
        (b"bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4=\n" * 2, "holds a key twice"),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, text: bytes, why: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(text)
    with pytest.raises(BadKeys, match=why) as caught:
        read(file)
    assert "c2hvcnQ" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadKeys, match="absent: No such file"):
        read(tmp_path / "absent")
