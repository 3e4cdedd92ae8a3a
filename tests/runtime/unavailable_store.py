"""A store with methods that a test makes unavailable."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.eventually import eventually

from dragoman.core.errors import Unavailable
from dragoman.stores.sqlite import open_store


class UnavailableStore:
    """A SQLite store with methods that raise Unavailable on demand. Implements `dragoman.ports.Store`."""

    def __init__(self, path: Path, **options: Any) -> None:
        self._store = open_store(path, **options)
        self.unavailable: set[str] = set()
        """The names of the methods that raise."""
        self.error: Callable[[], Exception] = lambda: Unavailable("the store does not answer")
        self.refused: Counter[str] = Counter()
        """How often each of them raised."""

    def __getattr__(self, name: str) -> Any:
        return self._refuse(name) if name in self.unavailable else getattr(self._store, name)

    def _refuse(self, name: str) -> Callable[..., asyncio.Future[Any]]:
        def refuse(*_: object, **__: object) -> asyncio.Future[Any]:
            self.refused[name] += 1
            if name == "renew_session":  # called in a thread
                raise self.error()
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer.set_exception(self.error())
            return answer

        return refuse

    async def tried(self, name: str, times: int = 2) -> None:
        """Returns when an unavailable method has been called so often."""
        await eventually(lambda: not (self.refused[name] < times))
