"""The same for programs without asyncio: scripts, notebooks, web applications with threads.

    from dragoman.client.sync import connect

    with connect("https://agents.example") as client:
        print(client.ask("echo hello").text)
        for event in client.run("count to ten"):
            ...

The names are those of `dragoman.client`, and so are events, results and failures. Behind it is one event loop in a
thread of its own, for all connections of the process; calls may come from any thread.
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
from dragoman.wire.cards.remote_card import RemoteCard
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

T = TypeVar("T")

SyncAnswerCallback = Callable[[Question], "str | None"]
"""Answers a question, or gives None and lets the run end with it."""


class _LoopThread:
    """An event loop in a thread of its own, begun when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._parent_loops: list[asyncio.AbstractEventLoop] = []
        """Loops of the processes that this one was forked from. They are kept: what they wait with is shared, and
        whoever closes something of theirs takes it from the parent."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs it there, in the caller's context, and waits for it here. Whoever stops waiting (Ctrl-C) stops it.

        Raises RuntimeError where nobody would ever do it: on the loop's own thread, and when the interpreter ends.
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
        """Ends a generator, and waits until it has ended, where that can be waited for: garbage is also collected on
        the loop's own thread, and when the interpreter ends the loop stands still already."""
        if self._may_wait():
            self.run(_close_generator(generator))
        elif not sys.is_finalizing():
            asyncio.run_coroutine_threadsafe(_close_generator(generator), self._running_loop())

    def _may_wait(self) -> bool:
        return not sys.is_finalizing() and threading.current_thread() is not self._thread

    def _after_fork(self) -> None:
        """Threads do not come along into a new process."""
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
    trace: WireTrace = no_wire_trace,
) -> SyncConnection:
    """A server at a URL, for `with`. Arguments as of `dragoman.client.connect`."""
    made = asynchronous.connect(
        url,
        token=token,
        headers=headers,
        dialect=dialect,
        binding=binding,
        retry_timeout=retry_timeout,
        inactivity_timeout=inactivity_timeout,
        ca=ca,
        cert=cert,
        trace=trace,
    )
    return SyncConnection(made)


class SyncConnection:
    """A `Connection` whose calls wait. Made by `connect`."""

    def __init__(self, connection: asynchronous.Connection) -> None:
        self._async_connection = connection
        self._process = os.getpid()

    @property
    def _connection(self) -> asynchronous.Connection:
        if self._process != os.getpid():
            raise RuntimeError("this connection was made before the process was forked; connect again after it")
        return self._async_connection

    def __enter__(self) -> Self:
        _LOOP.run(self._connection.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        if self._process == os.getpid():  # else it is the parent's
            _LOOP.run(self._connection.__aexit__())

    @property
    def card(self) -> RemoteCard:
        """The card of the agent at the URL itself."""
        return self._connection.card

    def card_of(self, agent: str = "") -> RemoteCard:
        """The card of an agent of this server, by its id."""
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
        """Sends a message and yields what comes of it. As `Connection.run`; `answer` as of `ask`."""
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
        """Sends a message and gives the result, when there is one. As `Connection.ask`; `answer` is called in a thread
        of its own, and may wait for a person."""
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
        """Yields what becomes of a task. As `Connection.follow`."""
        return _iterate(self._connection.follow(task, agent=agent, after=after))

    def wait(self, task: str, *, agent: str = "") -> Result:
        """Waits for a task to end, or to ask. As `Connection.wait`."""
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
        """Sends a message and does not wait for what comes of it. As `Connection.start`."""
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
        """A task as it is. As `Connection.get`."""
        return _LOOP.run(self._connection.get(task, agent=agent, history=history))

    def cancel(self, task: str, *, agent: str = "") -> Result:
        """Asks for a task to stop. As `Connection.cancel`."""
        return _LOOP.run(self._connection.cancel(task, agent=agent))

    def list(
        self, *, agent: str = "", context: str = "", state: str = "", page_size: int = 50
    ) -> Generator[Result, None, None]:
        """The tasks of an agent. As `Connection.list`."""
        return _iterate(self._connection.list(agent=agent, context=context, state=state, page_size=page_size))


def _answer_in_thread(answer: SyncAnswerCallback | None) -> asynchronous.AnswerCallback | None:
    return None if answer is None else lambda question: asyncio.to_thread(answer, question)


async def _run_in_context(context: Context, coroutine: Coroutine[Any, Any, T]) -> T:
    """A trace, and the task that the caller works for, are known by context."""
    return await asyncio.create_task(coroutine, context=context)


def _iterate(generator: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """What an asynchronous generator yields, which ends when this one does."""
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
    # A step that nobody waits for any more (Ctrl-C) is being cancelled, and who runs cannot be closed.
    while getattr(generator, "ag_running", False):  # noqa: ASYNC110  # nothing tells when
        await asyncio.sleep(0.01)
    await generator.aclose()
