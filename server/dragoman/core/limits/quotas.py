"""Which limits hold for whom: what the operator said, and the defaults for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

from google.protobuf import struct_pb2

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DEFAULT_LIMITS: Final[Mapping[str, int]] = {
    "live_tasks": 10_000,
    "live_tasks_per_agent": 5_000,
    "queued_bytes": 256 * 1024 * 1024,
    "starts_per_minute": 6_000,
    "requests_per_second": 1_000,
    "open_streams": 2_000,
}
"""Each limit with what it is for those whom nobody said anything of."""

AGENT_LIMITS: Final[Mapping[str, str]] = {
    "live_tasks": "live_tasks_per_agent",
    "starts_per_minute": "starts_per_minute",
}
"""What may be said of one agent: its name there, and the limit that it replaces."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one principal with one agent; 0 is none."""

    live_tasks: int = 0
    live_tasks_per_agent: int = 0
    queued_bytes: int = 0
    starts_per_minute: int = 0


NO_QUOTA: Final = Quota()


@dataclass(frozen=True, slots=True)
class Quotas:
    """What the operator said of limits, and the defaults for the rest.

    The defaults are for principals that showed who they are. Those who did not are one principal, `anonymous`; on a
    machine of one's own that is oneself, and has no limits but those that were said. `public`: others reach us too.
    """

    configured: Mapping[str, int] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By agent, under the names of BY_AGENT."""
    public: bool = False

    def limit_for(self, limit: str, *, authenticated: bool, agent: str = "") -> int:
        """A limit for who is known or not; 0 for none."""
        particular = self.agents.get(agent, {})
        for name, replaced in AGENT_LIMITS.items():
            if replaced == limit and name in particular:
                return particular[name]
        if limit in self.configured:
            return self.configured[limit]
        return DEFAULT_LIMITS[limit] if authenticated or self.public else 0

    def quota(self, agent: str, *, authenticated: bool) -> Quota:
        """What is decided where a message is accepted."""
        return Quota(
            *(
                self.limit_for(limit, authenticated=authenticated, agent=agent)
                for limit in ("live_tasks", "live_tasks_per_agent", "queued_bytes", "starts_per_minute")
            )
        )


def parse_agent_limits(setting: str | Mapping[str, object]) -> dict[str, dict[str, int]]:
    """Limits of agents: `{"desk": {"live_tasks": 5}}`, or `desk.live-tasks=5,desk.starts-per-minute=60`.

    Raises ValueError, naming the rule.
    """
    table: Mapping[str, object] = _agent_limit_items(setting) if isinstance(setting, str) else setting
    found: dict[str, dict[str, int]] = {}
    for agent, limits in table.items():
        if not isinstance(limits, Mapping):
            raise ValueError(f'"{agent}" is no table of an agent, such as [agent-limits.desk]')
        for name, value in limits.items():
            limit = str(name).replace("-", "_")
            if limit not in AGENT_LIMITS:
                raise ValueError(f'{agent}: "{name}" is no limit of an agent; there are {", ".join(AGENT_LIMITS)}')
            number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
            if type(number) is not int or number < 0:
                raise ValueError(f"{agent}.{limit}: {value!r} is no number from 0 (none) on")
            found.setdefault(agent, {})[limit] = number
    return found


def _agent_limit_items(text: str) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, equals, value = item.partition("=")
        agent, dot, limit = name.strip().rpartition(".")
        if not (equals and dot):
            raise ValueError(f'"{item}" is not AGENT.LIMIT=N, such as desk.live-tasks=5')
        table.setdefault(agent, {})[limit] = value.strip()
    return table


BILLION: Final = 1_000_000_000
MAX_USAGE: Final = 2**61
"""Tokens, and billionths, that one report may name, and that a sum may come to."""

MAX_USAGE_KEY_LENGTH: Final = 255
"""Characters of a report's key."""

MAX_DELEGATION_DEPTH: Final = 16
"""Tasks above a task that are told what it uses: that which it works for, the one that works for, and so on."""

USAGE_METADATA_KEY: Final = "usage"
"""Where the sum stands: in the metadata of a task, and of the event that ends a turn."""


class UsageReport(NamedTuple):
    """One report. A `key` counts once in a task, however often it is reported."""

    tokens: int = 0
    cost: int = 0
    key: str = ""

    @property
    def has_amount(self) -> bool:
        """Whether it is more than nothing. A report of nothing only asks for the sum."""
        return self.tokens > 0 or self.cost > 0


class Usage(NamedTuple):
    """All that a task has used, and the tasks that work for it; `below` is how much of that is theirs."""

    tokens: int = 0
    cost: int = 0
    delegated_tokens: int = 0
    delegated_cost: int = 0

    @classmethod
    def total(cls, rows: Iterable[Sequence[int]]) -> Usage:
        """The sum of rows of tokens, cost, and whether other tasks have used that."""
        tokens = cost = tokens_below = cost_below = 0
        for more_tokens, more_cost, below in rows:
            tokens, cost = min(tokens + more_tokens, MAX_USAGE), min(cost + more_cost, MAX_USAGE)
            if below:
                tokens_below, cost_below = (
                    min(tokens_below + more_tokens, MAX_USAGE),
                    min(cost_below + more_cost, MAX_USAGE),
                )
        return cls(tokens, cost, tokens_below, cost_below)

    def __bool__(self) -> bool:
        return self.tokens > 0 or self.cost > 0

    @property
    def own(self) -> Usage:
        """Without what other tasks have used for it."""
        return Usage(self.tokens - self.delegated_tokens, self.cost - self.delegated_cost)

    @property
    def as_metadata(self) -> dict[str, float | dict[str, float]]:
        """As it stands in metadata: what is nothing is left out."""
        below = _usage_fields(self.delegated_tokens, self.delegated_cost)
        return {**_usage_fields(self.tokens, self.cost), **({"delegated": below} if below else {})}


def _usage_fields(tokens: int, cost: int) -> dict[str, float]:
    told = {"tokens": float(tokens), "cost": cost / BILLION}
    return {name: value for name, value in told.items() if value}


def usage_from_metadata(metadata: struct_pb2.Struct) -> Usage:
    """What metadata say of a task's usage, as `add_usage` writes it; nothing for what is of another form."""
    if USAGE_METADATA_KEY not in metadata.fields:
        return NO_USAGE
    told = metadata.fields[USAGE_METADATA_KEY].struct_value.fields
    tokens, cost = (told[name].number_value if name in told else 0.0 for name in ("tokens", "cost"))
    if not (0 <= tokens <= MAX_USAGE and 0 <= cost * BILLION <= MAX_USAGE):
        return NO_USAGE
    return Usage(int(tokens), round(cost * BILLION))


def add_usage(metadata: bytes, usage: Usage) -> bytes:
    """The metadata of a task (a serialized Struct) with what it has used."""
    holder = pb.Message()
    holder.metadata.MergeFromString(metadata)
    holder.metadata.update({USAGE_METADATA_KEY: usage.as_metadata})
    return holder.metadata.SerializeToString(deterministic=True)


NO_USAGE: Final = Usage()


def checked_usage_report(tokens: int = 0, cost: float = 0.0, key: str = "") -> UsageReport:
    """A report, checked. Raises TypeError and ValueError that name the argument."""
    if type(tokens) is not int:
        raise TypeError(f"usage: tokens={tokens!r} is no int")
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise TypeError(f"usage: cost={cost!r} is no number")
    if tokens < 0 or cost < 0 or not isfinite(cost):
        raise ValueError(f"usage: tokens={tokens}, cost={cost}: must be 0 or more")
    if tokens > MAX_USAGE or cost * BILLION > MAX_USAGE:
        raise ValueError(f"usage: tokens={tokens}, cost={cost}: is more than can be counted")
    if len(key) > MAX_USAGE_KEY_LENGTH:
        raise ValueError(f"usage: key= has {len(key)} characters, and may have {MAX_USAGE_KEY_LENGTH}")
    return UsageReport(tokens, round(cost * BILLION), key)


@dataclass(frozen=True, slots=True)
class TaskBudget:
    """What one task may use; 0 is any amount. `cost` is in billionths."""

    tokens: int = 0
    cost: int = 0

    def exceeded(self, usage: Usage) -> str:
        """Which limit a task has passed, in words; empty for none."""
        if self.tokens and usage.tokens > self.tokens:
            return f"It used {usage.tokens:,} tokens, and may use {self.tokens:,}."
        if self.cost and usage.cost > self.cost:
            return f"It cost {usage.cost / BILLION:g}, and may cost {self.cost / BILLION:g}."
        return ""


@dataclass(frozen=True, slots=True)
class TaskBudgets:
    """The budgets of tasks: in general, and of some agents, which goes before."""

    default: Mapping[str, int] = field(default_factory=dict)
    by_agent: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.default or self.by_agent)

    def budget_of(self, agent: str) -> TaskBudget:
        """The budget of each task of an agent."""
        return TaskBudget(**{**self.default, **self.by_agent.get(agent, {})})


NO_BUDGETS: Final = TaskBudgets()
"""No budget at all."""


def parse_budgets(setting: str | Mapping[str, object]) -> TaskBudgets:
    """`tokens=100000,cost=5,desk.cost=0.5`, or a table with tables of agents in it. Raises ValueError."""
    table: Mapping[str, object] = _budget_items(setting) if isinstance(setting, str) else setting
    agents = {name: _budget_limits(value, f"{name}.") for name, value in table.items() if isinstance(value, Mapping)}
    return TaskBudgets(_budget_limits({name: value for name, value in table.items() if name not in agents}), agents)


def _budget_limits(table: Mapping[str, object], prefix: str = "") -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in table.items():
        try:
            number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
        except ValueError:
            number = -1.0
        if name not in ("tokens", "cost"):
            raise ValueError(f'"{prefix}{name}" is no budget; there are tokens and cost')
        if not (isfinite(number) and number >= 0 and (name == "cost" or number.is_integer())):
            raise ValueError(
                f"{prefix}{name}: {value!r} is no {'amount' if name == 'cost' else 'number'} from 0 (any) on"
            )
        found[name] = round(number * (BILLION if name == "cost" else 1))
    return found


def _budget_items(text: str) -> dict[str, object]:
    table: dict[str, object] = {}
    for item in filter(None, map(str.strip, text.split(","))):
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
