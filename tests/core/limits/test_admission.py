"""Token buckets: burst, refill and bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.limits.admission import TokenBuckets


def test_a_full_bucket_gives_its_burst_and_then_one_token_per_interval() -> None:
    pace = TokenBuckets()
    for _ in range(3):
        assert pace.delay("a", 100.0, 2.0, 3) == 0
        pace.take("a", 100.0, 2.0)
    assert pace.delay("a", 100.0, 2.0, 3) == 2.0
    assert pace.delay("b", 100.0, 2.0, 3) == 0
    assert pace.delay("a", 101.5, 2.0, 3) == 0.5
    assert pace.delay("a", 102.0, 2.0, 3) == 0
    pace.take("a", 102.0, 2.0)
    assert pace.delay("a", 102.0, 2.0, 3) == 2.0


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    pace = TokenBuckets()
    pace.take("a", 0.0, 1.0)
    for _ in range(2):
        assert pace.delay("a", 1000.0, 1.0, 2) == 0
        pace.take("a", 1000.0, 1.0)
    assert pace.delay("a", 1000.0, 1.0, 2) == 1.0


def test_full_buckets_are_evicted_first_and_then_the_least_recently_used() -> None:
    pace = TokenBuckets(max_buckets=2)
    pace.take("full", 0.0, 1.0)
    pace.take("a", 10.0, 5.0)
    pace.take("b", 11.0, 5.0)
    assert len(pace) == 2
    pace.take("a", 12.0, 5.0)
    pace.take("c", 12.0, 5.0)
    assert len(pace) == 2
    assert pace.delay("b", 12.0, 5.0, 1) == 0
    assert pace.delay("a", 12.0, 5.0, 1) > 0


@given(st.lists(st.floats(0, 3), max_size=60), st.integers(1, 5))
def test_no_period_yields_more_than_the_burst_and_the_refill(gaps: list[float], burst: int) -> None:
    pace, now = TokenBuckets(), 0.0
    given_at: list[float] = []
    for gap in gaps:
        now += gap
        if pace.delay("a", now, 1.0, burst) == 0:
            pace.take("a", now, 1.0)
            given_at.append(now)
    for number, first in enumerate(given_at):
        for count, last in enumerate(given_at[number:], 1):
            assert count <= burst + (last - first) + 1e-4
