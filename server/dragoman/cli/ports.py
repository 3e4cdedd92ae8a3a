"""Ports that several processes share: kept by their parent, so that they stay the same and stay ours."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from dragoman.foundation import StartError
from dragoman.settings import Address, SettingsError


def check_sharing() -> None:
    """Raises SettingsError where the system does not give connections to one of several processes on a port."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SettingsError("--processes: this system does not share a port among processes (SO_REUSEPORT); use 1")


@contextmanager
def kept(option: str, address: Address) -> Iterator[Address]:
    """Keeps an address for as long as the block runs, without listening there; gives it with the port that it has.

    Nobody else may listen there: the system would give them some of the connections. Raises StartError.
    """
    with ExitStack() as stack:
        try:
            found = socket.getaddrinfo(
                address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            port = address.port
            for family, kind, proto, _, (host, *_) in dict.fromkeys(found):
                with _bound(family, kind, proto, str(host), port, socket.SO_REUSEADDR) as alone:
                    port = alone.getsockname()[1]
                stack.enter_context(_bound(family, kind, proto, str(host), port, socket.SO_REUSEPORT))
        except OSError as error:
            why = error.strerror or "taken by another process, or no address of this machine"
            raise StartError(
                f"{option}: cannot listen on {address}: {why}; choose another, or port 0 for any"
            ) from error
        yield Address(address.host, port)


def _bound(family: int, kind: int, proto: int, host: str, port: int, option: int) -> socket.socket:
    """Raises OSError."""
    one = socket.socket(family, kind, proto)
    try:
        one.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind((host, port))
    except OSError:
        one.close()
        raise
    return one
