"""Bytes that connections have received, by the names that gRPC gives their peers."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest

from dragoman.bindings.grpc.received import received_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts them")


@pytest.fixture(params=["127.0.0.1", "::1", "::"], ids=["ipv4", "ipv6", "mapped"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's socket, and the server's."""
    host = request.param
    family = socket.AF_INET if host == "127.0.0.1" else socket.AF_INET6
    try:
        listener = socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    target = "127.0.0.1" if host == "::" else host
    with listener, socket.create_connection((target, listener.getsockname()[1])) as client, listener.accept()[0] as own:
        yield client, own


def test_the_bytes_of_a_peer_are_counted(pair: tuple[socket.socket, socket.socket]) -> None:
    client, own = pair
    host, port, *_ = client.getsockname()
    peer = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
    assert received_bytes([peer]) == {peer: 0}
    client.sendall(b"x" * 1000)
    assert len(own.recv(1000, socket.MSG_WAITALL)) == 1000
    assert received_bytes([peer, "ipv4:192.0.2.1:5"]) == {peer: 1000}
    assert own.fileno() >= 0


@pytest.mark.parametrize("peer", ["unix:", "unix:/run/x", "", "ipv4:nonsense"])
def test_other_peers_are_not_found(peer: str) -> None:
    assert received_bytes([peer]) == {}
