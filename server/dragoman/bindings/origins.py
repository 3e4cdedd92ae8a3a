"""Under which address a caller sees this server (RFC 9110 §7.2, RFC 7239).

The `Host` of the request says it; a proxy that the operator trusts may say it better. Both are a stranger's
words that end up in a card, so what is no host name is not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

from aiohttp import web

_HOST: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?")
_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){0,8}")
_FORWARDED: Final = re.compile(r'(?:^|[;,\s])(proto|host)\s*=\s*(?:"([^"]*)"|([^;,\s"]*))', re.IGNORECASE)

Networks = Sequence[IPv4Network | IPv6Network]


@dataclass(frozen=True, slots=True)
class Origin:
    """A base address: `url` as cards show it, `name` without scheme and port."""

    url: str
    name: str
    forwarded: bool = False
    """A proxy said so: this server's own ports are not what callers reach."""


def of(request: web.BaseRequest, trusted: Networks) -> Origin | None:
    """The address the caller used, or None when the request does not say anything usable."""
    headers = request.headers
    scheme, host, prefix, forwarded = request.scheme, headers.get("Host", ""), "", False
    if trusted and _is_trusted(request.remote, trusted):
        # Of several values the last is what the proxy next to us wrote itself.
        said = {
            name.lower(): quoted or plain
            for name, quoted, plain in _FORWARDED.findall(_last(headers.getall("Forwarded", ())))
        }
        said_scheme = said.get("proto") or _last(headers.getall("X-Forwarded-Proto", ()))
        said_host = said.get("host") or _last(headers.getall("X-Forwarded-Host", ()))
        prefix = _last(headers.getall("X-Forwarded-Prefix", ())).rstrip("/")
        forwarded = bool(said_scheme or said_host or prefix)
        scheme = said_scheme.lower() or scheme
        if said_host:
            host = said_host
            port = _last(headers.getall("X-Forwarded-Port", ()))
            if port.isascii() and port.isdigit() and _HOST.fullmatch(host + ":" + port) and not _is_usual(scheme, port):
                host += ":" + port
    found = _HOST.fullmatch(host)
    if found is None or scheme not in ("http", "https") or not _PREFIX.fullmatch(prefix):
        return None
    return Origin(f"{scheme}://{host}{prefix}", found["name"], forwarded)


def _last(values: Sequence[str]) -> str:
    return values[-1].rsplit(",", 1)[-1].strip() if values else ""


def _is_usual(scheme: str, port: str) -> bool:
    return (scheme, port) in (("http", "80"), ("https", "443"))


def _is_trusted(remote: str | None, trusted: Networks) -> bool:
    try:
        address = ip_address(remote or "")
    except ValueError:
        return False
    return any(address in network for network in trusted)
