"""The judge of ends: what the server itself ended has a reason, and something was done that explains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from tests.chaos.history import Cut, Entry, Fault

from dragoman.core.task import states

DRAIN: Final = 5.0
"""Seconds that turns get to end when a server or worker is asked to: its `--drain`."""
LATE: Final = 15.0
"""Seconds after a blow within which the tasks that it hit have ended or run again (G3)."""


class StoredTaskView(Protocol):
    """A task as the store has it at the end."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def times(self) -> tuple[float, float]: ...


def judge_ends(history: Sequence[Entry], kept: Mapping[str, StoredTaskView]) -> Iterator[str]:
    """Everything that is wrong with how tasks and streams ended, a line each."""
    strikes = [entry for entry in history if isinstance(entry, Fault)]
    for entry in history:
        if isinstance(entry, Cut) and not any(_stops(strike, entry.at) for strike in strikes):
            yield f"follower {entry.follower}: its stream ended before the task, and no server was asked to end"
    for task in kept.values():
        if task.state != states.FAILED or not task.agent:
            continue
        match task.reason:
            case "":
                if not task.text.startswith("fail"):
                    yield f"task {task.id}: failed by itself, having been told: {task.text}"
            case "INTERRUPTED":
                if not any(_hits(strike, task) for strike in strikes):
                    yield f"task {task.id}: INTERRUPTED, and nothing was struck that ran it"
            case "DRAINED":
                if not any(_outlasted(strike, task) for strike in strikes):
                    yield f"task {task.id}: DRAINED less than {DRAIN:g} s after a server was asked to end"
            case reason:
                yield f"task {task.id}: ended as FAILED because of {reason}"


def drained(kept: Mapping[str, StoredTaskView]) -> int:
    """Tasks that were longer than a drain, and ended by it."""
    return sum(task.state == states.FAILED and task.reason == "DRAINED" for task in kept.values())


def _hits(strike: Fault, task: StoredTaskView) -> bool:
    """Whether a blow may have taken the process of a task from it."""
    created, ended = task.times
    if strike.part not in ("server", "worker"):
        return False
    if strike.part == "worker" and not task.agent.startswith("far"):
        return False
    if strike.how == "drain":  # then the worker gives back what has not ended
        return strike.part == "worker" and _outlasted(strike, task)
    return strike.at <= ended and created <= strike.at + strike.seconds + LATE


def _stops(strike: Fault, at: float) -> bool:
    """Whether a server was stopping then."""
    return strike.how == "drain" and strike.part == "server" and strike.at <= at <= strike.at + strike.seconds


def _outlasted(strike: Fault, task: StoredTaskView) -> bool:
    """Whether a task went on for as long as a drain gave it."""
    return strike.how == "drain" and strike.at + DRAIN - 0.5 <= task.times[1] <= strike.at + strike.seconds + LATE
