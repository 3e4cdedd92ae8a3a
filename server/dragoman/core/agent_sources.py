"""Agents upstream as an operator names them: where they are, what they are called here, and what is shown to them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from dragoman.core.names import check_agent_id

DEFAULT_UPSTREAM_TURNS: Final = 100
"""Turns that an agent upstream is given at a time, unless its entry says otherwise."""

MAX_UPSTREAM_TURNS: Final = 10_000

_UPSTREAM_KEYS: Final = ("url", "id", "prefix", "token", "token_file", "headers", "turns", "time_limit")
_PREFIX: Final = re.compile(r"[a-z][a-z0-9-]{0,40}")
_ID_AND_URL: Final = re.compile(r"(?P<id>[a-z][a-z0-9-]*)=(?P<url>[a-z]+://.*)", re.DOTALL)
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSpec:
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
    turns: int = DEFAULT_UPSTREAM_TURNS
    """Turns that it is given at a time."""
    time_limit: float = 0.0
    """Seconds that a turn of it may take; 0 for no limit."""

    @property
    def location(self) -> str:
        """Where it is, without what may be secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def parse_upstream(text: str) -> UpstreamSpec:
    """`URL`, or `ID=URL`. Raises ValueError."""
    named = _ID_AND_URL.fullmatch(text.strip())
    return upstream_from_table({"url": text.strip()} if named is None else {"id": named["id"], "url": named["url"]})


def upstream_from_table(table: Mapping[str, Any]) -> UpstreamSpec:
    """One table of the settings. Raises ValueError, naming the key and the rule."""
    said = {key.replace("-", "_"): value for key, value in table.items()}
    if unknown := sorted(set(said) - set(_UPSTREAM_KEYS)):
        raise ValueError(f'"{unknown[0]}" is no key of an upstream; there are {", ".join(_UPSTREAM_KEYS)}')
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
    headers = _check_headers(said.get("headers", {}))
    if token:
        headers |= _check_headers({"Authorization": f"Bearer {token}"})
    turns, limit = said.get("turns", DEFAULT_UPSTREAM_TURNS), said.get("time_limit", 0.0)
    if type(turns) is not int or not 1 <= turns <= MAX_UPSTREAM_TURNS:
        raise ValueError(f"turns: must be 1 to {MAX_UPSTREAM_TURNS}")
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit < 1e9:
        raise ValueError("time_limit: must be seconds, 0 for no limit")
    return UpstreamSpec(
        url=_check_url(said.get("url", "")),
        id=id,
        prefix=prefix,
        headers=headers,
        token_file=said.get("token_file", ""),
        turns=turns,
        time_limit=float(limit),
    )


def parse_upstreams(value: object) -> object:
    """Settings: a text of `URL` and `ID=URL` with commas, or a list of such texts and of tables. Raises ValueError."""
    if isinstance(value, str):
        value = [item for item in map(str.strip, value.split(",")) if item]
    if not isinstance(value, list | tuple):
        return value
    made = []
    for one in value:
        if isinstance(one, UpstreamSpec):
            made.append(one)
        elif isinstance(one, str):
            made.append(parse_upstream(one))
        elif isinstance(one, Mapping):
            made.append(upstream_from_table(one))
        else:
            raise ValueError(f"{one!r} is no upstream; it is a URL, ID=URL, or a table with url")
    for index, upstream in enumerate(made):
        if upstream.id and upstream.id in [earlier.id for earlier in made[:index]]:
            raise ValueError(f'"{upstream.id}" is the id of two upstreams')
    return tuple(made)


def upstream_to_json(upstream: UpstreamSpec) -> str:
    """One as it is kept, with its credentials: what `read` takes, as JSON."""
    table = {"url": upstream.url, "id": upstream.id, "headers": dict(upstream.headers)}
    return json.dumps({**table, "turns": upstream.turns, "time_limit": upstream.time_limit})


def upstream_agent_id(upstream: UpstreamSpec, name: str) -> str:
    """What an agent of this name is called here. Raises ValueError when its name is no help."""
    if upstream.id:
        return upstream.id
    made = upstream.prefix + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    try:
        check_agent_id(made[:63].rstrip("-"))
    except ValueError:
        raise ValueError(f'its name "{name[:80]}" makes no agent id; give it one, as ID=URL') from None
    return made[:63].rstrip("-")


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.fragment or "@" in parts.netloc:
        raise ValueError("url: must be http(s)://HOST[:PORT][/PATH], without user name and password")
    return url


def _check_headers(table: object) -> dict[str, str]:
    if not isinstance(table, Mapping):
        raise ValueError("headers: must be a table of names and texts")
    for name, value in table.items():
        if not _HEADER.fullmatch(str(name)):
            raise ValueError(f'headers: "{str(name)[:80]}" is no name of a header')
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise ValueError(f"headers.{name}: must be printable ASCII")
    return {str(name): value for name, value in table.items()}


EXECUTOR_FORMAT: Final = "[ID=]MODULE:NAME or [ID=]FILE.py:NAME"

DEFAULT_EXECUTOR_TURNS: Final = 100
"""Turns of one executor at the same time, unless somebody says otherwise."""

_EXECUTOR_SUFFIXES: Final = ("agent-executor", "agent-worker", "executor", "worker")


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """One of them: its agent's id, and what is to be loaded."""

    id: str
    target: str
    """MODULE:NAME, or FILE.py:NAME."""

    @property
    def module(self) -> str:
        """The module or file of the target."""
        return self.target.rpartition(":")[0]

    def __str__(self) -> str:
        return f"{self.id} ({self.target})"

    @classmethod
    def parse(cls, text: str) -> ExecutorSpec:
        """Reads `[ID=]MODULE:NAME`. Raises ValueError."""
        id, given, target = text.strip().rpartition("=")
        module, colon, name = target.rpartition(":")
        if not colon or not module or not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f'"{text}" is not {EXECUTOR_FORMAT}')
        id = id if given else executor_id(module, name)
        try:
            check_agent_id(id)
        except ValueError as error:
            rule = str(error).removesuffix("; set id=").removesuffix("; set id= to choose another")
            raise ValueError(f'"{text}": {rule}; choose one with {EXECUTOR_FORMAT}') from error
        return cls(id, target)


def parse_executors(value: Any) -> tuple[ExecutorSpec, ...]:
    """The executors of one server: texts, or several in one with commas between. Raises ValueError."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str | ExecutorSpec) for item in items):
        raise ValueError(f"must be a list of {EXECUTOR_FORMAT}")
    every = [part for item in items for part in (item.split(",") if isinstance(item, str) else (item,))]
    said = [one if isinstance(one, ExecutorSpec) else ExecutorSpec.parse(one) for one in every if one != ""]
    ids = [one.id for one in said]
    if twice := sorted({id for id in ids if ids.count(id) > 1}):
        raise ValueError(f'"{twice[0]}" is the id of two of them; say {EXECUTOR_FORMAT}')
    return tuple(said)


def executor_id(module: str, name: str) -> str:
    """The id of an agent that nobody gave one: `HelloWorldAgentExecutor` is `hello-world`, a bare `Executor` is called
    after its module."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_.]+", "-", name).lower().strip("-")
    for suffix in _EXECUTOR_SUFFIXES:
        if words == suffix:
            stem = re.split(r"[/\\]", module.removesuffix(".py"))[-1].rpartition(".")[2]
            return stem.lower().replace("_", "-").strip("-")
        if words.endswith(f"-{suffix}"):
            return words.removesuffix(f"-{suffix}")
    return words
