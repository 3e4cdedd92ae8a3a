"""What comes of a try, and when there is another one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.log import TaskRef
from dragoman.core.names import Owner
from dragoman.core.push import (
    Attempt,
    Patience,
    Push,
    PushState,
    Settled,
    Verdict,
    asked_to_wait,
    placed,
    reason,
    revived,
    settle,
)
from dragoman.core.webhook import PushConfig

REF = TaskRef(Owner("default", "anonymous"), bytes(16))
CONFIG = PushConfig(id="c", url="https://hook.example/")
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

pushes = st.builds(
    lambda delivered, lag, **more: Push(
        task=REF, config=CONFIG, created=0, delivered=delivered, last=delivered + lag, session=1, token=1, **more
    ),
    st.integers(0, 50),
    st.integers(0, 50),
    over=st.booleans(),
    tries=st.integers(0, 9),
    failing=st.integers(0, 100),
    due=st.integers(1, 100),
)
verdicts = st.sampled_from(Verdict)


def said(push: Push, verdict: Verdict, delivered: int, **more: object) -> Settled:
    return Settled(
        task=REF, id="c", session=push.session, token=push.token, verdict=verdict, delivered=delivered,
        **more,  # type: ignore[arg-type]  # by name
    )  # fmt: skip


@given(pushes, verdicts, st.integers(0, 20), st.booleans(), st.integers(1, 1000))
def test_a_cursor_never_goes_back_and_a_claim_lasts_only_while_there_may_be_more(
    push: Push, verdict: Verdict, ahead: int, release: bool, now: int
) -> None:
    delivered = min(push.delivered + ahead, push.last)
    after = settle(push, said(push, verdict, delivered, release=release, give_up=500), now)
    assert after is not None
    assert push.delivered <= after.delivered <= push.last
    if after.session:
        assert after.state is PushState.LIVE
        assert verdict in (Verdict.PASSED, Verdict.TAKEN)
        assert after.lag or not (after.over or release)
    # Whoever has something to deliver, and nobody to do it, is found: it is due.
    if after.state is PushState.LIVE and after.lag:
        assert after.due


@given(pushes, verdicts, st.sampled_from(["session", "token", "state"]))
def test_what_is_said_without_the_claim_is_not_heard(push: Push, verdict: Verdict, what: str) -> None:
    told = said(push, verdict, push.last)
    other = {"session": {"session": 2}, "token": {"token": 2}, "state": {"state": PushState.ENDED}}[what]
    assert settle(replace(push, **other), told, 0) is None  # type: ignore[arg-type]  # by name


def test_what_has_failed_for_as_long_as_it_may_is_given_up() -> None:
    push = Push(task=REF, config=CONFIG, created=0, delivered=1, last=2, session=1, token=1)
    attempt = Attempt(sequence=2, error="refused the connection")
    first = settle(push, said(push, Verdict.FAILED, 1, attempt=attempt, wait=5, give_up=100), 1000)
    assert first is not None
    assert (first.state, first.due, first.tries, first.session) == (PushState.LIVE, 1005, 1, 0)
    held = replace(first, session=1)
    again = said(held, Verdict.FAILED, 1, attempt=attempt, wait=5, give_up=100)
    before, later = settle(held, again, 1099), settle(held, again, 1100)
    assert before is not None
    assert later is not None
    assert (before.state, later.state) == (PushState.LIVE, PushState.DEAD)
    assert later.why == "given up after 2 tries: refused the connection"


def test_a_success_begins_the_count_anew() -> None:
    push = Push(
        task=REF, config=CONFIG, created=0, delivered=1, last=3, session=1, token=1, tries=9, failing=5, why="x"
    )
    after = settle(replace(push, why="x"), said(push, Verdict.TAKEN, 2), 10**9)
    assert after is not None
    assert (after.tries, after.failing, after.why, after.session) == (0, 0, "", 1)


def test_a_receiver_that_is_gone_is_asked_no_more() -> None:
    push = Push(task=REF, config=CONFIG, created=0, delivered=1, last=3, session=1, token=1, due=1)
    after = settle(push, said(push, Verdict.GONE, 1), 0)
    assert after is not None
    assert (after.state, after.due, after.session, after.delivered) == (PushState.ENDED, 0, 0, 1)


@pytest.mark.parametrize("state", PushState)
def test_one_in_the_place_of_another_takes_over_its_place_unless_that_one_is_gone(state: PushState) -> None:
    former = Push(task=REF, config=CONFIG, created=3, delivered=4, shown=2, last=9, state=state, token=6, attempts=8)
    fresh = Push(task=REF, config=replace(CONFIG, url="https://new.example"), created=70, delivered=9, last=9)
    kept = placed(fresh, former, 70)
    assert (kept.config.url, kept.token, kept.state, kept.attempts) == ("https://new.example", 7, PushState.LIVE, 8)
    expected = (70, 9, 0) if state is PushState.ENDED else (3, 4, 70)
    assert (kept.created, kept.delivered, kept.due) == expected


def test_beginning_again_fences_whoever_delivers() -> None:
    push = Push(task=REF, config=CONFIG, created=0, delivered=9, shown=3, last=9, over=True, session=1, token=1)
    assert revived(push, 50).state is PushState.DONE  # nothing is left
    again = revived(push, 50, after=2)
    assert (again.delivered, again.due, again.session, again.token, again.shown) == (2, 50, 0, 2, 0)
    assert again.state is PushState.LIVE


# When to try again -------------------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0, 1e9))
def test_no_wait_is_longer_than_the_longest(tries: int, dice: float, asked: float) -> None:
    patience = Patience(first=1, longest=3600)
    assert 0 <= patience.wait(tries, dice, asked) <= 3600


def test_waits_double_up_to_the_longest_and_the_dice_take_their_share() -> None:
    patience = Patience(first=1, longest=3600)
    most = [patience.wait(tries, 1.0) for tries in range(1, 16)]
    assert most[:6] == [1, 2, 4, 8, 16, 32]
    assert most[-1] == 3600
    assert patience.wait(4, 0.25) == 2
    assert patience.wait(4, 0.0) == 0


def test_a_receiver_gets_the_time_that_it_asks_for() -> None:
    patience = Patience(first=1, longest=60)
    assert patience.wait(1, 0.5, asked=30) == 30
    assert patience.wait(1, 0.5, asked=3000) == 60


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (503, {"retry-after": "120"}, 120),
        (429, {"retry-after": " 7 "}, 7),
        (500, {"retry-after": "120"}, 0),  # means nothing there
        (503, {}, 0),
        (503, {"retry-after": "soon"}, 0),
        (503, {"retry-after": "-5"}, 0),
        (503, {"retry-after": "9" * 40}, 999_999_999),
        (503, {"retry-after": "Sat, 21 Nov 2026 12:01:30 GMT"}, 90),
        (503, {"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, 0),
        # A receiver whose clock is wrong means what it says by its own clock.
        (503, {"retry-after": "Sat, 21 Nov 2026 15:00:10 GMT", "date": "Sat, 21 Nov 2026 15:00:00 GMT"}, 10),
        (503, {"retry-after": "Sat, 21 Nov 2026 12:01:30 GMT", "date": "never"}, 90),
    ],
)
def test_retry_after_is_seconds_or_a_date(status: int, headers: dict[str, str], seconds: float) -> None:
    assert asked_to_wait(status, headers, NOW) == seconds


def test_a_reason_is_what_was_answered_or_why_there_was_nothing() -> None:
    assert reason(Attempt(sequence=1, status=500)) == "answered 500"
    assert reason(Attempt(sequence=1, error="no such host")) == "no such host"
