"""Quotas of principals, usage of tasks, and budgets: values, defaults and parsing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Final, NamedTuple

from google.protobuf import struct_pb2

from dragoman.core.names import parse_table
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DEFAULT_LIMITS: Final[Mapping[str, int]] = {
    "live_tasks": 10_000,
    "live_tasks_per_agent": 5_000,
    "queued_bytes": 256 * 1024 * 1024,
    "starts_per_minute": 6_000,
    "requests_per_second": 1_000,
    "open_streams": 2_000,
    "stored_bytes": 0,
    "scopes": 100,
}
"""The default of each limit; 0: none."""

AGENT_LIMITS: Final[Mapping[str, str]] = {
    "live_tasks": "live_tasks_per_agent",
    "starts_per_minute": "starts_per_minute",
}
"""The limits of a single agent: the name in its settings, and the limit that it replaces."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one principal with one agent; 0 is no limit."""

    live_tasks: int = 0
    live_tasks_per_agent: int = 0
    queued_bytes: int = 0
    starts_per_minute: int = 0
    stored_bytes: int = 0  # only for a principal that has reached it; 0 for others
    stored: int = 0  # the bytes of its tasks when they were counted last
    scopes: int = 0  # in which it may create tasks, beside the default one


NO_QUOTA: Final = Quota()
_STORE_LIMITS: Final = ("live_tasks", "live_tasks_per_agent", "queued_bytes", "starts_per_minute")


@dataclass(frozen=True, slots=True)
class Quotas:
    """The operator's limits, and the defaults for the rest.

    The defaults apply to authenticated principals. Callers without credentials are one principal, `anonymous`. On
    loopback that is the user of the machine, who has only the configured limits. `public`: other machines can connect,
    and the defaults apply to everyone.
    """

    configured: Mapping[str, int] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By agent, then by the names in AGENT_LIMITS."""
    public: bool = False

    def limit_for(self, limit: str, *, authenticated: bool, agent: str = "") -> int:
        """The value of a limit; 0 for no limit."""
        limits_of_agent = self.agents.get(agent, {})
        for name, replaced in AGENT_LIMITS.items():
            if replaced == limit and name in limits_of_agent:
                return limits_of_agent[name]
        if limit in self.configured:
            return self.configured[limit]
        return DEFAULT_LIMITS[limit] if authenticated or self.public else 0

    def quota(self, agent: str, *, authenticated: bool, limits_scopes: bool = False) -> Quota:
        """The limits that the store checks when it accepts a message; `limits_scopes`: also that of scopes."""
        scopes = self.limit_for("scopes", authenticated=authenticated) if limits_scopes else 0
        limits = (self.limit_for(name, authenticated=authenticated, agent=agent) for name in _STORE_LIMITS)
        return replace(Quota(*limits), scopes=scopes)


def parse_agent_limits(setting: str | Mapping[str, object]) -> dict[str, dict[str, int]]:
    """Parses limits of agents: `{"desk": {"live_tasks": 5}}`, or `desk.live-tasks=5,desk.starts-per-minute=60`.

    Raises ValueError, naming the rule.
    """
    form = "AGENT.LIMIT=N, such as desk.live-tasks=5"
    table = parse_table(setting, form, agents_only=True) if isinstance(setting, str) else setting
    found: dict[str, dict[str, int]] = {}
    for agent, limits in table.items():
        if not isinstance(limits, Mapping):
            raise ValueError(f'"{agent}" must be the table of an agent, such as [agent-limits.desk]')
        for name, value in limits.items():
            limit = str(name).replace("-", "_")
            if limit not in AGENT_LIMITS:
                raise ValueError(f'{agent}: "{name}" is not a limit of an agent; use {", ".join(AGENT_LIMITS)}')
            number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
            if type(number) is not int or number < 0:
                raise ValueError(f"{agent}.{limit}: {value!r} must be a whole number, 0 for no limit")
            found.setdefault(agent, {})[limit] = number
    return found


BILLION: Final = 1_000_000_000
MAX_USAGE: Final = 2**61
"""Maximum tokens, and billionths of cost, of a report and of a sum."""

MAX_USAGE_KEY_LENGTH: Final = 255  # maximum characters of a report's key
MAX_DELEGATION_DEPTH: Final = 16  # ancestors of a task (its parent, and so on) that its usage is added to
USAGE_METADATA_KEY: Final = "usage"  # the metadata key of the sum, in tasks and in the event that ends a turn


class UsageReport(NamedTuple):
    """Reported usage; `cost` is in billionths. A report with a `key` counts once per task."""

    tokens: int = 0
    cost: int = 0
    key: str = ""

    @property
    def has_amount(self) -> bool:
        """Whether it adds anything. An empty report only requests the sum."""
        return self.tokens > 0 or self.cost > 0


class Usage(NamedTuple):
    """Total usage of a task with its delegated tasks, whose share is in `delegated_tokens` and `delegated_cost`."""

    tokens: int = 0
    cost: int = 0
    delegated_tokens: int = 0
    delegated_cost: int = 0

    @classmethod
    def total(cls, rows: Iterable[Sequence[int]]) -> Usage:
        """Sums rows of tokens, cost, and whether a delegated task used them."""
        used = list(rows)
        delegated = [row for row in used if row[2]]
        return cls(*(min(sum(row[of] for row in some), MAX_USAGE) for some in (used, delegated) for of in (0, 1)))

    def __bool__(self) -> bool:
        return self.tokens > 0 or self.cost > 0

    @property
    def own(self) -> Usage:
        """Usage without that of delegated tasks."""
        return Usage(self.tokens - self.delegated_tokens, self.cost - self.delegated_cost)


def _usage_fields(tokens: int, cost: int) -> dict[str, float]:
    usage = {"tokens": float(tokens), "cost": cost / BILLION}
    return {name: value for name, value in usage.items() if value}


def usage_from_metadata(metadata: struct_pb2.Struct) -> Usage:
    """The usage in metadata written by `usage_metadata`; none for metadata of another form."""
    if USAGE_METADATA_KEY not in metadata.fields:
        return NO_USAGE
    fields = metadata.fields[USAGE_METADATA_KEY].struct_value.fields
    tokens, cost = (fields[name].number_value if name in fields else 0.0 for name in ("tokens", "cost"))
    if not (0 <= tokens <= MAX_USAGE and 0 <= cost * BILLION <= MAX_USAGE):
        return NO_USAGE
    return Usage(int(tokens), round(cost * BILLION))


def usage_metadata(usage: Usage) -> bytes:
    """Usage as metadata of a task, without zero values: a serialized Struct."""
    delegated = _usage_fields(usage.delegated_tokens, usage.delegated_cost)
    fields = {**_usage_fields(usage.tokens, usage.cost), **({"delegated": delegated} if delegated else {})}
    return pb.Task(metadata={USAGE_METADATA_KEY: fields}).metadata.SerializeToString()


NO_USAGE: Final = Usage()


def checked_usage_report(tokens: int = 0, cost: float = 0.0, key: str = "") -> UsageReport:
    """Builds a report. Raises TypeError or ValueError, naming the invalid argument."""
    if type(tokens) is not int:
        raise TypeError(f"usage: tokens={tokens!r} must be an int")
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise TypeError(f"usage: cost={cost!r} must be a number")
    if tokens < 0 or cost < 0 or not isfinite(cost):
        raise ValueError(f"usage: tokens={tokens}, cost={cost}: must be 0 or more")
    if tokens > MAX_USAGE or cost * BILLION > MAX_USAGE:
        raise ValueError(f"usage: tokens={tokens}, cost={cost}: must be at most {MAX_USAGE} and {MAX_USAGE // BILLION}")
    if len(key) > MAX_USAGE_KEY_LENGTH:
        raise ValueError(f"usage: key= has {len(key)} characters; at most {MAX_USAGE_KEY_LENGTH} are accepted")
    return UsageReport(tokens, round(cost * BILLION), key)


@dataclass(frozen=True, slots=True)
class TaskBudget:
    """The maximum usage of one task; 0 is no limit. `cost` is in billionths."""

    tokens: int = 0
    cost: int = 0

    def exceeded(self, usage: Usage) -> str:
        """Describes the limit that the usage exceeds; empty for none."""
        if self.tokens and usage.tokens > self.tokens:
            return f"It used {usage.tokens:,} tokens; its budget is {self.tokens:,}."
        if self.cost and usage.cost > self.cost:
            return f"It cost {usage.cost / BILLION:g}; its budget is {self.cost / BILLION:g}."
        return ""


@dataclass(frozen=True, slots=True)
class TaskBudgets:
    """The default budget of a task, and budgets by agent, which override it."""

    default: Mapping[str, int] = field(default_factory=dict)
    by_agent: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.default or self.by_agent)

    def budget_of(self, agent: str) -> TaskBudget:
        return TaskBudget(**{**self.default, **self.by_agent.get(agent, {})})


NO_BUDGETS: Final = TaskBudgets()  # no limits


def parse_budgets(setting: str | Mapping[str, object]) -> TaskBudgets:
    """Parses `tokens=100000,cost=5,desk.cost=0.5`, or a table with tables of agents. Raises ValueError."""
    form = "tokens=N, cost=N or AGENT.cost=N"
    table: Mapping[str, object] = parse_table(setting, form) if isinstance(setting, str) else setting
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
            raise ValueError(f'"{prefix}{name}" is not a budget; use tokens or cost')
        if not (isfinite(number) and number >= 0 and (name == "cost" or number.is_integer())):
            kind = "an amount" if name == "cost" else "a whole number"
            raise ValueError(f"{prefix}{name}: {value!r} must be {kind}, 0 for no limit")
        found[name] = round(number * (BILLION if name == "cost" else 1))
    return found
