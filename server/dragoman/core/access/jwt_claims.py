"""What a token has to say to be taken (RFC 7519, RFC 8725 §3, RFC 9068 §4), and whom it makes of its bearer.

Pure: the clock is an argument, and signatures are somebody else's. All raise Unauthenticated with the word of RFC 6750.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from dragoman.core.access.identity import (
    AGENT_GRANT_PREFIX,
    OPERATOR_GRANT,
    SCOPE_GRANT_PREFIX,
    WORKER_GRANT,
    Identity,
    check_grants,
    check_principal,
)
from dragoman.core.clock import parse_age
from dragoman.core.errors import PermissionDenied, Unauthenticated
from dragoman.core.names import AGENT_ID

TOKEN_TYPES: Final = frozenset(("jwt", "at+jwt", "application/jwt", "application/at+jwt"))
"""`typ` of tokens that prove a caller (RFC 8725 §3.11): the same keys sign others for other ends, such as `logout+jwt`.
Most access tokens say JWT, or nothing."""

GRANT_SCOPE_PREFIX: Final = "dragoman:"
"""Before a scope that is a grant: `dragoman:operator`, `dragoman:agent:echo`."""

RESERVED_PRINCIPALS: Final = frozenset(("anonymous", "token"))
"""Principals that are somebody else in this server."""

MAX_TOKEN_TIME: Final = 1e15
"""Seconds since the epoch that no token means."""

INVALID_TOKEN_ERROR: Final = "invalid_token"


def invalid_token(reason: str, **log_details: str) -> Unauthenticated:
    """A token that is not taken, with what the log may say of it."""
    return Unauthenticated(reason, error=INVALID_TOKEN_ERROR, log_details=log_details)


def check_token_header(header: Mapping[str, Any], issuer: Issuer) -> tuple[str, str | None]:
    """The algorithm and the key id of a token's header."""
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        shown = algorithm if isinstance(algorithm, str) else "none"
        raise invalid_token(f'the token\'s alg "{shown[:20]}" is not taken; use one of {", ".join(issuer.algorithms)}')
    kind = header.get("typ")
    if kind is not None and (not isinstance(kind, str) or kind.lower() not in TOKEN_TYPES):
        raise invalid_token("the token's typ is not that of a token for callers; it may be JWT or at+jwt")
    if "crit" in header or "b64" in header:
        raise invalid_token("the token's header names extensions (crit) that this server does not know")
    if kid is not None and not isinstance(kid, str):
        raise invalid_token("the token's kid must be a text")
    return algorithm, kid


def check_claims(claims: Mapping[str, Any], issuer: Issuer, now: float) -> None:
    """Whether these claims hold here and now; `now` in seconds since the epoch."""
    if claims.get("iss") != issuer.url:
        raise invalid_token("the token's iss is another issuer")
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if not any(one in issuer.audience for one in named if isinstance(one, str)):
        raise invalid_token("the token's aud does not name this server")
    expires = _time_claim(claims, "exp")
    if expires is None:
        raise invalid_token("the token has no exp; it must end at some time")
    if now >= expires + issuer.skew:
        raise invalid_token("the token has expired")
    begins, issued = _time_claim(claims, "nbf"), _time_claim(claims, "iat")
    if begins is not None and now < begins - issuer.skew:
        raise invalid_token("the token is not valid yet (nbf)")
    if issued is not None and now < issued - issuer.skew:
        raise invalid_token("the token was issued in the future (iat)")


def identity_from_claims(claims: Mapping[str, Any], issuer: Issuer) -> Identity:
    """Whom these claims, once they are proved, make of the bearer. Raises PermissionDenied for scopes it lacks."""
    principal = find_claim(claims, issuer.principal_claim)
    if not isinstance(principal, str) or not principal or principal != principal.strip():
        raise invalid_token(f"the token has no {issuer.principal_claim} that names its bearer")
    name = f"{issuer.alias}:{principal}" if issuer.alias else principal
    try:
        check_principal(name)
    except ValueError as error:
        raise invalid_token(f"the token's {issuer.principal_claim} is no name for a caller: {error}") from error
    if name in RESERVED_PRINCIPALS:
        raise invalid_token(
            f"the token's {issuer.principal_claim} is a name of this server's own; give the issuer an alias"
        )
    scopes = _token_scopes(claims, issuer)
    if lacking := [scope for scope in issuer.required_scopes if scope not in scopes]:
        raise PermissionDenied(
            f"the token lacks the scope {', '.join(lacking)}",
            scope=" ".join(issuer.required_scopes),
            log_details={"issuer": issuer.url, "principal": name},
        )
    return Identity(name, frozenset(grant for scope in scopes for grant in _grants_of_scope(scope, issuer)))


def find_claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by the path to it with dots between, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _grants_of_scope(scope: str, issuer: Issuer) -> tuple[str, ...]:
    # What narrows is taken as it stands: an agent that is none narrows to nothing, and dropping it would open all.
    # What allows more is taken only under our prefix: a scope `worker` may be anybody's word.
    own = scope.removeprefix(GRANT_SCOPE_PREFIX)
    more = scope in (GRANT_SCOPE_PREFIX + OPERATOR_GRANT, GRANT_SCOPE_PREFIX + WORKER_GRANT) or scope.startswith(
        f"{GRANT_SCOPE_PREFIX}{WORKER_GRANT}:"
    )
    said = (own,) if more or own.startswith((AGENT_GRANT_PREFIX, SCOPE_GRANT_PREFIX)) else ()
    return (*issuer.grants.get(scope, ()), *said)


def _token_scopes(claims: Mapping[str, Any], issuer: Issuer) -> frozenset[str]:
    names = [issuer.scope_claim] if issuer.scope_claim else ["scope", "scp"]
    given = next((found for name in names if (found := find_claim(claims, name)) is not None), ())
    if isinstance(given, str):
        return frozenset(given.split())
    if isinstance(given, list | tuple) and all(isinstance(one, str) for one in given):
        return frozenset(given)
    raise invalid_token(f"the token's {issuer.scope_claim or 'scope'} must be a text, or a list of texts")


def _time_claim(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_TOKEN_TIME
    if not fits:  # nor does NaN
        raise invalid_token(f"the token's {name} must be a number of seconds")
    return float(value)


TOKEN_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that only the issuer can make. With HMAC whoever checks a token can make one; `none` is none."""

DEFAULT_CLOCK_SKEW: Final = 60.0
MAX_CLOCK_SKEW: Final = 300.0
"""Seconds by which clocks may differ."""

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """One issuer. Raises ValueError, naming the field and its rule."""

    url: str
    """What its tokens say as `iss`, to the letter."""
    audience: tuple[str, ...]
    """A token is for this server when its `aud` names one of these."""
    alias: str = ""
    """Put before its principals: `corp:alice`. Needed where there are several issuers."""
    algorithms: tuple[str, ...] = TOKEN_ALGORITHMS
    jwks: str = ""
    """Where its keys are: a URL, or a file; by default where its discovery document says."""
    principal_claim: str = "sub"
    scope_claim: str = ""
    """The claim with scopes: a text with blanks between, or a list. By default `scope`, else `scp`."""
    grants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What scopes mean here, by scope, besides what `dragoman:GRANT`, `agent:ID` and `scope:NAME` say by themselves."""
    required_scopes: tuple[str, ...] = ()
    """Scopes that a token must have to be of any use here."""
    skew: float = DEFAULT_CLOCK_SKEW

    def __post_init__(self) -> None:
        _check_url("url", self.url)
        if not self.audience:
            raise ValueError("audience: is required: what the issuer calls this server")
        if self.alias and not AGENT_ID.fullmatch(self.alias):
            raise ValueError(f'alias: "{self.alias}" must be a lower-case letter, then letters, digits or "-"')
        if unknown := [name for name in self.algorithms if name not in TOKEN_ALGORITHMS]:
            raise ValueError(f"algorithms: {', '.join(unknown)} is not taken; there are {', '.join(TOKEN_ALGORITHMS)}")
        if not self.algorithms:
            raise ValueError("algorithms: must name one at least")
        if "://" in self.jwks:
            _check_url("jwks", self.jwks, query=True)
        if not self.principal_claim:
            raise ValueError("principal_claim: must name a claim")
        for scope, granted in self.grants.items():
            try:
                check_grants(granted)
            except ValueError as error:
                raise ValueError(f'grants: "{scope}": {error}') from error
        if not 0 <= self.skew <= MAX_CLOCK_SKEW:
            raise ValueError(f"skew: must be 0 to {MAX_CLOCK_SKEW:g} seconds")

    @property
    def discovery(self) -> str:
        """Where its discovery document is (OpenID Connect Discovery §4.1); empty where its keys are given."""
        return "" if self.jwks else self.url.rstrip("/") + DISCOVERY_PATH


def parse_issuer(value: str | Mapping[str, Any]) -> Issuer:
    """An issuer as words or as a table. Raises ValueError, naming the field."""
    if not isinstance(value, str | Mapping):
        raise ValueError(f"an issuer is a table or words, and not {value!r}")
    table = (
        _issuer_table(value) if isinstance(value, str) else {str(key).replace("-", "_"): value[key] for key in value}
    )
    known = [field.name for field in fields(Issuer)]
    if unknown := [key for key in table if key not in known]:
        raise ValueError(f"an issuer has no {', '.join(unknown)}; it has {', '.join(known)}")
    for key in ("url", "audience"):
        if not table.get(key):
            raise ValueError(f"{key}: is required, such as: https://login.example.com audience=dragoman")
    for key in ("audience", "algorithms", "required_scopes"):
        if key in table:
            table[key] = _texts(key, table[key])
    if "grants" in table:
        if not isinstance(table["grants"], Mapping):
            raise ValueError('grants: must be a table of grants by scope, such as { admins = "operator" }')
        table["grants"] = {str(scope): _texts(f"grants: {scope}", said) for scope, said in table["grants"].items()}
    if "skew" in table:
        table["skew"] = _seconds(table["skew"])
    for key in ("url", "alias", "jwks", "principal_claim", "scope_claim"):
        if not isinstance(table.get(key, ""), str):
            raise ValueError(f"{key}: must be a text")
    return Issuer(**table)


def parse_issuers(value: Any) -> tuple[Issuer, ...]:
    """The issuers of one server: tables, JSON of them, or words, several in one text with `;` between.

    Raises ValueError, naming the field.
    """
    if isinstance(value, str):
        is_json = value.lstrip().startswith(("[", "{"))
        try:
            value = json.loads(value) if is_json else value.split(";")
        except ValueError as error:
            raise ValueError(f"is no JSON: {error}") from error
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, list | tuple):
        raise ValueError("must be a table for each issuer, or words such as: https://login.example.com audience=me")
    every = [part for item in items for part in (item.split(";") if isinstance(item, str) else (item,))]
    return check_issuers(
        one if isinstance(one, Issuer) else parse_issuer(one)
        for one in every
        if not isinstance(one, str) or one.strip()
    )


def check_issuers(issuers: Iterable[Issuer]) -> tuple[Issuer, ...]:
    """Issuers that one server trusts. Raises ValueError when their principals could be taken for each other's."""
    every = tuple(issuers)
    for name, said in (("url", [one.url for one in every]), ("alias", [one.alias for one in every if one.alias])):
        if twice := sorted({text for text in said if said.count(text) > 1}):
            raise ValueError(f'{name}: "{twice[0]}" is given to two issuers')
    if len(every) > 1 and (bare := [one.url for one in every if not one.alias]):
        raise ValueError(f"alias: is required where there are several issuers; {', '.join(bare)} has none")
    return every


def _issuer_table(text: str) -> dict[str, Any]:
    url, *more = text.split()
    table: dict[str, Any] = {"url": url}
    for word in more:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f'"{word}" is not FIELD=VALUE, such as audience=dragoman')
        name = name.replace("-", "_")
        if name == "grants":
            raise ValueError("grants: is a table; give it in TOML")
        table[name] = value
    return table


def _texts(name: str, value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item.strip() for item in items):
        raise ValueError(f"{name}: must be a text, or a list of texts")
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


def _check_url(name: str, url: str, *, query: bool = False) -> None:
    """Keys that come in clear text could be anybody's, so http is for this machine only."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        raise ValueError(f'{name}: "{url}" is no URL: {error}') from error
    safe = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))
    if not (safe and host) or parts.username is not None or parts.fragment or (parts.query and not query):
        raise ValueError(f'{name}: "{url}" must be https://HOST[:PORT][/PATH]; http only on this machine')


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
