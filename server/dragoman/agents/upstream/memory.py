"""What is kept with a task of ours of the one upstream: `turn.state`, which the store writes with the next event."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID, uuid5

import orjson

from dragoman.core.names import Owner
from dragoman.core.usage import Usage

_OURS = UUID("5c0d3a0e-6f0b-4b6e-9a52-8f6a7c1d2e41")
"""The name space of ids that are made up here for agents upstream."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a task of ours is upstream."""

    at: str = ""
    """The base of the agent that has it, without what is secret."""
    task: str = ""
    """Its id there; empty until that is known."""
    context: str = ""
    """The conversation there."""
    heard: str = ""
    """The id of the last message of ours that upstream is known to have."""
    waited: str = ""
    """The mark of the status in which it waited for its caller last (saying.mark)."""
    unsent: bool = False
    """The turn was given back before its message can have arrived."""
    tokens: int = 0
    cost: int = 0
    """What the task there has used, as far as it was counted here; the cost in billionths."""

    def written(self) -> bytes:
        """As JSON."""
        return orjson.dumps({"upstream": {name: value for name, value in asdict(self).items() if value}})


def read(data: bytes) -> Memory:
    """The memory of a task; an empty one for what nobody wrote, or what is not ours."""
    try:
        found: Any = orjson.loads(data) if data else {}
    except orjson.JSONDecodeError:
        return Memory()
    said = found.get("upstream") if isinstance(found, dict) else None
    if not isinstance(said, dict):
        return Memory()
    texts = {
        name: said[name] for name in ("at", "task", "context", "heard", "waited") if isinstance(said.get(name), str)
    }
    numbers = {name: said[name] for name in ("tokens", "cost") if type(said.get(name)) is int}
    return Memory(**texts, **numbers, unsent=said.get("unsent") is True)


def context_of(owner: Owner, context: str) -> str:
    """The conversation upstream for one of ours: the same for all of its tasks, and nobody else's.

    Upstream all callers of ours are one caller. A conversation's id may be its client's choice, and two clients may
    choose the same; so it is not passed on as it is.
    """
    return str(uuid5(_OURS, f"{len(owner.scope)}:{owner.scope}{len(owner.principal)}:{owner.principal}{context}"))


def task_of(task_id: str, message_id: str) -> str:
    """The task upstream that a message of ours begins, where its client has to name it (0.1): the same each time."""
    return str(uuid5(_OURS, f"{task_id}\n{message_id}"))


def key_of(task_id: str, message_id: str) -> str:
    """The idempotency key of the send of a message."""
    return str(uuid5(_OURS, f"key\n{task_id}\n{message_id}"))


def usage_key_of(task: str, told: Usage) -> str:
    """The key under which it is reported that a task upstream has used so much in all."""
    return str(uuid5(_OURS, f"usage\n{task}\n{told.tokens}\n{told.cost}"))
