"""Delays the events of a task until a file exists, which works for any server."""

from __future__ import annotations

import asyncio
from pathlib import Path


class Gate:
    """Waits for a file, with one poller for all waiters."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._poller: asyncio.Task[None] | None = None

    async def wait_open(self) -> None:
        """Returns once the file exists."""
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        await asyncio.shield(self._poller)

    async def _poll(self) -> None:
        while not self._file.exists():
            await asyncio.sleep(0.005)
