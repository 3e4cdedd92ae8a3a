"""PostgreSQL against the model: the same changes, the same crashes, the same tasks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import asyncpg
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.postgres import Server

from dragoman.ports import Store
from dragoman.stores.postgres import Unusable, open_store
from dragoman.testing.store_machine import StoreMachine
from dragoman.testing.store_writes import Clock

EXAMPLES = 100 if os.environ.get("HYPOTHESIS_PROFILE") else 10
"""Each one makes a database and opens a store several times."""


def test_whatever_is_done_the_store_and_the_model_agree(postgres: Server) -> None:
    class OnPostgres(StoreMachine):
        async def opened(self, folder: Path, clock: Clock) -> Store:
            name = folder.name.replace("-", "_")
            try:
                return await open_store(postgres.url(name), clock=clock)
            except Unusable:  # there is none yet
                connection = await asyncpg.connect(postgres.url())
                await connection.execute(f'CREATE DATABASE "{name}"')
                await connection.close()
                return await open_store(postgres.url(name), clock=clock)

        def teardown(self) -> None:
            super().teardown()
            if hasattr(self, "folder"):
                asyncio.run(_drop(postgres, Path(self.folder.name).name.replace("-", "_")))

    run_state_machine_as_test(
        OnPostgres,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )


async def _drop(postgres: Server, name: str) -> None:
    connection = await asyncpg.connect(postgres.url())
    await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    await connection.close()
