"""State of push deliveries, and the effect of each attempt on it (A2A 1.0 §4.3).

The log of a task is the outbox: a `PushRecord` is a durable cursor over it, and later events are sent in order. A
sender holds a claim (session, token) and reports each attempt as a `DeliveryReport`; only `apply_report` decides what
follows from it, so all stores behave alike. States: `LIVE` (events are, or will be, delivered), `COMPLETE` (the task
has ended and everything was delivered), `GIVEN_UP` (what was not accepted is a dead letter), `UNSUBSCRIBED` (the
receiver answered 410).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import IntEnum
from typing import Final

from dragoman.core.durations import Backoff
from dragoman.core.push.configuration import PushConfig
from dragoman.core.task.log import TaskRef

MAX_KEPT_ATTEMPTS: Final = 20  # the number of recent attempts stored per configuration
MAX_REJECTIONS: Final = 3  # 4xx responses to an event after which it is given up, and the next one is sent
_TEMPORARY: Final = (408, 425, 429)  # 4xx responses that say nothing about the event


Share = tuple[str, bool]
"""A share of the places of a host: of its receivers whose last attempt failed (True), or of the others. Both are equal,
so that receivers that fail or hang delay no other."""


class PushState(IntEnum):
    """See the module's docstring."""

    LIVE = 0
    COMPLETE = 1
    GIVEN_UP = 2
    UNSUBSCRIBED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRecord:
    """A configuration and its delivery state. Times are milliseconds since the epoch, by the store's clock."""

    task: TaskRef
    config: PushConfig
    created: int
    last_delivered: int
    """The last event that was accepted by the receiver, or is not meant for it."""
    last_state_sent: int = 0  # the last task state that was sent, for receivers of state changes only
    state: PushState = PushState.LIVE
    reason: str = ""
    """Why it is dead or has ended; while live, why the last attempt failed."""
    failures: int = 0  # failed attempts to deliver the next event
    rejections: int = 0  # those of them that count for MAX_REJECTIONS
    given_up_events: int = 0  # events that were rejected MAX_REJECTIONS times, since the last restart
    first_given_up: int = 0  # the first of them; 0 for none
    failing_since: int = 0  # the time of the first of these failures; 0 when there is none
    due_at: int = 0  # when the next event is due; 0 when there is none
    session: int = 0  # the session that holds the claim; 0 for none
    token: int = 0
    """The fencing token. Reports with an older token are ignored."""
    attempt_count: int = 0  # number of all attempts
    last_sequence: int = 0  # the sequence of the task's last event
    task_ended: bool = False  # whether the task has ended, so that no event follows `last_sequence`
    task_id: str = ""  # as its client knows it
    agent: str = ""

    @property
    def share(self) -> Share:
        return self.config.host, self.failures > 0

    @property
    def lag(self) -> int:
        """Number of events that are still to be delivered."""
        return max(self.last_sequence - self.last_delivered, 0)

    @property
    def accepted(self) -> int:
        """The last event before the first that the receiver has not accepted."""
        return self.first_given_up - 1 if self.first_given_up else self.last_delivered

    @property
    def final_state(self) -> PushState:
        """The state once the task has ended and nothing is left to deliver."""
        return PushState.GIVEN_UP if self.first_given_up else PushState.COMPLETE

    @property
    def given_up_reason(self) -> str:
        """Which events were given up; empty for none."""
        others = f" and {self.given_up_events - 1} more" if self.given_up_events > 1 else ""
        events = f"event {self.first_given_up}{others}"
        return f"given up after {MAX_REJECTIONS} rejections: {events}" if self.first_given_up else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAttempt:
    """A stored attempt. `status` is 0 when there was no response; `error` then says why."""

    sequence: int
    at: int = 0
    status: int = 0
    error: str = ""
    duration_ms: int = 0


class DeliveryOutcome(IntEnum):
    """The result of an attempt."""

    SKIPPED = 0  # no attempt: there are no events up to `last_delivered` for this receiver
    DELIVERED = 1
    FAILED = 2
    ENDED = 3  # the receiver answered 410 Gone


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport:
    """The result of an attempt, by the holder of the claim (session, token)."""

    task: TaskRef
    id: str
    session: int
    token: int
    outcome: DeliveryOutcome
    last_delivered: int
    """The last event that needs no further attempt; includes this one unless it failed."""
    last_state_sent: int = 0
    attempt: DeliveryAttempt | None = None
    retry_delay: int = 0  # after a failure: milliseconds until the next attempt
    give_up_after: int = 0
    """After a failure: milliseconds of continuous failure after which the configuration is GIVEN_UP."""
    release: bool = False  # releases the claim, unless more events are due
    hand_over: bool = False  # releases the claim in any case, so that another process continues


def replace_record(new: PushRecord, previous: PushRecord | None, now: int) -> PushRecord:
    """The record to store when `new` replaces `previous`, a record of the same id.

    A new URL loses nothing: delivery continues with the first event that the previous one has not accepted. Only after
    ENDED does it start anew. Reports of the previous claim are ignored from then on.
    """
    if previous is not None and previous.state is not PushState.UNSUBSCRIBED:
        record = replace(
            new,
            created=previous.created,
            last_delivered=previous.accepted,
            last_state_sent=0 if previous.first_given_up else previous.last_state_sent,
        )
    else:
        record = new
    done = record.task_ended and record.last_delivered >= record.last_sequence
    return replace(
        record,
        state=PushState.COMPLETE if done else PushState.LIVE,
        due_at=now if record.last_delivered < record.last_sequence else 0,
        token=previous.token + 1 if previous else 0,
        attempt_count=previous.attempt_count if previous else 0,
    )


def is_due(record: PushRecord, now: int, longest_delay: int) -> bool:
    """Whether the next event may be sent at `now`; `longest_delay`: milliseconds, the longest between two attempts.

    A first attempt never waits, and no later one for longer: such times are from a clock that was set back since.
    """
    return record.due_at > 0 and (record.failures == 0 or record.due_at <= now or record.due_at > now + longest_delay)


def apply_report(record: PushRecord, report: DeliveryReport, now: int) -> PushRecord | None:
    """The record after a report at `now`; None when the report's claim no longer holds, so that it has no effect."""
    if (record.session, record.token, record.state) != (report.session, report.token, PushState.LIVE):
        return None
    record = replace(
        record,
        last_delivered=max(record.last_delivered, report.last_delivered),
        last_state_sent=report.last_state_sent or record.last_state_sent,
        attempt_count=record.attempt_count + (report.attempt is not None),
    )
    if report.outcome is DeliveryOutcome.ENDED:
        return replace(record, state=PushState.UNSUBSCRIBED, reason="410: the receiver is gone", due_at=0, session=0)
    if report.outcome is DeliveryOutcome.FAILED:
        record = _apply_failure(record, report, now)
        if not record.session:
            return record
    if report.outcome is DeliveryOutcome.DELIVERED:
        record = replace(record, failures=0, rejections=0, failing_since=0, reason=record.given_up_reason)
    if record.last_delivered < record.last_sequence:
        return replace(record, due_at=now, session=0) if report.hand_over else record
    if record.task_ended:
        return replace(record, state=record.final_state, due_at=0, session=0)
    return replace(record, due_at=0, session=0) if report.release or report.hand_over else record


def _apply_failure(record: PushRecord, report: DeliveryReport, now: int) -> PushRecord:
    """Keeps the claim only if an event was given up and the next one is to follow."""
    attempt = report.attempt
    why = failure_reason(attempt) if attempt else ""
    rejected = attempt is not None and 400 <= attempt.status < 500 and attempt.status not in _TEMPORARY
    record = replace(
        record,
        failures=record.failures + 1,
        rejections=record.rejections + rejected,
        failing_since=record.failing_since or now,
        reason=why,
    )
    if now - record.failing_since >= report.give_up_after:
        reason = f"given up after {record.failures} attempts: {why}"
        return replace(record, state=PushState.GIVEN_UP, due_at=0, session=0, reason=reason)
    if attempt is None or record.rejections < MAX_REJECTIONS:
        return replace(record, due_at=now + report.retry_delay, session=0)
    record = replace(
        record,
        last_delivered=max(record.last_delivered, attempt.sequence),
        failing_since=record.failing_since if attempt.sequence < record.last_sequence else 0,
        failures=0,
        rejections=0,
        given_up_events=record.given_up_events + 1,
        first_given_up=record.first_given_up or attempt.sequence,
    )
    return replace(record, reason=record.given_up_reason)


def failure_reason(attempt: DeliveryAttempt) -> str:
    return attempt.error or f"answered {attempt.status}"


def restart_record(record: PushRecord, now: int, after: int | None = None) -> PushRecord:
    """The record restarted after event `after`, or after `accepted`. Releases the claim and fences its holder."""
    delivered = record.accepted if after is None else after
    if delivered < record.first_given_up:  # they are sent again
        record = replace(record, given_up_events=0, first_given_up=0)
    done = delivered >= record.last_sequence and record.task_ended
    return replace(
        record,
        last_delivered=delivered,
        # The state sent before an earlier event is unknown, so the next state change is sent in any case.
        last_state_sent=record.last_state_sent if delivered >= record.last_delivered else 0,
        state=record.final_state if done else PushState.LIVE,
        reason=record.given_up_reason,
        failures=0,
        rejections=0,
        failing_since=0,
        due_at=0 if delivered >= record.last_sequence else now,
        session=0,
        token=record.token + 1,
    )


# Retries -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PushRetryPolicy:
    """Seconds: the longest first delay, the longest delay, and the total until a configuration is given up."""

    first_delay: float = 1.0
    max_delay: float = 3600.0
    give_up_after: float = 86_400.0

    def delay(self, failures: int, random: float, retry_after: float = 0.0) -> float:
        """Seconds to wait after this number of consecutive failures: exponential with full jitter (`random`, 0 to 1).

        At least the `retry_after` of the receiver, and never more than `max_delay`.
        """
        backoff = Backoff(self.first_delay, self.max_delay, jitter=1.0)
        return max(backoff.delay(failures, random), min(retry_after, self.max_delay))


DEFAULT_PUSH_RETRY_POLICY: Final = PushRetryPolicy()
DEFAULT_LONGEST_DELAY_MS: Final = round(DEFAULT_PUSH_RETRY_POLICY.max_delay * 1000)


def retry_after_seconds(status: int, headers: Mapping[str, str], now: datetime) -> float:
    """The seconds in `Retry-After` (RFC 9110 §10.2.3) of a 429 or 503 response; 0 for none.

    `headers` have lower-case names. A date is relative to the receiver's own `date`, or to `now`.
    """
    text = headers.get("retry-after", "").strip()
    if status not in (429, 503) or not text:
        return 0.0
    if text.isascii() and text.isdigit():
        return float(text[:9])
    retry_at, sent_at = _parse_date(text), _parse_date(headers.get("date", "")) or now
    return max((retry_at - sent_at).total_seconds(), 0.0) if retry_at else 0.0


def _parse_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
