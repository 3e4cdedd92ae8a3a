"""Push notifications: how far each receiver is, and what comes of a try (A2A 1.0 §4.3).

The log of a task is the outbox. A `Push` is a cursor over it that lasts: `delivered` is the last event that the
receiver has taken, and what follows it is still to come, in order. Whoever delivers holds a claim (session, token), as
whoever runs a task does, and says by `Settled` what came of a try; `settle` is the one place that decides what that
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

from dragoman.core.log import TaskRef
from dragoman.core.webhook import PushConfig

KEPT: Final = 20
"""The last tries of a configuration are kept, to be looked at."""


class PushState(IntEnum):
    """See the table above."""

    LIVE = 0
    DONE = 1
    DEAD = 2
    ENDED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A configuration of a task, and how far it is. Times are milliseconds since the epoch, by the store's clock."""

    task: TaskRef
    config: PushConfig
    created: int
    delivered: int
    """The last event that its receiver has taken, or that is not for it."""
    shown: int = 0
    """The state that it was told last, for those who are told states only."""
    state: PushState = PushState.LIVE
    why: str = ""
    """Why it is dead or has ended; of a live one, why the last try failed."""
    tries: int = 0
    """Tries of the next event that failed."""
    failing: int = 0
    """Since when its receiver takes nothing; 0 when it does."""
    due: int = 0
    """When the next event is to be tried; 0 when there was none to try."""
    session: int = 0
    """The worker session that delivers; 0 when nobody does."""
    token: int = 0
    """Counts claims: what is settled under an older one is refused."""
    attempts: int = 0
    """Counts all tries."""
    last: int = 0
    """The task's last event."""
    over: bool = False
    """The task has ended, so nothing comes after `last`."""
    task_id: str = ""
    agent: str = ""
    """The task as its client knows it, and whose it is."""

    @property
    def lag(self) -> int:
        """Events that the receiver has not taken."""
        return max(self.last - self.delivered, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try, as it is kept to be looked at. `status` is 0 when there was no answer, and `error` then says why."""

    sequence: int
    at: int = 0
    status: int = 0
    error: str = ""
    ms: int = 0


class Verdict(IntEnum):
    """What came of a try."""

    PASSED = 0
    """There was none: events up to `delivered` are not for this receiver, or there are none."""
    TAKEN = 1
    FAILED = 2
    GONE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What whoever holds the claim (session, token) of a push says of it."""

    task: TaskRef
    id: str
    session: int
    token: int
    verdict: Verdict
    delivered: int
    """The last event that is dealt with, this one included unless it failed."""
    shown: int = 0
    attempt: Attempt | None = None
    wait: int = 0
    """After a failure: milliseconds until the next try."""
    give_up: int = 0
    """After a failure: milliseconds of nothing but failures after which there is none."""
    release: bool = False
    """Lets go of the claim, unless there is more to deliver."""
    leave: bool = False
    """Lets go of the claim in any case: somebody else is to go on."""


def placed(fresh: Push, former: Push | None, now: int) -> Push:
    """The push as a store keeps it when `fresh` is put in the place of `former`.

    A new address is no reason to lose or to repeat anything: it goes on where the former one was. Only where that one
    said that it is gone does the new one begin anew. Whoever delivers for the former is refused from then on.
    """
    if former is not None and former.state is not PushState.ENDED:
        place = replace(fresh, created=former.created, delivered=former.delivered, shown=former.shown)
    else:
        place = fresh
    done = place.over and place.delivered >= place.last
    return replace(
        place,
        state=PushState.DONE if done else PushState.LIVE,
        due=now if place.delivered < place.last else 0,
        token=former.token + 1 if former else 0,
        attempts=former.attempts if former else 0,
    )


def settle(push: Push, said: Settled, now: int) -> Push | None:
    """The push after that; None when the claim is not that of `said` any more, so that nothing of it counts."""
    if (push.session, push.token, push.state) != (said.session, said.token, PushState.LIVE):
        return None
    push = replace(
        push,
        delivered=max(push.delivered, said.delivered),
        shown=said.shown or push.shown,
        attempts=push.attempts + (said.attempt is not None),
    )
    if said.verdict is Verdict.GONE:
        return replace(push, state=PushState.ENDED, why="410: its receiver is gone", due=0, session=0)
    if said.verdict is Verdict.FAILED:
        return _failed(push, said, now)
    if said.verdict is Verdict.TAKEN:
        push = replace(push, tries=0, failing=0, why="")
    if push.delivered < push.last:
        return replace(push, due=now, session=0) if said.leave else push
    if push.over:
        return replace(push, state=PushState.DONE, due=0, session=0)
    return replace(push, due=0, session=0) if said.release or said.leave else push


def _failed(push: Push, said: Settled, now: int) -> Push:
    why = reason(said.attempt) if said.attempt else ""
    push = replace(push, tries=push.tries + 1, failing=push.failing or now, why=why, session=0)
    if now - push.failing >= said.give_up:
        return replace(push, state=PushState.DEAD, due=0, why=f"given up after {push.tries} tries: {why}")
    return replace(push, due=now + said.wait)


def reason(attempt: Attempt) -> str:
    """Why a try failed, for people."""
    return attempt.error or f"answered {attempt.status}"


def revived(push: Push, now: int, after: int | None = None) -> Push:
    """The push as it begins again: with the event after `after`, or with what its receiver has not taken.

    Nobody holds it then: whoever did is refused.
    """
    delivered = push.delivered if after is None else after
    done = delivered >= push.last and push.over
    return replace(
        push,
        delivered=delivered,
        # What was shown before that is not known: the next change of state is told in any case.
        shown=push.shown if after is None else 0,
        state=PushState.DONE if done else PushState.LIVE,
        why="",
        tries=0,
        failing=0,
        due=0 if delivered >= push.last else now,
        session=0,
        token=push.token + 1,
    )


# When to try again -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: the first wait after a failure at most, any wait at most, and all of them until it is given up."""

    first: float = 1.0
    longest: float = 3600.0
    give_up: float = 86_400.0

    def wait(self, tries: int, dice: float, asked: float = 0.0) -> float:
        """Seconds to wait after so many failures in a row: exponential, with full jitter (`dice`, from 0 to 1).

        `asked` is what the receiver asked for; it is given that, but no more than the longest wait.
        """
        most = min(self.longest, self.first * float(2 ** min(tries - 1, 62)))
        return max(most * dice, min(asked, self.longest))


PATIENCE: Final = Patience()


def asked_to_wait(status: int, headers: Mapping[str, str], now: datetime) -> float:
    """The seconds that `Retry-After` asks for (RFC 9110 §10.2.3), where it means something; 0 when it says nothing.

    `headers` have lower-case names. A date is read against the receiver's own `date`, or against `now`.
    """
    text = headers.get("retry-after", "").strip()
    if status not in (429, 503) or not text:
        return 0.0
    if text.isascii() and text.isdigit():
        return float(text[:9])
    then, here = _date(text), _date(headers.get("date", "")) or now
    return max((then - here).total_seconds(), 0.0) if then else 0.0


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
