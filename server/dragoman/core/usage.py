"""What a task has used, as its agent says, and how much it may: tokens, and money in the operator's currency.

Costs are whole billionths, so that a sum of many small ones is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

from google.protobuf import struct_pb2

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BILLION: Final = 1_000_000_000
MOST: Final = 2**61
"""Tokens, and billionths, that one report may name, and that a sum may come to."""

KEY_LENGTH: Final = 255
"""Characters of a report's key."""

DEPTH: Final = 16
"""Tasks above a task that are told what it uses: that which it works for, the one that works for, and so on."""

KEY: Final = "usage"
"""Where the sum stands: in the metadata of a task, and of the event that ends a turn."""


class Used(NamedTuple):
    """One report. A `key` counts once in a task, however often it is reported."""

    tokens: int = 0
    cost: int = 0
    key: str = ""

    @property
    def amount(self) -> bool:
        """Whether it is more than nothing. A report of nothing only asks for the sum."""
        return self.tokens > 0 or self.cost > 0


class Usage(NamedTuple):
    """All that a task has used, and the tasks that work for it; `below` is how much of that is theirs."""

    tokens: int = 0
    cost: int = 0
    tokens_below: int = 0
    cost_below: int = 0

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Usage:
        """The sum of rows of tokens, cost, and whether other tasks have used that."""
        tokens = cost = tokens_below = cost_below = 0
        for more_tokens, more_cost, below in rows:
            tokens, cost = min(tokens + more_tokens, MOST), min(cost + more_cost, MOST)
            if below:
                tokens_below, cost_below = min(tokens_below + more_tokens, MOST), min(cost_below + more_cost, MOST)
        return cls(tokens, cost, tokens_below, cost_below)

    def __bool__(self) -> bool:
        return self.tokens > 0 or self.cost > 0

    @property
    def own(self) -> Usage:
        """Without what other tasks have used for it."""
        return Usage(self.tokens - self.tokens_below, self.cost - self.cost_below)

    @property
    def shown(self) -> dict[str, float | dict[str, float]]:
        """As it stands in metadata: what is nothing is left out."""
        below = _told(self.tokens_below, self.cost_below)
        return {**_told(self.tokens, self.cost), **({"delegated": below} if below else {})}


def _told(tokens: int, cost: int) -> dict[str, float]:
    told = {"tokens": float(tokens), "cost": cost / BILLION}
    return {name: value for name, value in told.items() if value}


def said(metadata: struct_pb2.Struct) -> Usage:
    """What metadata say of a task's usage, as `noted` writes it; nothing for what is of another form."""
    if KEY not in metadata.fields:
        return NONE
    told = metadata.fields[KEY].struct_value.fields
    tokens, cost = (told[name].number_value if name in told else 0.0 for name in ("tokens", "cost"))
    if not (0 <= tokens <= MOST and 0 <= cost * BILLION <= MOST):
        return NONE
    return Usage(int(tokens), round(cost * BILLION))


def noted(metadata: bytes, usage: Usage) -> bytes:
    """The metadata of a task (a serialized Struct) with what it has used."""
    holder = pb.Message()
    holder.metadata.MergeFromString(metadata)
    holder.metadata.update({KEY: usage.shown})
    return holder.metadata.SerializeToString(deterministic=True)


NONE: Final = Usage()


def report(tokens: int = 0, cost: float = 0.0, key: str = "") -> Used:
    """A report, checked. Raises TypeError and ValueError that name the argument."""
    if type(tokens) is not int:
        raise TypeError(f"usage: tokens={tokens!r} is no int")
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise TypeError(f"usage: cost={cost!r} is no number")
    if tokens < 0 or cost < 0 or not isfinite(cost):
        raise ValueError(f"usage: tokens={tokens}, cost={cost}: must be 0 or more")
    if tokens > MOST or cost * BILLION > MOST:
        raise ValueError(f"usage: tokens={tokens}, cost={cost}: is more than can be counted")
    if len(key) > KEY_LENGTH:
        raise ValueError(f"usage: key= has {len(key)} characters, and may have {KEY_LENGTH}")
    return Used(tokens, round(cost * BILLION), key)


@dataclass(frozen=True, slots=True)
class Budget:
    """What one task may use; 0 is any amount. `cost` is in billionths."""

    tokens: int = 0
    cost: int = 0

    def passed(self, usage: Usage) -> str:
        """Which limit a task has passed, in words; empty for none."""
        if self.tokens and usage.tokens > self.tokens:
            return f"It used {usage.tokens:,} tokens, and may use {self.tokens:,}."
        if self.cost and usage.cost > self.cost:
            return f"It cost {usage.cost / BILLION:g}, and may cost {self.cost / BILLION:g}."
        return ""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of tasks: in general, and of some agents, which goes before."""

    general: Mapping[str, int] = field(default_factory=dict)
    particular: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.general or self.particular)

    def of(self, agent: str) -> Budget:
        """The budget of each task of an agent."""
        return Budget(**{**self.general, **self.particular.get(agent, {})})


ANY: Final = Budgets()
"""No budget at all."""


def parse(said: str | Mapping[str, object]) -> Budgets:
    """`tokens=100000,cost=5,desk.cost=0.5`, or a table with tables of agents in it. Raises ValueError."""
    table: Mapping[str, object] = _items(said) if isinstance(said, str) else said
    agents = {name: _limits(value, f"{name}.") for name, value in table.items() if isinstance(value, Mapping)}
    return Budgets(_limits({name: value for name, value in table.items() if name not in agents}), agents)


def _limits(table: Mapping[str, object], at: str = "") -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in table.items():
        try:
            number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
        except ValueError:
            number = -1.0
        if name not in ("tokens", "cost"):
            raise ValueError(f'"{at}{name}" is no budget; there are tokens and cost')
        if not (isfinite(number) and number >= 0 and (name == "cost" or number.is_integer())):
            raise ValueError(f"{at}{name}: {value!r} is no {'amount' if name == 'cost' else 'number'} from 0 (any) on")
        found[name] = round(number * (BILLION if name == "cost" else 1))
    return found


def _items(said: str) -> dict[str, object]:
    table: dict[str, object] = {}
    for item in filter(None, map(str.strip, said.split(","))):
        name, equals, value = item.partition("=")
        agent, _, limit = name.strip().rpartition(".")
        if not equals:
            raise ValueError(f'"{item}" is not tokens=N, cost=N or AGENT.cost=N')
        if agent:
            inner = table.setdefault(agent, {})
            assert isinstance(inner, dict)
            inner[limit] = value.strip()
        else:
            table[limit] = value.strip()
    return table
