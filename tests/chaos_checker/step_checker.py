"""Checker of steps: a step whose result was returned to its agent never runs again (G10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.actions import RETURNED, STEP, Action


def judge_steps(actions: Sequence[Action]) -> Iterator[str]:
    """Yields one line per step that ran after an agent had its result. Actions in the order of their time."""
    returned: dict[tuple[str, str], Action] = {}
    for action in actions:
        kind, _, number = action.text.partition(" ")
        step = action.task, number
        if kind == RETURNED:
            returned.setdefault(step, action)
        elif kind == STEP and step in returned:
            first = returned[step]
            yield (
                f"task {action.task}: step {number} ran at {action.at:.3f} in {action.process}, "
                f"attempt {action.attempt}; its result was returned at {first.at:.3f} in {first.process}, "
                f"attempt {first.attempt}"
            )


def finished_steps(actions: Sequence[Action]) -> int:
    """How many steps have returned a result."""
    kinds = [(action.task, action.text) for action in actions if action.text.partition(" ")[0] == RETURNED]
    return len(set(kinds))
