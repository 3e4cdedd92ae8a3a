"""Client library for programs without asyncio: scripts, notebooks, threaded web applications.

    from dragoman.client.sync import connect

    with connect("https://agents.example") as client:
        print(client.ask("echo hello").text)
        for event in client.run("count to ten"):
            ...

Names, events, results and errors are those of `dragoman.client`. All connections of the process share one event loop
in its own thread; calls may come from any thread.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import Context, copy_context
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

from dragoman.client import connection as asynchronous
from dragoman.client.connection import Connection
from dragoman.client.events import Question
from dragoman.client.turn_stream import next_or_none
from dragoman.wire.cards.remote_card import RemoteCard

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """An event loop in its own thread, started on first use, with the context managers opened on it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._parent_loops: list[asyncio.AbstractEventLoop] = []
        """Loops of the processes that this one was forked from. They stay referenced: closing them would close
        selectors that the parent process still uses."""
        self._opened = AsyncExitStack()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop, in the caller's context, and waits for it. Ctrl-C cancels it.

        Raises RuntimeError on the loop's own thread and during interpreter shutdown, where it could never run.
        """
        if not self._may_wait():
            coroutine.close()
            raise RuntimeError("a call of dragoman.client.sync cannot wait here; use dragoman.client")
        future = asyncio.run_coroutine_threadsafe(_run_in_context(copy_context(), coroutine), self._running_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, generator: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Iterates over a generator and closes it at the end. Waits for that if possible: garbage collection also runs
        on the loop's own thread, and at shutdown the loop has already stopped."""
        process = os.getpid()
        try:
            while (item := self.run(next_or_none(generator))) is not None:
                yield item
        finally:
            if process == os.getpid() and self._may_wait():
                self.run(_close_generator(generator))
            elif process == os.getpid() and not sys.is_finalizing():
                asyncio.run_coroutine_threadsafe(_close_generator(generator), self._running_loop())

    def open(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enters a context manager on the loop; `close` exits it."""
        return self.run(self._opened.enter_async_context(context))

    def close(self) -> None:
        """Exits the context managers in reverse order, and ends the thread."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        try:
            self.run(self._opened.aclose())
            self.run(loop.shutdown_asyncgens())
            self.run(loop.shutdown_default_executor())
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _may_wait(self) -> bool:
        return not sys.is_finalizing() and threading.current_thread() is not self._thread

    def after_fork(self) -> None:
        """Discards the thread, which does not exist in a forked process."""
        self._lock = threading.Lock()
        if self._loop is not None:
            self._parent_loops.append(self._loop)
        self._loop = self._thread = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or not self._loop.is_running():
                ready, loop = threading.Event(), asyncio.new_event_loop()
                loop.call_soon(ready.set)
                self._thread = threading.Thread(target=loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
                ready.wait()
                self._loop = loop
            return self._loop


_LOOP: Final = LoopThread("dragoman.client")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LOOP.after_fork)


def _call(
    method: Callable[Concatenate[Connection, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncConnection, P], T]:
    """The blocking form of a coroutine method of `Connection`, with its arguments."""

    @wraps(method)
    def call(self: SyncConnection, /, *args: P.args, **kwargs: P.kwargs) -> T:
        _answer_in_thread(kwargs)
        return _LOOP.run(method(self._connection, *args, **kwargs))

    return call


def _iteration(
    method: Callable[Concatenate[Connection, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[SyncConnection, P], Generator[T, None, None]]:
    """The blocking form of a method of `Connection` that yields, with its arguments."""

    @wraps(method)
    def iterate(self: SyncConnection, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        _answer_in_thread(kwargs)
        return _LOOP.iterate(method(self._connection, *args, **kwargs))

    return iterate


class SyncConnection:
    """A `Connection` with blocking calls, which have the arguments of its methods. Created by `connect`.

    The `answer` callback of `run` and `ask` is called in a thread of its own, and may block.
    """

    def __init__(self, connection: Connection) -> None:
        self._async_connection = connection
        self._process = os.getpid()

    @property
    def _connection(self) -> Connection:
        if self._process != os.getpid():
            raise RuntimeError("this connection was created before the process was forked; connect again")
        return self._async_connection

    def __enter__(self) -> Self:
        _LOOP.run(self._connection.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        if self._process == os.getpid():  # otherwise the parent process owns it
            _LOOP.run(self._connection.__aexit__())

    @property
    def card(self) -> RemoteCard:
        """The card of the agent at the URL itself."""
        return self._connection.card

    card_of = _call(Connection.card_of)
    run = _iteration(Connection.run)
    ask = _call(Connection.ask)
    follow = _iteration(Connection.follow)
    wait = _call(Connection.wait)
    start = _call(Connection.start)
    get = _call(Connection.get)
    cancel = _call(Connection.cancel)
    list = _iteration(Connection.list)


def _connector(connect: Callable[P, Connection]) -> Callable[P, SyncConnection]:
    @wraps(connect)
    def connect_for_with(*args: P.args, **kwargs: P.kwargs) -> SyncConnection:
        return SyncConnection(connect(*args, **kwargs))

    return connect_for_with


connect = _connector(asynchronous.connect)


def _answer_in_thread(arguments: dict[str, Any]) -> None:
    """Moves the callback of a call to a thread, so that it may block."""
    if (answer := arguments.get("answer")) is None:
        return

    async def answer_from_thread(question: Question) -> str | None:
        reply = await asyncio.to_thread(answer, question)
        return cast("str | None", await reply if inspect.isawaitable(reply) else reply)

    arguments["answer"] = answer_from_thread


async def _run_in_context(context: Context, coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a context: the trace and the delegating task are context variables."""
    return await asyncio.create_task(coroutine, context=context)


async def _close_generator(generator: AsyncGenerator[Any, None]) -> None:
    # A step interrupted by Ctrl-C is still being canceled, and a running generator cannot be closed.
    while getattr(generator, "ag_running", False):  # noqa: ASYNC110  # no event marks its end
        await asyncio.sleep(0.01)
    await generator.aclose()
