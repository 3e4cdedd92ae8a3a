"""Validates JWT claims, maps them to identities, and parses issuers (RFC 7519, RFC 8725 §3, RFC 9068 §4).

Pure: the time is an argument, and signatures are verified elsewhere. Failed checks raise Unauthenticated with the error
code of RFC 6750.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final
from urllib.parse import urlsplit

from dragoman.core.access import identity
from dragoman.core.durations import parse_age
from dragoman.core.errors import PermissionDenied, Unauthenticated
from dragoman.core.names import AGENT_ID
from dragoman.core.net.addresses import is_loopback_host

TOKEN_TYPES: Final = frozenset(("jwt", "at+jwt", "application/jwt", "application/at+jwt"))
"""Accepted values of `typ` (RFC 8725 §3.11): the same keys also sign tokens for other purposes, such as `logout+jwt`.
Most access tokens have JWT, or no `typ`."""

GRANT_SCOPE_PREFIX: Final = "dragoman:"
"""The prefix of a scope that is a grant: `dragoman:operator`, `dragoman:agent:echo`."""

MAX_TOKEN_TIME: Final = 1e15  # seconds since the epoch; times beyond are invalid


def invalid_token(reason: str, **log_details: str) -> Unauthenticated:
    """The error for a rejected token. `log_details` go to the log only."""
    return Unauthenticated(reason, error="invalid_token", log_details=log_details)


def check_token_header(header: Mapping[str, Any], issuer: Issuer) -> tuple[str, str | None]:
    """Validates a token's header and returns its algorithm and key id."""
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        shown = algorithm if isinstance(algorithm, str) else "none"
        raise invalid_token(
            f'the token\'s alg "{shown[:20]}" is not accepted; use one of {", ".join(issuer.algorithms)}'
        )
    kind = header.get("typ")
    if kind is not None and (not isinstance(kind, str) or kind.lower() not in TOKEN_TYPES):
        raise invalid_token("the token's typ is not that of an access token; it must be JWT or at+jwt")
    if "crit" in header or "b64" in header:
        raise invalid_token("the token's header names extensions (crit) that this server does not support")
    if kid is not None and not isinstance(kid, str):
        raise invalid_token("the token's kid must be a string")
    return algorithm, kid


def check_claims(claims: Mapping[str, Any], issuer: Issuer, now: float) -> None:
    """Checks issuer, audience and times. `now` is in seconds since the epoch."""
    if claims.get("iss") != issuer.url:
        raise invalid_token("the token's iss is another issuer")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if not any(name in issuer.audience for name in audiences if isinstance(name, str)):
        raise invalid_token("the token's aud does not name this server")
    expires = _time_claim(claims, "exp")
    if expires is None:
        raise invalid_token("the token has no exp; tokens without an end are not accepted")
    if now >= expires + issuer.skew:
        raise invalid_token("the token has expired")
    begins, issued = _time_claim(claims, "nbf"), _time_claim(claims, "iat")
    if begins is not None and now < begins - issuer.skew:
        raise invalid_token("the token is not valid yet (nbf)")
    if issued is not None and now < issued - issuer.skew:
        raise invalid_token("the token was issued in the future (iat)")


def identity_from_claims(claims: Mapping[str, Any], issuer: Issuer) -> identity.Identity:
    """The identity in verified claims. Raises PermissionDenied when a required scope is missing."""
    principal = find_claim(claims, issuer.principal_claim)
    if not isinstance(principal, str) or not principal or principal != principal.strip():
        raise invalid_token(f"the token has no {issuer.principal_claim} that names a principal")
    name = f"{issuer.alias}:{principal}" if issuer.alias else principal
    try:
        identity.check_principal(name)
    except ValueError as error:
        raise invalid_token(
            f"the token's {issuer.principal_claim} is not a valid name of a principal: {error}"
        ) from error
    scopes = _token_scopes(claims, issuer)
    if lacking := [scope for scope in issuer.required_scopes if scope not in scopes]:
        raise PermissionDenied(
            f"the token lacks the scope {', '.join(lacking)}",
            scope=" ".join(issuer.required_scopes),
            log_details={"issuer": issuer.url, "principal": name},
        )
    grants = frozenset(grant for scope in scopes for grant in _grants_of_scope(scope, issuer))
    expires = round(((_time_claim(claims, "exp") or 0) + issuer.skew) * 1000)
    return identity.Identity(name, grants, expires=expires)


def find_claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by name, or by a path with dots, such as `realm_access.roles`; None when it is missing."""
    if name in claims:
        return claims[name]
    claim: Any = claims
    for step in name.split("."):
        claim = claim.get(step) if isinstance(claim, Mapping) else None
    return claim


def _grants_of_scope(scope: str, issuer: Issuer) -> tuple[str, ...]:
    # Restricting grants count with and without prefix: an unknown agent restricts to nothing, and dropping it would
    # allow everything. Granting ones need our prefix: a scope `worker` may have another meaning for the issuer.
    grant = scope.removeprefix(GRANT_SCOPE_PREFIX)
    is_privilege = grant.partition(":")[0] == identity.WORKER_GRANT or grant in identity.OPERATION_GRANTS
    is_restriction = grant.startswith((identity.AGENT_GRANT_PREFIX, identity.SCOPE_GRANT_PREFIX))
    direct = (grant,) if is_restriction or (is_privilege and grant != scope) else ()
    return (*issuer.grants.get(scope, ()), *direct)


def _token_scopes(claims: Mapping[str, Any], issuer: Issuer) -> frozenset[str]:
    names = [issuer.scope_claim] if issuer.scope_claim else ["scope", "scp"]
    scopes = next((found for name in names if (found := find_claim(claims, name)) is not None), ())
    if isinstance(scopes, str):
        return frozenset(scopes.split())
    if isinstance(scopes, list | tuple) and all(isinstance(scope, str) for scope in scopes):
        return frozenset(scopes)
    raise invalid_token(f"the token's {issuer.scope_claim or 'scope'} must be a string, or a list of strings")


def _time_claim(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_TOKEN_TIME
    if not fits:  # NaN fails the comparison, too
        raise invalid_token(f"the token's {name} must be a number of seconds")
    return float(value)


TOKEN_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Asymmetric signatures only: with HMAC, anyone who verifies a token can also forge one."""

DEFAULT_CLOCK_SKEW: Final = 60.0
MAX_CLOCK_SKEW: Final = 300.0
"""Seconds by which the issuer's clock may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """A trusted token issuer. Raises ValueError, naming the invalid field and its rule."""

    url: str  # the exact `iss` of its tokens
    audience: tuple[str, ...]  # a token is valid here when its `aud` contains one of these
    alias: str = ""
    """The prefix of its principals: `corp:alice`. Required with several issuers."""
    algorithms: tuple[str, ...] = TOKEN_ALGORITHMS
    jwks: str = ""
    """The URL or file of its keys; by default from its discovery document."""
    principal_claim: str = "sub"
    scope_claim: str = ""
    """The claim with the scopes: a list, or a string separated by blanks. By default `scope`, else `scp`."""
    grants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Grants by scope, in addition to the scopes `dragoman:GRANT`, `agent:ID` and `scope:NAME`."""
    required_scopes: tuple[str, ...] = ()  # scopes that every token must have
    skew: float = DEFAULT_CLOCK_SKEW
    console_client: str = ""
    """The client id of the console at the issuer (a public client, with PKCE). Empty: people cannot sign in with it."""
    console_scopes: tuple[str, ...] = ("openid",)
    """Scopes that the console requests at a sign-in. Some may be grants."""

    def __post_init__(self) -> None:
        check_url("url", self.url)
        if not self.audience:
            raise ValueError("audience: is required; it is the issuer's name for this server")
        if self.alias and not AGENT_ID.fullmatch(self.alias):
            raise ValueError(f'alias: "{self.alias}" must be a lower-case letter, then letters, digits or "-"')
        if self.alias:
            try:
                identity.check_principal(f"{self.alias}:x")
            except ValueError as error:
                raise ValueError(f'alias: a principal {error}, as those of "{self.alias}" would') from error
        if unknown := [name for name in self.algorithms if name not in TOKEN_ALGORITHMS]:
            raise ValueError(f"algorithms: {', '.join(unknown)} is not accepted; use {', '.join(TOKEN_ALGORITHMS)}")
        if not self.algorithms:
            raise ValueError("algorithms: must name at least one")
        if "://" in self.jwks:
            check_url("jwks", self.jwks, query=True)
        if not self.principal_claim:
            raise ValueError("principal_claim: must name a claim")
        for scope, granted in self.grants.items():
            try:
                identity.check_grants(granted)
            except ValueError as error:
                raise ValueError(f'grants: "{scope}": {error}') from error
        if self.console_client and self.jwks:
            raise ValueError("console_client: needs the issuer's discovery document, so leave jwks out")
        if not 0 <= self.skew <= MAX_CLOCK_SKEW:
            raise ValueError(f"skew: must be 0 to {MAX_CLOCK_SKEW:g} seconds")

    @property
    def discovery(self) -> str:
        """The URL of its discovery document (OpenID Connect Discovery §4.1); empty when `jwks` is set."""
        return "" if self.jwks else f"{self.url.rstrip('/')}/.well-known/openid-configuration"


def parse_issuer(value: str | Mapping[str, Any]) -> Issuer:
    """Parses an issuer: a table, or `URL FIELD=VALUE ...`. Raises ValueError, naming the field."""
    if not isinstance(value, str | Mapping):
        raise ValueError(f"an issuer is a table or a string, not {value!r}")
    table = (
        _issuer_table(value) if isinstance(value, str) else {str(key).replace("-", "_"): value[key] for key in value}
    )
    known = [field.name for field in fields(Issuer)]
    if unknown := [key for key in table if key not in known]:
        raise ValueError(f"an issuer has no {', '.join(unknown)}; it has {', '.join(known)}")
    for key in ("url", "audience"):
        if not table.get(key):
            raise ValueError(f"{key}: is required, such as: https://login.example.com audience=dragoman")
    for key in ("audience", "algorithms", "required_scopes", "console_scopes"):
        if key in table:
            table[key] = _texts(key, table[key])
    if "grants" in table:
        if not isinstance(table["grants"], Mapping):
            raise ValueError('grants: must be a table of grants by scope, such as { admins = "operator" }')
        table["grants"] = {str(scope): _texts(f"grants: {scope}", grants) for scope, grants in table["grants"].items()}
    if "skew" in table:
        table["skew"] = _seconds(table["skew"])
    for key in ("url", "alias", "jwks", "principal_claim", "scope_claim", "console_client"):
        if not isinstance(table.get(key, ""), str):
            raise ValueError(f"{key}: must be a string")
    return Issuer(**table)


def parse_issuers(value: Any) -> tuple[Issuer, ...]:
    """Parses the issuers of a server: tables, their JSON, or strings; `;` separates several in one string.

    Raises ValueError, naming the field.
    """
    if isinstance(value, str):
        is_json = value.lstrip().startswith(("[", "{"))
        try:
            value = json.loads(value) if is_json else value.split(";")
        except ValueError as error:
            raise ValueError(f"is not JSON: {error}") from error
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, list | tuple):
        raise ValueError("must be a table for each issuer, or a string such as: https://login.example.com audience=me")
    parts = [part for item in items for part in (item.split(";") if isinstance(item, str) else (item,))]
    return check_issuers(
        part if isinstance(part, Issuer) else parse_issuer(part)
        for part in parts
        if not isinstance(part, str) or part.strip()
    )


def check_issuers(issuers: Iterable[Issuer]) -> tuple[Issuer, ...]:
    """Validates a set of issuers. Raises ValueError when their principals could be confused."""
    checked = tuple(issuers)
    aliases = [issuer.alias for issuer in checked if issuer.alias]
    for name, values in (("url", [issuer.url for issuer in checked]), ("alias", aliases)):
        if duplicates := sorted({value for value in values if values.count(value) > 1}):
            raise ValueError(f'{name}: "{duplicates[0]}" is given to two issuers')
    if len(checked) > 1 and (without_alias := [issuer.url for issuer in checked if not issuer.alias]):
        raise ValueError(f"alias: is required with several issuers; {', '.join(without_alias)} has none")
    return checked


def _issuer_table(text: str) -> dict[str, Any]:
    url, *assignments = text.split()
    table: dict[str, Any] = {"url": url}
    for word in assignments:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f'"{word}" is not FIELD=VALUE, such as audience=dragoman')
        name = name.replace("-", "_")
        if name == "grants":
            raise ValueError("grants: must be a table; set it in a TOML file")
        table[name] = value
    return table


def _texts(name: str, value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item.strip() for item in items):
        raise ValueError(f"{name}: must be a string, or a list of strings")
    return tuple(item.strip() for item in items)


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        try:
            return parse_age(value) / 1000
        except ValueError as error:
            raise ValueError(f"skew: {error}") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("skew: must be a number of seconds, or an age such as 60s")
    return float(value)


def check_url(name: str, url: str, *, query: bool = False) -> None:
    """Checks a URL. Keys fetched without TLS could be forged, so http is allowed on loopback only."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        raise ValueError(f'{name}: "{url}" is not a URL: {error}') from error
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))
    if not (safe and host) or parts.username is not None or parts.fragment or (parts.query and not query):
        raise ValueError(f'{name}: "{url}" must be https://HOST[:PORT][/PATH]; http is allowed on loopback only')
