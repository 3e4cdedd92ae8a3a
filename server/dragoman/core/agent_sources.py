"""Settings of upstream agents: parsing, validation, agent ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeVar, get_args
from urllib.parse import urlsplit

from dragoman.core.durations import is_seconds
from dragoman.core.names import check_agent_id

DEFAULT_UPSTREAM_TURNS: Final = 100  # default number of concurrent turns of an upstream agent
MAX_UPSTREAM_TURNS: Final = 10_000

FileForm = Literal["bytes", "base64"]
"""How 0.3 carries files over gRPC and REST: as bytes, as the proto says, or as base64 text."""

FILE_FORMS: Final[tuple[str, ...]] = get_args(FileForm)

_UPSTREAM_KEYS: Final = ("url", "id", "prefix", "token", "token_file", "headers", "turns", "time_limit", "v03_files")
_PREFIX: Final = re.compile(r"[a-z][a-z0-9-]{0,40}")
_ID_AND_URL: Final = re.compile(r"(?P<id>[a-z][a-z0-9-]*)=(?P<url>[a-z]+://.*)", re.DOTALL)
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSpec:
    """The settings of one upstream agent."""

    url: str  # the http(s) URL of its card, or the base URL of that
    id: str = ""  # its agent id here; empty: derived from `prefix` and its name
    prefix: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers sent with each call, in place of our callers' credentials."""
    token_file: str = ""  # a file with the bearer token to send, read when the server starts
    turns: int = DEFAULT_UPSTREAM_TURNS  # maximum concurrent turns
    time_limit: float = 0.0  # maximum seconds of a turn; 0 for no limit
    v03_files: FileForm | None = None  # the form of its files in 0.3 over gRPC and REST; None: unknown

    @property
    def location(self) -> str:
        """The URL without credentials and query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def parse_upstream(text: str) -> UpstreamSpec:
    """Parses `URL` or `ID=URL`. Raises ValueError."""
    named = _ID_AND_URL.fullmatch(text.strip())
    return upstream_from_table({"url": text.strip()} if named is None else {"id": named["id"], "url": named["url"]})


def upstream_from_table(table: Mapping[str, Any]) -> UpstreamSpec:
    """Reads a table of the settings. Raises ValueError, naming the key and the rule."""
    settings = {key.replace("-", "_"): value for key, value in table.items()}
    if unknown := sorted(set(settings) - set(_UPSTREAM_KEYS)):
        raise ValueError(f'"{unknown[0]}" is not a key of an upstream; use {", ".join(_UPSTREAM_KEYS)}')
    for key in ("url", "id", "prefix", "token", "token_file"):
        if not isinstance(settings.get(key, ""), str):
            raise ValueError(f"{key}: must be a string")
    id, prefix, token = settings.get("id", ""), settings.get("prefix", ""), settings.get("token", "")
    if id:
        try:
            check_agent_id(id)
        except ValueError as error:
            raise ValueError(f"id: {str(error).removesuffix('; set id=')}") from None
    if prefix and (id or not _PREFIX.fullmatch(prefix)):
        raise ValueError('prefix: must be a lower-case letter, then letters, digits or "-", and cannot be used with id')
    if token and settings.get("token_file"):
        raise ValueError("token, token_file: set only one of them")
    headers = check_headers(settings.get("headers", {}))
    if token:
        headers |= check_headers({"Authorization": f"Bearer {token}"})
    turns, limit = settings.get("turns", DEFAULT_UPSTREAM_TURNS), settings.get("time_limit", 0.0)
    if type(turns) is not int or not 1 <= turns <= MAX_UPSTREAM_TURNS:
        raise ValueError(f"turns: must be 1 to {MAX_UPSTREAM_TURNS}")
    if not is_seconds(limit):
        raise ValueError("time_limit: must be a number of seconds, 0 for no limit")
    files = settings.get("v03_files")
    if files not in (None, *FILE_FORMS):
        raise ValueError(f"v03_files: must be one of {', '.join(FILE_FORMS)}")
    return UpstreamSpec(
        url=check_http_url(settings.get("url", "")),
        id=id,
        prefix=prefix,
        headers=headers,
        token_file=settings.get("token_file", ""),
        turns=turns,
        time_limit=float(limit),
        v03_files=files,
    )


def parse_upstreams(value: object) -> object:
    """Parses upstreams: `URL` and `ID=URL` separated by commas, or a list of those and of tables. Raises ValueError."""
    if isinstance(value, str):
        value = [item for item in map(str.strip, value.split(",")) if item]
    if not isinstance(value, list | tuple):
        return value
    kind, form = "upstream", "URL, ID=URL, or a table with url"
    return read_sources(value, UpstreamSpec, parse_upstream, upstream_from_table, kind, form)


class _Source(Protocol):
    @property
    def id(self) -> str: ...


_S = TypeVar("_S", bound=_Source)


def read_sources(
    items: Sequence[object],
    spec: type[_S],
    parse: Callable[[str], _S],
    from_table: Callable[[Mapping[str, Any]], _S],
    kind: str,
    form: str,
) -> tuple[_S, ...]:
    """Reads a list of sources of agents: specs, texts and tables. Raises ValueError, also for an id given twice."""
    sources: list[_S] = []
    for item in items:
        if isinstance(item, spec):
            sources.append(item)
        elif isinstance(item, str):
            sources.append(parse(item))
        elif isinstance(item, Mapping):
            sources.append(from_table(item))
        else:
            raise ValueError(f"{item!r} is not an {kind}; use {form}")
    for index, source in enumerate(sources):
        if source.id and source.id in [earlier.id for earlier in sources[:index]]:
            raise ValueError(f'"{source.id}" is the id of two {kind}s')
    return tuple(sources)


def upstream_to_json(upstream: UpstreamSpec) -> str:
    """The stored form, including credentials: JSON that `upstream_from_table` reads."""
    table = {"url": upstream.url, "id": upstream.id, "headers": dict(upstream.headers)}
    files = {"v03_files": upstream.v03_files} if upstream.v03_files else {}
    return json.dumps({**table, "turns": upstream.turns, "time_limit": upstream.time_limit, **files})


def upstream_agent_id(upstream: UpstreamSpec, name: str) -> str:
    """The agent id of an upstream whose card has this name. Raises ValueError when the name gives no valid id."""
    if upstream.id:
        return upstream.id
    id = upstream.prefix + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    try:
        check_agent_id(id[:63].rstrip("-"))
    except ValueError:
        raise ValueError(f'its name "{name[:80]}" gives no valid agent id; set one with ID=URL') from None
    return id[:63].rstrip("-")


def check_http_url(url: str) -> str:
    """The URL of a server. Raises ValueError, naming the key `url`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.fragment or "@" in parts.netloc:
        raise ValueError("url: must be http(s)://HOST[:PORT][/PATH] without user name and password")
    return url


def check_headers(table: object) -> dict[str, str]:
    """A table of headers. Raises ValueError, naming the key `headers`."""
    if not isinstance(table, Mapping):
        raise ValueError("headers: must be a table of names and strings")
    for name, value in table.items():
        if not _HEADER.fullmatch(str(name)):
            raise ValueError(f'headers: "{str(name)[:80]}" is not a header name')
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise ValueError(f"headers.{name}: must be printable ASCII")
    return {str(name): value for name, value in table.items()}
