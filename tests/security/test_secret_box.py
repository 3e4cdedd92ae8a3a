"""Encryption of secrets in the store, and the file of its keys."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dragoman.security.secret_box import (
    SEALED_PREFIX,
    AesGcmSecretBox,
    DecryptionFailed,
    InvalidSecretKeys,
    read_secret_keys,
)

OLD, NEW = b"o" * 32, b"n" * 32


def test_a_ciphertext_decrypts_only_in_its_context() -> None:
    secret_box = AesGcmSecretBox([OLD])
    kept = secret_box.encrypt("s3cret", "https://a.example/")
    assert kept.startswith(SEALED_PREFIX)
    assert "s3cret" not in kept
    assert secret_box.encrypt("s3cret", "https://a.example/") != kept  # equal texts have different ciphertexts
    assert secret_box.decrypt(kept, "https://a.example/") == "s3cret"
    with pytest.raises(DecryptionFailed, match="encrypted for another context"):
        secret_box.decrypt(kept, "https://b.example/")
    changed = kept[:-6] + ("A" if kept[-6] != "A" else "B") + kept[-5:]
    with pytest.raises(DecryptionFailed):
        secret_box.decrypt(changed, "https://a.example/")
    with pytest.raises(DecryptionFailed):
        secret_box.decrypt(kept[: len(SEALED_PREFIX) + 12], "https://a.example/")


def test_empty_texts_stay_empty() -> None:
    assert AesGcmSecretBox([OLD]).encrypt("", "x") == ""
    assert AesGcmSecretBox([OLD]).decrypt("", "x") == ""


def test_the_first_key_encrypts_and_every_key_decrypts() -> None:
    before = AesGcmSecretBox([OLD]).encrypt("one", "x")
    both = AesGcmSecretBox([NEW, OLD])
    after = both.encrypt("two", "x")
    assert (both.decrypt(before, "x"), both.decrypt(after, "x")) == ("one", "two")
    assert AesGcmSecretBox([NEW]).decrypt(after, "x") == "two"
    with pytest.raises(DecryptionFailed, match="not in --secrets-keys"):
        AesGcmSecretBox([NEW]).decrypt(before, "x")
    with pytest.raises(DecryptionFailed, match="not in --secrets-keys"):
        AesGcmSecretBox().decrypt(before, "x")


def test_unencrypted_texts_are_read_unchanged() -> None:
    assert AesGcmSecretBox([OLD]).decrypt("plain", "x") == "plain"


def test_missing_keys_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "dragoman.security")
    secret_box = AesGcmSecretBox()
    assert secret_box.encrypt("", "x") == ""
    assert not caplog.records
    assert [secret_box.encrypt("s3cret", "x") for _ in range(3)] == ["s3cret"] * 3
    (text,) = caplog.messages
    assert "--secrets-keys" in text
    assert "s3cret" not in text


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(
        "# the newest first\n\nbm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4=\n"
        "b29vb29vb29vb29vb29vb29vb29vb29vb29vb29vb28=  # until March\n"
    )
    assert read_secret_keys(file) == [NEW, OLD]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "contains no key; make one with: openssl rand -base64 32"),
        (b"# nothing\n", "contains no key"),
        (b"c2hvcnQ=\n", "line 1: a key is 32 bytes in base64"),
        (b"\n!!!\n", "line 2: a key is 32 bytes in base64"),
        (b"\xff\xfe", "must contain keys in base64"),
        (b"bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4=\n" * 2, "contains a key twice"),
    ],
)
def test_invalid_keys_are_rejected_and_not_shown(tmp_path: Path, text: bytes, why: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(text)
    with pytest.raises(InvalidSecretKeys, match=why) as caught:
        read_secret_keys(file)
    assert "c2hvcnQ" not in str(caught.value)


def test_a_missing_file_is_reported_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSecretKeys, match="absent: No such file"):
        read_secret_keys(tmp_path / "absent")
