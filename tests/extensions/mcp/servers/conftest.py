"""MCP servers in this process and as child processes, and a Dragoman that serves them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.extensions.mcp.servers.tool_server import http_server, tool_server

from dragoman.client.calls import Client, message
from dragoman.core.net.addresses import AddressPolicy
from dragoman.core.net.targets import OutboundPolicy
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.security.outbound import OutboundClient
from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Era = Literal["modern", "old"]
Open = Callable[..., AbstractAsyncContextManager[App]]

TOOL_SERVER = Path(__file__).with_name("tool_server.py")


@pytest.fixture(autouse=True)
def _no_settings(no_settings: None) -> None:
    """For all tests here."""


@dataclass
class Tools:
    """A running MCP server."""

    spec: McpSpec
    log: Path
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def calls(self) -> list[str]:
        """The calls that have arrived."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def go(self) -> None:
        """Lets long calls end."""
        self.log.with_name("GO").touch()


def stdio_spec(era: Era, log: Path, id: str = "tools", **fields: Any) -> McpSpec:
    """A server in a child process."""
    return McpSpec(command=(sys.executable, str(TOOL_SERVER), "stdio", era, str(log)), id=id, **fields)


@asynccontextmanager
async def tools_over(kind: str, folder: Path, **fields: Any) -> AsyncIterator[Tools]:
    """A server of a kind such as `stdio old`, called `tools`."""
    transport, era = kind.split()
    log = folder / "log"
    if transport == "stdio":
        yield Tools(stdio_spec(era, log, **fields), log)  # type: ignore[arg-type]
        return
    async with http_server(tool_server(era, log)) as url:  # type: ignore[arg-type]
        yield Tools(McpSpec(url=url, id="tools", **fields), log)


@pytest.fixture(params=["http modern", "http old", "stdio modern", "stdio old"])
async def tools(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tools]:
    """A server of each kind."""
    async with tools_over(request.param, tmp_path) as found:
        yield found


@pytest.fixture(params=["http", "stdio"])
async def old_tools(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tools]:
    """A server before 2026-07-28, over each transport."""
    async with tools_over(f"{request.param} old", tmp_path) as found:
        yield found


@pytest.fixture(params=["http", "stdio"])
async def modern_tools(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tools]:
    """A server of 2026-07-28, over each transport."""
    async with tools_over(f"{request.param} modern", tmp_path) as found:
        yield found


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Opens a Dragoman on free ports that serves these MCP servers."""

    @asynccontextmanager
    async def open_it(*servers: Any, **settings: Any) -> AsyncIterator[App]:
        given = {"store": f"sqlite:///{tmp_path}/front.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
        async with open_app(Settings(**{**given, "mcp": list(servers), **settings})) as app:
            yield app

    return open_it


async def ask(client: Client, text: str | pb.Part, task: str = "") -> pb.Task:
    """Sends a text or part, and waits for the end of the turn."""
    sent = message(text, task=task) if isinstance(text, str) else message(parts=[text], task=task)
    return (await client.send(sent)).task


@asynccontextmanager
async def outbound_client() -> AsyncIterator[OutboundClient]:
    """The outbound client of a Dragoman that only this machine calls."""
    client = OutboundClient(OutboundPolicy(AddressPolicy(loopback=True)), per_host=0)
    try:
        yield client
    finally:
        await client.close()


def texts(task: pb.Task) -> str:
    """The texts of the artifacts."""
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


def status_text(task: pb.Task) -> str:
    """The text of the status message."""
    return "".join(part.text for part in task.status.message.parts)


def data_part(value: object) -> pb.Part:
    """A data part."""
    from dragoman.agents.values import data_part as built

    return built(value)
