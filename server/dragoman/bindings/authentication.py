"""Authentication and authorization of callers, the same for every binding.

Credentials come from the transport (A2A 1.0 §7), never from the message. Without an authenticator every caller is
anonymous. With one, requests with invalid credentials are rejected before anything else is read, and so are requests
without credentials when no agent is public.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import grpc
from aiohttp import web

from dragoman.bindings.http.plain import PlainRequest
from dragoman.bindings.options import ServerOptions
from dragoman.core.access.identity import ANONYMOUS, OPERATOR_GRANT, VIEWER_GRANT, Caller, Identity
from dragoman.core.access.local_callers import is_local_caller
from dragoman.core.errors import AgentNotFound, OriginNotAllowed, PermissionDenied, Unauthenticated
from dragoman.core.names import DEFAULT_SCOPE, Owner
from dragoman.runtime.access import Access

CREDENTIALS_REQUIRED: Final = "credentials are required: send Authorization: Bearer CREDENTIALS"
CERTIFICATE_HINT: Final = ", or connect with a certificate"
"""Appended where the server asks for client certificates."""

_QUOTED_CHARACTERS: Final = frozenset('"\\')


async def authenticate(
    headers: Iterable[tuple[str, str]], options: ServerOptions, connection: CallerConnection, *, public: bool = False
) -> Identity:
    """The identity behind HTTP headers or gRPC metadata, and behind the connection's client certificate.

    Credentials in headers win over a certificate, since a proxy may call for others. `public`: the requested resource
    needs no credentials.

    Raises Unauthenticated for invalid credentials, and for missing ones where they are required.
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


def authorize(access: Access, tenant: str, identity: Identity, *, public: bool = False) -> Caller:
    """The owner of the tasks and the agent that a call addresses.

    `public`: the call reads a public card; a caller without access to the agent is then treated as anonymous.

    Raises AgentNotFound, Unauthenticated, PermissionDenied.
    """
    if not public:
        return access.authorize(tenant, identity)
    scope, agent = access.resolve_agent(tenant)
    effective = identity if identity.may_call(scope, agent) else ANONYMOUS
    return Caller(Owner(scope, effective.principal), agent, effective)


async def authenticate_visitor(
    headers: Iterable[tuple[str, str]],
    options: ServerOptions,
    connection: CallerConnection,
    agent: str = "",
    scope: str = DEFAULT_SCOPE,
) -> Identity:
    """The identity of a caller that reads a page, or an agent's card in a scope; anonymous unless pages are private.

    Raises Unauthenticated, and AgentNotFound for an agent that this caller may not call.
    """
    if not options.private_pages:
        return ANONYMOUS
    identity = await authenticate(headers, options, connection, public=True)
    if not identity.is_authenticated and not (agent and options.access_policy.is_public(agent)):
        raise Unauthenticated(CREDENTIALS_REQUIRED)
    if agent and not identity.may_call(scope, agent):
        raise AgentNotFound
    return identity


async def authenticate_operator(
    headers: Iterable[tuple[str, str]],
    options: ServerOptions,
    connection: CallerConnection,
    *,
    viewer: bool = False,
    limited: bool = False,
) -> Identity:
    """The identity of the operator. On a server without authentication every caller is an operator.

    `viewer`: the viewer grant is enough. `limited`: the operation can be limited to the scopes and agents of grants.

    Raises Unauthenticated for a caller without credentials, PermissionDenied for one without the grant.
    """
    if options.authenticator is None:
        return ANONYMOUS
    identity = await authenticate(headers, options, connection)
    if not identity.is_authenticated:
        raise Unauthenticated("operations are for operators; send credentials with the operator grant")
    if not (identity.is_viewer if viewer else identity.is_operator):
        grants = f'"{OPERATOR_GRANT}"' + (f' or "{VIEWER_GRANT}"' if viewer else "")
        raise PermissionDenied(f"this operation needs the grant {grants}", log_details=identity.log_details)
    if identity.is_limited and not limited:
        text = "this operation on the whole server needs credentials without grants for scopes or agents"
        raise PermissionDenied(text, log_details=identity.log_details)
    return identity


def challenge_headers(error: BaseException, *, resource_metadata: str = "") -> dict[str, str]:
    """The `WWW-Authenticate` header of a rejection (RFC 9110 §11.6.1, RFC 6750 §3); empty for other errors.

    All supported credentials can be sent as bearer tokens, so Bearer is the only scheme named. `resource_metadata`: URL
    that tells clients of OAuth where they get a token (RFC 9728 §5.1), from `well_known.resource_metadata_url`.
    """
    match error:
        case Unauthenticated():
            code, scope = error.error, ""
        case OriginNotAllowed():  # no credentials would help
            return {}
        case PermissionDenied():
            code, scope = "insufficient_scope", error.scope
        case _:
            return {}
    challenge = 'Bearer realm="dragoman"'
    if code:
        challenge += f', error="{code}", error_description="{_quotable(error.message)}"'
    if scope:
        challenge += f', scope="{_quotable(scope)}"'
    if resource_metadata:
        challenge += f', resource_metadata="{_quotable(resource_metadata)}"'
    return {"WWW-Authenticate": challenge}


def _quotable(text: str) -> str:
    """Reduces a text to the characters allowed in a quoted value (RFC 6750 §3)."""
    return "".join("'" if char in _QUOTED_CHARACTERS else char for char in text if " " <= char <= "~")


def is_local(headers: Iterable[tuple[str, str]], options: ServerOptions, connection: CallerConnection) -> bool:
    """Whether a caller is on this machine, and no proxy calls for it."""
    if isinstance(connection, web.BaseRequest | PlainRequest):
        return is_local_caller(connection.remote or "", headers, behind_proxy=options.behind_proxy, names_host=True)
    return is_local_caller(connection.peer(), headers, behind_proxy=options.behind_proxy)


LOCAL_ONLY: Final = (
    "without authentication, {what} on this machine only, and not behind a proxy; run the server with --api-keys, "
    "--issuers, --tls-client-ca or --token"
)
"""The error for callers of other machines; `what` says what is allowed."""


CallerConnection = web.BaseRequest | PlainRequest | grpc.aio.ServicerContext[bytes, bytes]
"""An HTTP request, or the context of a gRPC call."""


def peer_certificate(connection: CallerConnection) -> bytes:
    """The client's certificate (DER or PEM), verified by the TLS handshake; empty without one."""
    if isinstance(connection, web.BaseRequest | PlainRequest):
        ssl_object = connection.transport.get_extra_info("ssl_object") if connection.transport else None
        return (ssl_object.getpeercert(binary_form=True) or b"") if ssl_object is not None else b""
    certificates = connection.auth_context().get("x509_pem_cert") or ()
    return next(iter(certificates), b"")
