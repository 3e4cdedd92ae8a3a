"""Which tasks a selection covers: ranges of rows, each read page by page through an index where there is one.

Before a task is erased it is checked again, so a range may contain tasks that do not match.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dragoman.core.task import states
from dragoman.core.task.maintenance import TaskSelection

SELECTION_PAGE_TASKS: Final = 128
"""Tasks examined in one read."""

RangeCursor = tuple[Any, ...]
"""The sort key of the last task examined."""


@dataclass(frozen=True, slots=True)
class TaskRange:
    """Rows of `tasks t` in an order: by status time, or by owner and key."""

    where: str
    values: tuple[Any, ...]
    by_time: bool = False
    index: str = ""
    """The index to use, where a store names one; empty for the database's choice."""

    @property
    def order(self) -> str:
        return "t.updated, t.owner, t.task" if self.by_time else "t.owner, t.task"

    def next_cursor(self, rows: Sequence[Sequence[Any]]) -> RangeCursor | None:
        """After a page of rows that begin with updated, owner, scope, principal and key; None at the end."""
        if len(rows) < SELECTION_PAGE_TASKS:
            return None
        updated, owner, task = rows[-1][0], rows[-1][1], rows[-1][4]
        return (updated, owner, task) if self.by_time else (owner, task)


def inactive_pairs(selection: TaskSelection, pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Of these pairs of agent and inactive state, those that the selection covers."""
    return [(agent, state) for agent, state in pairs if state in selection.states and selection.agent in ("", agent)]


def selects_active(selection: TaskSelection) -> bool:
    """Whether the selection asks for tasks that are not finished. There is no index for these: only operators ask."""
    return selection.state in (states.SUBMITTED, states.WORKING)
