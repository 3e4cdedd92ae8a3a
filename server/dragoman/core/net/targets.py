"""Parses the URLs of outbound calls strictly, and checks them against the operator's policy.

Checks are bypassed when two parsers read a URL differently. So this parser rejects everything that parsers are known to
disagree on, and callers build their requests from the parsed parts, not from the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from dragoman.core.net import addresses

MAX_URL_LENGTH: Final = 2048  # maximum characters of a URL
DEFAULT_PORTS: Final = {"http": 80, "https": 443}  # the allowed schemes and their ports

# fmt: off
UNSAFE_PORTS: Final = frozenset((
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
    111, 113, 115, 117, 119, 123, 135, 137, 138, 139, 143, 161, 179, 389, 427, 445, 465, 512, 513, 514, 515, 526, 530,
    531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 873, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190,
    5060, 5061, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 11211,
))
# fmt: on
"""Ports of protocols that may interpret an HTTP request as commands: the browsers' list (Fetch Standard, "bad port"),
and those of SMB, rsync, Redis and memcached."""

_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>[^#]*)(?:#.*)?")
_AUTHORITY: Final = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]]*))(?P<colon>:(?P<port>[0-9]{0,6}))?", re.ASCII)
_FORBIDDEN_CHARACTERS: Final = re.compile(r"[^\x21-\x7e]|\\")


@dataclass(frozen=True, slots=True)
class UrlTarget:
    """The parts of a URL. `host` is in lower case, IPv6 addresses without brackets; `path` begins with "/"."""

    scheme: str
    host: str
    port: int
    path: str
    query: str
    address: addresses.IPAddress | None  # set when the host is an address

    @property
    def host_port(self) -> str:
        """HOST:PORT for messages, because paths and queries can hold secrets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_target(url: str) -> UrlTarget:
    """Parses an http or https URL. Raises ValueError with the rule that it breaks, without the URL's secrets."""
    if len(url) > MAX_URL_LENGTH:
        raise ValueError(f"has {len(url)} characters; at most {MAX_URL_LENGTH}")
    if _FORBIDDEN_CHARACTERS.search(url):
        raise ValueError(
            "may hold visible ASCII characters only, without backslash; write others as %XX, in hosts as xn--..."
        )
    match = _URL.fullmatch(url)
    if match is None or (scheme := match["scheme"].lower()) not in DEFAULT_PORTS:
        raise ValueError("must begin with https:// or http:// and name a host")
    if "@" in match["authority"]:
        raise ValueError("must not contain a user name or password")
    host, address, port = _parse_authority(match["authority"], "after :// must come")
    path, _, query = match["rest"].partition("?")
    return UrlTarget(scheme, host, port or DEFAULT_PORTS[scheme], path or "/", query, address)


@dataclass(frozen=True, slots=True)
class HostPort:
    """A `Host` header or `:authority` (RFC 9110 §7.2): `host` in lower case, without brackets and trailing dot."""

    host: str
    address: addresses.IPAddress | None
    port: int | None

    @property
    def is_local(self) -> bool:
        """Whether no name server decides where it leads: a loopback address, or `localhost` and names under it, which
        browsers resolve to loopback themselves (RFC 6761 §6.3)."""
        if self.address is not None:
            return addresses.is_loopback(self.address)
        return self.host == "localhost" or self.host.endswith(".localhost")


def parse_host_port(text: str) -> HostPort:
    """Parses HOST or HOST:PORT, an IPv6 address in brackets, and nothing else. Raises ValueError."""
    host, address, port = _parse_authority(text, "must be")
    return HostPort(host.removesuffix("."), address, port)


@lru_cache(64)
def names_this_machine(authority: str) -> bool:
    """Whether a `Host`, `:authority` or HOST:PORT names this machine. An invalid one does not."""
    try:
        return parse_host_port(authority).is_local
    except ValueError:
        return False


def _parse_authority(text: str, place: str) -> tuple[str, addresses.IPAddress | None, int | None]:
    """The normalized host, its address if it is one, and the port. Raises ValueError."""
    parts = _AUTHORITY.fullmatch(text)
    if parts is None:
        raise ValueError(f"{place} HOST or HOST:PORT, an IPv6 address in brackets")
    port = int(parts["port"] or 0)
    if parts["colon"] and not 0 < port < 65536:
        raise ValueError("a port is 1 to 65535")
    bracketed = parts["v6"] is not None
    return *_parse_host(parts["v6"] if bracketed else parts["host"], bracketed=bracketed), port or None


def _parse_host(text: str, *, bracketed: bool) -> tuple[str, addresses.IPAddress | None]:
    """The normalized host, and its address if it is one. Raises ValueError."""
    if bracketed:
        if "%" in text:
            raise ValueError("an IPv6 address must not contain a zone")
        try:
            ipv6_address = IPv6Address(text)
        except ValueError:
            raise ValueError("the text in brackets is not an IPv6 address") from None
        return str(ipv6_address), ipv6_address
    if addresses.ends_in_number(text):
        try:
            address = IPv4Address(text)
        except ValueError:
            rule = "four decimal numbers from 0 to 255, without leading zeros"
            raise ValueError(f"a host that ends in a number must be an IPv4 address: {rule}") from None
        return text, address
    if not addresses.HOST_NAME.fullmatch(text):
        rule = "labels of at most 63 ASCII letters, digits, - and _, together at most 253 characters"
        raise ValueError(f"a host is {rule}")
    return text.lower(), None


@dataclass(frozen=True, slots=True)
class OutboundPolicy:
    """The operator's rules for URLs."""

    address_policy: addresses.AddressPolicy = field(default_factory=addresses.AddressPolicy)
    https_only: bool = False
    ports: Collection[int] = ()
    """Allowed ports, in addition to those in the allow-list; empty: all but UNSAFE_PORTS."""

    def problem(self, target: UrlTarget) -> str:
        """The rule that a target breaks, before its host is resolved; empty when none."""
        if self.https_only and target.scheme != "https":
            return "only https:// is allowed here (outbound_https_only)"
        if not self.address_policy.names_port(target.host, target.port):
            if self.ports and target.port not in self.ports:
                allowed = ", ".join(map(str, sorted(self.ports)))
                return f"port {target.port} is not allowed; allowed are {allowed} (outbound_ports)"
            if not self.ports and target.port in UNSAFE_PORTS:
                return f"port {target.port} belongs to another protocol; use the port of a web server, such as 443"
        if target.address is not None:
            problem = self.address_policy.problem(target.address, target.port, target.host)
            return problem and f"{target.host}: {problem}"
        if addresses.is_local_name(target.host) and not self.address_policy.may_call_local_names(target.port):
            return f"{target.host}: loopback addresses {addresses.LOOPBACK_RULE}"
        return ""


def parse_port(text: str) -> int:
    """Parses a port. Raises ValueError."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 65536):
        raise ValueError(f'"{text}" is not a port; a port is 1 to 65535')
    return int(text)
