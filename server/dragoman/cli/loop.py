"""The event loop of commands that serve, and the signals that end them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Final

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


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
        self._seen = 0
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            try:
                loop.add_signal_handler(number, self._came, number)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda came, _: (loop.call_soon_threadsafe(self._came, came), None)[1])

    def _came(self, number: int) -> None:
        self._seen += 1
        if self._seen > 2:
            os._exit(128 + number)  # what is committed is on disk, and what runs ends at the next start
        self._queue.put_nowait(number)

    async def next(self) -> int:
        """Waits for one."""
        return await self._queue.get()
