"""The effect of delivery reports, and delays between attempts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.names import Owner
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import (
    MAX_REJECTIONS,
    DeliveryAttempt,
    DeliveryOutcome,
    DeliveryReport,
    PushRecord,
    PushRetryPolicy,
    PushState,
    apply_report,
    failure_reason,
    replace_record,
    restart_record,
    retry_after_seconds,
)
from dragoman.core.task.log import TaskRef

REF = TaskRef(Owner("default", "anonymous"), bytes(16))
CONFIG = PushConfig(id="c", url="https://hook.example/")
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

pushes = st.builds(
    lambda delivered, lag, **more: PushRecord(
        task=REF,
        config=CONFIG,
        created=0,
        last_delivered=delivered,
        last_sequence=delivered + lag,
        session=1,
        token=1,
        **more,
    ),
    st.integers(0, 50),
    st.integers(0, 50),
    task_ended=st.booleans(),
    failures=st.integers(0, 9),
    failing_since=st.integers(0, 100),
    due_at=st.integers(1, 100),
)
outcomes = st.sampled_from(DeliveryOutcome)


def report(push: PushRecord, outcome: DeliveryOutcome, delivered: int, **more: object) -> DeliveryReport:
    return DeliveryReport(
        task=REF, id="c", session=push.session, token=push.token, outcome=outcome, last_delivered=delivered,
        **more,  # type: ignore[arg-type]  # by name
    )  # fmt: skip


@given(pushes, outcomes, st.integers(0, 20), st.booleans(), st.integers(1, 1000))
def test_a_cursor_never_goes_back_and_a_claim_lasts_only_while_there_may_be_more(
    push: PushRecord, outcome: DeliveryOutcome, ahead: int, release: bool, now: int
) -> None:
    delivered = min(push.last_delivered + ahead, push.last_sequence)
    after = apply_report(push, report(push, outcome, delivered, release=release, give_up_after=500), now)
    assert after is not None
    assert push.last_delivered <= after.last_delivered <= push.last_sequence
    if after.session:
        assert after.state is PushState.LIVE
        assert outcome in (DeliveryOutcome.SKIPPED, DeliveryOutcome.DELIVERED)
        assert after.lag or not (after.task_ended or release)
    # A configuration with undelivered events and no holder is due, so that it is found.
    if after.state is PushState.LIVE and after.lag:
        assert after.due_at


@given(pushes, outcomes, st.sampled_from(["session", "token", "state"]))
def test_a_report_without_the_claim_has_no_effect(push: PushRecord, outcome: DeliveryOutcome, what: str) -> None:
    unclaimed = report(push, outcome, push.last_sequence)
    other = {"session": {"session": 2}, "token": {"token": 2}, "state": {"state": PushState.UNSUBSCRIBED}}[what]
    assert apply_report(replace(push, **other), unclaimed, 0) is None  # type: ignore[arg-type]  # by name


def test_a_push_that_fails_too_long_is_given_up() -> None:
    push = PushRecord(task=REF, config=CONFIG, created=0, last_delivered=1, last_sequence=2, session=1, token=1)
    attempt = DeliveryAttempt(sequence=2, error="refused the connection")
    first = apply_report(
        push, report(push, DeliveryOutcome.FAILED, 1, attempt=attempt, retry_delay=5, give_up_after=100), 1000
    )
    assert first is not None
    assert (first.state, first.due_at, first.failures, first.session) == (PushState.LIVE, 1005, 1, 0)
    reclaimed = replace(first, session=1)
    second = report(reclaimed, DeliveryOutcome.FAILED, 1, attempt=attempt, retry_delay=5, give_up_after=100)
    before, later = apply_report(reclaimed, second, 1099), apply_report(reclaimed, second, 1100)
    assert before is not None
    assert later is not None
    assert (before.state, later.state) == (PushState.LIVE, PushState.GIVEN_UP)
    assert later.reason == "given up after 2 attempts: refused the connection"


def test_a_success_resets_the_failure_count() -> None:
    push = PushRecord(
        task=REF,
        config=CONFIG,
        created=0,
        last_delivered=1,
        last_sequence=3,
        session=1,
        token=1,
        failures=9,
        failing_since=5,
        reason="x",
    )
    after = apply_report(replace(push, reason="x"), report(push, DeliveryOutcome.DELIVERED, 2), 10**9)
    assert after is not None
    assert (after.failures, after.failing_since, after.reason, after.session) == (0, 0, "", 1)


def responded(push: PushRecord, sequence: int, *statuses: int, now: int = 1000) -> PushRecord:
    """The record after these responses to an event. A report is by the session that has the claim."""
    for status in statuses:
        attempt = DeliveryAttempt(sequence=sequence, status=status)
        after = apply_report(
            replace(push, session=1),
            report(
                replace(push, session=1), DeliveryOutcome.FAILED, sequence - 1, attempt=attempt, give_up_after=10**6
            ),
            now,
        )
        assert after is not None
        push = after
    return push


NEW = PushRecord(task=REF, config=CONFIG, created=0, last_delivered=0, last_sequence=9, session=1, token=1, due_at=1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 415, 422, 451, 499])
def test_an_event_that_is_rejected_three_times_is_given_up(status: int) -> None:
    before = responded(NEW, 1, *[status] * (MAX_REJECTIONS - 1))
    assert (before.session, before.last_delivered, before.first_given_up) == (0, 0, 0)
    after = responded(before, 1, status)
    assert (after.session, after.last_delivered, after.state) == (1, 1, PushState.LIVE)
    assert (after.failures, after.rejections, after.failing_since) == (0, 0, 1000)  # nothing was accepted since


@pytest.mark.parametrize("status", [0, 302, 408, 425, 429, 500, 503])
def test_other_responses_do_not_count_for_giving_an_event_up(status: int) -> None:
    pending = responded(NEW, 1, 400, *[status] * 20, 400)
    assert (pending.last_delivered, pending.rejections, pending.failures) == (0, 2, 22)
    assert responded(pending, 1, 400).last_delivered == 1


def test_each_event_is_rejected_on_its_own() -> None:
    accepted = apply_report(
        replace(responded(NEW, 1, 400, 400), session=1), report(NEW, DeliveryOutcome.DELIVERED, 1), 2000
    )
    assert accepted is not None
    push = responded(accepted, 2, 400, 400)
    assert (push.last_delivered, push.rejections) == (1, 2)
    push = responded(responded(push, 2, 400), 3, 404, 404, 404)
    assert (push.given_up_events, push.first_given_up) == (2, 2)
    assert push.reason == "given up after 3 rejections: event 2 and 1 more"


def test_a_receiver_that_waits_for_events_after_a_rejected_one_is_not_failing() -> None:
    last = responded(replace(NEW, last_sequence=1), 1, 400, 400, 400)
    assert (last.failing_since, last.failures, last.reason) == (0, 0, "given up after 3 rejections: event 1")


def test_a_redelivery_begins_with_the_first_event_that_was_given_up() -> None:
    push = replace(NEW, last_delivered=9, last_state_sent=3, task_ended=True, given_up_events=2, first_given_up=4)
    again = restart_record(push, 50)
    assert (again.last_delivered, again.first_given_up, again.last_state_sent, again.reason) == (3, 0, 0, "")
    later = restart_record(push, 50, after=6)
    assert (later.last_delivered, later.given_up_events, later.first_given_up) == (6, 2, 4)
    assert restart_record(push, 50, after=9).state is PushState.GIVEN_UP  # events 4 and 5 were not accepted
    moved = replace_record(replace(NEW, last_delivered=9), push, 50)
    assert (moved.last_delivered, moved.last_state_sent, moved.first_given_up) == (3, 0, 0)


def test_a_receiver_that_answers_410_is_not_called_again() -> None:
    push = PushRecord(
        task=REF, config=CONFIG, created=0, last_delivered=1, last_sequence=3, session=1, token=1, due_at=1
    )
    after = apply_report(push, report(push, DeliveryOutcome.ENDED, 1), 0)
    assert after is not None
    assert (after.state, after.due_at, after.session, after.last_delivered) == (PushState.UNSUBSCRIBED, 0, 0, 1)


@pytest.mark.parametrize("state", PushState)
def test_a_replacement_continues_unless_the_previous_one_has_ended(state: PushState) -> None:
    previous = PushRecord(
        task=REF,
        config=CONFIG,
        created=3,
        last_delivered=4,
        last_state_sent=2,
        last_sequence=9,
        state=state,
        token=6,
        attempt_count=8,
    )
    new = PushRecord(
        task=REF, config=replace(CONFIG, url="https://new.example"), created=70, last_delivered=9, last_sequence=9
    )
    kept = replace_record(new, previous, 70)
    assert (kept.config.url, kept.token, kept.state, kept.attempt_count) == (
        "https://new.example",
        7,
        PushState.LIVE,
        8,
    )
    expected = (70, 9, 0) if state is PushState.UNSUBSCRIBED else (3, 4, 70)
    assert (kept.created, kept.last_delivered, kept.due_at) == expected


def test_a_restart_fences_the_holder_of_the_claim() -> None:
    push = PushRecord(
        task=REF,
        config=CONFIG,
        created=0,
        last_delivered=9,
        last_state_sent=3,
        last_sequence=9,
        task_ended=True,
        session=1,
        token=1,
    )
    assert restart_record(push, 50).state is PushState.COMPLETE  # nothing is left
    restarted = restart_record(push, 50, after=2)
    assert (
        restarted.last_delivered,
        restarted.due_at,
        restarted.session,
        restarted.token,
        restarted.last_state_sent,
    ) == (2, 50, 0, 2, 0)
    assert restarted.state is PushState.LIVE


# Delays between attempts -------------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0, 1e9))
def test_no_delay_is_longer_than_the_longest(failures: int, random: float, retry_after: float) -> None:
    policy = PushRetryPolicy(first_delay=1, max_delay=3600)
    assert 0 <= policy.delay(failures, random, retry_after) <= 3600


def test_delays_double_up_to_the_longest_with_full_jitter() -> None:
    policy = PushRetryPolicy(first_delay=1, max_delay=3600)
    most = [policy.delay(failures, 1.0) for failures in range(1, 16)]
    assert most[:6] == [1, 2, 4, 8, 16, 32]
    assert most[-1] == 3600
    assert policy.delay(4, 0.25) == 2
    assert policy.delay(4, 0.0) == 0


def test_retry_after_is_respected_up_to_the_longest_delay() -> None:
    policy = PushRetryPolicy(first_delay=1, max_delay=60)
    assert policy.delay(1, 0.5, retry_after=30) == 30
    assert policy.delay(1, 0.5, retry_after=3000) == 60


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (503, {"retry-after": "120"}, 120),
        (429, {"retry-after": " 7 "}, 7),
        (500, {"retry-after": "120"}, 0),  # has no meaning for this status
        (503, {}, 0),
        (503, {"retry-after": "soon"}, 0),
        (503, {"retry-after": "-5"}, 0),
        (503, {"retry-after": "9" * 40}, 999_999_999),
        (503, {"retry-after": "Sat, 21 Nov 2026 12:01:30 GMT"}, 90),
        (503, {"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, 0),
        # A date is relative to the receiver's own clock, even if that is wrong.
        (503, {"retry-after": "Sat, 21 Nov 2026 15:00:10 GMT", "date": "Sat, 21 Nov 2026 15:00:00 GMT"}, 10),
        (503, {"retry-after": "Sat, 21 Nov 2026 12:01:30 GMT", "date": "never"}, 90),
    ],
)
def test_retry_after_is_seconds_or_a_date(status: int, headers: dict[str, str], seconds: float) -> None:
    assert retry_after_seconds(status, headers, NOW) == seconds


def test_a_reason_is_the_status_or_the_error() -> None:
    assert failure_reason(DeliveryAttempt(sequence=1, status=500)) == "answered 500"
    assert failure_reason(DeliveryAttempt(sequence=1, error="no such host")) == "no such host"
