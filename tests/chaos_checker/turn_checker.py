"""Checker of turns: once another server runs the turn of a task, the agent of the first one does nothing more, and the
new attempt has a higher number (G3).

A server stops its agents before others may act for it, also when it was paused: only what an agent does while it stops
may come later. Not for agents of workers, which outlive their server by a lease.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tests.chaos.actions import BEGIN, END, Action

from dragoman.core.task import states

RECEIVED = "received"
"""What an agent does for each message of a `listen` command, with its id."""


def judge_overlaps(actions: Sequence[Action]) -> Iterator[str]:
    """Yields one line per task of which two servers ran a turn, or an attempt repeats a number. Actions in order."""
    runs: dict[str, Action] = {}
    open_runs: dict[str, Action] = {}
    """Those of which no end was noted."""
    found: set[str] = set()
    for action in actions:
        if action.text == BEGIN:
            last = open_runs.get(action.task)
            if last is not None and last.attempt >= action.attempt:
                yield (
                    f"task {action.task}: attempt {action.attempt} began at {action.at:.3f} in {action.process}, after "
                    f"attempt {last.attempt} at {last.at:.3f} in {last.process} was interrupted"
                )
            runs[action.task] = open_runs[action.task] = action
        elif action.text == END:
            open_runs.pop(action.task, None)
        elif action.task not in found:
            last = runs.get(action.task)
            if last is not None and last.process != action.process:
                found.add(action.task)
                yield (
                    f"task {action.task}: {action.text} of attempt {action.attempt} at {action.at:.3f} in "
                    f"{action.process}, and attempt {last.attempt} had begun at {last.at:.3f} in {last.process}"
                )


class StoredTaskView(Protocol):
    """A task in the store at the end of the run."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def messages(self) -> Sequence[str]: ...


def judge_messages(actions: Sequence[Action], kept: Mapping[str, StoredTaskView]) -> Iterator[str]:
    """Yields lines for completed `listen` tasks that have not received each message once. Actions in order.

    What an interrupted attempt received comes again: to the attempt that repeats the turn, or to the next turn.
    """
    by_task: defaultdict[str, list[Action]] = defaultdict(list)
    for action in actions:
        if action.text == BEGIN or action.text.startswith(RECEIVED):
            by_task[action.task].append(action)
    for task in kept.values():
        if task.state != states.COMPLETED or not task.text.startswith("listen"):
            continue
        received = {action.text.partition(" ")[2] for action in by_task[task.id]}
        for message in task.messages:
            if message not in received:
                yield f"task {task.id}: completed, its agent has not received message {message}"
        for message, times in _receptions(by_task[task.id]).items():
            if times > 1:
                yield f"task {task.id}: its agent has received message {message} {times} times"


def _receptions(actions: Sequence[Action]) -> Counter[str]:
    """How often the turns of a task received each message, without what interrupted attempts received once."""
    counts: Counter[str] = Counter()
    attempt, current = 0, Counter[str]()
    for action in actions:
        if action.text == BEGIN:
            is_repeat = action.attempt > attempt
            counts += Counter({message: times for message, times in current.items() if times > 1 or not is_repeat})
            attempt, current = action.attempt, Counter()
        elif action.attempt == attempt:  # else of a worker's attempt that was replaced
            current[action.text.partition(" ")[2]] += 1
    return counts + current
