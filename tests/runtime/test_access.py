"""Access of callers: the agent that a tenant names, and who may call it."""

from __future__ import annotations

import pytest

from dragoman.core.access.identity import ANONYMOUS, AccessPolicy, Caller, Identity, Isolation
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import AgentNotFound, PermissionDenied, Unauthenticated
from dragoman.core.names import Owner
from dragoman.runtime.access import Access

AGENTS = {name: AgentSpec(id=name, name=name, description="An agent") for name in ("one", "two")}
ALICE = Identity("alice")


def test_an_empty_tenant_is_the_root_agent_and_the_caller_s_own_tasks() -> None:
    assert Access(AGENTS, "two").authorize("", ALICE) == Caller(Owner("default", "alice"), "two", ALICE)


def test_the_isolation_of_the_agent_decides_whose_tasks_are_in_reach() -> None:
    access = Access(AGENTS, "one", Isolation("owner", {"two": "scope"}))
    assert access.authorize("one", ALICE).owner.principal == "alice"
    assert access.authorize("two", ALICE).owner.principal == "shared:scope"


def test_an_unknown_agent_is_named_in_the_error_and_so_are_the_known_ones() -> None:
    with pytest.raises(AgentNotFound, match=r'no agent "nobody" here; use one of one, two$'):
        Access(AGENTS, "one").authorize("nobody", ANONYMOUS)
    with pytest.raises(AgentNotFound, match="none yet: no worker has connected"):
        Access({}, "").authorize("", ANONYMOUS)


def test_grants_are_checked() -> None:
    for grant in ("agent:two", "scope:elsewhere"):
        with pytest.raises(PermissionDenied) as denied:
            Access(AGENTS, "one").authorize("one", Identity("alice", frozenset({grant}), "key-1"))
        assert denied.value.log_details == {"principal": "alice", "key": "key-1"}


def test_a_reserved_principal_owns_no_tasks() -> None:
    for name in ("shared:scope", "shared:", ""):
        with pytest.raises(Unauthenticated, match="shared:"):
            Access(AGENTS, "one").authorize("", Identity(name))


def test_without_credentials_only_public_agents_are_called() -> None:
    access = Access(AGENTS, "one", policy=AccessPolicy(credentials_required=True, public_agents=frozenset({"two"})))
    assert access.authorize("two", ANONYMOUS).identity == ANONYMOUS
    with pytest.raises(Unauthenticated, match='credentials are required for agent "one"'):
        access.authorize("one", ANONYMOUS)


def test_hidden_agents_look_as_if_they_did_not_exist() -> None:
    access = Access(AGENTS, "one", policy=AccessPolicy(credentials_required=True, hides_agents=True))
    with pytest.raises(AgentNotFound, match=r'no agent "two" here; use one of one$'):
        access.authorize("two", Identity("eve", frozenset({"agent:one"})))
    for tenant in ("two", "nobody"):
        with pytest.raises(Unauthenticated, match=f'credentials are required for agent "{tenant}"'):
            access.authorize(tenant, ANONYMOUS)


def test_the_first_agent_that_registers_becomes_the_root_agent_if_there_is_none() -> None:
    access = Access(AGENTS, "")
    access.on_agent_added(AGENTS["two"])
    access.on_agent_added(AGENTS["one"])
    assert access.root == "two"
