from __future__ import annotations

from dataclasses import replace

import pytest

from dragoman.core.daily_usage import (
    DAY_HOURS,
    DAY_MS,
    HOUR_MS,
    DailyCounter,
    DailyKeys,
    day_of,
    day_text,
    hour_of,
    parse_day,
)
from dragoman.core.limits.quotas import UsageReport
from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.plan import Plan, plan
from dragoman.testing.fixtures import AGENT, created, new_ref


def planned(principal: str = "anna", scope: str = "default") -> Plan:
    return plan(None, created(new_ref(Owner(scope, principal)), claim=7), 0)


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
    begun_and_turns = [(*row[:4], row[4], row[9]) for row in counter.rows(keys)]
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
    assert [(row[2], row[4], row[-2]) for row in first.rows(keys)] == [("anna", 2, 3), ("bert", 1, 0)]
    assert [(row[2], row[4], row[-2]) for row in second.rows(keys)] == [("anna", 1, 3), ("bert", 1, 0)]
    ended = planned()
    ended.record.state = states.COMPLETED
    third = DailyCounter()
    third.count(ended, 0)
    assert not third.can_wait


def test_usage_counts_for_the_task_s_principal_on_the_day_of_the_report() -> None:
    counter, keys = DailyCounter(), DailyKeys()
    counter.count_usage(planned().record, UsageReport(3, 4), 2 * DAY_MS)
    keys.load(2, ())
    (row,) = counter.rows(keys)
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
    assert [(row[1], row[2], row[4]) for row in counter.rows(keys)] == [
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
