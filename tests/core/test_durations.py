from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.durations import MAX_AGE, Backoff, format_age, parse_age


def test_delays_double_from_the_first_to_the_longest() -> None:
    backoff = Backoff(0.5, 15.0)
    assert [backoff.delay(attempt) for attempt in range(1, 8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


def test_another_factor_grows_more_slowly() -> None:
    backoff = Backoff(0.25, 1.0, factor=1.5)
    assert [backoff.delay(attempt) for attempt in range(1, 6)] == [0.25, 0.375, 0.5625, 0.84375, 1.0]


@pytest.mark.parametrize(("jitter", "shortest"), [(0.0, 4.0), (0.5, 2.0), (1.0, 0.0)])
def test_jitter_shortens_a_delay_by_at_most_its_share(jitter: float, shortest: float) -> None:
    backoff = Backoff(1.0, 60.0, jitter=jitter)
    assert (backoff.delay(3, random=0.0), backoff.delay(3, random=1.0)) == (shortest, 4.0)


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(0, 1), st.sampled_from([1.0, 1.5, 2.0]))
def test_no_delay_is_negative_or_longer_than_the_longest(
    attempt: int, random: float, jitter: float, factor: float
) -> None:
    assert 0 <= Backoff(0.1, 3600.0, factor, jitter).delay(attempt, random) <= 3600.0


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


def test_an_age_beyond_a_century_is_rejected() -> None:
    assert parse_age("36500d") == MAX_AGE
    with pytest.raises(ValueError, match="at most 36500d"):
        parse_age("99999999d")


@pytest.mark.parametrize("text", ["", "d", "1y", "-1d", "1.5h", "1d2h", "٣d"])
def test_an_invalid_age_is_rejected_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="such as 30d"):
        parse_age(text)
