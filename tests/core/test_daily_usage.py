from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.daily_usage import (
    DAY_HOURS,
    DAY_MS,
    HOUR_MS,
    DailyCounter,
    DailyKeys,
    TimesRow,
    TimeSummary,
    bucket_of,
    day_of,
    day_text,
    hour_of,
    parse_day,
    summarize,
)
from dragoman.core.limits.quotas import UsageReport
from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.plan import Plan, plan
from dragoman.testing.fixtures import AGENT, created, new_ref


def planned(principal: str = "anna", scope: str = "default") -> Plan:
    return plan(None, created(new_ref(Owner(scope, principal)), claim=7), 0)


def figure_rows(counter: DailyCounter, keys: DailyKeys) -> list[tuple[Any, ...]]:
    """The rows of bucket 0, without the columns of times."""
    return [row[:-3] for row in counter.rows(keys) if not row[-3]]


def time_rows(counter: DailyCounter, keys: DailyKeys) -> list[tuple[Any, ...]]:
    """Hour, scope, principal and agent, bucket, number and sum of the rows of other buckets."""
    return [(*row[:4], *row[-3:]) for row in counter.rows(keys) if row[-3]]


def test_a_day_is_a_utc_date() -> None:
    assert day_of(0) == 0
    assert day_of(DAY_MS - 1) == 0
    assert hour_of(DAY_MS - 1) == DAY_HOURS - 1
    assert day_text(day_of(1_795_478_400_000)) == "2026-11-24"
    assert parse_day("2026-11-24") == day_of(1_795_478_400_000 + DAY_MS - 1)
    with pytest.raises(ValueError, match="24th"):
        parse_day("24th")


def test_a_counter_has_one_row_for_each_key() -> None:
    counter, keys = DailyCounter(), DailyKeys()
    for principal in ("bert", "anna", "bert"):
        counter.count(planned(principal), 5)
    counter.count(planned("anna"), HOUR_MS)
    counter.count(planned("anna"), DAY_MS)
    assert counter.days == {0, 1}
    for day in keys.missing(counter.days):
        keys.load(day, ())
    begun_and_turns = [(*row[:4], row[4], row[9]) for row in figure_rows(counter, keys)]
    assert begun_and_turns == [
        (0, "default", "anna", AGENT, 1, 1),
        (0, "default", "bert", AGENT, 2, 2),
        (1, "default", "anna", AGENT, 1, 1),
        (DAY_HOURS, "default", "anna", AGENT, 1, 1),
    ]


def test_a_change_that_counts_nothing_makes_no_row() -> None:
    counter, begun = DailyCounter(), planned()
    counter.count(replace(begun, before=begun.record), 0)
    assert not counter.days


def test_begun_tasks_and_turns_can_wait_for_the_next_figures() -> None:
    first, second, keys = DailyCounter(), DailyCounter(), DailyKeys()
    assert (bool(first), first.can_wait) == (False, True)
    first.count(planned("anna"), 0)
    assert (bool(first), first.can_wait) == (True, True)
    second.count(planned("anna"), 0)
    second.count(planned("bert"), 0)
    second.count_usage(planned("anna").record, UsageReport(3, 4), 0)
    assert not second.can_wait
    first.add(second)
    assert not first.can_wait
    assert [(row[2], row[4], row[-2]) for row in figure_rows(first, keys)] == [("anna", 2, 3), ("bert", 1, 0)]
    assert [(row[2], row[4], row[-2]) for row in figure_rows(second, keys)] == [("anna", 1, 3), ("bert", 1, 0)]
    ended = planned()
    ended.record.state = states.COMPLETED
    third = DailyCounter()
    third.count(ended, 0)
    assert not third.can_wait


def test_usage_counts_for_the_task_s_principal_on_the_day_of_the_report() -> None:
    counter, keys = DailyCounter(), DailyKeys()
    counter.count_usage(planned().record, UsageReport(3, 4), 2 * DAY_MS)
    keys.load(2, ())
    (row,) = figure_rows(counter, keys)
    assert (row[0], row[2], row[-2:]) == (2 * DAY_HOURS, "anna", (3, 4))


def test_keys_beyond_the_limit_of_a_day_count_for_one_key_of_each_agent() -> None:
    keys = DailyKeys(limit=2)
    keys.load(0, [("default", "anna", AGENT)])
    names = "anna", "bert", "carl", "dora", "bert"
    assert [keys.assign((0, "default", name, AGENT))[2] for name in names] == ["anna", "bert", "", "", "bert"]
    assert keys.assign((0, "invented", "anna", "other")) == (0, "", "", "other")
    counter = DailyCounter()
    for name in names:
        counter.count(planned(name), 0)
    assert [(row[1], row[2], row[4]) for row in figure_rows(counter, keys)] == [
        ("", "", 2),
        ("default", "anna", 1),
        ("default", "bert", 2),
    ]


def test_the_limit_begins_again_each_day() -> None:
    keys = DailyKeys(limit=1)
    for day in range(4):
        assert keys.missing([day]) == [day]
        keys.load(day, ())
        for hour in (day * DAY_HOURS, day * DAY_HOURS + 5):
            key = (hour, "default", f"on day {day}", AGENT)
            assert keys.assign(key) == key
            assert keys.assign((hour, "default", "second", AGENT)) == (hour, "", "", AGENT)
    assert keys.missing([2, 3]) == []
    assert keys.missing([0, 1]) == [0, 1]


def test_times_of_all_principals_are_counted_by_bucket() -> None:
    counter, other, keys = DailyCounter(), DailyCounter(), DailyKeys(limit=2)
    keys.load(0, ())
    for number, principal in enumerate(("anna", "bert", "carl")):
        begun = planned(principal)
        ended = replace(begun, before=begun.record, change=replace(begun.change, turn_us=11_000_000 + number))
        counter.count(begun, 5)
        other.count(ended, 6)
    counter.add(other)
    bucket = bucket_of(11_000_000)
    assert time_rows(counter, keys) == [
        (0, "", "", AGENT, -1, 1, 0),  # of a principal beyond the limit, as its figures
        (0, "", "", AGENT, bucket, 1, 11_000_002),
        (0, "default", "", AGENT, -1, 2, 0),
        (0, "default", "", AGENT, bucket, 2, 22_000_001),
    ]


def buckets_of(times: list[int]) -> list[TimesRow]:
    sums: dict[int, list[int]] = {}
    for time in times:
        sums.setdefault(bucket_of(time), []).append(time)
    return [TimesRow(AGENT, bucket, len(some), sum(some)) for bucket, some in sums.items()]


def near(shortest: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(shortest, shortest + shortest * 3 // 10), min_size=1, max_size=40)


@given(st.one_of(st.lists(st.integers(0, 10**13), min_size=1, max_size=60), st.integers(10, 10**13).flatmap(near)))
def test_a_quantile_is_within_5_percent_and_never_above_the_longest(times: list[int]) -> None:
    found, ordered = summarize(buckets_of(times)), sorted(times)
    assert (found.count, found.mean) == (len(times), sum(times) / len(times))
    for share, quantile in ((50, found.p50), (95, found.p95)):
        expected = ordered[math.ceil(share * len(times) / 100) - 1]
        assert abs(quantile - expected) <= 0.05 * expected or expected <= 1  # a microsecond and none share a bucket
        assert ordered[0] <= quantile <= ordered[-1]


def test_a_quantile_at_the_edge_of_its_bucket_is_within_5_percent() -> None:
    upper = next(time for time in range(10**6, 2 * 10**6) if bucket_of(time) > bucket_of(10**6)) - 1
    lower = next(time for time in range(upper, 0, -1) if bucket_of(time) < bucket_of(upper)) + 1
    for edge, others in ((lower, upper), (upper, lower)):
        found = summarize(buckets_of([1] * 49 + [edge] * 2 + [others] * 49))
        assert abs(found.p50 - edge) <= 0.05 * edge


def test_the_summary_of_one_turn_is_its_time() -> None:
    for time in (0, 1, 999, 11_000_000, 40 * DAY_MS * 1000):
        assert summarize(buckets_of([time])) == TimeSummary(1, time, time, time)
    assert summarize([]) == TimeSummary(0, 0, 0, 0)
