"""A proxy that drops connections, between a client and a server that are a few lines each."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, write
from tests.runtime.test_fencing import until

from dragoman.fault_proxy import Drop, DropLimit, DropPoint, FaultProxy

ANSWER = b"a" * 1000


class Server:
    """Answers each `ask\n` with a thousand bytes, `more\n` with a hundred times as many."""

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
    proxy: FaultProxy, line: bytes = b"ask\n", wanted: int = len(ANSWER), tls: ssl.SSLContext | None = None
) -> bytes:
    """What one connection is answered, as far as it comes. Raises ConnectionError when it is reset."""
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    try:
        writer.write(line)
        return await reader.readexactly(wanted)
    except asyncio.IncompleteReadError as error:
        return error.partial
    finally:
        writer.close()


async def test_every_third_connection_is_dropped_at_one_of_three_moments() -> None:
    async with proxied(seed=1) as (server, proxy, drops):
        answers = [await ask(proxy) for _ in range(60)]
        await until(lambda: len(drops) == 20)
    assert [number for number, answer in enumerate(answers, start=1) if answer != ANSWER] == list(range(3, 61, 3))
    moments = {drop.number: drop.point for drop in drops}
    assert set(moments.values()) == {DropPoint.BEFORE_REQUEST, DropPoint.BEFORE_RESPONSE, DropPoint.DURING_RESPONSE}
    for number, moment in moments.items():
        got = len(answers[number - 1])
        assert (0 < got < 1000) if moment is DropPoint.DURING_RESPONSE else got == 0
    unheard = sum(moment is DropPoint.BEFORE_REQUEST for moment in moments.values())
    assert len(server.received) == 60 - unheard
    assert proxy.dropped.total() == 20
    assert proxy.connections == 60


async def test_only_requests_dropped_after_delivery_are_received() -> None:
    async with proxied(every=1, seed=3) as (server, proxy, drops):
        for number in range(1, 20):
            received_number = len(server.received)
            await ask(proxy)
            await until(lambda: len(drops) == number)  # noqa: B023  # awaited at once
            if drops[-1].point is DropPoint.BEFORE_REQUEST:
                assert len(server.received) == received_number
                assert drops[-1].up == 0
            else:
                assert len(server.received) == received_number + 1


async def test_the_others_are_left_alone() -> None:
    async with proxied(every=2) as (_, proxy, drops):
        whole = 100 * len(ANSWER)
        assert len(await ask(proxy, b"more\n", whole)) == whole
        assert drops == []
        assert (proxy.up, proxy.down) == (5, whole)


async def test_answers_break_off_after_a_size() -> None:
    async with proxied(every=0, after=DropLimit(response_bytes=20_000)) as (_, proxy, drops):
        got = await ask(proxy, b"more\n", 100 * len(ANSWER))
        assert 10_000 <= len(got) <= 30_000
        await until(lambda: drops)
        assert drops[0].point is DropPoint.AFTER_LIMIT
        assert drops[0].down == len(got)


async def test_answers_break_off_after_a_time() -> None:
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


async def test_a_reset_is_an_error_at_both_ends() -> None:
    async with proxied(every=1, how="reset") as (server, proxy, drops):
        errors = 0
        for _ in range(10):
            try:
                await ask(proxy)
            except ConnectionResetError:
                errors += 1
        await until(lambda: len(drops) == 10)
        number = sum(drop.point is not DropPoint.BEFORE_REQUEST for drop in drops)
        await until(lambda: len(server.ends) == 10)
        assert server.ends.count("reset") >= number > 0
    assert errors == 10


async def test_one_that_hangs_says_nothing_more_and_is_let_go_when_the_client_goes() -> None:
    async with proxied(every=1, how="hang") as (server, proxy, drops):
        host, _, port = proxy.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"ask\n")
        await until(lambda: drops)
        rest = asyncio.create_task(reader.readexactly(len(ANSWER)))
        done, _ = await asyncio.wait((rest,), timeout=0.2)
        assert not done
        assert server.ends == []
        writer.close()
        await until(lambda: server.ends)
        with pytest.raises(asyncio.IncompleteReadError):
            await rest


async def test_pieces_are_held_up_both_ways() -> None:
    async with proxied(delay=0.05) as (_, proxy, _drops):
        began = asyncio.get_running_loop().time()
        assert await ask(proxy) == ANSWER
        assert asyncio.get_running_loop().time() - began > 0.09  # the loop wakes up to a tick early


async def test_without_a_server_connections_are_closed_and_counted() -> None:
    async with FaultProxy("127.0.0.1:1") as proxy:
        assert await ask(proxy) == b""
        assert proxy.unreachable == 1


@pytest.mark.parametrize(
    ("response", "why"),
    [
        ({"every": -1}, "every: must be 0 or more"),
        ({"delay": -1.0}, "delay: must be 0 or more"),
        ({"how": "burn"}, "none of close, reset, hang"),
        ({"listen": "9000"}, "not HOST:PORT"),
    ],
)
def test_what_cannot_be_is_refused(response: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FaultProxy("127.0.0.1:1", **response)


async def test_what_is_encrypted_passes_through_and_is_dropped_past_its_handshake(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours, theirs = ssl.create_default_context(cafile=authority.ca), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(*write(tmp_path, authority.issue()))
    theirs.num_tickets = 0  # they look like an answer
    server, drops = Server(), list[Drop]()
    async with server.open(theirs) as address, FaultProxy(address, every=2, seed=2, on_drop=drops.append) as proxy:
        answers = [await ask(proxy, tls=ours) for _ in range(20)]
        await until(lambda: len(drops) == 10)
    assert [answer == ANSWER for answer in answers] == [True, False] * 10
    unheard = sum(drop.point is DropPoint.BEFORE_REQUEST for drop in drops)
    assert len(server.received) == 20 - unheard
    assert {drop.point for drop in drops} == {
        DropPoint.BEFORE_REQUEST,
        DropPoint.BEFORE_RESPONSE,
        DropPoint.DURING_RESPONSE,
    }
