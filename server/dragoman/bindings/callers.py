"""Who calls: the one place that decides it.

A caller is known by what the transport carries (A2A 1.0 §7), never by the message. Without an authenticator
everyone is the same caller; with one, who shows wrong credentials is refused before anything else is looked at, and
so is who shows none where no agent is for everybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dragoman.bindings import peers
from dragoman.bindings.peers import Peer
from dragoman.bindings.serving import Options
from dragoman.core.access.identity import ANONYMOUS, OPERATOR_GRANT, Caller, Identity
from dragoman.core.errors import AgentNotFound, OriginNotAllowed, PermissionDenied, Unauthenticated
from dragoman.core.names import DEFAULT_SCOPE, Owner
from dragoman.runtime.operations.service import TaskService

REQUIRED: Final = "credentials are required: send Authorization: Bearer CREDENTIALS"
CERTIFICATE: Final = ", or connect with a certificate"
"""What else there is where callers are asked for theirs."""

_QUOTED: Final = frozenset('"\\')


async def identify(
    headers: Iterable[tuple[str, str]], options: Options, peer: Peer, *, public: bool = False
) -> Identity:
    """Who is behind these HTTP headers or gRPC metadata, and the connection that they came by.

    Who shows credentials in its headers besides a certificate is who those say, since a proxy may call for others.
    `public`: what is asked for is everybody's to see.

    Raises Unauthenticated for wrong credentials, and for none where some are needed.
    """
    if options.authenticator is None:
        return ANONYMOUS
    holder = None
    if options.holders is not None and (certificate := peers.certificate(peer)):
        holder = options.holders.identify(certificate)
    identity = await options.authenticator.authenticate(headers) or holder
    if identity is None and options.doorway.is_closed and not public:
        raise Unauthenticated(REQUIRED + (CERTIFICATE if options.holders is not None else ""))
    return identity or ANONYMOUS


def caller(service: TaskService, tenant: str, identity: Identity, *, public: bool = False) -> Caller:
    """Whose tasks, and of which agent, a call is about. `public`: it is about a card that is everybody's to see; then
    credentials that do not reach the agent show no more of it than none.

    Raises AgentNotFound, Unauthenticated, PermissionDenied.
    """
    if not public:
        return service.authorize(tenant, identity)
    scope, agent = service.resolve_agent(tenant)
    seen = identity if identity.may_call(scope, agent) else ANONYMOUS
    return Caller(Owner(scope, seen.principal), agent, seen)


async def visitor(headers: Iterable[tuple[str, str]], options: Options, peer: Peer, agent: str = "") -> Identity:
    """Who looks at a page, or at the card of an agent: anybody, unless the operator keeps them private.

    Raises Unauthenticated; AgentNotFound for an agent that this caller may not call.
    """
    if not options.private_pages:
        return ANONYMOUS
    identity = await identify(headers, options, peer, public=True)
    if not identity.is_authenticated and not (agent and options.doorway.is_public(agent)):
        raise Unauthenticated(REQUIRED)
    if agent and not identity.may_call(DEFAULT_SCOPE, agent):
        raise AgentNotFound
    return identity


async def operator(headers: Iterable[tuple[str, str]], options: Options, peer: Peer) -> Identity:
    """Which operator calls: where nobody is asked who they are, everyone is one.

    Raises Unauthenticated for who has not shown who it is, PermissionDenied for who is no operator.
    """
    if options.authenticator is None:
        return ANONYMOUS
    identity = await identify(headers, options, peer)
    if not identity.is_authenticated:
        raise Unauthenticated("operations are for operators; show who you are")
    if not identity.is_operator:
        about = {"principal": identity.principal, **({"key": identity.credential_id} if identity.credential_id else {})}
        raise PermissionDenied(f'operations need the grant "{OPERATOR_GRANT}"', log_details=about)
    return identity


def challenge(error: BaseException) -> dict[str, str]:
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
        said += f', error="{word}", error_description="{_plain(error.message)}"'
    if scope:
        said += f', scope="{_plain(scope)}"'
    return {"WWW-Authenticate": said}


def _plain(text: str) -> str:
    """What may stand between the quotes (RFC 6750 §3)."""
    return "".join("'" if letter in _QUOTED else letter for letter in text if " " <= letter <= "~")
