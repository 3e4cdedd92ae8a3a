"""Policy for outbound addresses: special-purpose ranges, and the operator's allow-list.

The ranges are those of IANA's IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890), plus multicast, returned
ranges and the metadata services of clouds. An IPv6 address that embeds an IPv4 address is checked as both, because a
gateway or the kernel would unwrap it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


class AddressKind(IntEnum):
    """Who decides whether an address may be called."""

    PUBLIC = 0  # always allowed
    INTERNAL = 1  # decided by the operator's allow-list
    LOOPBACK = 2  # allowed for a server that only its own machine uses, or by an entry that names loopback itself
    FORBIDDEN = 3  # never allowed: no receiver can be there, or it hands out credentials


class AddressRange(NamedTuple):
    """A range of addresses and its purpose."""

    network: IPNetwork
    kind: AddressKind
    name: str


_RANGES: Final = (
    # First the addresses inside ranges that an operator may allow, or that look public.
    (
        AddressKind.FORBIDDEN,
        {
            # Azure (inside public space), Alibaba, Oracle, Amazon, Google
            "cloud metadata": "168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::/32 fd20:ce::254",
            "limited broadcast": "255.255.255.255",
            "unspecified (this network)": "0.0.0.0/8",  # connecting to 0.0.0.0 reaches this machine
            "link-local": "169.254.0.0/16 fe80::/10",  # includes the metadata services of most clouds
            "multicast": "224.0.0.0/4 ff00::/8",
            "unspecified": "::",
        },
    ),
    (AddressKind.LOOPBACK, {"loopback": "127.0.0.0/8 ::1"}),
    (
        AddressKind.INTERNAL,
        {
            "private": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16",
            "shared with a provider (CGNAT)": "100.64.0.0/10",
            "documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
            "AS112": "192.31.196.0/24 192.175.48.0/24 2620:4f:8000::/48",
            "multicast tunnels (AMT)": "192.52.193.0/24",
            "6to4 relays": "192.88.99.0/24",
            "benchmarking": "198.18.0.0/15 2001:2::/48",
            "reserved": "240.0.0.0/4",
            "IPv4-translated": "::ffff:0:0:0/96",
            "IPv4-compatible": "::/96",
            "local NAT64": "64:ff9b:1::/48",
            "discard-only": "100::/64",
            "dummy prefix": "100:0:0:1::/64",
            "Teredo": "2001::/32",
            "ORCHID": "2001:10::/28 2001:20::/28",
            "drone remote ids": "2001:30::/28",
            "IETF protocol assignments": "192.0.0.0/24 2001::/23",  # after the others inside
            "6to4": "2002::/16",
            "6bone": "3ffe::/16",
            "segment routing": "5f00::/16",
            "unique local": "fc00::/7",
            "site-local": "fec0::/10",
        },
    ),
    (AddressKind.PUBLIC, {"public": "2000::/3 0.0.0.0/0"}),
    (AddressKind.INTERNAL, {"reserved": "::/0"}),  # IANA assigns global unicast from 2000::/3 alone
)

ADDRESS_RANGES: Final = tuple(
    AddressRange(ip_network(network), kind, name)
    for kind, rows in _RANGES
    for name, networks in rows.items()
    for network in networks.split()
)
"""The first range that contains an address counts."""

_MAPPED: Final = ip_network("::ffff:0:0/96")
_NAT64: Final = ip_network("64:ff9b::/96")
_LAST_32_BITS: Final = (ip_network("::ffff:0:0:0/96"), ip_network("::/96"), ip_network("64:ff9b:1::/48"))
_ISATAP: Final = (0x00005EFE, 0x02005EFE)
"""Bits 32 to 63 of an ISATAP address, which ends in an IPv4 address (RFC 5214 §6.1)."""


def address_range(address: IPAddress) -> AddressRange:
    """The range of an address, without regard to embedded addresses."""
    return next(found for found in ADDRESS_RANGES if address in found.network)


def embedded_ipv4(address: IPAddress) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses embedded in an address, which a gateway or the kernel would call."""
    if isinstance(address, IPv4Address):
        return ()
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _MAPPED or address in _NAT64:
        return (last,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if int(address) > 1 and any(address in network for network in _LAST_32_BITS):
        return (last,)
    return (last,) if int(address) >> 32 & 0xFFFFFFFF in _ISATAP else ()


@dataclass(frozen=True, slots=True)
class AllowEntry:
    """One entry of the allow-list: a network or host name, with one port or any."""

    text: str
    network: IPNetwork | None = None
    host: str = ""
    port: int | None = None

    @property
    def names_loopback(self) -> bool:
        """Whether the entry names loopback itself. A wider network, or another host that resolves to loopback, does
        not: whoever lists 0.0.0.0/0 does not think of this machine's own services."""
        if self.network is None:
            return is_local_name(self.host)
        found = address_range(self.network.network_address)
        return found.kind is AddressKind.LOOPBACK and self.network[-1] in found.network

    def covers(self, host: str, address: IPAddress | None, port: int) -> bool:
        """Whether the entry allows calls to this address, to which `host` resolved; None: to none yet."""
        if self.port not in (None, port):
            return False
        if self.network is None:
            return self.host == normalize_host(host)
        return address is not None and address in self.network


_PORT: Final = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_LOCAL_NAMES: Final = ("localhost", ".localhost", ".localdomain")
HOST_NAME: Final = re.compile(
    r"(?=.{1,253}\.?\Z)(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.(?!\Z)|\.?\Z))+"
)
"""A host name: ASCII labels of at most 63 characters."""

ALLOW_ENTRY_FORMAT: Final = (
    "NETWORK, ADDRESS, HOST, or the last two with :PORT; such as 10.0.0.0/8, hooks.internal, [fd00::5]:8443"
)


def normalize_host(host: str) -> str:
    """A host name for comparison: in lower case, without a trailing dot."""
    return host.lower().removesuffix(".")


def is_local_name(host: str) -> bool:
    """Whether a host name means this machine, without a lookup (RFC 6761 §6.3)."""
    name = normalize_host(host)
    return name in _LOCAL_NAMES or name.endswith(_LOCAL_NAMES[1:])


def is_loopback(address: IPAddress) -> bool:
    """Whether an address is loopback, also as an IPv4-mapped one."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address_range(mapped or address).kind is AddressKind.LOOPBACK


def is_loopback_host(host: str) -> bool:
    """Whether an address (without brackets) is loopback, or the name is `localhost`; without a lookup."""
    try:
        return is_loopback(ip_address(host.partition("%")[0]))
    except ValueError:
        return host == "localhost"


def parse_allow_entry(text: str) -> AllowEntry:
    """Parses an allow-list entry. Raises ValueError, naming the form; also for an entry without effect."""
    entry = _read_entry(text)
    if entry.network is not None:
        found = address_range(entry.network.network_address)
        is_inside = entry.network.version == found.network.version and entry.network[-1] in found.network
        if is_inside and found.kind is AddressKind.FORBIDDEN:
            raise ValueError(f'"{text}": {found.name} addresses are never called; no entry can allow them')
    return entry


def _read_entry(text: str) -> AllowEntry:
    try:
        return AllowEntry(text, ip_network(text))
    except ValueError:
        pass
    match = _PORT.fullmatch(text)
    port = int(match["port"]) if match and match["port"] else None
    if match is None or (port is not None and not 0 < port < 65536):
        raise ValueError(f'"{text}" is not {ALLOW_ENTRY_FORMAT}')
    host = match["host"]
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
        return AllowEntry(text, ip_network(address), port=port)
    except ValueError:
        if not HOST_NAME.fullmatch(host) or ends_in_number(host):
            raise ValueError(f'"{text}" is not {ALLOW_ENTRY_FORMAT}') from None
    return AllowEntry(text, host=normalize_host(host), port=port)


def ends_in_number(host: str) -> bool:
    """Whether parsers take a name for an IPv4 address (WHATWG URL, "ends in a number")."""
    last = normalize_host(host).rpartition(".")[2]
    return last.isdecimal() or re.fullmatch(r"0x[0-9a-f]*", last) is not None


LOOPBACK_RULE: Final = (
    "may be called only if the operator names them, such as 127.0.0.1:9000 (outbound_allow), or by a server that "
    "listens on loopback without authentication and proxy"
)
"""Who may call this machine; follows `loopback addresses` in messages."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The addresses that may be called: public ones, those in `allow`, and loopback if `loopback` is set."""

    allow: tuple[AllowEntry, ...] = ()
    loopback: bool = False
    """Only this machine's own users call the server. Otherwise callers could reach services that trust this machine."""

    def may_call_local_names(self, port: int) -> bool:
        """Whether names of this machine may be called on this port; their addresses are checked after the lookup."""
        return self.loopback or any(entry.names_loopback and entry.port in (None, port) for entry in self.allow)

    def problem(self, address: IPAddress, port: int, host: str = "") -> str:
        """Why this address, to which `host` resolved, may not be called; empty when it may."""
        embedded = embedded_ipv4(address)
        if not (isinstance(address, IPv6Address) and (address in _MAPPED or address in _NAT64)) and (
            problem := self._problem(address, port, host, is_local=True)
        ):
            return problem
        # The kernel unwraps only mapped addresses itself; others would reach the loopback of another machine.
        is_local = isinstance(address, IPv6Address) and address in _MAPPED
        return next(filter(None, (self._problem(part, port, host, is_local=is_local) for part in embedded)), "")

    def names_port(self, host: str, port: int) -> bool:
        """Whether an entry names this port of this host or literal address."""
        try:
            address: IPAddress | None = ip_address(host)
        except ValueError:
            address = None
        return any(entry.port == port and entry.covers(host, address, port) for entry in self.allow)

    def _problem(self, address: IPAddress, port: int, host: str, *, is_local: bool) -> str:
        found = address_range(address)
        listed = (entry for entry in self.allow if entry.covers(host, address, port))
        match found.kind:
            case AddressKind.PUBLIC:
                return ""
            case AddressKind.LOOPBACK:
                is_allowed = is_local and (self.loopback or any(entry.names_loopback for entry in listed))
                return "" if is_allowed else f"{found.name} addresses {LOOPBACK_RULE}"
            case AddressKind.INTERNAL:
                rule = "may be called only if the operator allows them (outbound_allow)"
                return "" if any(listed) else f"{found.name} addresses {rule}"
        return f"{found.name} addresses are never called"
