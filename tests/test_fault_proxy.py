"""The fault proxy: faults by seed, forwarded and dropped connections, and where requests and responses start."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, write
from tests.eventually import eventually

from dragoman.fault_proxy import (
    FIRST_REQUEST_POINTS,
    Drop,
    DropLimit,
    DropPoint,
    ExchangeDetector,
    Fault,
    FaultProxy,
    choose_fault,
)


def faults(count: int, *, seed: int = 0, every: int = 3, after: DropLimit | None = None) -> list[Fault]:
    return [choose_fault(number, seed=seed, every=every, after=after) for number in range(1, count + 1)]


def test_only_every_third_connection_is_dropped() -> None:
    dropped = [number for number, fault in enumerate(faults(30), start=1) if fault.point]
    assert dropped == list(range(3, 31, 3))


def test_faults_occur_at_all_three_points() -> None:
    assert {fault.point for fault in faults(90)} == {*FIRST_REQUEST_POINTS, None}


def test_faults_depend_on_the_seed_only() -> None:
    assert faults(90, seed=4) == faults(90, seed=4)
    assert faults(90, seed=4) != faults(90, seed=5)


def test_other_connections_are_dropped_near_the_limit() -> None:
    for number, fault in enumerate(faults(300, after=DropLimit(seconds=10)), start=1):
        if number % 3:
            assert fault.point is DropPoint.AFTER_LIMIT
            assert 5 <= fault.limit.seconds <= 15
            assert fault.limit.response_bytes == 0
        else:
            assert fault.point in FIRST_REQUEST_POINTS


def test_no_connection_is_dropped_with_every_0() -> None:
    assert {fault.point for fault in faults(30, every=0)} == {None}


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("5s", DropLimit(seconds=5)),
        ("1.5s", DropLimit(seconds=1.5)),
        ("500ms", DropLimit(seconds=0.5)),
        ("2m", DropLimit(seconds=120)),
        ("100B", DropLimit(response_bytes=100)),
        ("64KiB", DropLimit(response_bytes=65536)),
        ("1MiB", DropLimit(response_bytes=1048576)),
    ],
)
def test_a_drop_limit_is_a_time_or_a_size(text: str, limit: DropLimit) -> None:
    assert DropLimit.parse(text) == limit


@pytest.mark.parametrize("text", ["", "5", "0s", "-1s", "5 h", "KiB", "1e3s", "5s5s", "٣s"])
def test_invalid_drop_limits_are_rejected_with_the_format(text: str) -> None:
    with pytest.raises(ValueError, match="a positive number with ms, s, m, B, KiB or MiB"):
        DropLimit.parse(text)


# The proxy ----------------------------------------------------------------------------------------------------

ANSWER = b"a" * 1000


class Server:
    """Responds to `ask\n` with a thousand bytes, to `more\n` with a hundred times as many."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.ends: list[str] = []

    @asynccontextmanager
    async def open(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._take, "127.0.0.1", 0, ssl=tls)
        async with server:
            host, port = server.sockets[0].getsockname()
            yield f"{host}:{port}"

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.received.append(line)
                writer.write(ANSWER * (100 if line == b"more\n" else 1))
                await writer.drain()
            self.ends.append("closed")
        except ConnectionError:
            self.ends.append("reset")
        finally:
            writer.close()


@asynccontextmanager
async def proxied(**options: Any) -> AsyncIterator[tuple[Server, FaultProxy, list[Drop]]]:
    server, drops = Server(), list[Drop]()
    async with server.open() as address, FaultProxy(address, on_drop=drops.append, **options) as proxy:
        yield server, proxy, drops


async def ask(
    proxy: FaultProxy, line: bytes = b"ask\n", size: int = len(ANSWER), tls: ssl.SSLContext | None = None
) -> bytes:
    """Sends one request and returns the received part of its response. Raises ConnectionError for a reset."""
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    try:
        writer.write(line)
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        return error.partial
    finally:
        writer.close()


async def test_every_third_connection_is_dropped_at_one_of_three_points() -> None:
    async with proxied(seed=1) as (server, proxy, drops):
        answers = [await ask(proxy) for _ in range(60)]
        await eventually(lambda: len(drops) == 20)
    assert [number for number, answer in enumerate(answers, start=1) if answer != ANSWER] == list(range(3, 61, 3))
    points = {drop.number: drop.point for drop in drops}
    assert set(points.values()) == {DropPoint.BEFORE_REQUEST, DropPoint.BEFORE_RESPONSE, DropPoint.DURING_RESPONSE}
    for number, point in points.items():
        got = len(answers[number - 1])
        assert (0 < got < 1000) if point is DropPoint.DURING_RESPONSE else got == 0
    not_received = sum(point is DropPoint.BEFORE_REQUEST for point in points.values())
    assert len(server.received) == 60 - not_received
    assert proxy.dropped.total() == 20
    assert proxy.connections == 60


async def test_a_request_dropped_before_forwarding_does_not_reach_the_server() -> None:
    async with proxied(every=1, seed=3) as (server, proxy, drops):
        for number in range(1, 20):
            received_count = len(server.received)
            await ask(proxy)
            await eventually(lambda: len(drops) == number)  # noqa: B023  # awaited at once
            if drops[-1].point is DropPoint.BEFORE_REQUEST:
                assert len(server.received) == received_count
                assert drops[-1].up == 0
            else:
                assert len(server.received) == received_count + 1


async def test_other_connections_are_forwarded_completely() -> None:
    async with proxied(every=2) as (_, proxy, drops):
        size = 100 * len(ANSWER)
        assert len(await ask(proxy, b"more\n", size)) == size
        assert drops == []
        assert (proxy.up, proxy.down) == (5, size)


async def test_responses_are_cut_at_the_size_limit() -> None:
    async with proxied(every=0, after=DropLimit(response_bytes=20_000)) as (_, proxy, drops):
        got = await ask(proxy, b"more\n", 100 * len(ANSWER))
        assert 10_000 <= len(got) <= 30_000
        await eventually(lambda: drops)
        assert drops[0].point is DropPoint.AFTER_LIMIT
        assert drops[0].down == len(got)


async def test_responses_are_cut_at_the_time_limit() -> None:
    async with proxied(every=0, after=DropLimit(seconds=0.05)) as (_, proxy, drops):
        host, _, port = proxy.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        number = 0
        while not drops:
            number += 1
            writer.write(b"ask\n")
            await asyncio.sleep(0.01)
        got = await reader.read()
        writer.close()
        assert len(got) < number * len(ANSWER)


async def test_a_reset_is_an_error_on_both_sides() -> None:
    async with proxied(every=1, how="reset") as (server, proxy, drops):
        errors = 0
        for _ in range(10):
            try:
                await ask(proxy)
            except ConnectionResetError:
                errors += 1
        await eventually(lambda: len(drops) == 10)
        number = sum(drop.point is not DropPoint.BEFORE_REQUEST for drop in drops)
        await eventually(lambda: len(server.ends) == 10)
        assert server.ends.count("reset") >= number > 0
    assert errors == 10


async def test_a_hanging_connection_forwards_nothing_and_closes_with_the_client() -> None:
    async with proxied(every=1, how="hang") as (server, proxy, drops):
        host, _, port = proxy.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"ask\n")
        await eventually(lambda: drops)
        rest = asyncio.create_task(reader.readexactly(len(ANSWER)))
        done, _ = await asyncio.wait((rest,), timeout=0.2)
        assert not done
        assert server.ends == []
        writer.close()
        await eventually(lambda: server.ends)
        with pytest.raises(asyncio.IncompleteReadError):
            await rest


async def test_chunks_are_delayed_in_both_directions() -> None:
    async with proxied(delay=0.05) as (_, proxy, _drops):
        started = asyncio.get_running_loop().time()
        assert await ask(proxy) == ANSWER
        assert asyncio.get_running_loop().time() - started > 0.09  # the loop wakes up to a tick early


async def test_connections_to_an_unreachable_server_are_closed_and_counted() -> None:
    async with FaultProxy("127.0.0.1:1") as proxy:
        assert await ask(proxy) == b""
        assert proxy.unreachable == 1


async def test_a_proxy_that_stops_while_it_connects_reports_no_error() -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with FaultProxy("127.0.0.1:1") as proxy:
        host, _, port = proxy.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        # The proxy accepts, and connects in the next step of the loop: an event would be too late.
        while not proxy.connections:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert proxy.unreachable == 0
    assert errors == []
    writer.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": -1}, "every: must be 0 or more"),
        ({"delay": -1.0}, "delay: must be 0 or more"),
        ({"how": "burn"}, "use one of close, reset, hang"),
        ({"listen": "9000"}, "not HOST:PORT"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FaultProxy("127.0.0.1:1", **options)


async def test_tls_passes_through_and_is_dropped_after_the_handshake(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client_tls, server_tls = (
        ssl.create_default_context(cafile=authority.ca),
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
    )
    server_tls.load_cert_chain(*write(tmp_path, authority.issue()))
    server_tls.num_tickets = 0  # session tickets look like a response
    server, drops = Server(), list[Drop]()
    async with server.open(server_tls) as address, FaultProxy(address, every=2, seed=2, on_drop=drops.append) as proxy:
        answers = [await ask(proxy, tls=client_tls) for _ in range(20)]
        await eventually(lambda: len(drops) == 10)
    assert [answer == ANSWER for answer in answers] == [True, False] * 10
    not_received = sum(drop.point is DropPoint.BEFORE_REQUEST for drop in drops)
    assert len(server.received) == 20 - not_received
    assert {drop.point for drop in drops} == {
        DropPoint.BEFORE_REQUEST,
        DropPoint.BEFORE_RESPONSE,
        DropPoint.DURING_RESPONSE,
    }


# Where requests and responses start --------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, DATA = 4, 1, 0


def frame(kind: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, 0]) + (1).to_bytes(4, "big") + body


def record(kind: int, body: bytes = b"xyz") -> bytes:
    return bytes([kind, 3, 3]) + len(body).to_bytes(2, "big") + body


def request_started(detector: ExchangeDetector) -> bool:
    return detector.request_started


def test_http_1_requests_and_responses_start_with_the_first_bytes() -> None:
    detector = ExchangeDetector()
    detector.observe_client(b"POST / HTTP/1.1\r\n")
    assert request_started(detector)
    assert detector.observe_server(b"HTTP/1.1 200 OK\r\n") == 0


def test_bytes_from_the_server_before_a_request_are_not_a_response() -> None:
    detector = ExchangeDetector()
    assert detector.observe_server(b"220 ready\r\n") is None
    detector.observe_client(b"HELO\r\n")
    assert detector.observe_server(b"250 OK\r\n") == 0


@pytest.mark.parametrize("step", [1, 5, 24, 1000])
def test_http_2_settings_are_neither_request_nor_response(step: int) -> None:
    detector = ExchangeDetector()
    preface = PREFACE + frame(SETTINGS, b"s" * 18)
    assert (
        detector.observe_server(frame(SETTINGS, b"s" * 6)) is None
    )  # servers send settings without waiting for the client's
    for at in range(0, len(preface), step):
        detector.observe_client(preface[at : at + step])
    assert not request_started(detector)
    assert detector.observe_server(frame(SETTINGS)) is None
    request = frame(HEADERS, b"h" * 30) + frame(DATA, b"d" * 300)
    for at in range(0, len(request), step):
        detector.observe_client(request[at : at + step])
    assert request_started(detector)
    window_update = frame(8, b"w" * 4)
    assert detector.observe_server(window_update + frame(HEADERS, b"h" * 9)) == len(window_update)
    assert detector.observe_server(frame(DATA, b"more")) == 0


@pytest.mark.parametrize("finished", [(20, 23), (20, 22)], ids=["TLS 1.3", "TLS 1.2"])
def test_the_tls_handshake_is_not_a_request(finished: tuple[int, int]) -> None:
    detector = ExchangeDetector()
    detector.observe_client(record(22, b"h" * 200))
    assert detector.observe_server(record(22) + record(20) + record(23, b"c" * 900)) is None
    detector.observe_client(b"".join(map(record, finished)))
    assert not request_started(detector)
    detector.observe_client(record(23, b"POST"))
    assert request_started(detector)
    assert detector.observe_server(record(23, b"200")) == 0
