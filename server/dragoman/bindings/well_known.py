"""Documents at well-known paths: the AI catalog, and the metadata of a protected resource (RFC 9728).

The AI catalog is a draft (Agent-Card/ai-catalog, October 2026, specVersion 1.0). docs/reference/ai-catalog.md says what
of it is served.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from dragoman.bindings.cards import Cards, Origin, ServedCard
from dragoman.bindings.http.request import card_response
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.pipeline import CREDENTIALS_REQUIRED, authenticate
from dragoman.core.access.identity import ANONYMOUS
from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import MethodNotFound, Unauthenticated
from dragoman.core.names import DEFAULT_SCOPE
from dragoman.ports.extension import HttpPaths

CATALOG_PATH: Final = "/.well-known/ai-catalog.json"

PROTECTED_RESOURCE_PATH: Final = "/.well-known/oauth-protected-resource"
"""The path of the server's metadata; the path of an endpoint may follow."""

_DOMAIN: Final = re.compile(r"(?=.*[a-z])[a-z0-9-]+(?:\.[a-z0-9-]+)*")  # A domain name in lower case; not an IP address


async def catalog_response(request: web.BaseRequest, agent_cards: Cards, options: ServerOptions) -> web.Response:
    """Serves the AI catalog with the agents whose cards the caller may read. Raises Unauthenticated.

    Without credentials and with private pages, those are the public agents.
    """
    identity = ANONYMOUS
    if options.private_pages:
        identity = await authenticate(request.headers.items(), options, request, public=True)
    specs = [
        spec for spec in agent_cards.sorted_agents() if options.access_policy.may_see(DEFAULT_SCOPE, spec.id, identity)
    ]
    if options.private_pages and not specs and not identity.is_authenticated:
        raise Unauthenticated(CREDENTIALS_REQUIRED)
    paths = [paths for paths, _ in options.extension_paths]
    body = orjson.dumps(catalog_of(specs, agent_cards, agent_cards.origin(request), paths))
    return card_response(
        request,
        ServedCard.of(body),
        vary="Authorization, X-API-Key" if options.private_pages else "",
        private=options.private_pages,
        media_type="application/ai-catalog+json",
    )


def catalog_of(
    specs: Iterable[AgentSpec], agent_cards: Cards, origin: Origin | None, paths: Sequence[HttpPaths] = ()
) -> dict[str, Any]:
    """The AI catalog of these agents: of each its A2A card, and its entries for the paths of extensions."""
    base = agent_cards.base_url(origin)
    host = (urlsplit(base).hostname or "").lower()
    domain = host if _DOMAIN.fullmatch(host) else ""
    entries: list[dict[str, Any]] = []
    for spec in specs:
        card_url = agent_cards.card_url(spec.id, origin)
        # The name is in both cards, too, so the draft would omit it. Earlier drafts, and clients of those, require it.
        identifier = _identifier(domain, "a2a", spec.id, card_url)
        entry = {
            "identifier": identifier,
            "displayName": spec.name,
            "type": "application/a2a-agent-card+json",
            "url": card_url,
        }
        entries.append(entry)
        for path in paths:
            if path.catalog is not None:
                url = f"{base}/{spec.id}/{path.name}"
                identifier = _identifier(domain, path.name, spec.id, url)
                entries.append({"identifier": identifier, "displayName": spec.name, **path.catalog(spec, url, domain)})
    return {"specVersion": "1.0", "host": {"displayName": host}, "entries": entries}


def _identifier(domain: str, namespace: str, agent: str, url: str) -> str:
    """A URN below the server's domain, which keeps it while addresses change; without a domain the URL."""
    return f"urn:air:{domain}:{namespace}:{agent}" if domain else url


# ---- Protected resource metadata


def protected_resource_response(request: web.BaseRequest, agent_cards: Cards, options: ServerOptions) -> web.Response:
    """Serves the metadata of the server, or of the endpoint whose path follows PROTECTED_RESOURCE_PATH.

    Needs no credentials: clients read it to get some. Raises MethodNotFound on a server without token issuers.
    """
    if not options.issuers:
        raise MethodNotFound("this server trusts no token issuer, so it has no OAuth metadata")
    path = request.rel_url.raw_path.removeprefix(PROTECTED_RESOURCE_PATH)
    resource = agent_cards.base_url(agent_cards.origin(request)) + path
    body = orjson.dumps(resource_metadata(resource, options.issuers))
    return card_response(request, ServedCard.of(body), vary="")


def resource_metadata(resource: str, issuers: Sequence[Issuer]) -> dict[str, Any]:
    """The metadata of a protected resource (RFC 9728 §2). Its scopes are those that all issuers require."""
    first, *others = issuers
    scopes = [scope for scope in first.required_scopes if all(scope in other.required_scopes for other in others)]
    return {
        "resource": resource,
        "authorization_servers": [issuer.url for issuer in issuers],
        "bearer_methods_supported": ["header"],
        **({"scopes_supported": scopes} if scopes else {}),
        "resource_name": f"Dragoman at {urlsplit(resource).hostname}",
    }


def resource_metadata_url(path: str, origin: Origin | None, agent_cards: Cards, options: ServerOptions) -> str:
    """The URL of an endpoint's metadata, for `challenge_headers`; empty without token issuers.

    `path`: of the endpoint as in the request, such as `/agent-1`.
    """
    return f"{agent_cards.base_url(origin)}{PROTECTED_RESOURCE_PATH}{path}" if options.issuers else ""
