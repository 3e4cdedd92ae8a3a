"""Callers: identities, grants, access policy and task isolation (A2A 1.0 §7).

Grants are texts. `operator` allows dragoman.ops.v1, `viewer` those of its operations that only read, `auditor` the
export of the audit log. `agent:ID` and `scope:NAME` restrict calls and these operations: a caller with grants of one
kind may call only what they name, a caller without any may call everything. `worker`, or `worker:ID` for one agent,
allows running agents (dragoman.worker.v1) and has no effect on calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from dragoman.core.names import AGENT_ID, ANONYMOUS_PRINCIPAL, ByAgent, Owner, parse_by_agent

OPERATOR_GRANT: Final = "operator"
VIEWER_GRANT: Final = "viewer"
AUDITOR_GRANT: Final = "auditor"
OPERATION_GRANTS: Final = (OPERATOR_GRANT, VIEWER_GRANT, AUDITOR_GRANT)
AGENT_GRANT_PREFIX: Final = "agent:"
SCOPE_GRANT_PREFIX: Final = "scope:"
WORKER_GRANT: Final = "worker"

MAX_PRINCIPAL_LENGTH: Final = 256  # maximum characters of a principal's name


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller. Callers with the same principal see the same tasks, whatever their grants."""

    principal: str = ANONYMOUS_PRINCIPAL
    grants: frozenset[str] = frozenset()
    credential_id: str = ""
    """The id of its API key, or `certificate:` and the id of its certificate."""
    expires: int = 0  # when its token ends, in milliseconds since the epoch; 0 for credentials that are looked up again
    is_authenticated: bool = field(init=False, repr=False, compare=False)
    """Whether the caller presented valid credentials. A request asks for it four times."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_authenticated", self.principal != ANONYMOUS_PRINCIPAL)

    @property
    def is_operator(self) -> bool:
        """Whether it may call dragoman.ops.v1."""
        return OPERATOR_GRANT in self.grants

    @property
    def is_viewer(self) -> bool:
        """Whether it may call the operations of dragoman.ops.v1 that only read."""
        return self.is_operator or VIEWER_GRANT in self.grants

    @property
    def is_limited(self) -> bool:
        """Whether its grants name scopes or agents: then it may call no operation on the server as a whole."""
        return bool(self.granted(SCOPE_GRANT_PREFIX) or self.granted(AGENT_GRANT_PREFIX))

    @property
    def log_details(self) -> dict[str, str]:
        """Who it is, for logs and the audit log."""
        return {"principal": self.principal, **({"key": self.credential_id} if self.credential_id else {})}

    def granted(self, kind: str) -> frozenset[str]:
        """The names in its grants with this prefix; empty for no restriction."""
        return frozenset(grant.removeprefix(kind) for grant in self.grants if grant.startswith(kind))

    def may_serve(self, agent: str) -> bool:
        """Whether it may run this agent as a worker."""
        return WORKER_GRANT in self.grants or f"{WORKER_GRANT}:{agent}" in self.grants

    def may_call(self, scope: str, agent: str) -> bool:
        """Whether its grants allow calls to this agent in this scope."""
        return not self.grants or (self._allows(AGENT_GRANT_PREFIX, agent) and self._allows(SCOPE_GRANT_PREFIX, scope))

    def _allows(self, kind: str, name: str) -> bool:
        return kind + name in self.grants or not any(grant.startswith(kind) for grant in self.grants)


ANONYMOUS: Final = Identity()  # callers without credentials, and all callers when the server requires none


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Access of callers without credentials. The default requires no credentials."""

    credentials_required: bool = False  # callers must present credentials, except for the agents below
    public_agents: frozenset[str] = frozenset()  # the ids of agents that anyone may call; `*` for all
    hides_agents: bool = False  # agents that a caller may not call look as if they did not exist
    is_private: bool = False  # only users of this machine call

    @property
    def is_closed(self) -> bool:
        """Whether callers without credentials cannot call any agent."""
        return self.credentials_required and not self.public_agents

    def is_public(self, agent: str) -> bool:
        """Whether an agent may be called without credentials."""
        return not self.credentials_required or agent in self.public_agents or "*" in self.public_agents

    def knows(self, identity: Identity) -> bool:
        """Whether no stranger has this caller's principal: all callers without credentials share one."""
        return identity.is_authenticated or self.is_private

    def may_see(self, scope: str, agent: str, identity: Identity) -> bool:
        """Whether a caller may know that an agent exists."""
        return not self.hides_agents or (
            (identity.is_authenticated or self.is_public(agent)) and identity.may_call(scope, agent)
        )


OPEN_ACCESS: Final = AccessPolicy()  # the policy that requires no credentials


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an operation, the called agent, and the owner of the tasks that are in reach."""

    owner: Owner
    agent: str
    identity: Identity = ANONYMOUS


def check_grants(grants: Iterable[str]) -> frozenset[str]:
    """Validates grants. Raises ValueError, naming the valid forms."""
    for grant in grants:
        kind, colon, name = grant.partition(":")
        agent = kind + colon == AGENT_GRANT_PREFIX and AGENT_ID.fullmatch(name)
        scope = kind + colon == SCOPE_GRANT_PREFIX and name and name.isprintable()
        worker = kind == WORKER_GRANT and (not colon or AGENT_ID.fullmatch(name))
        if not (grant in OPERATION_GRANTS or agent or scope or worker):
            forms = (f"{AGENT_GRANT_PREFIX}ID", f"{SCOPE_GRANT_PREFIX}NAME", WORKER_GRANT, f"{WORKER_GRANT}:ID")
            known = ", ".join((*OPERATION_GRANTS, *forms))
            raise ValueError(f'"{grant}" is not a grant; use {known}')
    return frozenset(grants)


def check_principal(principal: str) -> str:
    """Validates a principal's name. Raises ValueError, naming the rule that it breaks."""
    if not principal or principal != principal.strip() or not principal.isprintable():
        raise ValueError(
            f"{principal[:MAX_PRINCIPAL_LENGTH]!r} must be printable text without leading or trailing blanks"
        )
    if len(principal) > MAX_PRINCIPAL_LENGTH:
        raise ValueError(f"must have at most {MAX_PRINCIPAL_LENGTH} characters")
    for prefix in (RESERVED_PRINCIPAL_PREFIX, LOCAL_PRINCIPAL_PREFIX):
        if principal.startswith(prefix):
            raise ValueError(f'must not begin with "{prefix}"')
    if whose := RESERVED_PRINCIPALS.get(principal):
        raise ValueError(f'"{principal}" is the name of {whose}; choose another name')
    return principal


IsolationPolicy = Literal["owner", "scope"]
ISOLATION_POLICIES: Final[tuple[IsolationPolicy, ...]] = get_args(IsolationPolicy)

RESERVED_PRINCIPAL_PREFIX: Final = "shared:"  # the prefix of internal principals, which callers cannot have
LOCAL_PRINCIPAL_PREFIX: Final = "local:"  # the prefix of users of this machine who run commands on the store itself
STATIC_TOKEN_PRINCIPAL: Final = "token"
RESERVED_PRINCIPALS: Final = {
    ANONYMOUS_PRINCIPAL: "callers without credentials",
    STATIC_TOKEN_PRINCIPAL: "callers with the token of --token",
}
SHARED_PRINCIPAL: Final = f"{RESERVED_PRINCIPAL_PREFIX}scope"  # stands for all principals of a scope


@dataclass(frozen=True, slots=True)
class Isolation(ByAgent[IsolationPolicy]):
    """The isolation policies of all agents."""

    default: IsolationPolicy = "owner"

    def owner(self, scope: str, agent: str, principal: str) -> Owner:
        """The owner of the tasks of an agent that a principal sees in a scope, under which new tasks are stored."""
        return Owner(scope, SHARED_PRINCIPAL if self.by_agent.get(agent, self.default) == "scope" else principal)


def parse_isolation(setting: str | Mapping[str, object]) -> Isolation:
    """Parses a policy for all agents or for some: `owner`, `scope,desk=owner`, or a table by agent with `default`.

    Raises ValueError, naming the rule.
    """
    policies = parse_by_agent(setting, "an isolation policy", ISOLATION_POLICIES)
    return Isolation(policies.default, policies.by_agent)
