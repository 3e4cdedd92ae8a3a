"""A task's head as columns: their names and types, and how a row becomes a head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dragoman.core.log import Head, TaskRef
from dragoman.core.names import Owner

NAMES: Final = (
    "agent, id, context, state, updated, last, messages, status_message, asked, inbox, taken,"
    " session, token, ready, visible, attempt, answered, pushed, dialect, alias, principal"
)
KINDS: Final = "ttt" + "i" * 8 + "iibb" + "iibtbt"

CHANGING: Final = (
    "state, updated, last, messages, status_message, asked, inbox, taken, session, token, ready, visible, attempt,"
    " answered, pushed"
)
CHANGING_KINDS: Final = "i" * 8 + "iibb" + "iib"
"""Those that an append may change: all but the first three and the last three."""

COLUMNS: Final = ", ".join(f"t.{name.strip()}" for name in NAMES.split(","))
"""Of `tasks t`."""

WIDTH: Final = len(KINDS)


def values(head: Head) -> tuple[Any, ...]:
    """A row of NAMES."""
    return (
        head.agent, head.id, head.context, head.state, head.updated, head.last, head.messages,
        head.status_message, head.asked, head.inbox, head.taken, head.session, head.token, head.ready, head.visible,
        head.attempt, head.answered, head.pushed, head.dialect, head.alias, head.principal,
    )  # fmt: skip


def changing(head: Head) -> tuple[Any, ...]:
    """A row of CHANGING."""
    return values(head)[3:-3]


def head_of(ref: TaskRef, row: Sequence[Any]) -> Head:
    """The head in a row that begins with NAMES."""
    return Head(ref, *row[:WIDTH])


def with_owners(rows: Iterable[Sequence[Any]]) -> list[Head]:
    """Heads in rows of scope, principal, key and NAMES."""
    return [head_of(TaskRef(Owner(row[0], row[1]), row[2]), row[3:]) for row in rows]
