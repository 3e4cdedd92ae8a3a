"""Checker of turns: once another server runs the turn of a task, the agent of the first one does nothing more, and the
new attempt has a higher number (G3).

A server stops its agents before others may act for it, also when it was paused: only what an agent does while it stops
may come later. Not for agents of workers, which outlive their server by a lease.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tests.chaos.actions import BEGIN, Action

from dragoman.core.task import states

RECEIVED = "received"
"""What an agent does for each message of a `listen` command, with its id."""

END = "end"
"""What an agent does in its `finally`."""


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
    """Yields one line per completed `listen` task that has not received each of its messages once in an attempt."""
    by_task: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for action in actions:
        kind, _, message = action.text.partition(" ")
        if kind == RECEIVED:
            by_task[action.task].append((action.attempt, message))
    for task in kept.values():
        if task.state != states.COMPLETED or not task.text.startswith("listen"):
            continue
        received = {message for _, message in by_task[task.id]}
        for message in task.messages:
            if message not in received:
                yield f"task {task.id}: completed, its agent has not received message {message}"
        for (attempt, message), times in Counter(by_task[task.id]).items():
            if times > 1:
                yield f"task {task.id}: its agent has received message {message} {times} times in attempt {attempt}"
