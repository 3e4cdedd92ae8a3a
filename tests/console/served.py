"""A real server with agents that a test controls, and a proxy whose connections can be cut."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from tests.console.browser import Page, opened
from tests.runtime.push.receivers import Receivers

from dragoman import Skill, Turn, agent, types
from dragoman.ports import Agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import App, open_app

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGNgiPqPB41K/8eFAMIFx8fo+c5SAAAAAElFTkSuQmCC"
)


@dataclass
class Conductor:
    """Controls the output of the agents."""

    words: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    """Values that `dictation` yields, until None."""

    def say(self, *words: str | None) -> None:
        for word in words:
            self.words.put_nowait(word)

    def agents(self) -> list[Agent]:
        """The agents."""

        @agent(
            id="dictation",
            name="Dictation",
            description="Says what it is told",
            default=True,
            input_modes=("text/plain", "application/json", "text/csv"),
            skills=[Skill(id="say", name="Say", description="Says it", tags=("text",), examples=("say it",))],
        )
        async def dictation(turn: Turn) -> AsyncIterator[object]:
            if turn.files:
                turn.status(f"read {turn.files[0].name}: {len(turn.files[0].bytes)} bytes")
            while (word := await self.words.get()) is not None:
                yield word

        @agent(id="curious", name="Curious", description="Asks before it answers")
        async def curious(turn: Turn) -> object:
            if turn.question is None:
                turn.ask("Which color?")
            return [
                types.text(f"You said {turn.text}."),
                types.data({"color": turn.text, "seen": [1, 2, 3]}),
                types.file(PNG, name="color.png"),
                types.file("red;green\n", name="colors.csv", media_type="text/csv"),
            ]

        @agent(id="plain", name="Plain", description="Tells all at once", streaming=False)
        async def plain(turn: Turn) -> str:
            return f"plainly: {turn.text}"

        return [dictation, curious, plain]


class CutProxy:
    """A TCP proxy whose connections can be cut and refused."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to = to
        self._tasks: set[asyncio.Task[None]] = set()
        self._up = True
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[CutProxy]:
        """Forwards connections while the block runs."""
        async with await asyncio.start_server(self._carry, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self
            self.cut()

    def cut(self) -> None:
        """Closes all connections and refuses new ones."""
        self._up = False
        for task in self._tasks:
            task.cancel()

    def restore(self) -> None:
        self._up = True

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(OSError, asyncio.CancelledError):
            if self._up:
                there, here = await asyncio.open_connection(*self._to)
                try:
                    await asyncio.gather(_pour(reader, here), _pour(there, writer))
                finally:
                    here.transport.abort()
        writer.transport.abort()
        self._tasks.discard(task)


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.transport.abort()


@dataclass
class Stage:
    """A server, a page with its console, and the test's controls."""

    app: App
    page: Page
    http: aiohttp.ClientSession
    conductor: Conductor
    proxy: CutProxy
    receivers: Receivers

    @property
    def url(self) -> str:
        """The console's address, through the proxy."""
        return f"http://127.0.0.1:{self.proxy.port}/console"

    async def to(self, place: str) -> None:
        """Opens another view."""
        await self.page.run(f"location.hash = {place!r}")

    async def send(self, text: str, agent: str = "dictation") -> str:
        """Sends from the console and returns the id of the shown task."""
        before = await self.page.run("location.hash")
        await self.to(f"#/new?agent={agent}")
        await self.page.until(f"document.querySelector('.new :checked')?.value === {agent!r}")
        await self.page.type("#message", text)
        await self.page.click(".compose button", "Send")
        return str(
            await self.page.until(
                f"location.hash !== {before!r} && location.hash.startsWith('#/tasks/{agent}/') "
                "&& location.hash.split('/')[3].split('?')[0]"
            )
        )

    async def put(self, text: str, agent: str = "curious", **more: Any) -> dict[str, Any]:
        """Sends without the console and returns the task."""
        message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}
        async with self.http.post(f"/{agent}/message:send", json={"message": message, **more}) as answer:
            task: dict[str, Any] = (await answer.json())["task"]
            return task


@asynccontextmanager
async def staged(browser: str, tmp_path: Path, *agents: Agent, **more: Any) -> AsyncIterator[Stage]:
    """Opens server, proxy and console. `agents`: more of them. `more`: settings."""
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/t.db", **more)
    conductor, receivers = Conductor(), Receivers()
    async with (
        open_app(settings, [*conductor.agents(), *agents], outbound=receivers) as app,
        CutProxy((app.http.host, app.http.port)).running() as proxy,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        opened(browser) as page,
    ):
        stage = Stage(app, page, http, conductor, proxy, receivers)
        await page.go(f"{stage.url}#/tasks")
        yield stage
        assert page.errors == []
