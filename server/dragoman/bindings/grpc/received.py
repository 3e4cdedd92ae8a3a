"""How many bytes the connections of this process have received, which gRPC does not tell.

The kernel counts them for each connection (`tcpi_bytes_received` of `TCP_INFO`, Linux 4.1). gRPC owns the sockets, so
they are found among the descriptors of the process, by the address of their peer.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection
from typing import Final
from urllib.parse import unquote

_TCP_INFO_BYTES: Final = 136
_BYTES_RECEIVED: Final = struct.Struct("=Q")
_BYTES_RECEIVED_OFFSET: Final = 128
_MAPPED_PREFIX: Final = "::ffff:"


def received_bytes(peers: Collection[str]) -> dict[str, int]:
    """Returns the bytes received by each peer, which is named as in gRPC; without those that cannot be found.

    Takes 4 µs for each descriptor of the process.
    """
    wanted = {key: peer for peer in peers if (key := _key_of_peer(peer)) is not None}
    found: dict[str, int] = {}
    if not hasattr(socket, "TCP_INFO"):
        return found
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return found
    for descriptor in descriptors:
        if len(found) == len(wanted):
            break
        try:
            # Family, type and protocol are given, so that Python does not ask the kernel for them.
            peer_socket = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=descriptor)
        except OSError:
            continue  # no socket
        try:
            host, port, *_ = peer_socket.getpeername()
            peer = wanted.get((host.removeprefix(_MAPPED_PREFIX), port))
            if peer is not None:
                info = peer_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                found[peer] = _BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_OFFSET)[0]
        except (OSError, ValueError, struct.error):
            continue  # none of an IP connection
        finally:
            peer_socket.detach()
    return found


def _key_of_peer(peer: str) -> tuple[str, int] | None:
    """Host and port of a peer: `ipv4:127.0.0.1:5`, or `ipv6:%5B::1%5D:5`; None for a Unix socket."""
    family, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.removeprefix("[").removesuffix("]").removeprefix(_MAPPED_PREFIX), int(port)
