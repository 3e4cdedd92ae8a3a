"""A store that can be away: what tests name of it is refused as a store does that cannot be asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragoman.core.errors import Unavailable
from dragoman.stores.sqlite import open_store


class UnavailableStore:
    """A SQLite store, of which methods can be away. Implements `dragoman.ports.Store`."""

    def __init__(self, path: Path, **options: Any) -> None:
        self._store = open_store(path, **options)
        self.unavailable: set[str] = set()
        """The names of methods that raise Unavailable."""
        self.error: Callable[[], Exception] = lambda: Unavailable("the store does not answer")
        self.refused: Counter[str] = Counter()
        """How often each did."""

    def __getattr__(self, name: str) -> Any:
        return self._refuse(name) if name in self.unavailable else getattr(self._store, name)

    def _refuse(self, name: str) -> Callable[..., asyncio.Future[Any]]:
        def refuse(*_: object, **__: object) -> asyncio.Future[Any]:
            self.refused[name] += 1
            if name == "renew_session":  # which is called in a thread
                raise self.error()
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.set_exception(self.error())
            return answer

        return refuse

    async def tried(self, name: str, times: int = 2) -> None:
        """Returns when a method that is away was asked so often."""
        async with asyncio.timeout(60):
            while self.refused[name] < times:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.001)
