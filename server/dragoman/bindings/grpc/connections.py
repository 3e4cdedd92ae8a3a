"""Connections of the gRPC port: the bytes that they received, and the end of idle ones when there are too many.

gRPC tells nothing of its connections and closes none before its own timeout: at its limit it rejects every new one, so
whoever opens and keeps that many locks out all others, health checks too. But the kernel knows each connection
(`TCP_INFO`, Linux 4.1). gRPC owns the sockets, so they are found among the descriptors of the process, by their
addresses. Elsewhere nothing is known, and nothing closed.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

_TCP_INFO_BYTES: Final = 136
_BYTES_RECEIVED: Final = struct.Struct("=Q")
_BYTES_RECEIVED_OFFSET: Final = 128
_SILENT_MS: Final = struct.Struct("=I")
_SILENT_MS_OFFSET: Final = 52
"""Of the fields `tcpi_bytes_received` and `tcpi_last_data_recv`."""
_MAPPED_PREFIX: Final = "::ffff:"
_DESCRIPTORS: Final = "/proc/self/fd"

_Address = tuple[str, int]


def received_bytes(peers: Collection[str]) -> dict[str, int]:
    """Returns the bytes received by each peer, which is named as in gRPC; without those that cannot be found."""
    wanted = {key: peer for peer in peers if (key := _key_of_peer(peer)) is not None}
    found: dict[str, int] = {}
    for peer_socket, address in _connections():
        if (peer := wanted.get(address)) is not None:
            with suppress(OSError, struct.error):
                found[peer] = _BYTES_RECEIVED.unpack_from(_tcp_info(peer_socket), _BYTES_RECEIVED_OFFSET)[0]
        if len(found) == len(wanted):
            break
    return found


def exceeds(maximum: int) -> bool:
    """Whether the process has so many descriptors that more than `maximum` connections may be open."""
    try:
        return len(os.listdir(_DESCRIPTORS)) > maximum
    except OSError:
        return False


def close_idle(port: int, maximum: int, busy: Collection[str]) -> int:
    """Closes connections to a port until at most `maximum` are open: those from which nothing has come for longest.

    `busy`: the peers with open calls, named as in gRPC, whose connections stay. Returns how many it closed.
    """
    kept = {_key_of_peer(peer) for peer in busy}
    idle: list[tuple[int, int, _Address]] = []
    count = 0
    for peer_socket, address in _connections():
        with suppress(OSError, struct.error):
            if peer_socket.getsockname()[1] == port:
                count += 1
                silent_ms = _SILENT_MS.unpack_from(_tcp_info(peer_socket), _SILENT_MS_OFFSET)[0]
                idle += [(silent_ms, peer_socket.fileno(), address)] if address not in kept else []
    chosen = sorted(idle, key=lambda one: one[0], reverse=True)[: max(count - maximum, 0)]
    return sum(_shut_down(descriptor, address) for _, descriptor, address in chosen)


def _shut_down(descriptor: int, address: _Address) -> bool:
    """Ends the connection, as if its peer had. gRPC may have closed it meanwhile, and its number be another file's."""
    with suppress(OSError, ValueError):
        copy = os.dup(descriptor)
        try:
            peer_socket = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=copy)
            if is_same := _address_of(peer_socket) == address:
                peer_socket.shutdown(socket.SHUT_RDWR)
            peer_socket.detach()
            return is_same
        finally:
            os.close(copy)
    return False


def _tcp_info(peer_socket: socket.socket) -> bytes:
    return peer_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)


def _connections() -> Iterator[tuple[socket.socket, _Address]]:
    """Yields the IP connections of this process, with the addresses of their peers, each until the next.

    Takes 4 µs for each descriptor of the process.
    """
    try:
        descriptors = os.listdir(_DESCRIPTORS) if hasattr(socket, "TCP_INFO") else []
    except OSError:
        return
    for descriptor in descriptors:
        try:
            # Family, type and protocol are given, so that Python does not ask the kernel for them.
            found = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=int(descriptor))
        except OSError:
            continue  # no socket
        try:
            yield found, _address_of(found)
        except (OSError, ValueError):
            continue  # none of an IP connection
        finally:
            found.detach()


def _address_of(peer_socket: socket.socket) -> _Address:
    host, port, *_ = peer_socket.getpeername()
    return host.removeprefix(_MAPPED_PREFIX), port


def _key_of_peer(peer: str) -> _Address | None:
    """Host and port of a peer: `ipv4:127.0.0.1:5`, or `ipv6:%5B::1%5D:5`; None for a Unix socket."""
    family, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.removeprefix("[").removesuffix("]").removeprefix(_MAPPED_PREFIX), int(port)
