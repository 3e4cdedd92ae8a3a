"""A stand-in for fasta2a 2.x with the parts that a Worker uses: our environment does not have the real one.

It tests the process around the executor; `make foreign` runs executors of the real SDKs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Generic

from fasta2a.broker import Broker
from fasta2a.storage import ContextT, Storage


@dataclass
class Worker(ABC, Generic[ContextT]):  # type: ignore[misc]  # mypy does not find the base class
    broker: Broker
    storage: Storage[ContextT]

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        yield

    @abstractmethod
    async def run_task(self, params: Any) -> None: ...

    @abstractmethod
    async def cancel_task(self, params: Any) -> None: ...


class FastA2A:
    """The main class."""

    def __init__(self, *, lifespan: Any, name: str = "My Agent", description: str | None = None) -> None:
        self.router = SimpleNamespace(lifespan_context=lifespan)
        self.name, self.description = name, description
