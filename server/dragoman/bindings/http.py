"""HTTP: the stub of a signature."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.bindings.cards import Cards
from dragoman.bindings.serving import Bound, HttpOptions
from dragoman.runtime.service import TaskService


@asynccontextmanager
async def serve(service: TaskService, cards: Cards, options: HttpOptions) -> AsyncIterator[Bound]:
    """Serves REST, cards, health and the page. Raises OSError when the address cannot be had."""
    raise NotImplementedError
    yield
