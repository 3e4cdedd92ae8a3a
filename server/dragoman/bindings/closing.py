"""Ending what would not end by itself: a stream may follow a task for days, and a server stops today."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from dragoman.core.errors import Unavailable


class Streams:
    """The open streams of one server."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self.closed = False

    @contextmanager
    def open(self) -> Iterator[None]:
        """Counts the current asyncio task as a stream. Raises Unavailable when the server is stopping.

        `close` then raises CancelledError in it, like a client that goes away; `ended_here` tells them apart.
        """
        if self.closed:
            raise Unavailable
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def ended_here(self) -> bool:
        """Whether the CancelledError just caught is the server's own. The task may go on then, to say goodbye."""
        task = asyncio.current_task()
        assert task is not None
        if self.closed and task.cancelling() == 1:
            task.uncancel()
            return True
        return False

    def close(self) -> None:
        """Ends every open stream and refuses new ones."""
        self.closed = True
        for task in self._tasks:
            task.cancel()
