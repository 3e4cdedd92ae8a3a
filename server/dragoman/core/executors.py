"""Executors to be run beside us: what they are called, and where they are found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from dragoman.core.names import check_agent_id

FORM: Final = "[ID=]MODULE:NAME or [ID=]FILE.py:NAME"

TURNS: Final = 100
"""Turns of one executor at the same time, unless somebody says otherwise."""

_SUFFIXES: Final = ("agent-executor", "agent-worker", "executor", "worker")


@dataclass(frozen=True, slots=True)
class Executor:
    """One of them: its agent's id, and what is to be loaded."""

    id: str
    target: str
    """MODULE:NAME, or FILE.py:NAME."""

    @property
    def module(self) -> str:
        """The module or file of the target."""
        return self.target.rpartition(":")[0]

    def __str__(self) -> str:
        return f"{self.id} ({self.target})"

    @classmethod
    def parse(cls, text: str) -> Executor:
        """Reads `[ID=]MODULE:NAME`. Raises ValueError."""
        id, given, target = text.strip().rpartition("=")
        module, colon, name = target.rpartition(":")
        if not colon or not module or not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f'"{text}" is not {FORM}')
        id = id if given else id_of(module, name)
        try:
            check_agent_id(id)
        except ValueError as error:
            rule = str(error).removesuffix("; set id=").removesuffix("; set id= to choose another")
            raise ValueError(f'"{text}": {rule}; choose one with {FORM}') from error
        return cls(id, target)


def read(value: Any) -> tuple[Executor, ...]:
    """The executors of one server: texts, or several in one with commas between. Raises ValueError."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str | Executor) for item in items):
        raise ValueError(f"must be a list of {FORM}")
    every = [part for item in items for part in (item.split(",") if isinstance(item, str) else (item,))]
    said = [one if isinstance(one, Executor) else Executor.parse(one) for one in every if one != ""]
    ids = [one.id for one in said]
    if twice := sorted({id for id in ids if ids.count(id) > 1}):
        raise ValueError(f'"{twice[0]}" is the id of two of them; say {FORM}')
    return tuple(said)


def id_of(module: str, name: str) -> str:
    """The id of an agent that nobody gave one: `HelloWorldAgentExecutor` is `hello-world`, a bare `Executor` is called
    after its module."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_.]+", "-", name).lower().strip("-")
    for suffix in _SUFFIXES:
        if words == suffix:
            stem = re.split(r"[/\\]", module.removesuffix(".py"))[-1].rpartition(".")[2]
            return stem.lower().replace("_", "-").strip("-")
        if words.endswith(f"-{suffix}"):
            return words.removesuffix(f"-{suffix}")
    return words
