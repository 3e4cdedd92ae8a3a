"""What holds a task's events back until all its subscribers are there: a file, which any server can look for."""

from __future__ import annotations

import asyncio
from pathlib import Path


class Gate:
    """Waits for the file. One looks, however many wait."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._looking: asyncio.Task[None] | None = None

    async def passed(self) -> None:
        """Returns once the file is there."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        while not self._file.exists():
            await asyncio.sleep(0.005)
