"""Connections as the kernel knows them: the bytes of a peer, and which are closed when there are too many."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.eventually import eventually

from dragoman.bindings.grpc import connections

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts them")


@pytest.fixture(params=["127.0.0.1", "::1", "::"], ids=["ipv4", "ipv6", "mapped"])
def socket_pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
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


@only_linux
def test_the_bytes_of_a_peer_are_counted(socket_pair: tuple[socket.socket, socket.socket]) -> None:
    client, own = socket_pair
    host, port, *_ = client.getsockname()
    peer = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
    assert connections.received_bytes([peer]) == {peer: 0}
    client.sendall(b"x" * 1000)
    assert len(own.recv(1000, socket.MSG_WAITALL)) == 1000
    assert connections.received_bytes([peer, "ipv4:192.0.2.1:5"]) == {peer: 1000}
    assert own.fileno() >= 0


@only_linux
@pytest.mark.parametrize("peer", ["unix:", "unix:/run/x", "", "ipv4:nonsense"])
def test_other_peers_are_not_found(peer: str) -> None:
    assert connections.received_bytes([peer]) == {}


@only_linux
@pytest.mark.parametrize("path", ["named", "abstract", "netlink"])
def test_sockets_of_other_families_are_passed_over(
    path: str, tmp_path: Path, socket_pair: tuple[socket.socket, socket.socket]
) -> None:
    """Such as a connection to PostgreSQL by its Unix socket, whose own name is empty."""
    client, own = socket_pair
    host, port, *_ = client.getsockname()
    peer = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
    with ExitStack() as stack:
        if path == "netlink":
            stack.enter_context(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)).bind((0, 0))
        else:
            address = str(tmp_path / "s") if path == "named" else f"\0{tmp_path}"
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen()
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(address)
        assert connections.received_bytes([peer]) == {peer: 0}
        assert connections.close_idle(own.getsockname()[1], 1, ()) == 0


class Pairs:
    """Connections to one port: the sockets of the clients, and of the server."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = listener.getsockname()[1]
        self.clients, self.servers = [], []
        for _ in range(count):
            self.clients.append(stack.enter_context(socket.create_connection(("127.0.0.1", self.port))))
            self.servers.append(stack.enter_context(listener.accept()[0]))

    def peer(self, number: int) -> str:
        return f"ipv4:127.0.0.1:{self.clients[number].getsockname()[1]}"

    def silent_ms(self, number: int) -> int:
        info = self.servers[number].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
        return int.from_bytes(info[52:56], sys.byteorder)

    async def speak(self, number: int) -> None:
        """Sends a byte, after every connection that spoke before has been silent for a while."""
        await eventually(lambda: min(map(self.silent_ms, range(len(self.servers)))) > 20)
        self.clients[number].sendall(b"x")
        self.servers[number].recv(1)

    @property
    def open_clients(self) -> set[int]:
        return {number for number, client in enumerate(self.clients) if not _is_ended(client)}


def _is_ended(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


@only_linux
async def test_the_connections_that_were_silent_longest_are_closed_until_few_enough_are_open() -> None:
    with ExitStack() as stack:
        pairs, others = Pairs(stack, 5), Pairs(stack, 5)
        for number in (3, 0, 4, 1, 2):
            await pairs.speak(number)
        assert connections.close_idle(pairs.port, 5, ()) == 0
        assert connections.close_idle(pairs.port, 3, ()) == 2
        assert pairs.open_clients == {1, 2, 4}
        assert others.open_clients == {0, 1, 2, 3, 4}


@only_linux
async def test_connections_with_open_calls_stay_however_many_there_are() -> None:
    with ExitStack() as stack:
        pairs = Pairs(stack, 4)
        busy = [pairs.peer(number) for number in (0, 1, 3)]
        assert connections.close_idle(pairs.port, 1, [*busy, "unix:"]) == 1
        assert pairs.open_clients == {0, 1, 3}


@only_linux
def test_a_descriptor_that_is_another_connection_by_now_is_left_alone() -> None:
    with ExitStack() as stack:
        pairs = Pairs(stack, 1)
        assert not connections._shut_down(pairs.servers[0].fileno(), ("127.0.0.1", 1))
        assert not connections._shut_down(stack.enter_context(open("/dev/null")).fileno(), ("127.0.0.1", 1))
        assert pairs.open_clients == {0}


def test_few_descriptors_are_no_reason_to_look_at_connections() -> None:
    assert not connections.exceeds(1_000_000)
    assert connections.exceeds(1) == (sys.platform == "linux")


@pytest.mark.parametrize("lacks", ["TCP_INFO", "/proc"])
def test_on_a_system_that_does_not_count_bytes_every_connection_stays(
    lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        pairs = Pairs(stack, 3)
        if lacks == "TCP_INFO":
            monkeypatch.delattr(socket, "TCP_INFO", raising=False)
        else:
            monkeypatch.setattr(connections, "_DESCRIPTORS", str(tmp_path / "missing"))
            assert not connections.exceeds(0)
        assert connections.received_bytes([pairs.peer(0)]) == {}
        assert connections.close_idle(pairs.port, 1, ()) == 0
        assert pairs.open_clients == {0, 1, 2}
