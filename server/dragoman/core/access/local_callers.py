"""Decides which callers are on this machine: for both ports, and for operators and workers alike.

Without authentication they are operators and may connect workers, so a caller counts as remote when in doubt. A proxy
on this machine calls from a loopback address for whoever reaches it. It shows by the server's settings, by headers that
proxies add, or by the name under which it was called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from dragoman.core.net.addresses import is_loopback_host
from dragoman.core.net.targets import names_this_machine

_FORWARDING_HEADERS: Final = frozenset(("forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip"))
_FORWARDING_PREFIXES: Final = ("x-forwarded-", "x-envoy-", "cf-")
_HOST_HEADERS: Final = frozenset(("host", ":authority"))


def is_local_caller(
    address: str, headers: Iterable[tuple[str, str]], *, behind_proxy: bool, names_host: bool = False
) -> bool:
    """Whether a caller is on this machine, and no proxy calls for it.

    `address`: the peer's, as HTTP or gRPC name it. `headers`: HTTP headers or gRPC metadata. `behind_proxy`: the
    settings say that a proxy is in front of the server. `names_host`: the protocol has a `Host` in each request.
    """
    if behind_proxy or not _is_loopback_peer(address):
        return False
    hosts = 0
    for name, value in headers:
        name = name.lower()
        if name in _FORWARDING_HEADERS or name.startswith(_FORWARDING_PREFIXES):
            return False
        if name in _HOST_HEADERS:
            hosts += 1
            if not names_this_machine(value):
                return False
    return hosts == 1 if names_host else hosts <= 1


def _is_loopback_peer(address: str) -> bool:
    """Whether an address is loopback: `127.0.0.1`, or gRPC's `ipv4:127.0.0.1:5`, `ipv6:%5B::1%5D:5`, `unix:...`."""
    family, colon, rest = address.partition(":")
    if family == "unix":
        return True
    if colon and family in ("ipv4", "ipv6"):
        address = unquote(rest).rpartition(":")[0].removeprefix("[").removesuffix("]")
    return is_loopback_host(address)
