"""Threads for sync agents.

`concurrent.futures.ThreadPoolExecutor` joins its threads when the interpreter exits, so one agent that never
returns would keep a stopped server from ever exiting. These are daemons.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[], None]


class LeftBehind:
    """Counts calls that go on although nobody waits for them any more: nothing can stop a thread from outside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    @property
    def count(self) -> int:
        """How many go on now."""
        return self._count

    def add(self, call: Future[T]) -> None:
        """Counts a call until it returns after all."""
        with self._lock:
            self._count += 1
        call.add_done_callback(self._returned)

    def _returned(self, _: Future[T]) -> None:
        with self._lock:
            self._count -= 1


class Threads(Executor):
    """An executor with at most `limit` daemon threads, begun as they are needed; more work than that waits."""

    def __init__(self, limit: int, name: str = "dragoman-agent") -> None:
        self._limit = limit
        self._name = name
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._begun = 0
        self._free = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._queue.put(partial(_work, future, partial(fn, *args, **kwargs)))
            if self._free > 0:
                self._free -= 1
            elif self._begun < self._limit:
                self._begun += 1
                threading.Thread(target=self._serve, name=f"{self._name}-{self._begun}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Lets the threads end when the queue is empty. Never waits for them: see above."""
        with self._lock:
            for _ in range(self._begun):
                self._queue.put(None)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work  # holds the agent's values, which must not live on while this thread is idle
            with self._lock:
                if self._queue.empty():
                    self._free += 1


def _work(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
        del future, error  # or the traceback and the future keep each other alive
    else:
        future.set_result(result)
