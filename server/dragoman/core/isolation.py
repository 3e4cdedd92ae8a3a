"""Who shares whose tasks: the policies of isolation, and what each makes a caller see.

| policy    | who sees a task                                                                                      |
|-----------|------------------------------------------------------------------------------------------------------|
| `owner`   | the principal that made it                                                                           |
| `scope`   | everyone who may call its agent in its scope                                                         |
| `context` | who takes part in its conversation: the principal that began it, and whoever has sent a message that |
|           | names the conversation by an id which the server made                                                |

Everything stored is keyed by an `Owner`; a policy only says which. Under `owner` and `context` it is the principal,
and a conversation's tasks are all kept under the one that began it. Under `scope` it is one that stands for all. Who
really asked is kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from dragoman.core.names import Owner

Policy = Literal["owner", "scope", "context"]
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)

RESERVED: Final = "shared:"
"""What no principal's name may begin with."""

EVERYONE: Final = f"{RESERVED}scope"
"""Stands for all principals of a scope."""


@dataclass(frozen=True, slots=True)
class View:
    """Whose tasks somebody sees."""

    owner: Owner
    """What is theirs by right, and under which what they begin is kept."""
    joined: bool = False
    """Also those of the conversations that the owner has joined."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """The policy of every agent."""

    general: Policy = "owner"
    particular: Mapping[str, Policy] = field(default_factory=dict)
    """Agents with one of their own, by id."""

    def of(self, agent: str) -> Policy:
        """The policy of an agent."""
        return self.particular.get(agent, self.general)

    def view(self, scope: str, agent: str, principal: str) -> View:
        """Whose tasks of an agent a principal sees in a scope: the one place where a policy becomes an owner."""
        match self.of(agent):
            case "scope":
                return View(Owner(scope, EVERYONE))
            case "context":
                return View(Owner(scope, principal), joined=True)
            case _:
                return View(Owner(scope, principal))


def parse(said: str | Mapping[str, object]) -> Isolation:
    """A policy for all agents, or for some: `owner`, `scope,desk=owner`, or a table of agents with `default` in it.

    Raises ValueError, naming the rule.
    """
    table = dict(_items(said)) if isinstance(said, str) else said
    policies: dict[str, Policy] = {}
    for name, policy in table.items():
        if policy not in POLICIES:
            raise ValueError(f'{name}: "{policy}" is no policy; use {", ".join(POLICIES)}')
        policies[name] = policy
    return Isolation(policies.pop("default", "owner"), policies)


def _items(said: str) -> Iterator[tuple[str, str]]:
    for item in filter(None, map(str.strip, said.split(","))):
        agent, equals, policy = item.partition("=")
        yield (agent.strip(), policy.strip()) if equals else ("default", agent)
