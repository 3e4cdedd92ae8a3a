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
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from dragoman.calling.transport import WireTrace, no_wire_trace
from dragoman.client import connection as asynchronous
from dragoman.client.agent_connection import Webhook
from dragoman.client.content import FileInput
from dragoman.client.events import Event, Question, Result
from dragoman.core.agent_sources import FileForm
from dragoman.wire.cards.remote_card import RemoteCard
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

T = TypeVar("T")

SyncAnswerCallback = Callable[[Question], "str | None"]
"""Returns the answer to a question, or None to end the run with the question."""


class _LoopThread:
    """An event loop in its own thread, started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._parent_loops: list[asyncio.AbstractEventLoop] = []
        """Loops of the processes that this one was forked from. They stay referenced: closing them would close
        selectors that the parent process still uses."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

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

    def close_generator(self, generator: AsyncGenerator[Any, None]) -> None:
        """Closes a generator, and waits if possible: garbage collection also runs on the loop's own thread, and at
        shutdown the loop has already stopped."""
        if self._may_wait():
            self.run(_close_generator(generator))
        elif not sys.is_finalizing():
            asyncio.run_coroutine_threadsafe(_close_generator(generator), self._running_loop())

    def _may_wait(self) -> bool:
        return not sys.is_finalizing() and threading.current_thread() is not self._thread

    def _after_fork(self) -> None:
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
                self._thread = threading.Thread(target=loop.run_forever, name="dragoman.client", daemon=True)
                self._thread.start()
                ready.wait()
                self._loop = loop
            return self._loop


_LOOP: Final = _LoopThread()


def connect(
    url: str,
    *,
    token: str = "",
    headers: Mapping[str, str] | None = None,
    dialect: str = "",
    binding: str = "",
    retry_timeout: float = 60.0,
    inactivity_timeout: float | None = None,
    ca: Path | None = None,
    cert: Path | None = None,
    v03_files: FileForm = "bytes",
    trace: WireTrace = no_wire_trace,
) -> SyncConnection:
    """Connects to a server at a URL, for `with`. Arguments as of `dragoman.client.connect`."""
    connection = asynchronous.connect(
        url,
        token=token,
        headers=headers,
        dialect=dialect,
        binding=binding,
        retry_timeout=retry_timeout,
        inactivity_timeout=inactivity_timeout,
        ca=ca,
        cert=cert,
        v03_files=v03_files,
        trace=trace,
    )
    return SyncConnection(connection)


class SyncConnection:
    """A `Connection` with blocking calls. Created by `connect`."""

    def __init__(self, connection: asynchronous.Connection) -> None:
        self._async_connection = connection
        self._process = os.getpid()

    @property
    def _connection(self) -> asynchronous.Connection:
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

    def card_of(self, agent: str = "") -> RemoteCard:
        """The card of an agent of this server, by the agent's id."""
        return _LOOP.run(self._connection.card_of(agent))

    def run(
        self,
        text: str | pb.Message = "",
        *,
        agent: str = "",
        files: Iterable[FileInput] = (),
        data: Any = None,
        task: str = "",
        context: str = "",
        metadata: Mapping[str, Any] | None = None,
        accepts: Sequence[str] = (),
        webhook: Webhook = "",
        key: str = "",
        answer: SyncAnswerCallback | None = None,
    ) -> Generator[Event, None, None]:
        """Sends a message and yields the events of the turn. As `Connection.run`; `answer` as of `ask`."""
        return _iterate(
            self._connection.run(
                text,
                agent=agent,
                files=files,
                data=data,
                task=task,
                context=context,
                metadata=metadata,
                accepts=accepts,
                webhook=webhook,
                key=key,
                answer=_answer_in_thread(answer),
            )
        )

    def ask(
        self,
        text: str | pb.Message = "",
        *,
        agent: str = "",
        files: Iterable[FileInput] = (),
        data: Any = None,
        task: str = "",
        context: str = "",
        metadata: Mapping[str, Any] | None = None,
        accepts: Sequence[str] = (),
        webhook: Webhook = "",
        key: str = "",
        answer: SyncAnswerCallback | None = None,
    ) -> Result:
        """Sends a message and waits for the result. As `Connection.ask`; `answer` is called in its own thread, and may
        block."""
        return _LOOP.run(
            self._connection.ask(
                text,
                agent=agent,
                files=files,
                data=data,
                task=task,
                context=context,
                metadata=metadata,
                accepts=accepts,
                webhook=webhook,
                key=key,
                answer=_answer_in_thread(answer),
            )
        )

    def follow(self, task: str, *, agent: str = "", after: str = "") -> Generator[Event, None, None]:
        """Yields the events of a task. As `Connection.follow`."""
        return _iterate(self._connection.follow(task, agent=agent, after=after))

    def wait(self, task: str, *, agent: str = "") -> Result:
        """Waits until a task ends or is interrupted. As `Connection.wait`."""
        return _LOOP.run(self._connection.wait(task, agent=agent))

    def start(
        self,
        text: str | pb.Message = "",
        *,
        agent: str = "",
        files: Iterable[FileInput] = (),
        data: Any = None,
        task: str = "",
        context: str = "",
        metadata: Mapping[str, Any] | None = None,
        accepts: Sequence[str] = (),
        webhook: Webhook = "",
        key: str = "",
    ) -> Result:
        """Sends a message and does not wait for the result. As `Connection.start`."""
        return _LOOP.run(
            self._connection.start(
                text,
                agent=agent,
                files=files,
                data=data,
                task=task,
                context=context,
                metadata=metadata,
                accepts=accepts,
                webhook=webhook,
                key=key,
            )
        )

    def get(self, task: str, *, agent: str = "", history: int | None = None) -> Result:
        """Reads a task. As `Connection.get`."""
        return _LOOP.run(self._connection.get(task, agent=agent, history=history))

    def cancel(self, task: str, *, agent: str = "", metadata: Mapping[str, Any] | None = None) -> Result:
        """Requests that a task stops. As `Connection.cancel`."""
        return _LOOP.run(self._connection.cancel(task, agent=agent, metadata=metadata))

    def list(
        self, *, agent: str = "", context: str = "", state: str = "", page_size: int = 50
    ) -> Generator[Result, None, None]:
        """Yields the tasks of an agent. As `Connection.list`."""
        return _iterate(self._connection.list(agent=agent, context=context, state=state, page_size=page_size))


def _answer_in_thread(answer: SyncAnswerCallback | None) -> asynchronous.AnswerCallback | None:
    return None if answer is None else lambda question: asyncio.to_thread(answer, question)


async def _run_in_context(context: Context, coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a context: the trace and the delegating task are context variables."""
    return await asyncio.create_task(coroutine, context=context)


def _iterate(generator: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Iterates over an asynchronous generator, and closes it at the end."""
    process = os.getpid()
    try:
        while (item := _LOOP.run(_next_or_none(generator))) is not None:
            yield item
    finally:
        if process == os.getpid():
            _LOOP.close_generator(generator)


async def _next_or_none(generator: AsyncGenerator[T, None]) -> T | None:
    return await anext(generator, None)


async def _close_generator(generator: AsyncGenerator[Any, None]) -> None:
    # A step interrupted by Ctrl-C is still being canceled, and a running generator cannot be closed.
    while getattr(generator, "ag_running", False):  # noqa: ASYNC110  # no event marks its end
        await asyncio.sleep(0.01)
    await generator.aclose()
