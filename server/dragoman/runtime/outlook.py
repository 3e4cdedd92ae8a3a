"""What happens next to a task, by when, and what somebody can do about it: the words of `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dragoman.core import states
from dragoman.core.card import AgentSpec
from dragoman.core.log import Head
from dragoman.core.push import Push, PushState
from dragoman.runtime.dispatch import Dispatch
from dragoman.runtime.run import FENCED_AFTER
from dragoman.runtime.sessions import LEASE

SAID: Final = 200
"""Characters of what a task says of itself that are shown."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a process knows of a task. Times are milliseconds since the epoch, 0 for none."""

    head: Head
    spec: AgentSpec | None
    """Of its agent; None when no such agent is served here."""
    allowed: int
    """How often its turn may be begun."""
    expires: int
    """When the session ends that holds it."""
    now: int
    kept: int = 0
    """For how many milliseconds it may be in its state; 0: for ever."""
    said: str = ""
    """The text of its status: why it failed, or what it asks."""
    pushes: Sequence[Push] = ()


def next_of(sight: Sight, dispatch: Dispatch) -> str:
    """A few sentences."""
    return " ".join(filter(None, (_next(sight, dispatch), *map(_pushed, sight.pushes))))


def _next(sight: Sight, dispatch: Dispatch) -> str:
    head = sight.head
    if states.is_terminal(head.state):
        return f"Nothing: it has ended{_quoted(sight.said)}"
    if head.running:
        return _running(sight, dispatch)
    if head.ready:
        return _waiting(sight, dispatch)
    until = (
        f"unanswered it ends as FAILED about {_date(head.updated + sight.kept)}."
        if sight.kept
        else f"it waits for as long as that takes (nothing is said of --retain-{_word(head.state)})."
    )
    return f"It waits for a message of its caller{_quoted(sight.said)} A cancel ends it, too; {until}"


# Somebody has it ------------------------------------------------------------------------------------------------


def _running(sight: Sight, dispatch: Dispatch) -> str:
    head, run = sight.head, dispatch.run_of(sight.head.ref)
    tries = head.attempt < sight.allowed
    crash = f"its turn begins again (attempt {head.attempt + 1} of {sight.allowed})" if tries else "it ends as FAILED"
    if run is not None and run.cancelled:
        return f"Its agent was asked to stop; it is fenced off when it has not within {FENCED_AFTER:g} s of that."
    if not sight.expires:
        return f"Its process is gone: within some seconds, where a server is there, {crash}."
    if run is None:
        return (
            f"Its agent works on it in another process, and what it is at is known there: ask that server. Should that "
            f"process die, {crash} after {_clock(sight.expires)}. A cancel reaches it from here, too."
        )
    seconds, silence = run.deadlines.took, run.deadlines.silence
    heard = "has said nothing yet" if silence is None else f"last said something {_long(silence)} ago"
    worker = head.agent in dispatch.places and dispatch.places.dials_in(head.agent)
    dies = f"Should its worker go, {crash} at once; should this server" if worker else "Should this server go"
    words = [
        f"Its agent works on it, since {_clock(sight.now - round(seconds * 1000))} ({_long(seconds)}), and {heard}.",
        dispatch.places.outlook(head.agent, head.id),
        *_limits(sight, seconds, seconds if silence is None else silence),
        f"{dies}, {'' if worker else f'{crash} '}within {LEASE:g} s where there is another, else at the next start.",
    ]
    return " ".join(filter(None, words))


def _limits(sight: Sight, took: float, silence: float) -> Sequence[str]:
    time_limit = sight.spec.time_limit if sight.spec else 0
    idle_limit = sight.spec.idle_limit if sight.spec else 0
    found = []
    if time_limit:
        at = _clock(sight.now + round((time_limit - took) * 1000))
        found.append(f"It may take {time_limit:g} s: at {at} it is stopped, and FAILED.")
    if idle_limit:
        at = _clock(sight.now + round((idle_limit - silence) * 1000))
        found.append(f"It may be silent for {idle_limit:g} s: unless it says something it is stopped about {at}.")
    return found or ("It has no time_limit and no idle_limit, so this may last; a cancel ends it.",)


# Nobody has it yet ----------------------------------------------------------------------------------------------


def _waiting(sight: Sight, dispatch: Dispatch) -> str:
    agent, places = sight.head.agent, dispatch.places
    if sight.spec is None:
        return (
            f'It waits for a worker, and no agent "{agent}" is served here: it is taken once a server or a worker '
            "has it, and a cancel ends it."
        )
    if not dispatch.runs and agent not in places:
        return (
            "It waits for a process that runs its agent (--role worker, or all), and is taken as soon as one has room."
        )
    if dispatch.free <= 0:
        slots, (agent, most) = dispatch.slots, dispatch.busiest
        whose = f'by agent "{agent}"' if most >= slots else f'{most} of them by agent "{agent}"'
        return (
            f"It waits for a free slot here: all {slots} are taken, {whose}. It is taken once turns have ended and "
            "those before it have had theirs, principal by principal; --slots makes room for more, a cancel ends it."
        )
    return places.next_for(agent)


# Who is told of it ----------------------------------------------------------------------------------------------


def _pushed(push: Push) -> str:
    """Of a webhook with which something is wrong."""
    left = f"{push.lag} event{'s' if push.lag > 1 else ''}"
    if push.state is PushState.DEAD and push.lag:
        return f"{_place(push)} was given up, {left} before the end ({push.why}): redeliver when it is there again."
    if push.state is not PushState.LIVE or not push.failing or not push.lag:
        return ""
    again = f"the next try is at {_clock(push.due)}" if push.due and not push.session else "it is tried right now"
    return f"{_place(push)} takes nothing since {_clock(push.failing)} ({push.why}): {left} wait, {again}."


def _place(push: Push) -> str:
    return f"Its webhook {push.config.url}"


# Words ----------------------------------------------------------------------------------------------------------


def _quoted(said: str) -> str:
    line = " ".join(said.split())
    line = line if len(line) <= SAID else line[:SAID] + "…"
    return f': "{line}"' if line else "."


def _long(seconds: float) -> str:
    whole = max(round(seconds), 0)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _word(state: int) -> str:
    return states.name(state).removeprefix("TASK_STATE_").replace("_", "-").lower()


def _date(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _clock(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%H:%M:%S} UTC"
