from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core.audit import (
    GENESIS_HASH,
    AuditChainBroken,
    AuditChainVerifier,
    AuditEntry,
    AuditRecord,
    canonical_json,
    chain_entries,
    format_audit_line,
    parse_audit_line,
)

TEXTS = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3)
ENTRIES = st.builds(AuditEntry, st.integers(0, 2**45), st.text(max_size=8), st.text(max_size=4), TEXTS, TEXTS)


def log_of(*entries: AuditEntry) -> list[AuditRecord]:
    return chain_entries(GENESIS_HASH, 0, entries, [bytes([number]) * 16 for number, _ in enumerate(entries)])


def check(kept: list[AuditRecord]) -> AuditChainVerifier:
    chain = AuditChainVerifier()
    for one in kept:
        chain.verify(one)
    return chain


THREE = log_of(*(AuditEntry(at, "task.created", "ok", {"agent": "echo"}, {"principal": "alice"}) for at in (1, 2, 3)))


def blank(kept: AuditRecord) -> AuditRecord:
    return replace(kept, salt=None, entry=replace(kept.entry, who={}))


@settings(deadline=None)
@given(st.lists(ENTRIES, max_size=5))
def test_a_line_holds_all_of_an_entry(entries: list[AuditEntry]) -> None:
    kept = log_of(*entries)
    assert [parse_audit_line(format_audit_line(one)) for one in kept] == kept
    check([parse_audit_line(format_audit_line(one)) for one in kept])


def test_an_erasure_leaves_the_chain_valid() -> None:
    kept = [THREE[0], blank(THREE[1]), THREE[2]]
    assert (check(kept).number, check(kept).erased) == (3, 1)
    assert '"salt":null' in format_audit_line(kept[1])
    assert "alice" not in format_audit_line(kept[1])
    assert parse_audit_line(format_audit_line(kept[1])) == kept[1]


def test_a_truncated_log_is_valid() -> None:
    assert check(THREE[1:]).number == 3


@pytest.mark.parametrize(
    ("kept", "rule"),
    [
        ([THREE[0], THREE[2]], "entry 3 follows entry 1"),
        ([THREE[1], THREE[0]], "entry 1 follows entry 2"),
        ([THREE[0], replace(THREE[1], entry=replace(THREE[1].entry, at=9))], "entry 2: was changed"),
        ([replace(THREE[0], entry=replace(THREE[0].entry, action="other"))], "entry 1: was changed"),
        ([THREE[0], replace(THREE[1], entry=replace(THREE[1].entry, who={"principal": "bob"}))], "match its seal"),
        ([THREE[0], *chain_entries(bytes(32), 1, [THREE[1].entry], [bytes(16)])], "does not follow"),
        ([THREE[0], replace(blank(THREE[1]), seal=bytes(32))], "entry 2: was changed"),
    ],
)
def test_every_change_of_an_entry_is_detected(kept: list[AuditRecord], rule: str) -> None:
    with pytest.raises(AuditChainBroken, match=rule):
        check(kept)


HALF = format_audit_line(THREE[0]).replace('"who":{"principal":"alice"}', '"who":null')


@pytest.mark.parametrize("text", ["", "{}", "[]", "1", HALF])
def test_an_invalid_entry_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # whatever it says
        parse_audit_line(text)


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=6)
"""Texts with every character: controls, DEL, unpaired surrogates."""


@given(
    st.dictionaries(ANY_TEXT, ANY_TEXT | st.integers(-(2**70), 2**70) | st.dictionaries(ANY_TEXT, ANY_TEXT), max_size=4)
)
def test_canonical_json_is_that_of_the_standard_library(value: dict[str, object]) -> None:
    """Old chains stay valid, whichever encoder wrote them."""
    assert canonical_json(value) == json.dumps(value, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize("character", ["\x00", "\x1f", "\x7f", "\x80", "\ud800", "é", '"', "\\", "/", "\n", "\u2028"])
def test_every_kind_of_character_is_encoded_as_before(character: str) -> None:
    value = {f"a{character}": f"{character}b"}
    assert canonical_json(value) == json.dumps(value, sort_keys=True, separators=(",", ":"))
