"""Who calls, as far as the transport proved it (A2A 1.0 §7): a principal, and what its credentials allow.

Grants are texts: `operator` (the verbs of dragoman.ops.v1), and `agent:ID` and `scope:NAME`, each of which narrows:
who has one of a kind may call only what these name, who has none of it may call all. `worker`, and `worker:ID` for one
agent, allow to run agents (dragoman.worker.v1), and say nothing of calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dragoman.core.isolation import RESERVED
from dragoman.core.names import AGENT_ID, ANONYMOUS, Owner

OPERATOR: Final = "operator"
AGENT: Final = "agent:"
SCOPE: Final = "scope:"
WORKER: Final = "worker"

PRINCIPAL_LENGTH: Final = 256
"""Characters of a principal's name."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One caller. Two of the same principal see the same tasks, whatever their grants."""

    principal: str = ANONYMOUS
    grants: frozenset[str] = frozenset()
    key: str = ""
    """The id of the API key that it showed, or `certificate:` and what its certificate is found by."""

    @property
    def known(self) -> bool:
        """Whether the caller showed who it is."""
        return self.principal != ANONYMOUS

    @property
    def operates(self) -> bool:
        """Whether it may use the operators' verbs."""
        return OPERATOR in self.grants

    def may_serve(self, agent: str) -> bool:
        """Whether it may run this agent as a worker."""
        return WORKER in self.grants or f"{WORKER}:{agent}" in self.grants

    def may_call(self, scope: str, agent: str) -> bool:
        """Whether its credentials reach this agent in this scope."""
        return not self.grants or (self._reaches(AGENT, agent) and self._reaches(SCOPE, scope))

    def _reaches(self, kind: str, name: str) -> bool:
        return kind + name in self.grants or not any(grant.startswith(kind) for grant in self.grants)


NOBODY: Final = Identity()
"""Who shows no credentials, and everyone where none are asked for."""


@dataclass(frozen=True, slots=True)
class Doorway:
    """Whom a server lets in who shows no credentials. By default it asks nobody who they are."""

    required: bool = False
    """Callers have to show who they are, but for the agents below."""
    public: frozenset[str] = frozenset()
    """The ids of agents that everybody may call; `*` for all."""
    private: bool = False
    """An agent that a caller may not call is to it as one that is not there."""

    @property
    def closed(self) -> bool:
        """Whether nobody without credentials has any agent to call."""
        return self.required and not self.public

    def is_public(self, agent: str) -> bool:
        """Whether an agent may be called by who shows no credentials."""
        return not self.required or agent in self.public or "*" in self.public

    def shows(self, scope: str, agent: str, identity: Identity) -> bool:
        """Whether a caller may know of an agent."""
        return not self.private or ((identity.known or self.is_public(agent)) and identity.may_call(scope, agent))


OPEN: Final = Doorway()
"""Nobody is asked who they are."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, which agent, and whose tasks that reaches: every operation starts from here."""

    owner: Owner
    agent: str
    identity: Identity = NOBODY
    joined: bool = False
    """It also reaches the conversations that the owner has joined (core/isolation.py)."""


def check_grants(grants: Iterable[str]) -> frozenset[str]:
    """Grants as somebody wrote them. Raises ValueError, naming the forms, for one that means nothing."""
    for grant in grants:
        kind, colon, name = grant.partition(":")
        agent = kind + colon == AGENT and AGENT_ID.fullmatch(name)
        scope = kind + colon == SCOPE and name and name.isprintable()
        worker = kind == WORKER and (not colon or AGENT_ID.fullmatch(name))
        if not (grant == OPERATOR or agent or scope or worker):
            known = f"{OPERATOR}, {AGENT}ID, {SCOPE}NAME, {WORKER}, {WORKER}:ID"
            raise ValueError(f'"{grant}" is no grant; there are {known}')
    return frozenset(grants)


def check_principal(principal: str) -> str:
    """A principal's name. Raises ValueError, naming the rule, for one that cannot stand in tables and logs."""
    if not principal or principal != principal.strip() or not principal.isprintable():
        raise ValueError(f"{principal[:PRINCIPAL_LENGTH]!r} must be printable text, without blanks around it")
    if len(principal) > PRINCIPAL_LENGTH:
        raise ValueError(f"must have at most {PRINCIPAL_LENGTH} characters")
    if principal.startswith(RESERVED):
        raise ValueError(f'must not begin with "{RESERVED}"')
    if principal == ANONYMOUS:
        raise ValueError(f'"{ANONYMOUS}" is who shows no credentials; choose another name')
    return principal
