"""What a server takes for credentials, as its cards say it (A2A 1.0 §4.5, §7.3), and what is left of agents' own words.

Schemes are OpenAPI's: `{"type": "http", "scheme": "bearer"}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.cards.agent_spec import AgentSpec

SecurityScheme = Mapping[str, Any]

API_KEY_HEADER: Final = "X-API-Key"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecurity:
    """What callers may show, any one of it; nothing, where nobody is asked."""

    schemes: Mapping[str, SecurityScheme] = field(default_factory=dict)
    scopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What a token must allow, by scheme."""
    accepts_tokens: bool = False
    """Tokens of issuers are taken."""

    @property
    def requirements(self) -> tuple[Mapping[str, tuple[str, ...]], ...]:
        """Any one of these."""
        return tuple({name: self.scopes.get(name, ())} for name in self.schemes)


NO_SECURITY: Final = ServerSecurity()


def server_security(
    *, token: bool, keys: bool, issuers: Iterable[Issuer], certificates: bool = False
) -> ServerSecurity:
    """What a server takes that knows callers by these. All but certificates may be shown as bearer token."""
    every = tuple(issuers)
    schemes: dict[str, SecurityScheme] = {}
    scopes: dict[str, tuple[str, ...]] = {}
    for issuer in every:
        if issuer.discovery:
            name = f"oidc-{issuer.alias}" if issuer.alias else "oidc"
            schemes[name] = {"type": "openIdConnect", "openIdConnectUrl": issuer.discovery}
            scopes[name] = issuer.required_scopes
    if token or keys or every:
        only_tokens = not (token or keys)
        schemes["bearer"] = {"type": "http", "scheme": "bearer", **({"bearerFormat": "JWT"} if only_tokens else {})}
    if keys:
        schemes["apiKey"] = {"type": "apiKey", "in": "header", "name": API_KEY_HEADER}
    if certificates:
        schemes["mtls"] = {"type": "mutualTLS"}
    return ServerSecurity(schemes=schemes, scopes=scopes, accepts_tokens=bool(every))


def apply_security(
    spec: AgentSpec, server: ServerSecurity, *, public: bool
) -> tuple[AgentSpec, list[Mapping[str, Any]]]:
    """An agent as its card shows it on this server, and which of its own requirements had to go.

    What it declared is kept where it does not contradict: a requirement that the server's demand is part of, under the
    agent's own names, and the schemes of such. `public`: nothing is required of callers.
    """
    if not server.schemes:
        return spec, []
    declared = spec.security_schemes
    stands = {name: _matching_scheme(scheme, server) for name, scheme in declared.items()}
    kept = [one for one in spec.security if any(stands[name] is not None for name in one)]
    gone = [one for one in spec.security if one not in kept]
    schemes = {
        name: scheme
        for name, scheme in declared.items()
        if stands[name] is not None or any(name in one for one in kept)
    }
    required = list(kept)
    for ours, scheme in server.schemes.items():
        name = next((name for name, meant in stands.items() if meant == ours), "")
        if not name:
            name = ours if ours not in schemes else f"dragoman-{ours}"
            schemes[name] = scheme
        if not any(name in one for one in required):
            required.append({name: server.scopes.get(ours, ())})
    return replace(spec, security_schemes=schemes, security=() if public else tuple(required)), gone


def _matching_scheme(scheme: SecurityScheme, server: ServerSecurity) -> str | None:
    """Which scheme of the server's own this is; empty for another way to what the server takes; None if it is none."""
    match scheme["type"]:
        case "oauth2":
            return "" if server.accepts_tokens else None
        case "http" if str(scheme["scheme"]).lower() == "bearer":
            return next((name for name, ours in server.schemes.items() if ours["type"] == "http"), None)
        case "apiKey" if scheme.get("in") == "header" and str(scheme["name"]).lower() == API_KEY_HEADER.lower():
            return next((name for name, ours in server.schemes.items() if ours["type"] == "apiKey"), None)
        case "mutualTLS":
            return next((name for name, ours in server.schemes.items() if ours["type"] == "mutualTLS"), None)
        case "openIdConnect":
            return next((name for name, ours in server.schemes.items() if ours == _without_description(scheme)), None)
        case _:
            return None


def _without_description(scheme: SecurityScheme) -> dict[str, Any]:
    return {key: value for key, value in scheme.items() if key != "description"}
