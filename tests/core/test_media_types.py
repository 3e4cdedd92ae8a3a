"""Media types in headers: parameters, case, weights."""

from __future__ import annotations

import pytest

from dragoman.core.media_types import accepted_types, bare_type


@pytest.mark.parametrize("text", ["text/plain", " Text/PLAIN ;charset=utf-8", "text/plain; a=b; c=d"])
def test_a_type_is_compared_without_parameters_and_case(text: str) -> None:
    assert bare_type(text) == "text/plain"


@pytest.mark.parametrize(
    ("accept", "types"),
    [
        ("", {""}),
        ("*/*", {"*/*"}),
        ("Text/HTML;level=1, text/html ; q=0.3,a/b", {"text/html", "a/b"}),
        ("a/b;q=0, c/d; Q=0.000, e/f;q=0.001", {"e/f"}),
        ("a/b;seq=0", {"a/b"}),
    ],
)
def test_accepted_types_are_those_with_a_weight_above_zero(accept: str, types: set[str]) -> None:
    assert accepted_types(accept) == types
