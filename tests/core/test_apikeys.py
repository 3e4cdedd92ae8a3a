"""The text of a key, and what is kept of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import apikeys
from dragoman.core.apikeys import ApiKey

ID = apikeys.new_id(b"12345678")
TEXT = apikeys.write(ID, b"s" * 32)


def test_a_key_can_be_known_by_its_form_alone() -> None:
    assert re.fullmatch(r"dgm_[a-z2-7]{12}_[a-z2-7]{59}", TEXT)
    assert TEXT.startswith(f"dgm_{ID}_")


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=32, max_size=32))
def test_what_is_written_is_read_back(id_entropy: bytes, entropy: bytes) -> None:
    id = apikeys.new_id(id_entropy)
    text = apikeys.write(id, entropy)
    assert apikeys.ID.fullmatch(id)
    assert apikeys.read(text) == (id, apikeys.digest_of(text))


@given(st.integers(0, len(TEXT) - 1), st.sampled_from("abz27A1-_ é\n"))
def test_one_slip_makes_it_no_key(at: int, letter: str) -> None:
    slipped = TEXT[:at] + letter + TEXT[at + 1 :]
    assert slipped == TEXT or apikeys.read(slipped) is None


@pytest.mark.parametrize("cut", [TEXT[:-1], TEXT[1:], TEXT + "a", TEXT + "\n", "", "dgm_", TEXT.upper()])
def test_a_part_of_a_key_is_none(cut: str) -> None:
    assert apikeys.read(cut) is None


def key(**changes: int | bytes) -> ApiKey:
    return ApiKey(id=ID, name="n", principal="p", digest=apikeys.digest_of(TEXT), created=0, **changes)  # type: ignore[arg-type]


def test_a_digest_proves_the_key_and_the_former_one_for_as_long_as_it_is_good() -> None:
    digest, other = apikeys.digest_of(TEXT), apikeys.digest_of("other")
    assert key().proves(digest, 0)
    assert not key().proves(other, 0)
    assert not key().proves(b"", 0)
    rotated = key(former=other, former_until=100)
    assert rotated.proves(digest, 100)
    assert rotated.proves(other, 99)
    assert not rotated.proves(other, 100)


def test_a_key_is_good_until_it_expires_or_is_revoked() -> None:
    assert key().trouble(10**15) == ""
    assert key(expires=100).trouble(99) == ""
    assert key(expires=100).trouble(100) == "has expired"
    assert key(expires=100, revoked=50).trouble(60) == "was revoked"


def test_a_key_that_is_printed_shows_no_digest() -> None:
    assert "digest" not in repr(key(former=b"former"))
    assert "former=" not in repr(key(former=b"former"))
