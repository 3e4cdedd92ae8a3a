"""Push notifications: how far each receiver is, and what comes of a try (A2A 1.0 §4.3).

The log of a task is the outbox. A `PushRecord` is a cursor over it that lasts: `delivered` is the last event that the
receiver has taken, and what follows it is still to come, in order. Whoever delivers holds a claim (session, token), as
whoever runs a task does, and says by `DeliveryReport` what came of a try; `apply_report` is the one place that
decides what that
means, so that every store keeps the same.

| state   | means                                                                        |
|---------|------------------------------------------------------------------------------|
| `LIVE`  | events come, or are still to come                                            |
| `DONE`  | the task has ended and everything was delivered                              |
| `DEAD`  | given up: the receiver took nothing for too long; what is left are dead letters |
| `ENDED` | the receiver said that it is gone (410)                                      |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import IntEnum
from typing import Final

from dragoman.core.backoff import Backoff
from dragoman.core.push.configuration import PushConfig
from dragoman.core.task.log import TaskRef

MAX_KEPT_ATTEMPTS: Final = 20
"""The last tries of a configuration are kept, to be looked at."""


class PushState(IntEnum):
    """See the table above."""

    LIVE = 0
    DONE = 1
    DEAD = 2
    ENDED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRecord:
    """A configuration of a task, and how far it is. Times are milliseconds since the epoch, by the store's clock."""

    task: TaskRef
    config: PushConfig
    created: int
    last_delivered: int
    """The last event that its receiver has taken, or that is not for it."""
    last_state_sent: int = 0
    """The state that it was told last, for those who are told states only."""
    state: PushState = PushState.LIVE
    reason: str = ""
    """Why it is dead or has ended; of a live one, why the last try failed."""
    failures: int = 0
    """Tries of the next event that failed."""
    failing_since: int = 0
    """Since when its receiver takes nothing; 0 when it does."""
    due_at: int = 0
    """When the next event is to be tried; 0 when there was none to try."""
    session: int = 0
    """The worker session that delivers; 0 when nobody does."""
    token: int = 0
    """Counts claims: what is settled under an older one is refused."""
    attempt_count: int = 0
    """Counts all tries."""
    last_sequence: int = 0
    """The task's last event."""
    task_ended: bool = False
    """The task has ended, so nothing comes after `last`."""
    task_id: str = ""
    agent: str = ""
    """The task as its client knows it, and whose it is."""

    @property
    def lag(self) -> int:
        """Events that the receiver has not taken."""
        return max(self.last_sequence - self.last_delivered, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAttempt:
    """One try, as it is kept to be looked at. `status` is 0 when there was no answer, and `error` then says why."""

    sequence: int
    at: int = 0
    status: int = 0
    error: str = ""
    duration_ms: int = 0


class DeliveryOutcome(IntEnum):
    """What came of a try."""

    SKIPPED = 0
    """There was none: events up to `delivered` are not for this receiver, or there are none."""
    DELIVERED = 1
    FAILED = 2
    GONE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport:
    """What whoever holds the claim (session, token) of a push says of it."""

    task: TaskRef
    id: str
    session: int
    token: int
    outcome: DeliveryOutcome
    last_delivered: int
    """The last event that is dealt with, this one included unless it failed."""
    last_state_sent: int = 0
    attempt: DeliveryAttempt | None = None
    retry_delay: int = 0
    """After a failure: milliseconds until the next try."""
    give_up_after: int = 0
    """After a failure: milliseconds of nothing but failures after which there is none."""
    release: bool = False
    """Lets go of the claim, unless there is more to deliver."""
    hand_over: bool = False
    """Lets go of the claim in any case: somebody else is to go on."""


def replace_record(new: PushRecord, previous: PushRecord | None, now: int) -> PushRecord:
    """The push as a store keeps it when `fresh` is put in the place of `former`.

    A new address is no reason to lose or to repeat anything: it goes on where the former one was. Only where that one
    said that it is gone does the new one begin anew. Whoever delivers for the former is refused from then on.
    """
    if previous is not None and previous.state is not PushState.ENDED:
        place = replace(
            new,
            created=previous.created,
            last_delivered=previous.last_delivered,
            last_state_sent=previous.last_state_sent,
        )
    else:
        place = new
    done = place.task_ended and place.last_delivered >= place.last_sequence
    return replace(
        place,
        state=PushState.DONE if done else PushState.LIVE,
        due_at=now if place.last_delivered < place.last_sequence else 0,
        token=previous.token + 1 if previous else 0,
        attempt_count=previous.attempt_count if previous else 0,
    )


def apply_report(record: PushRecord, report: DeliveryReport, now: int) -> PushRecord | None:
    """The push after that; None when the claim is not that of `said` any more, so that nothing of it counts."""
    if (record.session, record.token, record.state) != (report.session, report.token, PushState.LIVE):
        return None
    record = replace(
        record,
        last_delivered=max(record.last_delivered, report.last_delivered),
        last_state_sent=report.last_state_sent or record.last_state_sent,
        attempt_count=record.attempt_count + (report.attempt is not None),
    )
    if report.outcome is DeliveryOutcome.GONE:
        return replace(record, state=PushState.ENDED, reason="410: its receiver is gone", due_at=0, session=0)
    if report.outcome is DeliveryOutcome.FAILED:
        return _apply_failure(record, report, now)
    if report.outcome is DeliveryOutcome.DELIVERED:
        record = replace(record, failures=0, failing_since=0, reason="")
    if record.last_delivered < record.last_sequence:
        return replace(record, due_at=now, session=0) if report.hand_over else record
    if record.task_ended:
        return replace(record, state=PushState.DONE, due_at=0, session=0)
    return replace(record, due_at=0, session=0) if report.release or report.hand_over else record


def _apply_failure(record: PushRecord, report: DeliveryReport, now: int) -> PushRecord:
    why = failure_reason(report.attempt) if report.attempt else ""
    record = replace(
        record, failures=record.failures + 1, failing_since=record.failing_since or now, reason=why, session=0
    )
    if now - record.failing_since >= report.give_up_after:
        return replace(record, state=PushState.DEAD, due_at=0, reason=f"given up after {record.failures} tries: {why}")
    return replace(record, due_at=now + report.retry_delay)


def failure_reason(attempt: DeliveryAttempt) -> str:
    """Why a try failed, for people."""
    return attempt.error or f"answered {attempt.status}"


def restart_record(record: PushRecord, now: int, after: int | None = None) -> PushRecord:
    """The push as it begins again: with the event after `after`, or with what its receiver has not taken.

    Nobody holds it then: whoever did is refused.
    """
    delivered = record.last_delivered if after is None else after
    done = delivered >= record.last_sequence and record.task_ended
    return replace(
        record,
        last_delivered=delivered,
        # What was shown before that is not known: the next change of state is told in any case.
        last_state_sent=record.last_state_sent if after is None else 0,
        state=PushState.DONE if done else PushState.LIVE,
        reason="",
        failures=0,
        failing_since=0,
        due_at=0 if delivered >= record.last_sequence else now,
        session=0,
        token=record.token + 1,
    )


# When to try again -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PushRetryPolicy:
    """Seconds: the first wait after a failure at most, any wait at most, and all of them until it is given up."""

    first_delay: float = 1.0
    max_delay: float = 3600.0
    give_up_after: float = 86_400.0

    def delay(self, failures: int, random: float, retry_after: float = 0.0) -> float:
        """Seconds to wait after so many failures in a row: exponential, with full jitter (`dice`, from 0 to 1).

        `asked` is what the receiver asked for; it is given that, but no more than the longest wait.
        """
        backoff = Backoff(self.first_delay, self.max_delay, jitter=1.0)
        return max(backoff.delay(failures, random), min(retry_after, self.max_delay))


DEFAULT_PUSH_RETRY_POLICY: Final = PushRetryPolicy()


def retry_after_seconds(status: int, headers: Mapping[str, str], now: datetime) -> float:
    """The seconds that `Retry-After` asks for (RFC 9110 §10.2.3), where it means something; 0 when it says nothing.

    `headers` have lower-case names. A date is read against the receiver's own `date`, or against `now`.
    """
    text = headers.get("retry-after", "").strip()
    if status not in (429, 503) or not text:
        return 0.0
    if text.isascii() and text.isdigit():
        return float(text[:9])
    then, here = _parse_date(text), _parse_date(headers.get("date", "")) or now
    return max((then - here).total_seconds(), 0.0) if then else 0.0


def _parse_date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
