"""The push checker: explained repeats pass, and every violation is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.chaos.history import Acknowledged, Delivered, Entry, Fault, Sent
from tests.chaos_checker.checker import StoredEvent, StoredTask, judge

from dragoman.core.task import states

LOG = (
    StoredEvent(1, "d1", states.SUBMITTED, "s1"),
    StoredEvent(2, "d2", states.WORKING, "s2"),
    StoredEvent(3, "d3", 0, "s3"),
    StoredEvent(4, "d4", states.COMPLETED, "s4"),
)
KEPT = {"t": StoredTask("t", states.COMPLETED, 4, LOG, ["m1"], "stream #1", begun=1)}
SENT = Sent(op=1, message="m1", binding="rest", how="at once", text="stream #1", hook=9)
ACK = Acknowledged(op=1, task="t", state=states.SUBMITTED)


def delivered(sequence: int, status: int = 200, at: float = 0.0, **more: str) -> Delivered:
    at = at or 10.0 * sequence
    values = {"task": "t", "digest": f"d{sequence}", **more}
    return Delivered(at=at, done=at + 1, hook=9, sequence=sequence, status=status, **values)


ONE, TWO, THREE, FOUR = (delivered(number) for number in range(1, 5))
GOOD: tuple[Entry, ...] = (SENT, ACK, ONE, TWO, THREE, FOUR)


def later(at: float, *entries: Delivered) -> list[Delivered]:
    """The same requests, from `at` on."""
    return [replace(entry, at=at + 10 * number, done=at + 10 * number + 1) for number, entry in enumerate(entries)]


def problems(*entries: Entry, more: Sequence[Entry] = ()) -> list[str]:
    return judge((*entries, *more), KEPT)


def test_complete_ordered_deliveries_pass() -> None:
    assert problems(*GOOD) == []


@pytest.mark.parametrize("status", [0, 302, 410, 429, 500, 503])
def test_a_rejected_webhook_may_be_repeated(status: int) -> None:
    tries = [replace(delivered(2, status), at=20 + number, done=20 + number) for number in range(3)]
    assert problems(SENT, ACK, ONE, *tries, replace(TWO, at=25), THREE, FOUR) == []


def test_a_crash_explains_one_repeat() -> None:
    crash = Fault(at=22, how="kill")
    assert problems(SENT, ACK, ONE, TWO, crash, replace(TWO, at=24, done=25), THREE, FOUR) == []


def test_a_webhook_in_flight_when_the_server_was_killed_may_repeat() -> None:
    crash = Fault(at=19.5, how="kill")  # the receiver processes the request of 20 s only then
    assert problems(SENT, ACK, ONE, crash, TWO, replace(TWO, at=24, done=25), THREE, FOUR) == []


def test_an_outage_of_the_database_explains_one_repeat() -> None:
    outage = Fault(at=19, how="pause", part="postgres", seconds=30.0)
    assert problems(SENT, ACK, ONE, TWO, outage, replace(TWO, at=51, done=52), *later(60, THREE, FOUR)) == []


def test_a_late_response_counts_as_accepted() -> None:
    assert problems(SENT, ACK, ONE, replace(TWO, done=29.9), THREE, FOUR) == []


def test_events_of_a_send_without_a_response_are_expected_too() -> None:
    assert problems(SENT, ONE, TWO, THREE, FOUR) == []


@pytest.mark.parametrize(
    ("entries", "response"),
    [
        ((SENT, ACK), "up to event 0 of 4"),
        ((SENT,), "up to event 0 of 4"),  # created by a send without a response, and lost
        ((SENT, ACK, ONE, TWO, THREE), "up to event 3 of 4"),
        ((SENT, ACK, ONE, TWO, THREE, delivered(4, 500)), "up to event 3 of 4"),
        ((SENT, ACK, ONE, THREE, FOUR), "event 3 when it had taken 1: out of order, or a gap"),
        ((SENT, ACK, replace(TWO, at=9), ONE, THREE, FOUR), "event 2 when it had taken 0"),
        ((SENT, ACK, delivered(1, 500), TWO, THREE, FOUR), "event 2 when it had taken 0"),
        ((SENT, ACK, *GOOD[2:4], replace(TWO, at=24), THREE, FOUR), "event 2 again, which it had taken"),
        (
            (SENT, ACK, ONE, TWO, replace(ONE, at=24), replace(TWO, at=25), THREE, FOUR),
            "event 1 again, having taken 2: more than one repeat",
        ),
        (
            (SENT, ACK, ONE, TWO, Fault(at=23, how="kill"), replace(ONE, at=24), replace(TWO, at=25), THREE, FOUR),
            "event 1 again, having taken 2",
        ),
        (
            (SENT, ACK, ONE, Fault(at=12, how="kill"), TWO, replace(TWO, at=24), THREE, FOUR),
            "event 2 again, which it had taken, and nothing explains it",
        ),
        (
            (SENT, ACK, ONE, TWO, Fault(at=22, how="kill"), delivered(3, 500), *later(31, TWO, THREE, FOUR)),
            "event 2 again, having received 3: out of order",
        ),
        (
            (SENT, ACK, ONE, delivered(2, 500, body="b"), delivered(2, at=24.0, body="c"), THREE, FOUR),
            "event 2 again in other bytes",
        ),
        ((SENT, ACK, ONE, delivered(2, digest="other"), THREE, FOUR), "another event 2 than the log has"),
        ((*GOOD, delivered(5)), "event 5 of 4"),
        ((*GOOD, delivered(4, task="other", at=50.0)), "was told of other"),
        ((ONE, TWO, THREE, replace(FOUR, task="gone"), replace(ONE, hook=8, task="gone")), "gone, which is not there"),
    ],
)
def test_violations_are_reported(entries: tuple[Entry, ...], response: str) -> None:
    found = [problem for problem in problems(*entries) if "webhook" in problem]
    assert any(response in problem for problem in found), found
