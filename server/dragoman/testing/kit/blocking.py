"""Blocking test kit: an agent under test, or a server, on an event loop in its own thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec

from dragoman.client.sync import LoopThread
from dragoman.settings.settings import Settings
from dragoman.testing.fixtures import Ids
from dragoman.testing.kit.agent_under_test import AgentUnderTest, TaskRun, Testable, as_agent
from dragoman.testing.kit.story import Story
from dragoman.wiring.app import App, open_app

P = ParamSpec("P")
LOOPBACK_ADDRESS: Final = "127.0.0.1:0"  # a free port on loopback


def run(agent: Testable, *messages: object, **first: Any) -> Story:
    """Sends messages to an agent, one per turn, and returns the resulting task. JSON is sent as data, a Path as a file:

        assert run(echo, "hello").text == "hello"
        assert run(desk, "A table", {"day": "Friday"}).text == "Booked."

    first: arguments of `AgentUnderTest.send` for the first message (files, data, ...). Raises AssertionError if the
    task ends before the last message, and RuntimeError inside a running event loop: use AgentUnderTest there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_run(agent, messages or ("",), first))
    raise RuntimeError("run() is for plain functions; in an async test: async with AgentUnderTest(agent) as a: ...")


async def _run(agent: Testable, messages: Sequence[object], first: dict[str, Any]) -> Story:
    async with AgentUnderTest(agent) as kit:
        task = await kit.send(messages[0], **first)
        for text in messages[1:]:
            if task.ended:
                raise AssertionError(f"{task!r} has ended and accepts no further message: {text!r}")
            await task.send(text)
        return task


class BlockingAgent:
    """`AgentUnderTest` with blocking calls. Returned by the fixture `agent_under_test`."""

    def __init__(self, loop: LoopThread, kit: AgentUnderTest) -> None:
        self._loop = loop
        self.kit = loop.open(kit)

    def send(self, text: object = "", **message: Any) -> BlockingRun:
        return BlockingRun(self._loop, self._loop.run(self.kit.send(text, **message)))

    def crash(self) -> None:
        self._loop.run(self.kit.crash())


def _blocking(
    method: Callable[Concatenate[TaskRun, P], Coroutine[Any, Any, object]],
) -> Callable[Concatenate[BlockingRun, P], BlockingRun]:
    """The blocking form of a method of `TaskRun`, with its arguments. Returns the run itself."""

    @wraps(method)
    def call(self: BlockingRun, /, *args: P.args, **kwargs: P.kwargs) -> BlockingRun:
        self._loop.run(method(self._run, *args, **kwargs))
        self._copy_state()
        return self

    return call


class BlockingRun(Story):
    """`TaskRun` with blocking calls."""

    def __init__(self, loop: LoopThread, run: TaskRun) -> None:
        super().__init__(run.agent)
        self._loop = loop
        self._run = run
        self._copy_state()

    answer = _blocking(TaskRun.answer)
    send = _blocking(TaskRun.send)
    cancel = _blocking(TaskRun.cancel)
    crash = _blocking(TaskRun.crash)
    wait = _blocking(TaskRun.wait)
    until = _blocking(TaskRun.until)

    def _copy_state(self) -> None:
        for name in ("task", "events", "exchange", "reply", "error", "failure", "attempt", "usage"):
            setattr(self, name, getattr(self._run, name))


class LiveServer:
    """A real server on free loopback ports. Returned by the fixture `dragoman_server`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.url = app.public_url
        """Base URL of HTTP: cards, REST, JSON-RPC, WebSocket."""
        self.grpc = str(app.grpc)
        """HOST:PORT of gRPC."""
        self.card_url = app.card_url
        """URL of the root agent's card."""


@asynccontextmanager
async def serving(agents: Sequence[Testable], folder: str, **settings: Any) -> AsyncIterator[LiveServer]:
    """Serves agents inside the block, with the store in `folder`. `settings`: those of `dragoman serve`."""
    values = {"http": LOOPBACK_ADDRESS, "grpc": LOOPBACK_ADDRESS, "store": f"sqlite:///{folder}/tasks.db", **settings}
    ids = Ids()
    async with open_app(Settings.model_validate(values), [as_agent(agent, ids) for agent in agents]) as app:
        yield LiveServer(app)
