"""Who calls, as far as the transport proved it (A2A 1.0 §7): a principal, and what its credentials allow.

Grants are texts: `operator` (the verbs of dragoman.ops.v1), and `agent:ID` and `scope:NAME`, each of which narrows:
who has one of a kind may call only what these name, who has none of it may call all. `worker`, and `worker:ID` for one
agent, allow to run agents (dragoman.worker.v1), and say nothing of calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from dragoman.core.names import AGENT_ID, ANONYMOUS_PRINCIPAL, Owner

OPERATOR_GRANT: Final = "operator"
AGENT_GRANT_PREFIX: Final = "agent:"
SCOPE_GRANT_PREFIX: Final = "scope:"
WORKER_GRANT: Final = "worker"

MAX_PRINCIPAL_LENGTH: Final = 256
"""Characters of a principal's name."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One caller. Two of the same principal see the same tasks, whatever their grants."""

    principal: str = ANONYMOUS_PRINCIPAL
    grants: frozenset[str] = frozenset()
    credential_id: str = ""
    """The id of the API key that it showed, or `certificate:` and what its certificate is found by."""

    @property
    def is_authenticated(self) -> bool:
        """Whether the caller showed who it is."""
        return self.principal != ANONYMOUS_PRINCIPAL

    @property
    def is_operator(self) -> bool:
        """Whether it may use the operators' verbs."""
        return OPERATOR_GRANT in self.grants

    def may_serve(self, agent: str) -> bool:
        """Whether it may run this agent as a worker."""
        return WORKER_GRANT in self.grants or f"{WORKER_GRANT}:{agent}" in self.grants

    def may_call(self, scope: str, agent: str) -> bool:
        """Whether its credentials reach this agent in this scope."""
        return not self.grants or (
            self._reaches(AGENT_GRANT_PREFIX, agent) and self._reaches(SCOPE_GRANT_PREFIX, scope)
        )

    def _reaches(self, kind: str, name: str) -> bool:
        return kind + name in self.grants or not any(grant.startswith(kind) for grant in self.grants)


ANONYMOUS: Final = Identity()
"""Who shows no credentials, and everyone where none are asked for."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Whom a server lets in who shows no credentials. By default it asks nobody who they are."""

    credentials_required: bool = False
    """Callers have to show who they are, but for the agents below."""
    public_agents: frozenset[str] = frozenset()
    """The ids of agents that everybody may call; `*` for all."""
    hides_agents: bool = False
    """An agent that a caller may not call is to it as one that is not there."""

    @property
    def is_closed(self) -> bool:
        """Whether nobody without credentials has any agent to call."""
        return self.credentials_required and not self.public_agents

    def is_public(self, agent: str) -> bool:
        """Whether an agent may be called by who shows no credentials."""
        return not self.credentials_required or agent in self.public_agents or "*" in self.public_agents

    def may_see(self, scope: str, agent: str, identity: Identity) -> bool:
        """Whether a caller may know of an agent."""
        return not self.hides_agents or (
            (identity.is_authenticated or self.is_public(agent)) and identity.may_call(scope, agent)
        )


OPEN_ACCESS: Final = AccessPolicy()
"""Nobody is asked who they are."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, which agent, and whose tasks that reaches: every operation starts from here."""

    owner: Owner
    agent: str
    identity: Identity = ANONYMOUS
    joined: bool = False
    """It also reaches the conversations that the owner has joined (core/access/identity.py)."""


def check_grants(grants: Iterable[str]) -> frozenset[str]:
    """Grants as somebody wrote them. Raises ValueError, naming the forms, for one that means nothing."""
    for grant in grants:
        kind, colon, name = grant.partition(":")
        agent = kind + colon == AGENT_GRANT_PREFIX and AGENT_ID.fullmatch(name)
        scope = kind + colon == SCOPE_GRANT_PREFIX and name and name.isprintable()
        worker = kind == WORKER_GRANT and (not colon or AGENT_ID.fullmatch(name))
        if not (grant == OPERATOR_GRANT or agent or scope or worker):
            known = (
                f"{OPERATOR_GRANT}, {AGENT_GRANT_PREFIX}ID, {SCOPE_GRANT_PREFIX}NAME, {WORKER_GRANT}, {WORKER_GRANT}:ID"
            )
            raise ValueError(f'"{grant}" is no grant; there are {known}')
    return frozenset(grants)


def check_principal(principal: str) -> str:
    """A principal's name. Raises ValueError, naming the rule, for one that cannot stand in tables and logs."""
    if not principal or principal != principal.strip() or not principal.isprintable():
        raise ValueError(f"{principal[:MAX_PRINCIPAL_LENGTH]!r} must be printable text, without blanks around it")
    if len(principal) > MAX_PRINCIPAL_LENGTH:
        raise ValueError(f"must have at most {MAX_PRINCIPAL_LENGTH} characters")
    if principal.startswith(RESERVED_PRINCIPAL_PREFIX):
        raise ValueError(f'must not begin with "{RESERVED_PRINCIPAL_PREFIX}"')
    if principal == ANONYMOUS_PRINCIPAL:
        raise ValueError(f'"{ANONYMOUS_PRINCIPAL}" is who shows no credentials; choose another name')
    return principal


IsolationPolicy = Literal["owner", "scope", "context"]
ISOLATION_POLICIES: Final[tuple[IsolationPolicy, ...]] = get_args(IsolationPolicy)

RESERVED_PRINCIPAL_PREFIX: Final = "shared:"
"""What no principal's name may begin with."""

SHARED_PRINCIPAL: Final = f"{RESERVED_PRINCIPAL_PREFIX}scope"
"""Stands for all principals of a scope."""


@dataclass(frozen=True, slots=True)
class TaskVisibility:
    """Whose tasks somebody sees."""

    owner: Owner
    """What is theirs by right, and under which what they begin is kept."""
    joined: bool = False
    """Also those of the conversations that the owner has joined."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """The policy of every agent."""

    default: IsolationPolicy = "owner"
    by_agent: Mapping[str, IsolationPolicy] = field(default_factory=dict)
    """Agents with one of their own, by id."""

    def policy_of(self, agent: str) -> IsolationPolicy:
        """The policy of an agent."""
        return self.by_agent.get(agent, self.default)

    def visibility(self, scope: str, agent: str, principal: str) -> TaskVisibility:
        """Whose tasks of an agent a principal sees in a scope: the one place where a policy becomes an owner."""
        match self.policy_of(agent):
            case "scope":
                return TaskVisibility(Owner(scope, SHARED_PRINCIPAL))
            case "context":
                return TaskVisibility(Owner(scope, principal), joined=True)
            case _:
                return TaskVisibility(Owner(scope, principal))


def parse_isolation(setting: str | Mapping[str, object]) -> Isolation:
    """A policy for all agents, or for some: `owner`, `scope,desk=owner`, or a table of agents with `default` in it.

    Raises ValueError, naming the rule.
    """
    table = dict(_isolation_items(setting)) if isinstance(setting, str) else setting
    policies: dict[str, IsolationPolicy] = {}
    for name, policy in table.items():
        if policy not in ISOLATION_POLICIES:
            raise ValueError(f'{name}: "{policy}" is no policy; use {", ".join(ISOLATION_POLICIES)}')
        policies[name] = policy
    return Isolation(policies.pop("default", "owner"), policies)


def _isolation_items(text: str) -> Iterator[tuple[str, str]]:
    for item in filter(None, map(str.strip, text.split(","))):
        agent, equals, policy = item.partition("=")
        yield (agent.strip(), policy.strip()) if equals else ("default", agent)
