from __future__ import annotations

import pytest

from dragoman.core.clock import format_age, parse_age


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("30d", 2_592_000_000),
        ("12h", 43_200_000),
        ("90m", 5_400_000),
        ("45s", 45_000),
        ("2w", 1_209_600_000),
        ("7", 7000),
        ("0", 0),
        (" 1 d ", 86_400_000),
    ],
)
def test_an_age_is_a_number_and_a_unit(text: str, milliseconds: int) -> None:
    assert parse_age(text) == milliseconds
    assert parse_age(format_age(milliseconds)) == milliseconds


@pytest.mark.parametrize("text", ["", "d", "1y", "-1d", "1.5h", "1d2h", "٣d"])
def test_an_invalid_age_is_rejected_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="such as 30d"):
        parse_age(text)
