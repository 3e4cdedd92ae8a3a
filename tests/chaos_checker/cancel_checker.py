"""Checker of cancels: after a client was told CANCELED, the agent does nothing more for the task (G5).

The agents' own accounts are compared with the moments at which clients had read a response or an event. All times are
of one clock; TOLERANCE covers only that the history rounds them to milliseconds.

An exception: an agent whose process was frozen for longer than its lease is canceled when the process continues, and
its `finally` block runs then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from tests.chaos.actions import BEGIN, END, Action
from tests.chaos.history import Acknowledged, CallResult, Canceled, Entry, Fault, Got, Opened, Seen

from dragoman.core.task import states

TOLERANCE: Final = 0.001
"""Seconds by which an action may follow the recorded time of a response."""

WAKING: Final = 0.5
"""Seconds after a freeze within which canceled agents have ended."""


def judge_cancels(history: Sequence[Entry], actions: Sequence[Action]) -> Iterator[str]:
    """Yields one line per task whose agent acted after a client was told CANCELED."""
    by_task: defaultdict[str, list[Action]] = defaultdict(list)
    for action in actions:
        by_task[action.task].append(action)
    freezes = [entry for entry in history if isinstance(entry, Fault) and entry.how == "pause"]
    for task, (since, how) in reported_canceled(history).items():
        late = [action for action in by_task[task] if action.at > since + TOLERANCE]
        if not late or (len(late) == 1 and any(_wakes_from(freeze, since, late[0]) for freeze in freezes)):
            continue
        last = late[-1]
        again = ", and began again" if any(action.text == BEGIN for action in late) else ""
        yield (
            f"task {task}: {how} said CANCELED at {since:.3f} s, its agent went on until {last.at - since:.3f} s later"
            f"{again}: {len(late)} actions, the first {late[0].at - since:.3f} s later: {late[0].text} of attempt"
            f" {late[0].attempt} in {late[0].process}"
        )


def reported_canceled(history: Sequence[Entry]) -> dict[str, tuple[float, str]]:
    """When and how a client was first told that a task is CANCELED, by task."""
    follows = {entry.follower: entry.task for entry in history if isinstance(entry, Opened)}
    found: dict[str, tuple[float, str]] = {}
    for entry in history:
        if isinstance(entry, Canceled | Got | Acknowledged | CallResult):
            task = entry.task
        elif isinstance(entry, Seen):
            task = follows[entry.follower]
        else:
            continue
        if entry.state == states.CANCELED and entry.at < found.get(task, (float("inf"), ""))[0]:
            found[task] = entry.at, type(entry).__name__
    return found


def _wakes_from(freeze: Fault, since: float, action: Action) -> bool:
    """Whether an action is the end of an agent that was frozen when the cancel was told."""
    thawed = freeze.at + freeze.seconds
    return action.text == END and freeze.at <= since <= thawed <= action.at + TOLERANCE <= thawed + WAKING
