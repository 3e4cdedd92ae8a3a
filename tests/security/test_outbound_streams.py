"""Streamed outbound responses, and resolved addresses for other protocols: the same rules apply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from tests.postgres import free_port
from tests.security.test_outbound import HERE, PUBLIC, Names, receiving

from dragoman.core.net.addresses import AddressPolicy, parse_allow_entry
from dragoman.core.net.targets import OutboundPolicy
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundForbidden, OutboundStreams
from dragoman.security.outbound import OutboundClient


@asynccontextmanager
async def guard(rules: OutboundPolicy = HERE, **options: Any) -> AsyncIterator[OutboundClient]:
    outbound_client = OutboundClient(rules, **options)
    try:
        yield outbound_client
    finally:
        await outbound_client.close()


async def two_pieces(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"X-Two": "2"})
    await response.prepare(request)
    await response.write(b"one ")
    await asyncio.sleep(0)
    await response.write(b"two")
    return response


async def test_a_response_is_streamed() -> None:
    async with receiving(two_pieces) as there, guard() as out:
        outlet: OutboundStreams = out
        url = f"http://127.0.0.1:{there.port}/a?b=c"
        async with outlet.open("POST", url, {"X-One": "1"}, b"body", idle_timeout=10) as answer:
            assert (answer.status, answer.headers["x-two"]) == (200, "2")
            assert b"".join([chunk async for chunk in answer.chunks()]) == b"one two"
    (method, path, headers, body), *_ = there.got
    assert (method, path, headers["x-one"], body) == ("POST", "/a?b=c", "1", b"body")


async def test_leaving_the_block_closes_the_connection() -> None:
    event = asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 1000)
                await asyncio.sleep(0)
        except ConnectionError:
            event.set()
            raise

    async with receiving(endless) as there, guard() as out:
        async with out.open("GET", f"http://127.0.0.1:{there.port}/", {}, idle_timeout=10) as answer:
            async for _ in answer.chunks():
                break
        async with asyncio.timeout(60):
            await event.wait()


async def test_streams_are_not_limited_per_host() -> None:
    go, begun = asyncio.Event(), 0

    async def waits(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal begun
        begun += 1
        if begun == 20:
            go.set()
        await go.wait()
        return web.Response()

    async def ask(out: OutboundClient, url: str) -> int:
        async with out.open("GET", url, {}, idle_timeout=20) as answer:
            return answer.status

    async with receiving(waits) as there, guard(per_host=0) as out:
        url = f"http://127.0.0.1:{there.port}/"
        assert await asyncio.gather(*(ask(out, url) for _ in range(20))) == [200] * 20


async def test_a_silent_response_times_out() -> None:
    never = asyncio.Event()

    async def silent(_: web.BaseRequest) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    async with receiving(silent) as there, guard() as out:
        with pytest.raises(OutboundFailed, match="silent for") as error:
            async with out.open("GET", f"http://127.0.0.1:{there.port}/", {}, idle_timeout=0.05):
                pass
        assert not isinstance(error.value, ConnectFailed)
        never.set()


async def test_a_compressed_response_is_rejected_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def zipped(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"x", headers={"Content-Encoding": "br"})

    async with receiving(zipped) as there, guard() as out:
        with pytest.raises(OutboundFailed, match="compressed"):
            async with out.open("GET", f"http://127.0.0.1:{there.port}/", {}, idle_timeout=10):
                pass
        assert f"127.0.0.1:{there.port}: responded in br, although only identity is accepted" in caplog.messages


async def test_a_refused_connection_is_a_connect_failure() -> None:
    async with guard() as out:
        with pytest.raises(ConnectFailed):
            async with out.open("GET", f"http://127.0.0.1:{free_port()}/", {}, idle_timeout=10):
                pass


async def test_a_connection_closed_without_response_may_have_received_the_request() -> None:
    async def hangs_up(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with receiving(hangs_up) as there, guard(per_host=0) as out:
        with pytest.raises(OutboundFailed) as error:
            async with out.open("POST", f"http://127.0.0.1:{there.port}/", {}, b"x", idle_timeout=10):
                pass
        assert not isinstance(error.value, ConnectFailed)


async def test_each_stream_has_its_own_connection() -> None:
    peers = set()

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response()

    async with receiving(note) as there, guard(per_host=0) as out:
        for _ in range(3):
            async with out.open("GET", f"http://127.0.0.1:{there.port}/", {}, idle_timeout=10):
                pass
    assert len(peers) == 3


async def test_redirects_are_returned_and_not_followed() -> None:
    async def elsewhere(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "http://10.0.0.1/"})

    async with receiving(elsewhere) as there, guard() as out:
        async with out.open("GET", f"http://127.0.0.1:{there.port}/", {}, idle_timeout=10) as answer:
            assert answer.status == 302
        assert len(there.got) == 1


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://169.254.169.254/", "ftp://x", "http://u:p@x"])
async def test_forbidden_addresses_are_rejected(url: str) -> None:
    async with guard() as out:
        with pytest.raises(OutboundForbidden):
            async with out.open("GET", url, {}, idle_timeout=10):
                pass
        with pytest.raises(OutboundForbidden):
            await out.resolve(url)


async def test_resolve_returns_allowed_addresses() -> None:
    names = Names(mixed=[["10.0.0.1", PUBLIC, "127.0.0.1"]], inside=[["10.0.0.1"]], allowed=[["10.1.0.1"]])
    rules = OutboundPolicy(AddressPolicy((parse_allow_entry("10.1.0.0/16"),)))
    async with guard(rules, lookup=names) as out:
        assert await out.resolve("https://mixed:443") == [PUBLIC]
        assert await out.resolve("http://allowed:50051") == ["10.1.0.1"]
        with pytest.raises(OutboundForbidden, match="inside"):
            await out.resolve("http://inside:50051")
        with pytest.raises(ConnectFailed, match="no such host"):
            await out.resolve("http://nowhere:50051")
