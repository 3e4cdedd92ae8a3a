"""What an erasure takes, and what it leaves behind: a receipt that names nobody.

A `Selection` says which tasks go; all that it says must hold. A `Receipt` says how much went, when, and proves which
tasks: anybody who has their ids can compute the same digest, and nobody who has the receipt learns an id from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

from dragoman.core import states
from dragoman.core.ages import write_age
from dragoman.core.log import Head

PURGE: Final = "purge"
RETENTION: Final = "retention"
"""Reasons of a receipt: somebody asked for it, or its time was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Tasks by what holds for them. What is empty says nothing; one of the first four has to be said."""

    task: str = ""
    """An id as clients see it."""
    context: str = ""
    principal: str = ""
    """Who made them, or began the conversation they are kept with."""
    older: int = 0
    """Milliseconds that the status is older than, by the store's clock. Alone it means tasks that have ended."""
    scope: str = ""
    agent: str = ""
    state: int = 0
    unpushed: bool = False
    """Only tasks of which no push notification is still to be delivered."""

    def __post_init__(self) -> None:
        if not (self.task or self.context or self.principal or self.older):
            raise ValueError("say which tasks: by task, context, principal or age")

    @property
    def states(self) -> frozenset[int]:
        """The states that are meant."""
        if self.state:
            return frozenset({self.state})
        if self.older and not (self.task or self.context or self.principal):
            return states.TERMINAL
        return states.STORED

    @property
    def whole_context(self) -> bool:
        """Nothing of the context stays: what belongs to the conversation itself goes, too."""
        return bool(self.context) and not (self.task or self.agent or self.state or self.older)

    @property
    def whole_principal(self) -> bool:
        """Nothing of the principal stays, not even the name."""
        return bool(self.principal) and not (self.task or self.context or self.agent or self.state or self.older)

    def holds(self, head: Head, now: int) -> bool:
        """Whether this task is meant."""
        owner = head.ref.owner
        return (
            self.task in ("", head.id)
            and self.context in ("", head.context)
            and self.principal in ("", owner.principal, head.principal)
            and self.scope in ("", owner.scope)
            and self.agent in ("", head.agent)
            and head.state in self.states
            and (not self.older or head.updated <= now - self.older)
            and not (self.unpushed and head.pushed)
        )

    def __str__(self) -> str:
        """What was asked for, without what may be personal."""
        said = [name for name in ("task", "context", "principal", "scope") if getattr(self, name)]
        said += [f"agent {self.agent}"] if self.agent else []
        said += [states.name(self.state).removeprefix("TASK_STATE_")] if self.state else []
        said += [f"older than {write_age(self.older)}"] if self.older else []
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class Counts:
    """How much was, or would be, removed. `events`, `messages` and so on are those of the tasks."""

    tasks: int = 0
    events: int = 0
    messages: int = 0
    artifacts: int = 0
    chunks: int = 0
    bytes: int = 0
    """Bytes of content in all of them."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class Receipt:
    """One erasure. It holds no id, no name and no content."""

    number: int
    """Counts the receipts of a store; 0 when nothing was removed, and then no receipt is kept."""
    reason: str
    selection: str
    began: int
    ended: int
    """Milliseconds since the epoch."""
    counts: Counts
    digest: str
    """See `digest`."""


def digest(ids: Iterable[str]) -> str:
    """SHA-256, in hex, of sorted ids with a newline after each: `sort ids | sha256sum`, in the locale C."""
    hashed = hashlib.sha256()
    for one in ids:
        hashed.update(one.encode() + b"\n")
    return hashed.hexdigest()
