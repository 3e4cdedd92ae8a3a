"""Chaos target of three servers in a chain and an MCP server, with proxies in between."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Final

from tests.chaos.chains.links import Link
from tests.chaos.chains.routes import AGENTS, FRONT, LAST, LEVELS, LINKS, MIDDLE, TOOLS
from tests.chaos.faults.logged_errors import errors_of
from tests.chaos.history import EventKeys
from tests.chaos.targets import readback
from tests.chaos_checker.checker import StoredTask
from tests.cluster import Part, ServerPart
from tests.load.transports import Transports
from tests.postgres import free_port

from dragoman.stores.sqlite.schema import connect

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
ACTIVE: Final = "SELECT count(*) FROM tasks WHERE session > 0 OR ready"


class ToolPart(Part):
    """The MCP server of tool_server.py."""

    program = (str(HERE / "tool_server.py"),)

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        super().__init__(TOOLS, (str(self.port),), folder)

    def serves(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False


class ChainTarget:
    """All processes and links. `up` and `client_transports` are those of the front."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.up = asyncio.Event()
        self.client_transports: Transports | None = None
        self.troubled: set[str] = set()
        """The processes and links with a fault in progress."""
        self._built: list[Transports] = []
        agents, tools = str(HERE / "agents.py"), ToolPart(folder)
        last = ServerPart(LAST, (str(HERE / "last_agents.py"), "--store", self._store(LAST)), folder)
        far = self._link(LINKS[1], last)
        middle_words = (
            agents,
            "--store",
            self._store(MIDDLE),
            *_upstreams(far, {"far": "", "far-again": "/far-again"}),
        )
        middle = ServerPart(MIDDLE, middle_words, folder)
        near = self._link(LINKS[0], middle)
        tool_link = Link(LINKS[2], f"127.0.0.1:{tools.port}")
        called = {"near": "", "near-again": "/again", "deep": "/far", "deep-again": "/far-again"}
        front_words = (
            "--store", self._store(FRONT), *_upstreams(near, called),
            "--mcp", f"jobs=http://{near.addresses[0]}/mcp", "--mcp", f"tools=http://{tool_link.addresses[0]}/mcp",
        )  # fmt: skip
        self.parts: Mapping[str, Part] = {
            TOOLS: tools, LAST: last, MIDDLE: middle, FRONT: ServerPart(FRONT, front_words, folder)
        }  # fmt: skip
        self.links: Mapping[str, Link] = {link.name: link for link in (near, far, tool_link)}
        for name, part in self.parts.items():
            part.environment = {
                "CHAOS_ACTIONS": str(folder / "actions"),
                "CHAOS_PART": name,
                "PYTHONPATH": str(ROOT),
            }

    def _store(self, name: str) -> str:
        return f"sqlite:///{self._folder}/{name}.db"

    @staticmethod
    def _link(name: str, server: ServerPart) -> Link:
        """The link to both ports of a server, whose cards name the link's addresses."""
        link = Link(name, server.http.removeprefix("http://"), server.grpc)
        server.words += ["--public-url", f"http://{link.addresses[0]}", "--public-grpc", link.addresses[1]]
        return link

    async def begin(self) -> None:
        """Starts everything, what is called before its caller, whose start reads its card and tools."""
        (self._folder / "actions").mkdir()
        for link in self.links.values():
            await link.open()
        for part in self.parts.values():
            await asyncio.to_thread(part.start)
        self._serve_clients()

    # Faults ---------------------------------------------------------------------------------------------------------

    async def kill(self, name: str, seconds: float) -> None:
        """Kills a process (`kill -9`), and starts it so many seconds later."""
        part = self.parts[name]
        if name == FRONT:
            self.up.clear()
        await asyncio.to_thread(part.kill)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(part.start)
        if name == FRONT:
            self._serve_clients()

    async def freeze(self, name: str, seconds: float) -> None:
        """Stops a process (SIGSTOP), and continues it so many seconds later."""
        part = self.parts[name]
        part.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            part.send(signal.SIGCONT)

    def _serve_clients(self) -> None:
        # Old transports stay open until the end: closing a gRPC channel would cancel its calls.
        front = self.parts[FRONT]
        assert isinstance(front, ServerPart)
        self.client_transports = Transports(front.http, front.grpc)
        self._built.append(self.client_transports)
        self.up.set()

    # Results --------------------------------------------------------------------------------------------------------

    def active(self) -> Mapping[str, int]:
        """Counts the tasks that run or wait, for each process that has any."""
        found = {}
        for name in LEVELS:
            with closing(connect(self._folder / f"{name}.db", readonly=True)) as connection:
                (found[name],) = connection.execute(ACTIVE).fetchone()
        return {name: count for name, count in found.items() if count}

    async def stop(self) -> None:
        """Kills everything. May be called twice."""
        for part in self.parts.values():
            await asyncio.to_thread(part.kill)
        for link in self.links.values():
            await link.release()
        while self._built:
            await self._built.pop().close()

    async def levels(self, began: float, shown: EventKeys | None = None) -> Mapping[str, Mapping[str, StoredTask]]:
        """Reads all stores, after `stop`. `began`: the start of the run, in seconds of the epoch."""
        turns = self._folder / "turns"
        return {
            name: await readback.read_all(
                self._folder / f"{name}.db", turns, began, shown if name == FRONT else frozenset(), AGENTS[name]
            )
            for name in LEVELS
        }

    @property
    def troubles(self) -> list[str]:
        """Errors that servers logged."""
        return [text for name in LEVELS for text in errors_of(self.parts[name].log, ())]


def _upstreams(link: Link, paths: Mapping[str, str]) -> list[str]:
    return [word for id, path in paths.items() for word in ("--upstream", f"{id}=http://{link.addresses[0]}{path}")]


@asynccontextmanager
async def chain(folder: Path) -> AsyncIterator[ChainTarget]:
    """Runs a chain inside the block."""
    target = ChainTarget(folder)
    try:
        await target.begin()
        yield target
    finally:
        await target.stop()
