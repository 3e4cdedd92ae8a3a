"""Who calls: the one place that decides it.

A caller is known by what the transport carries (A2A 1.0 §7), never by the message. Without an authenticator
everyone is the same caller; with one, who shows wrong credentials is refused before anything else is looked at, and
so is who shows none where no agent is for everybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import grpc
from aiohttp import web

from dragoman.bindings.options import ServerOptions
from dragoman.core.access.identity import ANONYMOUS, OPERATOR_GRANT, Caller, Identity
from dragoman.core.errors import AgentNotFound, OriginNotAllowed, PermissionDenied, Unauthenticated
from dragoman.core.names import DEFAULT_SCOPE, Owner
from dragoman.runtime.operations.service import TaskService

CREDENTIALS_REQUIRED: Final = "credentials are required: send Authorization: Bearer CREDENTIALS"
CERTIFICATE_HINT: Final = ", or connect with a certificate"
"""What else there is where callers are asked for theirs."""

_QUOTED_CHARACTERS: Final = frozenset('"\\')


async def authenticate(
    headers: Iterable[tuple[str, str]], options: ServerOptions, connection: CallerConnection, *, public: bool = False
) -> Identity:
    """Who is behind these HTTP headers or gRPC metadata, and the connection that they came by.

    Who shows credentials in its headers besides a certificate is who those say, since a proxy may call for others.
    `public`: what is asked for is everybody's to see.

    Raises Unauthenticated for wrong credentials, and for none where some are needed.
    """
    if options.authenticator is None:
        return ANONYMOUS
    holder = None
    if options.client_certificates is not None and (certificate := peer_certificate(connection)):
        holder = options.client_certificates.identify(certificate)
    identity = await options.authenticator.authenticate(headers) or holder
    if identity is None and options.access_policy.is_closed and not public:
        raise Unauthenticated(
            CREDENTIALS_REQUIRED + (CERTIFICATE_HINT if options.client_certificates is not None else "")
        )
    return identity or ANONYMOUS


def authorize(service: TaskService, tenant: str, identity: Identity, *, public: bool = False) -> Caller:
    """Whose tasks, and of which agent, a call is about. `public`: it is about a card that is everybody's to see; then
    credentials that do not reach the agent show no more of it than none.

    Raises AgentNotFound, Unauthenticated, PermissionDenied.
    """
    if not public:
        return service.authorize(tenant, identity)
    scope, agent = service.resolve_agent(tenant)
    seen = identity if identity.may_call(scope, agent) else ANONYMOUS
    return Caller(Owner(scope, seen.principal), agent, seen)


async def authenticate_visitor(
    headers: Iterable[tuple[str, str]], options: ServerOptions, connection: CallerConnection, agent: str = ""
) -> Identity:
    """Who looks at a page, or at the card of an agent: anybody, unless the operator keeps them private.

    Raises Unauthenticated; AgentNotFound for an agent that this caller may not call.
    """
    if not options.private_pages:
        return ANONYMOUS
    identity = await authenticate(headers, options, connection, public=True)
    if not identity.is_authenticated and not (agent and options.access_policy.is_public(agent)):
        raise Unauthenticated(CREDENTIALS_REQUIRED)
    if agent and not identity.may_call(DEFAULT_SCOPE, agent):
        raise AgentNotFound
    return identity


async def authenticate_operator(
    headers: Iterable[tuple[str, str]], options: ServerOptions, connection: CallerConnection
) -> Identity:
    """Which operator calls: where nobody is asked who they are, everyone is one.

    Raises Unauthenticated for who has not shown who it is, PermissionDenied for who is no operator.
    """
    if options.authenticator is None:
        return ANONYMOUS
    identity = await authenticate(headers, options, connection)
    if not identity.is_authenticated:
        raise Unauthenticated("operations are for operators; show who you are")
    if not identity.is_operator:
        about = {"principal": identity.principal, **({"key": identity.credential_id} if identity.credential_id else {})}
        raise PermissionDenied(f'operations need the grant "{OPERATOR_GRANT}"', log_details=about)
    return identity


def challenge_headers(error: BaseException) -> dict[str, str]:
    """What a refusal tells an HTTP client besides (RFC 9110 §11.6.1, RFC 6750 §3). All of our credentials can be shown
    as bearer tokens, so that is the one scheme named."""
    match error:
        case Unauthenticated():
            word, scope = error.error, ""
        case OriginNotAllowed():  # no credentials would help
            return {}
        case PermissionDenied():
            word, scope = "insufficient_scope", error.scope
        case _:
            return {}
    said = 'Bearer realm="dragoman"'
    if word:
        said += f', error="{word}", error_description="{_quotable(error.message)}"'
    if scope:
        said += f', scope="{_quotable(scope)}"'
    return {"WWW-Authenticate": said}


def _quotable(text: str) -> str:
    """What may stand between the quotes (RFC 6750 §3)."""
    return "".join("'" if letter in _QUOTED_CHARACTERS else letter for letter in text if " " <= letter <= "~")


CallerConnection = web.BaseRequest | grpc.aio.ServicerContext[bytes, bytes]
"""A request of HTTP, or the context of a call over gRPC."""


def peer_certificate(connection: CallerConnection) -> bytes:
    """The client's certificate (DER or PEM), whose authority the handshake has checked; empty when there was none."""
    if isinstance(connection, web.BaseRequest):
        encrypted = connection.transport.get_extra_info("ssl_object") if connection.transport else None
        return (encrypted.getpeercert(binary_form=True) or b"") if encrypted is not None else b""
    shown = connection.auth_context().get("x509_pem_cert") or ()
    return next(iter(shown), b"")
