"""Histograms and ages of store statistics."""

from __future__ import annotations

from dragoman.core.counters import Histogram, StoreStats


def test_a_value_is_counted_at_the_first_bound_that_includes_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value)
    assert (histogram.counts, histogram.count, histogram.sum) == ([2, 1, 1], 4, 12.0)


def test_an_age_is_in_seconds_and_never_negative() -> None:
    stats = StoreStats(counted_at=5000)
    assert (stats.age(2000), stats.age(9000), stats.age(0)) == (3.0, 0.0, 0.0)
