"""Security schemes in cards: the server's own, merged with the agents' declarations (A2A 1.0 §4.5, §7.3).

Schemes have OpenAPI's form: `{"type": "http", "scheme": "bearer"}`.
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
    """The credentials that a server accepts, as alternatives; empty when it requires none."""

    schemes: Mapping[str, SecurityScheme] = field(default_factory=dict)
    scopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # required scopes of a token, by scheme
    accepts_tokens: bool = False  # whether tokens of issuers are accepted

    @property
    def requirements(self) -> tuple[Mapping[str, tuple[str, ...]], ...]:
        """Security requirements, one of which must be met."""
        return tuple({name: self.scopes.get(name, ())} for name in self.schemes)


NO_SECURITY: Final = ServerSecurity()


def server_security(
    *, token: bool, keys: bool, issuers: Iterable[Issuer], certificates: bool = False
) -> ServerSecurity:
    """The schemes of a server with these authenticators. All but certificates work as bearer tokens."""
    issuers = tuple(issuers)
    schemes: dict[str, SecurityScheme] = {}
    scopes: dict[str, tuple[str, ...]] = {}
    for issuer in issuers:
        if issuer.discovery:
            name = f"oidc-{issuer.alias}" if issuer.alias else "oidc"
            schemes[name] = {"type": "openIdConnect", "openIdConnectUrl": issuer.discovery}
            scopes[name] = issuer.required_scopes
    if token or keys or issuers:
        only_tokens = not (token or keys)
        schemes["bearer"] = {"type": "http", "scheme": "bearer", **({"bearerFormat": "JWT"} if only_tokens else {})}
    if keys:
        schemes["apiKey"] = {"type": "apiKey", "in": "header", "name": API_KEY_HEADER}
    if certificates:
        schemes["mtls"] = {"type": "mutualTLS"}
    return ServerSecurity(schemes=schemes, scopes=scopes, accepts_tokens=bool(issuers))


def apply_security(
    spec: AgentSpec, server: ServerSecurity, *, public: bool
) -> tuple[AgentSpec, list[Mapping[str, Any]]]:
    """The agent with this server's security in its card, and those of its own requirements that were dropped.

    A declared requirement stays, under the agent's own names, if it includes a scheme of the server. `public`: callers
    need no credentials.
    """
    if not server.schemes:
        return spec, []
    declared = spec.security_schemes
    matches = {name: _matching_scheme(scheme, server) for name, scheme in declared.items()}
    kept = [entry for entry in spec.security if any(matches[name] is not None for name in entry)]
    dropped = [entry for entry in spec.security if entry not in kept]
    schemes = {
        name: scheme
        for name, scheme in declared.items()
        if matches[name] is not None or any(name in entry for entry in kept)
    }
    required = list(kept)
    for ours, scheme in server.schemes.items():
        name = next((name for name, match in matches.items() if match == ours), "")
        if not name:
            name = ours if ours not in schemes else f"dragoman-{ours}"
            schemes[name] = scheme
        if not any(name in entry for entry in required):
            required.append({name: server.scopes.get(ours, ())})
    return replace(spec, security_schemes=schemes, security=() if public else tuple(required)), dropped


def _matching_scheme(scheme: SecurityScheme, server: ServerSecurity) -> str | None:
    """The server's scheme that this one is; empty for another way to get an accepted token; None for no match."""
    kind = scheme["type"]
    match kind:
        case "oauth2":
            return "" if server.accepts_tokens else None
        case "openIdConnect":
            plain = {key: value for key, value in scheme.items() if key != "description"}
            return next((name for name, ours in server.schemes.items() if ours == plain), None)
        case "http":
            is_known = str(scheme["scheme"]).lower() == "bearer"
        case "apiKey":
            is_known = scheme.get("in") == "header" and str(scheme["name"]).lower() == API_KEY_HEADER.lower()
        case _:
            is_known = kind == "mutualTLS"
    return next((name for name, ours in server.schemes.items() if is_known and ours["type"] == kind), None)
