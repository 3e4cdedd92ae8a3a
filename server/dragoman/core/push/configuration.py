"""Push notification configurations and their validation (A2A 1.0 §4.3, §13.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from dragoman.core.errors import InvalidParams
from dragoman.core.limits.message_limits import MAX_ID_LENGTH

MAX_PUSH_CONFIGS: Final = 32  # maximum configurations of a task

OLDEST_CONFIG_ID: Final = "/"
"""Stands for a task's oldest configuration, for dialects without configuration ids. No id has a slash."""

MAX_WEBHOOK_URL_LENGTH: Final = 2048
MAX_WEBHOOK_SECRET_LENGTH: Final = 8192
"""Maximum characters of a URL, and of a token or credentials."""

MAX_SCHEME_DESCRIPTION: Final = 4096
_DESCRIPTION: Final = "\n"  # separates a scheme from its description

_CONFIG_ID: Final = re.compile(rf"[^/\x00-\x1f\x7f]{{1,{MAX_ID_LENGTH}}}")
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_HEADER_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """A requested webhook. After `check_push_config` its values are safe in HTTP headers."""

    id: str
    url: str
    token: str = ""
    scheme: str = ""
    """The authentication schemes, the preferred first, separated by commas: versions before 1.0 name several. In
    OpenAPI's form one scheme, with its description (`describe_scheme`)."""
    credentials: str = ""
    dialect: str = ""
    """The dialect of its notifications: that of the call that created it."""

    @property
    def preferred_scheme(self) -> str:
        """The scheme of its notifications; empty for none."""
        return next(iter(split_schemes(self.scheme)), "")

    @property
    def host(self) -> str:
        """The host and port of the URL, as one key; empty for an invalid URL."""
        return _host_of(self.url)


@lru_cache(1024)  # a delivery asks several times for each event
def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{(parts.hostname or '').lower()}:{parts.port or (80 if parts.scheme == 'http' else 443)}"
    except ValueError:
        return ""


def check_push_config(config: PushConfig, prefix: str = "", *, described: bool = False) -> None:
    """Raises InvalidParams for an invalid configuration. `prefix` precedes the names of its fields.

    `described`: the scheme may have a description, because its reader refuses a line break of the caller.
    """
    if not config.url:
        raise InvalidParams.field(f"{prefix}url", "is required")
    if len(config.url) > MAX_WEBHOOK_URL_LENGTH:
        raise InvalidParams.field(f"{prefix}url", f"must be at most {MAX_WEBHOOK_URL_LENGTH} characters")
    for field, value in (("token", config.token), ("authentication.credentials", config.credentials)):
        if len(value) > MAX_WEBHOOK_SECRET_LENGTH:
            raise InvalidParams.field(f"{prefix}{field}", f"must be at most {MAX_WEBHOOK_SECRET_LENGTH} characters")
        if value and not _HEADER_VALUE.fullmatch(value):
            text = "must be printable ASCII without leading or trailing blanks, because it is sent in a header"
            raise InvalidParams.field(f"{prefix}{field}", text)
    name, description = scheme_description(config.scheme) if described else (config.scheme, {})
    if sum(map(len, description.values())) > MAX_SCHEME_DESCRIPTION:
        text = f"bearerFormat and description must have at most {MAX_SCHEME_DESCRIPTION} characters together"
        raise InvalidParams.field(f"{prefix}authentication", text)
    if len(name) > MAX_ID_LENGTH or not all(map(_HEADER_TOKEN.fullmatch, name.split(", ") if name else ())):
        text = "must be an HTTP authentication scheme, such as Bearer (RFC 9110 §11.1)"
        raise InvalidParams.field(f"{prefix}authentication.scheme", text)


def split_schemes(schemes: str) -> list[str]:
    """The authentication schemes of a configuration, the preferred first."""
    name, _ = scheme_description(schemes)
    return name.split(", ") if name else []


def describe_scheme(name: str, description: Mapping[str, str]) -> str:
    """One scheme with the `bearerFormat` and `description` of OpenAPI's form, as text. No delivery uses them."""
    return f"{name}{_DESCRIPTION}{json.dumps(description)}" if description else name


def scheme_description(text: str) -> tuple[str, dict[str, str]]:
    """Splits a text of `describe_scheme`; any other is a name."""
    name, separator, described = text.partition(_DESCRIPTION)
    if name and separator:
        with suppress(ValueError):
            description = json.loads(described)
            if type(description) is dict and description.keys() <= {"bearerFormat", "description"}:
                return name, {key: str(value) for key, value in description.items()}
    return text, {}


def join_schemes(schemes: Iterable[str]) -> str:
    return ", ".join(schemes)


def check_push_config_id(id: str, prefix: str = "") -> None:
    """Raises InvalidParams for an id that cannot be used in a path."""
    if not _CONFIG_ID.fullmatch(id):
        text = f'must be 1 to {MAX_ID_LENGTH} characters without "/" and control characters'
        raise InvalidParams.field(f"{prefix}id", text)
