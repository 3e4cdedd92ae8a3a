"""What a token has to say to be taken (RFC 7519, RFC 8725 §3, RFC 9068 §4), and whom it makes of its bearer.

Pure: the clock is an argument, and signatures are somebody else's. All raise Unauthenticated with the word of RFC 6750.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dragoman.core.errors import PermissionDenied, Unauthenticated
from dragoman.core.identity import AGENT, OPERATOR, SCOPE, WORKER, Identity, check_principal
from dragoman.core.issuers import Issuer

TYPES: Final = frozenset(("jwt", "at+jwt", "application/jwt", "application/at+jwt"))
"""`typ` of tokens that prove a caller (RFC 8725 §3.11): the same keys sign others for other ends, such as `logout+jwt`.
Most access tokens say JWT, or nothing."""

OWN: Final = "dragoman:"
"""Before a scope that is a grant: `dragoman:operator`, `dragoman:agent:echo`."""

RESERVED: Final = frozenset(("anonymous", "token"))
"""Principals that are somebody else in this server."""

LATEST: Final = 1e15
"""Seconds since the epoch that no token means."""

INVALID: Final = "invalid_token"


def refused(reason: str, **about: str) -> Unauthenticated:
    """A token that is not taken, with what the log may say of it."""
    return Unauthenticated(reason, error=INVALID, about=about)


def check_header(header: Mapping[str, Any], issuer: Issuer) -> tuple[str, str | None]:
    """The algorithm and the key id of a token's header."""
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        shown = algorithm if isinstance(algorithm, str) else "none"
        raise refused(f'the token\'s alg "{shown[:20]}" is not taken; use one of {", ".join(issuer.algorithms)}')
    kind = header.get("typ")
    if kind is not None and (not isinstance(kind, str) or kind.lower() not in TYPES):
        raise refused("the token's typ is not that of a token for callers; it may be JWT or at+jwt")
    if "crit" in header or "b64" in header:
        raise refused("the token's header names extensions (crit) that this server does not know")
    if kid is not None and not isinstance(kid, str):
        raise refused("the token's kid must be a text")
    return algorithm, kid


def check(claims: Mapping[str, Any], issuer: Issuer, now: float) -> None:
    """Whether these claims hold here and now; `now` in seconds since the epoch."""
    if claims.get("iss") != issuer.url:
        raise refused("the token's iss is another issuer")
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if not any(one in issuer.audience for one in named if isinstance(one, str)):
        raise refused("the token's aud does not name this server")
    expires = _time(claims, "exp")
    if expires is None:
        raise refused("the token has no exp; it must end at some time")
    if now >= expires + issuer.skew:
        raise refused("the token has expired")
    begins, issued = _time(claims, "nbf"), _time(claims, "iat")
    if begins is not None and now < begins - issuer.skew:
        raise refused("the token is not valid yet (nbf)")
    if issued is not None and now < issued - issuer.skew:
        raise refused("the token was issued in the future (iat)")


def identity_of(claims: Mapping[str, Any], issuer: Issuer) -> Identity:
    """Whom these claims, once they are proved, make of the bearer. Raises PermissionDenied for scopes it lacks."""
    principal = claim(claims, issuer.principal_claim)
    if not isinstance(principal, str) or not principal or principal != principal.strip():
        raise refused(f"the token has no {issuer.principal_claim} that names its bearer")
    name = f"{issuer.alias}:{principal}" if issuer.alias else principal
    try:
        check_principal(name)
    except ValueError as error:
        raise refused(f"the token's {issuer.principal_claim} is no name for a caller: {error}") from error
    if name in RESERVED:
        raise refused(f"the token's {issuer.principal_claim} is a name of this server's own; give the issuer an alias")
    scopes = _scopes(claims, issuer)
    if lacking := [scope for scope in issuer.required_scopes if scope not in scopes]:
        raise PermissionDenied(
            f"the token lacks the scope {', '.join(lacking)}",
            scope=" ".join(issuer.required_scopes),
            about={"issuer": issuer.url, "principal": name},
        )
    return Identity(name, frozenset(grant for scope in scopes for grant in _granted(scope, issuer)))


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by the path to it with dots between, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _granted(scope: str, issuer: Issuer) -> tuple[str, ...]:
    # What narrows is taken as it stands: an agent that is none narrows to nothing, and dropping it would open all.
    # What allows more is taken only under our prefix: a scope `worker` may be anybody's word.
    own = scope.removeprefix(OWN)
    more = scope in (OWN + OPERATOR, OWN + WORKER) or scope.startswith(f"{OWN}{WORKER}:")
    said = (own,) if more or own.startswith((AGENT, SCOPE)) else ()
    return (*issuer.grants.get(scope, ()), *said)


def _scopes(claims: Mapping[str, Any], issuer: Issuer) -> frozenset[str]:
    names = [issuer.scope_claim] if issuer.scope_claim else ["scope", "scp"]
    given = next((found for name in names if (found := claim(claims, name)) is not None), ())
    if isinstance(given, str):
        return frozenset(given.split())
    if isinstance(given, list | tuple) and all(isinstance(one, str) for one in given):
        return frozenset(given)
    raise refused(f"the token's {issuer.scope_claim or 'scope'} must be a text, or a list of texts")


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LATEST
    if not fits:  # nor does NaN
        raise refused(f"the token's {name} must be a number of seconds")
    return float(value)
