"""Checker of turns: once another server runs the turn of a task, the agent of the first one does nothing more, and the
new attempt has a higher number (G3).

A server stops its agents before others may act for it, also when it was paused: only what an agent does while it stops
may come later. Not for agents of workers, which outlive their server by a lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.actions import BEGIN, Action

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
