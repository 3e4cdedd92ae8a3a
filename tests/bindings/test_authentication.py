"""Who calls: credentials and certificates, what they may call, and the challenge of a rejection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.bindings.fake_service import RESOURCE, FakeService
from tests.callers import WRONG, ByHeader, named

from dragoman.bindings.options import ServerOptions
from dragoman.bindings.pipeline import (
    authenticate,
    authenticate_operator,
    authenticate_visitor,
    challenge_headers,
    peer_certificate,
)
from dragoman.core.access.identity import ANONYMOUS, OPEN_ACCESS, AccessPolicy, Identity
from dragoman.core.errors import (
    AgentNotFound,
    OriginNotAllowed,
    PermissionDenied,
    TaskNotFound,
    Unauthenticated,
)
from dragoman.core.names import Owner

CLOSED = AccessPolicy(credentials_required=True)
ECHO_IS_PUBLIC = AccessPolicy(credentials_required=True, public_agents=frozenset(["echo"]))
ALICE = Identity("alice")
SCOPE = RESOURCE.removesuffix("/agents/echo")


class Connection:
    """The part of a gRPC call's context that has the client's certificate."""

    def __init__(self, *certificates: bytes) -> None:
        self.certificates = certificates

    def auth_context(self) -> dict[str, Any]:
        return {"x509_pem_cert": self.certificates} if self.certificates else {}


class ByCertificate:
    """Takes the principal from a certificate that is its name. Implements `ports.CertificateIdentifier`."""

    def identify(self, certificate: bytes) -> Identity:
        if certificate == b"revoked":
            raise Unauthenticated("the certificate was revoked")
        return Identity(certificate.decode(), credential_id="certificate:1")


def options(policy: AccessPolicy = CLOSED, **more: Any) -> ServerOptions:
    return ServerOptions(authenticator=ByHeader(), access_policy=policy, **more)


WITH_CERTIFICATES = options(client_certificates=ByCertificate())


async def identity(
    headers: dict[str, str], server: ServerOptions, *certificates: bytes, public: bool = False
) -> Identity:
    connection: Any = Connection(*certificates)
    return await authenticate(headers.items(), server, connection, public=public)


# Callers ----------------------------------------------------------------------------------------------------------


async def test_without_an_authenticator_every_caller_is_anonymous() -> None:
    assert await identity(named("alice"), ServerOptions()) == ANONYMOUS
    assert await identity({}, ServerOptions(client_certificates=ByCertificate()), b"alice") == ANONYMOUS


async def test_credentials_in_headers_win_over_a_certificate() -> None:
    assert await identity(named("alice"), WITH_CERTIFICATES, b"proxy") == ALICE
    assert (await identity({}, WITH_CERTIFICATES, b"proxy")).principal == "proxy"


async def test_certificates_count_only_where_they_are_identified() -> None:
    with pytest.raises(Unauthenticated):
        await identity({}, options(), b"proxy")


@pytest.mark.parametrize(("headers", "certificates"), [(named(WRONG), ()), (named("alice"), (b"revoked",))])
async def test_invalid_credentials_are_rejected_even_for_public_resources(
    headers: dict[str, str], certificates: tuple[bytes, ...]
) -> None:
    for policy in (CLOSED, ECHO_IS_PUBLIC, OPEN_ACCESS):
        with pytest.raises(Unauthenticated):
            await identity(headers, replace(WITH_CERTIFICATES, access_policy=policy), *certificates, public=True)


@pytest.mark.parametrize(
    ("policy", "public", "rejected"),
    [(CLOSED, False, True), (CLOSED, True, False), (ECHO_IS_PUBLIC, False, False), (OPEN_ACCESS, False, False)],
)
async def test_missing_credentials_are_rejected_if_no_agent_is_public(
    policy: AccessPolicy, public: bool, rejected: bool
) -> None:
    if rejected:
        with pytest.raises(Unauthenticated, match=r"send Authorization: Bearer CREDENTIALS$"):
            await identity({}, options(policy), public=public)
    else:
        assert await identity({}, options(policy), public=public) == ANONYMOUS


async def test_a_server_that_identifies_certificates_says_so() -> None:
    with pytest.raises(Unauthenticated, match=r"Bearer CREDENTIALS, or connect with a certificate$"):
        await identity({}, WITH_CERTIFICATES)


# Agents -----------------------------------------------------------------------------------------------------------


def test_a_call_has_the_scope_and_the_agent_of_its_tenant() -> None:
    caller = FakeService().access.authorize(RESOURCE, ALICE)
    assert (caller.owner, caller.agent, caller.identity) == (Owner(SCOPE, "alice"), "echo", ALICE)
    with pytest.raises(AgentNotFound):
        FakeService().access.authorize("nobody", ALICE)


def test_only_a_public_card_is_shown_to_callers_without_access() -> None:
    elsewhere = Identity("eve", frozenset(["agent:other"]))
    with pytest.raises(PermissionDenied, match='do not reach agent "echo"'):
        FakeService().access.authorize("echo", elsewhere)
    caller = FakeService().access.authorize("echo", elsewhere, public=True)
    assert (caller.owner.principal, caller.identity) == ("anonymous", ANONYMOUS)
    assert FakeService().access.authorize("other", elsewhere, public=True).identity == elsewhere
    with pytest.raises(AgentNotFound):
        FakeService().access.authorize("nobody", elsewhere, public=True)


# Pages and operators ----------------------------------------------------------------------------------------------


async def visitor(headers: dict[str, str], server: ServerOptions, **page: str) -> Identity:
    connection: Any = Connection()
    return await authenticate_visitor(headers.items(), server, connection, **page)


async def test_pages_are_for_everyone_unless_they_are_private() -> None:
    assert await visitor(named(WRONG), options()) == ANONYMOUS
    private = options(private_pages=True)
    assert await visitor(named("alice"), private, agent="echo") == ALICE
    for page in ({}, {"agent": "echo"}):
        with pytest.raises(Unauthenticated):
            await visitor({}, private, **page)


async def test_a_private_server_shows_the_cards_of_its_public_agents() -> None:
    private = options(ECHO_IS_PUBLIC, private_pages=True)
    assert await visitor({}, private, agent="echo") == ANONYMOUS
    for page in ({}, {"agent": "other"}):
        with pytest.raises(Unauthenticated):
            await visitor({}, private, **page)


async def test_a_card_out_of_reach_looks_as_if_it_did_not_exist() -> None:
    private = options(private_pages=True)
    headers = named("eve", "agent:other", "scope:s")
    assert (await visitor(headers, private, agent="other", scope="s")).principal == "eve"
    for page in ({"agent": "echo", "scope": "s"}, {"agent": "other", "scope": "t"}, {"agent": "other"}):
        with pytest.raises(AgentNotFound):
            await visitor(headers, private, **page)


async def operator(headers: dict[str, str], server: ServerOptions) -> Identity:
    connection: Any = Connection()
    return await authenticate_operator(headers.items(), server, connection)


async def test_operators_need_the_grant_where_callers_are_authenticated() -> None:
    assert await operator({}, ServerOptions()) == ANONYMOUS
    assert (await operator(named("root", "operator"), options())).principal == "root"
    for policy in (CLOSED, ECHO_IS_PUBLIC, OPEN_ACCESS):
        with pytest.raises(Unauthenticated):
            await operator({}, options(policy))
    with pytest.raises(PermissionDenied, match='this operation needs the grant "operator"') as caught:
        await operator(named("alice", "worker"), options())
    assert caught.value.log_details == {"principal": "alice"}


async def test_viewers_and_limited_operators_may_call_what_is_meant_for_them() -> None:
    connection: Any = Connection()
    viewer, limited = named("vera", "viewer"), named("tom", "operator", "scope:s")
    authenticate = authenticate_operator
    assert (await authenticate(viewer.items(), options(), connection, grant="viewer")).principal == "vera"
    with pytest.raises(PermissionDenied, match=r'needs the grant "operator" or "auditor"$'):
        await authenticate(viewer.items(), options(), connection, grant="auditor")
    auditor = named("aude", "auditor")
    assert (await authenticate(auditor.items(), options(), connection, grant="auditor")).principal == "aude"
    with pytest.raises(PermissionDenied, match=r'needs the grant "operator" or "viewer"$'):
        await authenticate(auditor.items(), options(), connection, grant="viewer")
    with pytest.raises(PermissionDenied, match=r'needs the grant "operator"$'):
        await authenticate(viewer.items(), options(), connection)
    assert (await authenticate(limited.items(), options(), connection, limited=True)).principal == "tom"
    with pytest.raises(PermissionDenied, match="on the whole server"):
        await authenticate(limited.items(), options(), connection)


async def test_the_log_of_a_rejected_operator_names_its_key() -> None:
    connection: Any = Connection(b"alice")
    with pytest.raises(PermissionDenied) as caught:
        await authenticate_operator([], WITH_CERTIFICATES, connection)
    assert caught.value.log_details == {"principal": "alice", "key": "certificate:1"}


# Challenges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "challenge"),
    [
        (Unauthenticated("credentials are required"), 'Bearer realm="dragoman"'),
        (
            Unauthenticated('no "such\\key"\r\nX-Evil: ü', error="invalid_token"),
            'Bearer realm="dragoman", error="invalid_token", error_description="no \'such\'key\'X-Evil: "',
        ),
        (
            PermissionDenied("not yours", scope="a2a:send"),
            'Bearer realm="dragoman", error="insufficient_scope", error_description="not yours", scope="a2a:send"',
        ),
        (
            PermissionDenied("not yours"),
            'Bearer realm="dragoman", error="insufficient_scope", error_description="not yours"',
        ),
        (OriginNotAllowed(), None),
        (TaskNotFound(), None),
        (ValueError(), None),
    ],
)
def test_a_rejection_challenges_the_caller_if_other_credentials_would_help(
    error: Exception, challenge: str | None
) -> None:
    assert challenge_headers(error) == ({"WWW-Authenticate": challenge} if challenge else {})


@pytest.mark.parametrize(
    "error", [Unauthenticated("credentials are required"), PermissionDenied("not yours", scope="a")]
)
def test_a_challenge_can_tell_where_a_token_comes_from(error: Exception) -> None:
    url = "https://x.example/.well-known/oauth-protected-resource/mcp"
    challenge = challenge_headers(error, resource_metadata=url)["WWW-Authenticate"]
    assert challenge.startswith('Bearer realm="dragoman"')
    assert challenge.endswith(f', resource_metadata="{url}"')
    assert challenge_headers(TaskNotFound(), resource_metadata=url) == {}


def test_the_certificate_of_a_call_is_the_leaf() -> None:
    connections: list[Any] = [Connection(b"leaf", b"issuer"), Connection()]
    assert [peer_certificate(one) for one in connections] == [b"leaf", b""]
