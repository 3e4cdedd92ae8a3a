"""The event loop of commands that serve, and the signals that end them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Final

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes uvloop's loop where there is one; None for the standard one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Signals:
    """SIGINT and SIGTERM: the first asks to stop, the second to stop now, the third does not ask."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[int] = asyncio.Queue()
        self._count = 0
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            try:
                loop.add_signal_handler(number, self._on_signal, number)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda came, _: (loop.call_soon_threadsafe(self._on_signal, came), None)[1])

    def _on_signal(self, number: int) -> None:
        self._count += 1
        if self._count > 2:
            os._exit(128 + number)  # what is committed is on disk, and what runs ends at the next start
        self._queue.put_nowait(number)

    async def next(self) -> int:
        """Waits for one."""
        return await self._queue.get()


EXTRA_OPEN_FILES: Final = 1024
"""For the store, its blobs, calls to others and what agents open."""

log = logging.getLogger("dragoman.serve")


def raise_open_file_limit(connections: int) -> None:
    """Asks the system for as many open files as two ports full of connections need; says so when it gives fewer."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    needed = 2 * connections + EXTRA_OPEN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):
        allowed = soft
    if allowed < needed:
        log.warning(
            "this process may open %d files, and %d connections at each port need %d; raise the limit (ulimit -n, "
            "LimitNOFILE), or lower --connections",
            allowed,
            connections,
            needed,
        )
