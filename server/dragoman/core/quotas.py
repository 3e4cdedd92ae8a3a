"""Which limits hold for whom: what the operator said, and the defaults for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULTS: Final[Mapping[str, int]] = {
    "live_tasks": 10_000,
    "live_tasks_per_agent": 5_000,
    "queued_bytes": 256 * 1024 * 1024,
    "starts_per_minute": 6_000,
    "requests_per_second": 1_000,
    "open_streams": 2_000,
}
"""Each limit with what it is for those whom nobody said anything of."""

BY_AGENT: Final[Mapping[str, str]] = {
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


FREE: Final = Quota()


@dataclass(frozen=True, slots=True)
class Quotas:
    """What the operator said of limits, and the defaults for the rest.

    The defaults are for principals that showed who they are. Those who did not are one principal, `anonymous`; on a
    machine of one's own that is oneself, and has no limits but those that were said. `public`: others reach us too.
    """

    said: Mapping[str, int] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By agent, under the names of BY_AGENT."""
    public: bool = False

    def value(self, limit: str, *, known: bool, agent: str = "") -> int:
        """A limit for who is known or not; 0 for none."""
        particular = self.agents.get(agent, {})
        for name, replaced in BY_AGENT.items():
            if replaced == limit and name in particular:
                return particular[name]
        if limit in self.said:
            return self.said[limit]
        return DEFAULTS[limit] if known or self.public else 0

    def quota(self, agent: str, *, known: bool) -> Quota:
        """What is decided where a message is accepted."""
        return Quota(
            *(
                self.value(limit, known=known, agent=agent)
                for limit in ("live_tasks", "live_tasks_per_agent", "queued_bytes", "starts_per_minute")
            )
        )


def parse(said: str | Mapping[str, object]) -> dict[str, dict[str, int]]:
    """Limits of agents: `{"desk": {"live_tasks": 5}}`, or `desk.live-tasks=5,desk.starts-per-minute=60`.

    Raises ValueError, naming the rule.
    """
    table: Mapping[str, object] = _items(said) if isinstance(said, str) else said
    found: dict[str, dict[str, int]] = {}
    for agent, limits in table.items():
        if not isinstance(limits, Mapping):
            raise ValueError(f'"{agent}" is no table of an agent, such as [agent-limits.desk]')
        for name, value in limits.items():
            limit = str(name).replace("-", "_")
            if limit not in BY_AGENT:
                raise ValueError(f'{agent}: "{name}" is no limit of an agent; there are {", ".join(BY_AGENT)}')
            number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
            if type(number) is not int or number < 0:
                raise ValueError(f"{agent}.{limit}: {value!r} is no number from 0 (none) on")
            found.setdefault(agent, {})[limit] = number
    return found


def _items(said: str) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = {}
    for item in filter(None, map(str.strip, said.split(","))):
        name, equals, value = item.partition("=")
        agent, dot, limit = name.strip().rpartition(".")
        if not (equals and dot):
            raise ValueError(f'"{item}" is not AGENT.LIMIT=N, such as desk.live-tasks=5')
        table.setdefault(agent, {})[limit] = value.strip()
    return table
