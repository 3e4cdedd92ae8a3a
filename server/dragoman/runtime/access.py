"""Access of callers: which agent a request addresses, whether the caller may call it, and whose tasks it sees."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.core.access.identity import (
    ANONYMOUS,
    OPEN_ACCESS,
    RESERVED_PRINCIPAL_PREFIX,
    AccessPolicy,
    Caller,
    Identity,
    Isolation,
)
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import AgentNotFound, PermissionDenied, Unauthenticated
from dragoman.core.names import AGENT_ID, resolve_tenant


class Access:
    """The agents of a server, as callers reach them."""

    def __init__(
        self,
        agents: Mapping[str, AgentSpec],
        root: str,
        isolation: Isolation | None = None,
        policy: AccessPolicy = OPEN_ACCESS,
    ) -> None:
        """`root`: empty if the first agent that registers becomes the root agent. `policy`: which agents are open to
        callers without credentials."""
        self.agents = agents
        """The agents of this server, by id."""
        self.root = root
        """The id of the agent addressed by requests that name none."""
        self._isolation = isolation or Isolation()
        self._policy = policy

    def on_agent_added(self, spec: AgentSpec) -> None:
        """Makes a newly registered agent the root agent if there is none yet."""
        self.root = self.root or spec.id

    def resolve_agent(self, tenant: str, identity: Identity = ANONYMOUS) -> tuple[str, str]:
        """The scope and agent that a tenant string names, for this identity.

        Raises AgentNotFound; Unauthenticated for anonymous callers that may not learn whether the agent exists.
        """
        scope, agent = resolve_tenant(tenant, self.root)
        policy = self._policy
        if agent in self.agents and policy.may_see(scope, agent, identity):
            return scope, agent
        if not identity.is_authenticated and not policy.may_see(scope, agent, identity):
            raise Unauthenticated("credentials are required" + (f' for agent "{tenant[:200]}"' if tenant else ""))
        no_agents = "(none)" if policy.hides_agents else "(none yet: no worker has connected)"
        known = ", ".join(id for id in sorted(self.agents) if policy.may_see(scope, id, identity)) or no_agents
        # A root agent may be hidden.
        shown = agent if AGENT_ID.fullmatch(agent) and not policy.hides_agents else tenant[:200]
        denied = _denied(scope, agent, identity) if agent in self.agents else None
        raise AgentNotFound(f'tenant: no agent "{shown}" here; use one of {known}') from denied

    def authorize(self, tenant: str, identity: Identity) -> Caller:
        """Checks that an identity may call the agent that a tenant string names.

        Every operation on tasks needs the resulting Caller, whose owner limits what it sees.

        Raises AgentNotFound; Unauthenticated without credentials (except for public agents) and for reserved
        principals; PermissionDenied when the caller's grants do not cover the agent.
        """
        scope, agent = self.resolve_agent(tenant, identity)
        if not identity.is_authenticated and not self._policy.is_public(agent):
            raise Unauthenticated(f'credentials are required for agent "{agent}"')
        if not identity.may_call(scope, agent):
            raise _denied(scope, agent, identity)
        if not identity.principal or identity.principal.startswith(RESERVED_PRINCIPAL_PREFIX):
            raise Unauthenticated(
                f'the principal of these credentials is empty or begins with "{RESERVED_PRINCIPAL_PREFIX}"'
            )
        view = self._isolation.visibility(scope, agent, identity.principal)
        return Caller(view.owner, agent, identity, view.joined)


def _denied(scope: str, agent: str, identity: Identity) -> PermissionDenied:
    log_details = {"principal": identity.principal}
    if identity.credential_id:
        log_details["key"] = identity.credential_id
    text = f'tenant: these credentials do not reach agent "{agent}" in scope "{scope}"'
    return PermissionDenied(text, log_details=log_details)
