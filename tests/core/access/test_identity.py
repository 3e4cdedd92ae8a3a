"""Grants, principals, and access without credentials."""

from __future__ import annotations

import pytest

from dragoman.core.access.identity import ANONYMOUS, AccessPolicy, Identity, check_grants, check_principal


@pytest.mark.parametrize(
    ("grants", "scope", "agent", "may"),
    [
        ([], "default", "echo", True),
        (["operator"], "default", "echo", True),
        (["agent:echo"], "default", "echo", True),
        (["agent:echo"], "default", "other", False),
        (["agent:echo", "agent:other"], "default", "other", True),
        (["scope:default"], "default", "echo", True),
        (["scope:default"], "projects/p", "echo", False),
        (["agent:echo", "scope:projects/p"], "default", "echo", False),
    ],
)
def test_a_grant_restricts_only_its_own_kind(grants: list[str], scope: str, agent: str, may: bool) -> None:
    assert Identity("alice", check_grants(grants)).may_call(scope, agent) is may


@pytest.mark.parametrize("grant", ["", "admin", "operator:", "agent", "agent:", "agent:Echo", "scope:", "scope:\n"])
def test_an_invalid_grant_is_rejected_with_the_valid_forms(grant: str) -> None:
    with pytest.raises(
        ValueError, match=r"is not a grant; use operator, viewer, auditor, agent:ID, scope:NAME, worker, worker:ID"
    ):
        check_grants(["operator", grant])


@pytest.mark.parametrize(
    "principal", ["", " alice", "alice\n", "a\x00b", "a" * 257, "anonymous", "token", "shared:scope", "local:root"]
)
def test_an_ambiguous_principal_is_rejected(principal: str) -> None:
    with pytest.raises(ValueError, match=r"must|name of callers with"):
        check_principal(principal)


def test_operators_are_those_with_the_grant() -> None:
    assert Identity("alice", frozenset(("operator",))).is_operator
    assert not Identity("alice", frozenset(("agent:operator",))).is_operator
    assert not ANONYMOUS.is_operator
    assert not ANONYMOUS.is_authenticated


def test_operators_are_viewers_and_grants_for_scopes_or_agents_limit_both() -> None:
    for grant, is_operator in (("operator", True), ("viewer", False)):
        identity = Identity("alice", check_grants([grant, "scope:s", "scope:t", "agent:echo"]))
        assert (identity.is_viewer, identity.is_operator, identity.is_limited) == (True, is_operator, True)
        assert sorted(identity.granted("scope:")) == ["s", "t"]
        assert sorted(identity.granted("agent:")) == ["echo"]
        assert not Identity("alice", frozenset((grant, "worker:echo"))).is_limited
    assert not Identity("alice", frozenset(("worker",))).is_viewer


@pytest.mark.parametrize(
    ("policy", "closed", "public"),
    [
        (AccessPolicy(), False, True),
        (AccessPolicy(credentials_required=True), True, False),
        (AccessPolicy(credentials_required=True, public_agents=frozenset(("echo",))), False, True),
        (AccessPolicy(credentials_required=True, public_agents=frozenset(("other",))), False, False),
        (AccessPolicy(credentials_required=True, public_agents=frozenset("*")), False, True),
    ],
)
def test_callers_without_credentials_reach_public_agents_only(policy: AccessPolicy, closed: bool, public: bool) -> None:
    assert (policy.is_closed, policy.is_public("echo")) == (closed, public)


def test_a_caller_without_credentials_is_known_where_only_users_of_this_machine_call() -> None:
    open_to_others, private = AccessPolicy(), AccessPolicy(is_private=True)
    assert [policy.knows(Identity()) for policy in (open_to_others, private)] == [False, True]
    assert open_to_others.knows(Identity("alice"))
