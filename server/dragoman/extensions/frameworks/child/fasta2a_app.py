"""A FastA2A application as what is served: its lifespan runs, and the Worker that it starts runs the turns.

Storage and broker of the application are not used, and its routes are not served.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import fasta2a

from .fasta2a_adapter import Fasta2aAdapter, app_registration
from .target import InvalidTarget
from .turn import ExecutorTurn

log = logging.getLogger("dragoman.executor")


class Fasta2aAppAdapter:
    """Runs the Worker of a FastA2A application for `main`."""

    def __init__(self, module: ModuleType, app: Any, dependencies: dict[str, Any]) -> None:
        self._module, self._app, self._dependencies = module, app, dependencies
        self._adapter: Fasta2aAdapter | None = None  # once the lifespan has started the worker

    def registration(self, id: str) -> dict[str, Any]:
        """The registration, from the application's card."""
        registration = app_registration(id, self._app, self._app)
        if not self._app.description:  # else that of the class FastA2A
            registration["card"]["description"] = self._app.name
        return registration

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The application's lifespan. Raises InvalidTarget if it starts no worker, or several."""
        workers: list[Any] = []

        @asynccontextmanager
        async def record(worker: Any) -> AsyncIterator[None]:
            """In place of `Worker.run`, whose loop would take tasks from the application's broker."""
            workers.append(worker)
            yield

        fasta2a.Worker.run = record
        async with self._app.router.lifespan_context(self._app):
            if len(workers) != 1:
                raise InvalidTarget(
                    f"the lifespan of the FastA2A application runs {len(workers) or 'no'} workers, and exactly one is "
                    "served; name the Worker class instead: MODULE:NAME"
                )
            self._adapter = Fasta2aAdapter(self._module, self._app, workers[0], self._dependencies)
            log.warning(
                "tasks and conversations of the FastA2A application are in Dragoman's store: its own storage, broker, "
                "routes and middleware are not used"
            )
            yield

    async def execute(self, turn: ExecutorTurn) -> None:
        """Runs a turn."""
        assert self._adapter is not None
        await self._adapter.execute(turn)

    async def cancel(self, turn: ExecutorTurn) -> None:
        """Calls the worker's cancel_task() for a turn."""
        assert self._adapter is not None
        await self._adapter.cancel(turn)
