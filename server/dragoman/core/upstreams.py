"""Agents upstream as an operator names them: where they are, what they are called here, and what is shown to them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from dragoman.core.names import check_agent_id

TURNS: Final = 100
"""Turns that an agent upstream is given at a time, unless its entry says otherwise."""

MOST_TURNS: Final = 10_000

_KEYS: Final = ("url", "id", "prefix", "token", "token_file", "headers", "turns", "time_limit")
_PREFIX: Final = re.compile(r"[a-z][a-z0-9-]{0,40}")
_NAMED: Final = re.compile(r"(?P<id>[a-z][a-z0-9-]*)=(?P<url>[a-z]+://.*)", re.DOTALL)
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """One agent upstream."""

    url: str
    """Where its card is, or the base of that (http or https)."""
    id: str = ""
    """What it is called here; empty: its name, as an id, behind the prefix."""
    prefix: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent to it with each call, instead of whatever our callers showed us."""
    token_file: str = ""
    """A file with the bearer token that is sent, read when the server starts."""
    turns: int = TURNS
    """Turns that it is given at a time."""
    time_limit: float = 0.0
    """Seconds that a turn of it may take; 0 for no limit."""

    @property
    def place(self) -> str:
        """Where it is, without what may be secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def parse(text: str) -> Upstream:
    """`URL`, or `ID=URL`. Raises ValueError."""
    named = _NAMED.fullmatch(text.strip())
    return read({"url": text.strip()} if named is None else {"id": named["id"], "url": named["url"]})


def read(table: Mapping[str, Any]) -> Upstream:
    """One table of the settings. Raises ValueError, naming the key and the rule."""
    said = {key.replace("-", "_"): value for key, value in table.items()}
    if unknown := sorted(set(said) - set(_KEYS)):
        raise ValueError(f'"{unknown[0]}" is no key of an upstream; there are {", ".join(_KEYS)}')
    for key in ("url", "id", "prefix", "token", "token_file"):
        if not isinstance(said.get(key, ""), str):
            raise ValueError(f"{key}: must be a text")
    id, prefix, token = said.get("id", ""), said.get("prefix", ""), said.get("token", "")
    if id:
        try:
            check_agent_id(id)
        except ValueError as error:
            raise ValueError(f"id: {str(error).removesuffix('; set id=')}") from None
    if prefix and (id or not _PREFIX.fullmatch(prefix)):
        raise ValueError('prefix: must be a lower-case letter, then letters, digits or "-", and goes without id')
    if token and said.get("token_file"):
        raise ValueError("token, token_file: say one of them")
    headers = _headers(said.get("headers", {}))
    if token:
        headers |= _headers({"Authorization": f"Bearer {token}"})
    turns, limit = said.get("turns", TURNS), said.get("time_limit", 0.0)
    if type(turns) is not int or not 1 <= turns <= MOST_TURNS:
        raise ValueError(f"turns: must be 1 to {MOST_TURNS}")
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit < 1e9:
        raise ValueError("time_limit: must be seconds, 0 for no limit")
    return Upstream(
        url=_url(said.get("url", "")),
        id=id,
        prefix=prefix,
        headers=headers,
        token_file=said.get("token_file", ""),
        turns=turns,
        time_limit=float(limit),
    )


def entries(value: object) -> object:
    """Settings: a text of `URL` and `ID=URL` with commas, or a list of such texts and of tables. Raises ValueError."""
    if isinstance(value, str):
        value = [item for item in map(str.strip, value.split(",")) if item]
    if not isinstance(value, list | tuple):
        return value
    made = []
    for one in value:
        if isinstance(one, Upstream):
            made.append(one)
        elif isinstance(one, str):
            made.append(parse(one))
        elif isinstance(one, Mapping):
            made.append(read(one))
        else:
            raise ValueError(f"{one!r} is no upstream; it is a URL, ID=URL, or a table with url")
    for index, upstream in enumerate(made):
        if upstream.id and upstream.id in [earlier.id for earlier in made[:index]]:
            raise ValueError(f'"{upstream.id}" is the id of two upstreams')
    return tuple(made)


def written(upstream: Upstream) -> str:
    """One as it is kept, with its credentials: what `read` takes, as JSON."""
    table = {"url": upstream.url, "id": upstream.id, "headers": dict(upstream.headers)}
    return json.dumps({**table, "turns": upstream.turns, "time_limit": upstream.time_limit})


def id_for(upstream: Upstream, name: str) -> str:
    """What an agent of this name is called here. Raises ValueError when its name is no help."""
    if upstream.id:
        return upstream.id
    made = upstream.prefix + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    try:
        check_agent_id(made[:63].rstrip("-"))
    except ValueError:
        raise ValueError(f'its name "{name[:80]}" makes no agent id; give it one, as ID=URL') from None
    return made[:63].rstrip("-")


def _url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.fragment or "@" in parts.netloc:
        raise ValueError("url: must be http(s)://HOST[:PORT][/PATH], without user name and password")
    return url


def _headers(said: object) -> dict[str, str]:
    if not isinstance(said, Mapping):
        raise ValueError("headers: must be a table of names and texts")
    for name, value in said.items():
        if not _HEADER.fullmatch(str(name)):
            raise ValueError(f'headers: "{str(name)[:80]}" is no name of a header')
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise ValueError(f"headers.{name}: must be printable ASCII")
    return {str(name): value for name, value in said.items()}
