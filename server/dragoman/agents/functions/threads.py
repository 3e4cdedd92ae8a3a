"""Threads for sync functions: they run on demand, and cannot be stopped from outside."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from dragoman.ports import AgentStillRuns, TurnContext

log = logging.getLogger("dragoman.agents")

P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[], None]


class DaemonThreadPool(Executor):
    """An executor with at most `limit` daemon threads, started on demand. Other work waits."""

    def __init__(self, limit: int, name: str = "dragoman-agent") -> None:
        self._limit = limit
        self._name = name
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._idle = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._queue.put(partial(_run_call, future, partial(fn, *args, **kwargs)))
            if self._idle > 0:
                self._idle -= 1
            elif self._started < self._limit:
                self._started += 1
                threading.Thread(target=self._run_worker, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Lets the threads end when the queue is empty. Never waits: a thread may run forever."""
        with self._lock:
            for _ in range(self._started):
                self._queue.put(None)

    def _run_worker(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work  # frees the agent's values while this thread is idle
            with self._lock:
                if self._queue.empty():
                    self._idle += 1


def _run_call(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
        del future, error  # breaks the cycle of traceback and future
    else:
        future.set_result(result)


class ThreadRunner:
    """Runs an agent's sync function in threads. After `stop_timeout` seconds a canceled call counts as leaked."""

    def __init__(self, agent: str, thread_pool: Executor, stop_timeout: float) -> None:
        self.leaked = 0
        """Calls that still run, long after they were asked to stop. A thread cannot be stopped from outside."""
        self._agent = agent
        self._thread_pool = thread_pool
        self._stop_timeout = stop_timeout
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], object], turn_context: TurnContext) -> object:
        """Runs `work` in a thread, with a copy of the current context. A cancel waits as `wait_until_stopped` does."""
        context = contextvars.copy_context()
        running = self._thread_pool.submit(context.run, _without_stop_iteration, work)
        result = asyncio.wrap_future(running)
        try:
            await asyncio.wait([result])  # does not cancel the future
        except asyncio.CancelledError:
            if running.cancel():  # it had not started
                raise
            try:
                mark_leaked = partial(self._mark_leaked, running)
                await wait_until_stopped(result, turn_context, self._stop_timeout, mark_leaked)
            finally:
                if not result.done():
                    result.cancel()  # its outcome is ignored from here on
            if result.cancelled():
                raise
        return result.result()

    def _mark_leaked(self, running: Future[object]) -> None:
        self._count_leaked(1)
        running.add_done_callback(lambda _: self._count_leaked(-1))
        log.warning(
            "agent %s: a thread still runs after it was asked to stop; call turn.check() in long loops; "
            "leaked threads: %d",
            self._agent, self.leaked, extra={"agent": self._agent},
        )  # fmt: skip

    def _count_leaked(self, change: int) -> None:
        with self._lock:
            self.leaked += change


async def wait_until_stopped(
    work: asyncio.Future[Any], context: TurnContext, seconds: float, on_late: Callable[[], None] = lambda: None
) -> None:
    """Waits for the end of a canceled turn's work. `on_late`: called if it goes on after `seconds`, or is given up.

    | reason to stop | how long                                     | a further cancel                                |
    |----------------|----------------------------------------------|-------------------------------------------------|
    | `client`       | until it ends: CANCELED means it has stopped | raises AgentStillRuns if the process shuts down |
    | `lease_lost`   | until it ends                                | gives it up                                     |
    | others         | `seconds`                                    | gives it up                                     |
    """
    is_late = given_up = False
    while not (work.done() or given_up):
        try:
            await asyncio.wait([work], timeout=None if is_late else seconds)
            given_up = context.cancel_reason not in ("client", "lease_lost")
        except asyncio.CancelledError:
            given_up = context.cancel_reason != "client" or context.stopping
            if not given_up:
                continue
        if not (is_late or work.done()):
            is_late = True
            on_late()
    if not work.done() and context.cancel_reason == "client":
        raise AgentStillRuns


def outcome_of(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Runs `work`, and returns its result or error for an asyncio Future.

    A Future cannot hold every exception: a StopIteration is never delivered, a GeneratorExit closes the waiter.
    """
    try:
        return work(), None
    except BaseException as error:
        return None, error


def _without_stop_iteration(work: Callable[[], object]) -> object:
    try:
        return work()
    except StopIteration as error:  # who waits for the Future would wait for ever
        raise RuntimeError("the function raised StopIteration") from error
