"""Checker of ends: a fault has to explain every task that the server ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from tests.chaos.history import Cut, Entry, Fault

from dragoman.core.task import states

DRAIN: Final = 5.0
"""Seconds that running turns have during a shutdown: the option `--drain`."""
SHORT_OUTAGE: Final = 5.0
"""Seconds without the database for which servers can still renew their sessions in time."""
DEPRIVED: Final = ("disk", "files")
"""Parts of one server without which it cannot write: events in the middle of a turn are not repeated then."""
LATE: Final = 15.0
"""Seconds after a fault in which its tasks have to end or run again (G3)."""
ROUNDING: Final = 0.001
"""Seconds by which the stored end of a task may come before its fault: it has whole milliseconds."""


class StoredTaskView(Protocol):
    """A task in the store at the end of the run."""

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
    """Yields one line per unexplained end of a task or stream."""
    faults = [entry for entry in history if isinstance(entry, Fault)]
    for entry in history:
        if isinstance(entry, Cut) and not any(_is_shutdown(fault, entry.at) for fault in faults):
            yield f"follower {entry.follower}: its stream ended before the task, and no server was asked to end"
    for task in kept.values():
        if task.state != states.FAILED or not task.agent:
            continue
        match task.reason:
            case "":
                if not task.text.startswith("fail"):
                    yield f"task {task.id}: failed by itself, having been told: {task.text}"
            case "INTERRUPTED":
                ended = _latest_end(faults, task)
                if not any(_explains_loss(fault, task, ended) for fault in faults) and not _was_left(faults, task):
                    yield f"task {task.id}: INTERRUPTED, and nothing was struck that ran it"
            case "NOT_WRITTEN":
                if not any(_is_long_outage(fault, task) or fault.task == task.id for fault in faults):
                    yield f"task {task.id}: NOT_WRITTEN, and the database was not away"
            case "DRAINED":
                if not any(_outlasted(fault, task) for fault in faults):
                    yield f"task {task.id}: DRAINED less than {DRAIN:g} s after a server was asked to end"
            case reason:
                yield f"task {task.id}: ended as FAILED because of {reason}"


def drained(kept: Mapping[str, StoredTaskView]) -> int:
    """Counts the tasks that were ended by a drain because they ran longer."""
    return sum(task.state == states.FAILED and task.reason == "DRAINED" for task in kept.values())


def _latest_end(faults: Sequence[Fault], task: StoredTaskView) -> float:
    """The end of a task, or a later time: times of a task never go back, so a clock that was off hides its end."""
    created, ended = task.times
    steps = [fault.at + fault.seconds for fault in faults if fault.part == "clock"]
    return max([ended, *(over + LATE for over in steps if created <= over)])


def _explains_loss(fault: Fault, task: StoredTaskView, ended: float) -> bool:
    """Whether a fault may have stopped the process of a task that ended then."""
    created = task.times[0]
    if fault.part == "postgres" and _is_long_outage(
        fault, task
    ):  # servers stop their turns before their sessions expire
        return True
    if fault.part not in ("server", "worker"):
        return False
    if fault.part == "worker" and not task.agent.startswith("far"):
        return False
    if fault.how == "drain":  # the worker releases its unfinished turns
        return fault.part == "worker" and _outlasted(fault, task)
    return fault.at <= ended + ROUNDING and created <= fault.at + fault.seconds + LATE


def _was_left(faults: Sequence[Fault], task: StoredTaskView) -> bool:
    """Whether its claim may have had no answer when a server ended, which had too little time to give it back."""
    open_writes = [fault.at for fault in faults if fault.task == task.id]
    ends = [fault for fault in faults if fault.how == "drain" and fault.part == "server" and fault.at <= task.times[1]]
    return any(at <= end.at + end.seconds for at in open_writes for end in ends)


def _is_long_outage(fault: Fault, task: StoredTaskView) -> bool:
    """Whether a task could not write during a fault, for longer than a turn waits to write its events."""
    created, ended = task.times
    overlaps = fault.at <= ended and created <= fault.at + fault.seconds + LATE
    away = fault.seconds > SHORT_OUTAGE if fault.part == "postgres" else fault.part in DEPRIVED
    return away and overlaps


def _is_shutdown(fault: Fault, at: float) -> bool:
    """Whether a server was shutting down at this time."""
    return fault.how == "drain" and fault.part == "server" and fault.at <= at <= fault.at + fault.seconds


def _outlasted(fault: Fault, task: StoredTaskView) -> bool:
    """Whether a task used all the time of a drain."""
    return fault.how == "drain" and fault.at + DRAIN - 0.5 <= task.times[1] <= fault.at + fault.seconds + LATE
