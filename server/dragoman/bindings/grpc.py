"""gRPC: the stub of a signature."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.bindings.cards import Cards
from dragoman.bindings.serving import Bound, Options
from dragoman.runtime.service import TaskService


@asynccontextmanager
async def serve(service: TaskService, cards: Cards, options: Options) -> AsyncIterator[Bound]:
    """Serves both packages, health and reflection over gRPC. Raises OSError when the address cannot be had."""
    raise NotImplementedError
    yield
