"""Settings of MCP servers that are served as agents: parsing, validation, agent ids."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

from dragoman.calling.secret_files import read_secret
from dragoman.core.agent_sources import check_headers, check_http_url, read_sources
from dragoman.core.durations import is_seconds
from dragoman.core.names import check_agent_id

MCP_FORMAT: Final = "[ID=]URL or [ID=]COMMAND"

DEFAULT_MCP_TURNS: Final = 100
"""Default number of concurrent calls of an MCP server."""

MAX_MCP_TURNS: Final = 10_000

DEFAULT_MCP_SILENCE: Final = 300.0
"""Seconds of silence after which a call counts as broken. A tool may compute without a word."""

_COMMON_KEYS: Final = ("url", "command", "id", "turns", "time_limit", "silence")
_HTTP_KEYS: Final = ("token", "token_file", "headers")
_COMMAND_KEYS: Final = ("env", "cwd")
_MCP_KEYS: Final = (*_COMMON_KEYS, *_HTTP_KEYS, *_COMMAND_KEYS)
_NAMED: Final = re.compile(r"(?P<id>[a-z][a-z0-9-]*)=(?P<rest>.+)", re.DOTALL)
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSpec:
    """The settings of one MCP server: `url` or `command`."""

    url: str = ""
    """The http(s) URL of its endpoint (Streamable HTTP)."""
    command: tuple[str, ...] = ()
    """The program and its arguments; it is run as a child process and called over its stdin and stdout."""
    id: str = ""
    """Its agent id here; empty: derived from its name."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers sent with each request, in place of our callers' credentials."""
    token_file: str = ""
    """A file with the bearer token to send, read when the server starts."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of the child process, beside PATH, HOME and a few more."""
    cwd: str = ""
    """Working directory of the child process; empty: that of this server."""
    turns: int = DEFAULT_MCP_TURNS
    """Maximum concurrent calls."""
    time_limit: float = 0.0
    """Maximum seconds of a turn; 0 for no limit."""
    silence: float = DEFAULT_MCP_SILENCE
    """Seconds until a call is broken: without a byte over HTTP, without answer or progress over stdio."""

    @property
    def location(self) -> str:
        """The server for people: the URL without query, or the program without its arguments."""
        if self.command:
            return self.command[0]
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def parse_mcp_server(text: str) -> McpSpec:
    """Parses `URL`, `COMMAND ARGUMENT...`, `ID=URL` or `ID=COMMAND`. Raises ValueError."""
    named = _NAMED.fullmatch(text.strip())
    rest = text.strip() if named is None else named["rest"].strip()
    table: dict[str, Any] = {} if named is None else {"id": named["id"]}
    scheme, found, _ = rest.split(" ", 1)[0].partition("://")
    if found and scheme not in ("http", "https"):
        raise ValueError(f'"{text}" is not {MCP_FORMAT}; the URL of an MCP server begins with http:// or https://')
    return mcp_server_from_table({**table, ("url" if found else "command"): rest})


def mcp_server_from_table(table: Mapping[str, Any]) -> McpSpec:
    """Reads a table of the settings. Raises ValueError, naming the key and the rule."""
    settings = {key.replace("-", "_"): value for key, value in table.items()}
    if unknown := sorted(set(settings) - set(_MCP_KEYS)):
        raise ValueError(f'"{unknown[0]}" is not a key of an MCP server; use {", ".join(_MCP_KEYS)}')
    for key in ("url", "id", "token", "token_file", "cwd"):
        if not isinstance(settings.get(key, ""), str):
            raise ValueError(f"{key}: must be a string")
    if bool(settings.get("url")) == bool(settings.get("command")):
        raise ValueError("url, command: set one of them")
    others = _COMMAND_KEYS if settings.get("url") else _HTTP_KEYS
    if misplaced := [key for key in others if key in settings]:
        raise ValueError(f"{misplaced[0]}: is for servers with a {'command' if settings.get('url') else 'url'}")
    if id := settings.get("id", ""):
        try:
            check_agent_id(id)
        except ValueError as error:
            raise ValueError(f"id: {str(error).removesuffix('; set id=')}") from None
    token = settings.get("token", "")
    if token and settings.get("token_file"):
        raise ValueError("token, token_file: set only one of them")
    headers = check_headers(settings.get("headers", {}))
    if token:
        headers |= check_headers({"Authorization": f"Bearer {token}"})
    turns = settings.get("turns", DEFAULT_MCP_TURNS)
    if type(turns) is not int or not 1 <= turns <= MAX_MCP_TURNS:
        raise ValueError(f"turns: must be 1 to {MAX_MCP_TURNS}")
    silence = _check_seconds(settings, "silence", DEFAULT_MCP_SILENCE)
    if not silence:
        raise ValueError("silence: must be more than 0 seconds")
    return McpSpec(
        url=check_http_url(settings["url"]) if settings.get("url") else "",
        command=_check_command(settings["command"]) if settings.get("command") else (),
        id=id,
        headers=headers,
        token_file=settings.get("token_file", ""),
        env=_check_env(settings.get("env", {})),
        cwd=settings.get("cwd", ""),
        turns=turns,
        time_limit=_check_seconds(settings, "time_limit", 0.0),
        silence=silence,
    )


def parse_mcp_servers(value: object) -> object:
    """Parses MCP servers: one per line, or a list of texts and of tables. Raises ValueError."""
    if isinstance(value, str):
        value = [line for line in map(str.strip, value.splitlines()) if line]
    if not isinstance(value, list | tuple):
        return value
    form = f"{MCP_FORMAT}, or a table with url or command"
    return read_sources(value, McpSpec, parse_mcp_server, mcp_server_from_table, "MCP server", form)


def mcp_agent_id(server: McpSpec, name: str) -> str:
    """The agent id of an MCP server with this name. Raises ValueError when the name gives no valid id."""
    if server.id:
        return server.id
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name.rpartition("/")[2])
    id = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:63].rstrip("-")
    try:
        check_agent_id(id)
    except ValueError:
        raise ValueError(f'its name "{name[:80]}" gives no valid agent id; choose one with {MCP_FORMAT}') from None
    return id


def _check_command(value: object) -> tuple[str, ...]:
    """The words of a command: a text as a shell splits it, or a list of words."""
    if isinstance(value, str):
        try:
            words: list[Any] = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"command: cannot be split into words: {str(error).lower()}") from None
    elif isinstance(value, list | tuple):
        words = list(value)
    else:
        raise ValueError("command: must be a string or a list of strings")
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words) or not words[0]:
        raise ValueError("command: must be a string or a list of strings, with a program first")
    return tuple(words)


def _check_env(table: object) -> dict[str, str]:
    if not isinstance(table, Mapping):
        raise ValueError("env: must be a table of names and strings")
    for name, value in table.items():
        if not _ENV_NAME.fullmatch(str(name)):
            raise ValueError(f'env: "{str(name)[:80]}" is not the name of an environment variable')
        if not isinstance(value, str) or "\0" in value:
            raise ValueError(f"env.{name}: must be a string")
    return {str(name): value for name, value in table.items()}


def _check_seconds(settings: Mapping[str, Any], key: str, default: float) -> float:
    value = settings.get(key, default)
    if not is_seconds(value):
        raise ValueError(f"{key}: must be a number of seconds")
    return float(value)


def with_token(server: McpSpec) -> McpSpec:
    """The server with the token from its file. Raises ValueError."""
    if not server.token_file:
        return server
    authorization = {"Authorization": f"Bearer {read_secret(server.token_file)}"}
    return replace(server, headers={**server.headers, **check_headers(authorization)})
