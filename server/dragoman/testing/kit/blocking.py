"""The same for tests that are plain functions: an agent under test, or a server, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, Self, TypeVar

from dragoman.settings.settings import Settings
from dragoman.testing.fixtures import Ids
from dragoman.testing.kit.agent_under_test import AgentUnderTest, Testable, as_agent
from dragoman.testing.kit.story import Story
from dragoman.testing.kit.task_run import TaskRun
from dragoman.wiring.app import App, open_app

T = TypeVar("T")

LOOPBACK_ADDRESS: Final = "127.0.0.1:0"
"""A free port of this machine, for callers on this machine."""


def run(agent: Testable, *messages: str, **first: Any) -> Story:
    """Sends messages to an agent, each when the turn of the one before has ended, and gives what came of it:

        assert run(echo, "hello").text == "hello"
        assert run(desk, "A table", "Friday").text == "Booked."

    `first` goes with the first message, as for `AgentUnderTest.send` (files, data, ...). Raises AssertionError when
    there are messages left and the task has ended, and RuntimeError where a loop runs: use AgentUnderTest there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_run(agent, messages or ("",), first))
    raise RuntimeError("run() is for plain functions; in an async test: async with AgentUnderTest(agent) as a: ...")


async def _run(agent: Testable, messages: Sequence[str], first: dict[str, Any]) -> Story:
    async with AgentUnderTest(agent) as kit:
        done = await kit.send(messages[0], **first)
        for text in messages[1:]:
            if done.ended:
                raise AssertionError(f"{done!r} has ended, and takes no {text!r}")
            await done.send(text)
        return done


class LoopThread:
    """An event loop in a thread of its own, and what was opened on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dragoman-testing", daemon=True)
        self._thread.start()
        self._opened = AsyncExitStack()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Has it done there, and waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def open(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enters it there; left when the loop is closed."""
        return self.call(self._opened.enter_async_context(context))

    def close(self) -> None:
        """Closes what was opened, the last first, and ends the thread."""
        try:
            self.call(self._opened.aclose())
            self.call(self._loop.shutdown_asyncgens())
            self.call(self._loop.shutdown_default_executor())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class BlockingAgent:
    """`AgentUnderTest` with plain calls. Given by the fixture `agent_under_test`."""

    def __init__(self, loop: LoopThread, kit: AgentUnderTest) -> None:
        self._loop = loop
        self.kit = loop.open(kit)

    def send(self, text: str = "", **message: Any) -> BlockingRun:
        """As `AgentUnderTest.send`."""
        return BlockingRun(self._loop, self._loop.call(self.kit.send(text, **message)))

    def crash(self) -> None:
        """As `AgentUnderTest.crash`."""
        self._loop.call(self.kit.crash())


class BlockingRun(Story):
    """`TaskRun` with plain calls."""

    def __init__(self, loop: LoopThread, run: TaskRun) -> None:
        super().__init__(run.agent)
        self._loop = loop
        self._run = run
        self._copy_state()

    def answer(self, text: str = "", **message: Any) -> Self:
        """As `TaskRun.answer`."""
        return self._after(self._run.answer(text, **message))

    def send(self, text: str = "", **message: Any) -> Self:
        """As `TaskRun.send`."""
        return self._after(self._run.send(text, **message))

    def cancel(self) -> Self:
        """As `TaskRun.cancel`."""
        return self._after(self._run.cancel())

    def crash(self) -> Self:
        """As `TaskRun.crash`."""
        return self._after(self._run.crash())

    def wait(self) -> Self:
        """As `TaskRun.wait`."""
        return self._after(self._run.wait())

    def until(self, condition: str | Callable[[Story], object]) -> Self:
        """As `TaskRun.until`."""
        return self._after(self._run.until(condition))

    def _after(self, work: Coroutine[Any, Any, object]) -> Self:
        self._loop.call(work)
        self._copy_state()
        return self

    def _copy_state(self) -> None:
        for name in ("task", "events", "exchange", "reply", "error", "failure", "attempt", "usage"):
            setattr(self, name, getattr(self._run, name))


class LiveServer:
    """A real server on free ports of this machine. Given by the fixture `dragoman_server`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.url = app.public_url
        """Of HTTP: cards, REST, JSON-RPC, WebSocket."""
        self.grpc = str(app.grpc)
        """HOST:PORT of gRPC."""
        self.card_url = app.card_url
        """Where the root agent's card is."""


@asynccontextmanager
async def serving(agents: Sequence[Testable], folder: str, **settings: Any) -> AsyncIterator[LiveServer]:
    """Serves agents for the time of the block; the store is in this folder. `settings`: those of `dragoman serve`."""
    values = {"http": LOOPBACK_ADDRESS, "grpc": LOOPBACK_ADDRESS, "store": f"sqlite:///{folder}/tasks.db", **settings}
    ids = Ids()
    async with open_app(Settings.model_validate(values), [as_agent(one, ids) for one in agents]) as app:
        yield LiveServer(app)
