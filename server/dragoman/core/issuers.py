"""Issuers of tokens that a server trusts (OpenID Connect Core §2, RFC 9068), and what their tokens are taken for.

As words, for the command line: `https://login.example.com audience=dragoman alias=corp`; several values of one field
with commas. As a table, for TOML and JSON: the same fields, `grants` besides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from dragoman.core.ages import parse_age
from dragoman.core.identity import check_grants
from dragoman.core.names import AGENT_ID

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that only the issuer can make. With HMAC whoever checks a token can make one; `none` is none."""

SKEW: Final = 60.0
LONGEST_SKEW: Final = 300.0
"""Seconds by which clocks may differ."""

DISCOVERY: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """One issuer. Raises ValueError, naming the field and its rule."""

    url: str
    """What its tokens say as `iss`, to the letter."""
    audience: tuple[str, ...]
    """A token is for this server when its `aud` names one of these."""
    alias: str = ""
    """Put before its principals: `corp:alice`. Needed where there are several issuers."""
    algorithms: tuple[str, ...] = ALGORITHMS
    jwks: str = ""
    """Where its keys are: a URL, or a file; by default where its discovery document says."""
    principal_claim: str = "sub"
    scope_claim: str = ""
    """The claim with scopes: a text with blanks between, or a list. By default `scope`, else `scp`."""
    grants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What scopes mean here, by scope, besides what `dragoman:GRANT`, `agent:ID` and `scope:NAME` say by themselves."""
    required_scopes: tuple[str, ...] = ()
    """Scopes that a token must have to be of any use here."""
    skew: float = SKEW

    def __post_init__(self) -> None:
        _check_url("url", self.url)
        if not self.audience:
            raise ValueError("audience: is required: what the issuer calls this server")
        if self.alias and not AGENT_ID.fullmatch(self.alias):
            raise ValueError(f'alias: "{self.alias}" must be a lower-case letter, then letters, digits or "-"')
        if unknown := [name for name in self.algorithms if name not in ALGORITHMS]:
            raise ValueError(f"algorithms: {', '.join(unknown)} is not taken; there are {', '.join(ALGORITHMS)}")
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
        if not 0 <= self.skew <= LONGEST_SKEW:
            raise ValueError(f"skew: must be 0 to {LONGEST_SKEW:g} seconds")

    @property
    def discovery(self) -> str:
        """Where its discovery document is (OpenID Connect Discovery §4.1); empty where its keys are given."""
        return "" if self.jwks else self.url.rstrip("/") + DISCOVERY


def parse(said: str | Mapping[str, Any]) -> Issuer:
    """An issuer as words or as a table. Raises ValueError, naming the field."""
    if not isinstance(said, str | Mapping):
        raise ValueError(f"an issuer is a table or words, and not {said!r}")
    table = _words(said) if isinstance(said, str) else {str(key).replace("-", "_"): said[key] for key in said}
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


def read(value: Any) -> tuple[Issuer, ...]:
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
    return check_together(
        one if isinstance(one, Issuer) else parse(one) for one in every if not isinstance(one, str) or one.strip()
    )


def check_together(issuers: Iterable[Issuer]) -> tuple[Issuer, ...]:
    """Issuers that one server trusts. Raises ValueError when their principals could be taken for each other's."""
    every = tuple(issuers)
    for name, said in (("url", [one.url for one in every]), ("alias", [one.alias for one in every if one.alias])):
        if twice := sorted({text for text in said if said.count(text) > 1}):
            raise ValueError(f'{name}: "{twice[0]}" is given to two issuers')
    if len(every) > 1 and (bare := [one.url for one in every if not one.alias]):
        raise ValueError(f"alias: is required where there are several issuers; {', '.join(bare)} has none")
    return every


def _words(text: str) -> dict[str, Any]:
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
