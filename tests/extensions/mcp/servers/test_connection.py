"""The connection to one MCP server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from tests.eventually import eventually
from tests.extensions.mcp.servers.conftest import Tools, outbound_client, stdio_spec, tools_over
from tests.extensions.mcp.servers.tool_server import http_server, tool_server
from tests.postgres import free_port

from dragoman.calling.errors import CallForbidden, ClientError, ProtocolError, ServerUnavailable
from dragoman.extensions.mcp.servers.connection import McpConnection, McpRefused, ServerSilent, call_error
from dragoman.extensions.mcp.servers.transport import (
    FORBIDDEN_CODE,
    SESSION_LOST_CODE,
    SILENT_CODE,
    UNAVAILABLE_CODE,
    UNREADABLE_CODE,
)
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.ports import OutboundStreams

pytestmark = pytest.mark.long


async def no_answers(params: types.ElicitRequestParams) -> types.ErrorData:
    return types.ErrorData(code=types.INTERNAL_ERROR, message="no")


class Connected:
    """A connection and what it reports."""

    def __init__(self, server: McpSpec, outbound: OutboundStreams) -> None:
        self.changes = 0
        self.lost: list[str] = []
        self.connection = McpConnection(
            server, outbound, 1_000_000, elicit=no_answers, on_tools_changed=self._on_change, on_lost=self.lost.append
        )

    def _on_change(self) -> None:
        self.changes += 1


@pytest.fixture
async def outbound() -> AsyncIterator[OutboundStreams]:
    async with outbound_client() as client:
        yield client


async def test_a_connection_is_opened_once_and_closed(tools: Tools, outbound: OutboundStreams) -> None:
    connected = Connected(tools.spec, outbound)
    connection = connected.connection
    assert not connection.is_open
    clients = await asyncio.gather(*(connection.client() for _ in range(3)))
    assert (connection.is_open, len(set(map(id, clients)))) == (True, 1)
    assert clients[0].protocol_version in ("2026-07-28", "2025-11-25")
    await connection.close()
    assert (connection.is_open, connected.lost) == (False, [])


async def test_a_change_of_the_tools_is_reported(tools: Tools, outbound: OutboundStreams) -> None:
    connected = Connected(tools.spec, outbound)
    client = await connected.connection.client()
    if client.session.discover_result is not None:
        await eventually(lambda: connected.changes == 1)  # it listens
        connected.changes = 0
    await client.session.call_tool("grow")
    await eventually(lambda: connected.changes > 0)
    await connected.connection.close()


async def test_a_process_that_ends_is_reported_and_another_is_started(
    tmp_path: Path, outbound: OutboundStreams
) -> None:
    connected = Connected(stdio_spec("modern", tmp_path / "log"), outbound)
    connection = connected.connection
    with pytest.raises(MCPError, match="Connection closed"):
        await (await connection.client()).session.call_tool("die")
    await eventually(lambda: connected.lost)
    assert connected.lost == [f"{sys.executable}: the process ended; last line of its output: started"]
    assert not connection.is_open
    assert (await (await connection.client()).session.call_tool("echo", {"text": "x"})).content
    await connection.close()


async def test_a_dropped_connection_is_opened_again(tmp_path: Path, outbound: OutboundStreams) -> None:
    async with tools_over("http old", tmp_path) as tools:
        connection = Connected(tools.spec, outbound).connection
        first = await connection.client()
        both_called = asyncio.Event()

        async def first_call(client: Client) -> None:
            raise MCPError(SESSION_LOST_CODE, "the session is unknown")

        async def slow_call(client: Client) -> None:
            await both_called.wait()
            raise MCPError(SESSION_LOST_CODE, "the session is unknown")

        slow = asyncio.create_task(connection.call(slow_call))
        await asyncio.sleep(0)
        with pytest.raises(ServerUnavailable, match="the session is unknown"):
            await connection.call(first_call)
        assert not connection.is_open
        second = await connection.client()
        assert second is not first
        both_called.set()
        with pytest.raises(ServerUnavailable):
            await slow
        assert await connection.client() is second
        await connection.close()


async def test_a_restarted_server_has_forgotten_the_session(outbound: OutboundStreams) -> None:
    port = free_port()
    async with http_server(tool_server("old"), port) as url:
        connection = Connected(McpSpec(url=url), outbound).connection
        await connection.client()
    async with http_server(tool_server("old"), port):
        with pytest.raises(ServerUnavailable) as raised:
            await connection.call(Client.list_tools)
        assert not raised.value.may_have_arrived
        assert (await connection.call(Client.list_tools)).tools
        await connection.close()


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (MCPError(types.METHOD_NOT_FOUND, "no such method"), McpRefused, "no such method"),
        (RuntimeError("an unexpected result"), ProtocolError, "an unexpected result"),
    ],
)
async def test_errors_of_the_sdk_become_those_of_all_called_agents(
    tools: Tools, outbound: OutboundStreams, error: Exception, kind: type[ClientError], text: str
) -> None:
    connection = Connected(tools.spec, outbound).connection

    async def fail(client: Client) -> None:
        raise error

    async def read_wrongly(client: Client) -> None:
        types.Tool.model_validate({})

    with pytest.raises(kind, match=text):
        await connection.call(fail)
    with pytest.raises(ProtocolError, match=r"MCP server is not valid: (name|inputSchema): is required"):
        await connection.call(read_wrongly)

    async def fail_once_closed(client: Client) -> None:
        await connection.close()
        raise RuntimeError("the client is closed")

    with pytest.raises(ServerUnavailable, match="the connection ended"):
        await connection.call(fail_once_closed)


async def test_one_request_without_an_answer_leaves_the_client_open(outbound: OutboundStreams) -> None:
    port = free_port()
    async with http_server(tool_server(), port) as url:
        connection = Connected(McpSpec(url=url), outbound).connection
        client = await connection.client()
    with pytest.raises(MCPError) as raised:
        await client.list_tools()
    assert (raised.value.code, raised.value.data) == (UNAVAILABLE_CODE, {"arrived": False})
    async with http_server(tool_server(), port):
        assert (await client.list_tools()).tools
        await connection.close()


@pytest.mark.parametrize(
    ("server", "kind", "text"),
    [
        (McpSpec(command=("no-such-program",)), ServerUnavailable, "no-such-program: cannot be started: No such file"),
        (
            McpSpec(command=("sh", "-c", "echo broken >&2; exit 3")),
            ServerUnavailable,
            "sh: the process ended; last line of its output: broken",
        ),
        (McpSpec(url="http://10.0.0.1/mcp"), CallForbidden, "10.0.0.1:80: "),
        (McpSpec(url="http://127.0.0.1:PORT/mcp"), ServerUnavailable, "refused the connection"),
    ],
)
async def test_a_server_that_cannot_be_reached_is_explained(
    server: McpSpec, kind: type[ClientError], text: str, outbound: OutboundStreams
) -> None:
    server = replace(server, url=server.url.replace("PORT", str(free_port())))
    connection = Connected(server, outbound).connection
    with pytest.raises(kind) as raised:
        await connection.client()
    assert text.removeprefix("10.0.0.1:80: ") in raised.value.message
    if isinstance(raised.value, ServerUnavailable):
        assert not raised.value.may_have_arrived
    await connection.close()


async def test_a_program_that_is_no_mcp_server_is_explained(outbound: OutboundStreams) -> None:
    server = McpSpec(command=("sh", "-c", "cat > /dev/null"))
    connection = McpConnection(server, outbound, 1_000_000, elicit=no_answers, timeout=0.5)
    with pytest.raises(ServerUnavailable, match=r"sh: did not answer within 0\.5 s"):
        await connection.client()
    await connection.close()


async def test_an_answer_that_is_no_mcp_is_explained(outbound: OutboundStreams) -> None:
    script = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    call = json.loads(line)\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': call.get('id'), 'result': {}}), flush=True)"
    )
    server = McpSpec(command=(sys.executable, "-c", script))
    with pytest.raises(ProtocolError, match="its answer is not valid MCP"):
        await Connected(server, outbound).connection.client()


@pytest.mark.parametrize(
    ("error", "kind", "arrived"),
    [
        (MCPError(types.CONNECTION_CLOSED, "Connection closed"), ServerUnavailable, True),
        (MCPError(UNAVAILABLE_CODE, "refused", {"arrived": False}), ServerUnavailable, False),
        (MCPError(UNAVAILABLE_CODE, "lost", {"arrived": True}), ServerUnavailable, True),
        (MCPError(SESSION_LOST_CODE, "unknown"), ServerUnavailable, False),
        (MCPError(FORBIDDEN_CODE, "private"), CallForbidden, False),
        (MCPError(UNREADABLE_CODE, "not JSON"), ProtocolError, False),
        (MCPError(SILENT_CODE, "nothing came"), ServerSilent, True),
        (MCPError(types.INVALID_PARAMS, "bad"), McpRefused, False),
    ],
)
def test_errors_without_an_answer_of_the_server_are_told_apart(
    error: MCPError, kind: type[ClientError], arrived: bool
) -> None:
    found = call_error(error)
    assert type(found) is kind
    if isinstance(found, ServerUnavailable):
        assert found.may_have_arrived is arrived
