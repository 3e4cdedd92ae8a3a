"""Callers whom a host application knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dragoman.core.access.identity import Identity
from dragoman.core.errors import Unauthenticated
from dragoman.security.authenticators.host import HostAuthenticator, with_scope


class OwnKeys:
    """The server's own authentication: the header names the caller."""

    def __init__(self) -> None:
        self.rechecked: list[str] = []

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        return Identity(dict(headers)["key"])

    async def recheck(self, identity: Identity) -> None:
        self.rechecked.append(identity.principal)


async def identified(hook: Any, scope: dict[str, Any] | None = None) -> Identity | None:
    """What `hook` makes of a caller whose headers name another one."""
    found: list[Identity | None] = []

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        found.append(await HostAuthenticator(hook, OwnKeys(), lambda: 0).authenticate([("key", "other")]))

    await with_scope(serve)(scope or {"user": "ann"}, None, None)
    return found[0]


async def test_the_host_says_who_calls_and_headers_do_not() -> None:
    assert await identified(lambda scope: scope["user"]) == Identity("ann")
    assert await identified(lambda scope: Identity(scope["user"], grants=frozenset({"agent:echo"}), expires=7)) == (
        Identity("ann", grants=frozenset({"agent:echo"}), expires=7)
    )
    assert await identified(lambda scope: None) is None


async def test_the_host_may_have_to_wait_for_the_answer() -> None:
    async def look_up(scope: Any) -> str:
        return f"{scope['user']}@shop"

    assert await identified(look_up) == Identity("ann@shop")


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (42, "must return a principal, an Identity or None, not int"),
        ("", "must be printable text"),
        ("anonymous", "is the name of callers without credentials"),
        ("shared:scope", "must not begin with"),
        (Identity("ann", grants=frozenset({"admin"})), '"admin" is not a grant'),
    ],
)
async def test_an_answer_that_names_no_caller_is_a_fault_that_says_the_rule(answer: Any, rule: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rule) as caught:
        await identified(lambda scope: answer)
    assert str(caught.value).startswith("authenticate: ")


async def test_calls_beside_the_host_are_those_of_the_servers_own_authentication() -> None:
    def unused(scope: Any) -> str:
        raise AssertionError("no host is involved")

    assert await HostAuthenticator(unused, OwnKeys(), lambda: 0).authenticate([("key", "ci")]) == Identity("ci")
    assert await HostAuthenticator(unused, None, lambda: 0).authenticate([("key", "ci")]) is None


async def test_a_stream_ends_with_the_identity_that_the_host_gave_an_end() -> None:
    own = OwnKeys()
    authenticator = HostAuthenticator(lambda scope: None, own, lambda: 1000)
    await authenticator.recheck(Identity("ann"))
    await authenticator.recheck(Identity("ann", expires=1001))
    with pytest.raises(Unauthenticated, match="expired"):
        await authenticator.recheck(Identity("ann", expires=1000))
    await authenticator.recheck(Identity("ci", credential_id="k1"))
    assert own.rechecked == ["ci"]
