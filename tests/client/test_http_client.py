"""The HTTP side of the client: its errors, and the sockets of its connections."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Final, cast

import aiohttp
import grpc
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dragoman.client import Invalid, NotFound, ProtocolError, ServerUnavailable, connect
from dragoman.client.http_client import CLIENT_CARD_MAX_BYTES, AiohttpClient, connection_error, fetch_agent_card
from dragoman.client.options import CallOptions


def test_only_a_connection_that_never_was_proves_that_nothing_arrived() -> None:
    key = cast(Any, SimpleNamespace(host="there", port=1, ssl=True))
    refused = connection_error("http://there", aiohttp.ClientConnectorError(key, OSError(111, "Connection refused")))
    broken = connection_error("http://there", aiohttp.ServerDisconnectedError())
    assert isinstance(refused, ServerUnavailable)
    assert isinstance(broken, ServerUnavailable)
    assert (refused.may_have_arrived, broken.may_have_arrived) == (False, True)
    assert isinstance(connection_error("http:///", aiohttp.InvalidURL("http:///")), Invalid)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:{port}", "Connection refused"),
        ("http://nobody.invalid:{port}", "the name cannot be resolved"),
    ],
)
async def test_a_failed_connection_has_a_short_reason(url: str, reason: str, unused_tcp_port: int) -> None:
    url = url.format(port=unused_tcp_port)
    with pytest.raises(ServerUnavailable, match=rf": {reason}$"):
        async with connect(url, retry_timeout=0):
            pass


@pytest.fixture
async def card_server() -> AsyncIterator[TestServer]:
    """Serves a card that is too long under /long, a redirect under /moved, and none elsewhere."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/long"):
            return web.Response(body=b" " * (CLIENT_CARD_MAX_BYTES + 1))
        if request.path.startswith("/moved"):
            raise web.HTTPFound("http://elsewhere.example/card")
        if request.path.startswith("/nobody"):
            return web.json_response({"error": {"code": 404, "message": "No such agent"}}, status=404)
        return web.Response(status=404)

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    server = TestServer(application)
    async with server:
        yield server


async def test_cards_that_cannot_be_used_are_errors_that_say_why(card_server: TestServer) -> None:
    url, options = str(card_server.make_url("")).rstrip("/"), CallOptions(token="secret")
    with pytest.raises(NotFound, match="there is no card at"):
        await fetch_agent_card(url, options)
    with pytest.raises(NotFound, match=r"there is no card at .*/nobody: No such agent$"):
        await fetch_agent_card(f"{url}/nobody", options)
    with pytest.raises(ProtocolError, match=f"longer than {CLIENT_CARD_MAX_BYTES} bytes"):
        await fetch_agent_card(f"{url}/long", options)
    # The token is for this server, so the redirect is not followed.
    with pytest.raises(ProtocolError, match=r"redirect to http://elsewhere\.example/card; use"):
        await fetch_agent_card(f"{url}/moved", options)


async def idle_seconds(url: str) -> int:
    """Seconds before the first probe of a new connection."""
    client = AiohttpClient(url, CallOptions(), {})
    try:
        async with client.session.get(f"{url}/long") as response:
            assert response.connection is not None
            assert response.connection.transport is not None
            connection = response.connection.transport.get_extra_info("socket")
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            return cast(int, connection.getsockopt(socket.IPPROTO_TCP, IDLE_OPTION))
    finally:
        await client.close()


IDLE_OPTION: Final = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", 0)


async def test_connections_notice_a_server_that_is_gone_by_the_options_that_the_system_has(
    card_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(card_server.make_url("")).rstrip("/")
    assert await idle_seconds(url) == 30
    for name in ("TCP_KEEPIDLE", "TCP_KEEPALIVE", "TCP_KEEPINTVL", "TCP_KEEPCNT"):
        monkeypatch.delattr(socket, name, raising=False)
    assert await idle_seconds(url) > 60
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", IDLE_OPTION, raising=False)  # macOS has this name for it
    assert await idle_seconds(url) == 30


async def test_the_wrong_port_is_named(card_server: TestServer) -> None:
    url = f"grpc://127.0.0.1:{card_server.make_url('').port}"
    with pytest.raises(ServerUnavailable, match=rf"^UNAVAILABLE: {url}: that is the HTTP port"):
        async with connect(url, retry_timeout=0) as client:
            await client.get("t")
    server = grpc.aio.server()
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        with pytest.raises(ServerUnavailable, match=r"that port does not speak HTTP; if it is the gRPC port"):
            async with connect(f"http://127.0.0.1:{grpc_port}", retry_timeout=0):
                pass
    finally:
        await server.stop(None)
