"""Who calls, as far as the transport proved it (A2A 1.0 §7): a principal, and what its credentials allow.

Grants are texts: `operator` (the verbs of dragoman.ops.v1), and `agent:ID` and `scope:NAME`, each of which narrows:
who has one of a kind may call only what these name, who has none of it may call all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.core.names import ANONYMOUS, Owner

OPERATOR: Final = "operator"
AGENT: Final = "agent:"
SCOPE: Final = "scope:"


@dataclass(frozen=True, slots=True)
class Identity:
    """One caller. Two of the same principal see the same tasks, whatever their grants."""

    principal: str = ANONYMOUS
    grants: frozenset[str] = frozenset()

    @property
    def known(self) -> bool:
        """Whether the caller showed who it is."""
        return self.principal != ANONYMOUS

    @property
    def operates(self) -> bool:
        """Whether it may use the operators' verbs."""
        return OPERATOR in self.grants

    def may_call(self, scope: str, agent: str) -> bool:
        """Whether its credentials reach this agent in this scope."""
        return self._reaches(AGENT, agent) and self._reaches(SCOPE, scope)

    def _reaches(self, kind: str, name: str) -> bool:
        return kind + name in self.grants or not any(grant.startswith(kind) for grant in self.grants)


NOBODY: Final = Identity()
"""Who shows no credentials, and everyone where none are asked for."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, which agent, and whose tasks that reaches: every operation starts from here."""

    owner: Owner
    agent: str
    identity: Identity = NOBODY
    joined: bool = False
    """It also reaches the conversations that the owner has joined (core/isolation.py)."""
