"""Connections of the gRPC port: the bytes that they received, and the end of idle ones when there are too many.

gRPC does not list its connections, and at its limit it rejects every new one: one client with enough idle connections
locks out all others, health checks too. The kernel knows each (`TCP_INFO`, Linux 4.1). gRPC owns the sockets, so they
are found among the descriptors of the process, by their addresses. On other systems no connection is closed.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

_TCP_INFO: Final = struct.Struct("=52xI72xQ")  # `tcpi_last_data_recv`, in milliseconds, and `tcpi_bytes_received`
_MAPPED_PREFIX: Final = "::ffff:"
_DESCRIPTORS: Final = "/proc/self/fd"

_Address = tuple[str, int]


def received_bytes(peers: Collection[str]) -> dict[str, int]:
    """Returns the bytes received by each peer, which is named as in gRPC; without those that cannot be found."""
    wanted = {key: peer for peer in peers if (key := _key_of_peer(peer)) is not None}
    return {wanted[address]: received for _, address, _, received in _connections() if address in wanted}


def exceeds(maximum: int) -> bool:
    """Whether the process has so many descriptors that more than `maximum` connections may be open."""
    return len(_descriptors()) > maximum


def close_idle(port: int, maximum: int, busy: Collection[str]) -> int:
    """Closes connections to a port until at most `maximum` are open: those from which nothing has come for longest.

    `busy`: the peers with open calls, named as in gRPC, whose connections stay. Returns how many it closed.
    """
    found = [(silent_ms, descriptor, address) for descriptor, address, silent_ms, _ in _connections(port)]
    kept = set(map(_key_of_peer, busy))
    idle = sorted((one for one in found if one[2] not in kept), key=lambda one: one[0], reverse=True)
    return sum(_shut_down(descriptor, address) for _, descriptor, address in idle[: max(len(found) - maximum, 0)])


def _shut_down(descriptor: int, address: _Address) -> bool:
    """Ends the connection, as if its peer had. gRPC may have closed it meanwhile, and its number be another file's."""
    with suppress(OSError, ValueError), socket.fromfd(descriptor, socket.AF_INET6, socket.SOCK_STREAM) as copy:
        if _address_of(copy) == address:
            copy.shutdown(socket.SHUT_RDWR)
            return True
    return False


def _connections(port: int = 0) -> Iterator[tuple[int, _Address, int, int]]:
    """Yields the IP connections, or those to a port: descriptor, peer, milliseconds without a byte, bytes received.

    Takes 6 µs for each descriptor of the process.
    """
    tcp_info = getattr(socket, "TCP_INFO", 0)  # the call fails with 0
    for descriptor in map(int, _descriptors()):
        try:
            # Family, type and protocol are given, so that Python does not ask the kernel for them.
            found = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=descriptor)
        except OSError:
            continue  # no socket
        try:
            address = _address_of(found)
            if port in (0, found.getsockname()[1]):
                info = found.getsockopt(socket.IPPROTO_TCP, tcp_info, _TCP_INFO.size)
                yield descriptor, address, *_TCP_INFO.unpack(info)
        except (OSError, ValueError, IndexError, struct.error):
            continue  # not an IP connection: others have texts, bytes or numbers as names, of any length
        finally:
            found.detach()


def _descriptors() -> list[str]:
    with suppress(OSError):
        return os.listdir(_DESCRIPTORS)
    return []


def _address_of(peer_socket: socket.socket) -> _Address:
    host, port, *_ = peer_socket.getpeername()
    return str(host).removeprefix(_MAPPED_PREFIX), port


def _key_of_peer(peer: str) -> _Address | None:
    """Host and port of a peer: `ipv4:127.0.0.1:5`, or `ipv6:%5B::1%5D:5`; None for a Unix socket."""
    family, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.removeprefix("[").removesuffix("]").removeprefix(_MAPPED_PREFIX), int(port)
