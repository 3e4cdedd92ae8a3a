"""Checker of turns: once another server runs the turn of a task, the agent of the first one does nothing more (G3).

A server stops its agents before others may act for it, also when it was paused: only what an agent does while it stops
may come later. Not for agents of workers, which outlive their server by a lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.actions import BEGIN, Action

END = "end"
"""What an agent does in its `finally`."""


def judge_overlaps(actions: Sequence[Action]) -> Iterator[str]:
    """Yields one line per task of which two servers ran a turn at the same time. Actions in the order of their time."""
    runs: dict[str, Action] = {}
    found: set[str] = set()
    for action in actions:
        if action.text == BEGIN:
            runs[action.task] = action
        elif action.text != END and action.task not in found:
            last = runs.get(action.task)
            if last is not None and last.process != action.process:
                found.add(action.task)
                yield (
                    f"task {action.task}: {action.text} of attempt {action.attempt} at {action.at:.3f} in "
                    f"{action.process}, and attempt {last.attempt} had begun at {last.at:.3f} in {last.process}"
                )
