"""Every parser with its seeds, their prefixes, and random combinations of seeds and words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.parsers import PARSERS

SEEDS = [(name, seed) for name, parser in PARSERS.items() for seed in parser.seeds]


@pytest.mark.parametrize(("name", "seed"), SEEDS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_parser_accepts_its_seed_and_survives_every_prefix(name: str, seed: bytes) -> None:
    for end in range(0, len(seed) + 1, max(1, len(seed) // 20)):
        PARSERS[name].read(seed[:end])
    PARSERS[name].read(seed)


@settings(deadline=None)
@given(st.sampled_from(sorted(PARSERS)), st.data())
def test_a_parser_rejects_invalid_input_with_its_own_errors(name: str, data: st.DataObject) -> None:
    parser = PARSERS[name]
    pieces = st.one_of(st.binary(max_size=8), st.sampled_from([*parser.seeds, *(w.encode() for w in parser.words)]))
    parser.read(b"".join(data.draw(st.lists(pieces, max_size=6))))
