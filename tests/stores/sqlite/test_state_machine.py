"""Every store against the model: the same changes, the same crashes, the same tasks."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

from dragoman.ports import Store
from dragoman.stores.sqlite import open_store
from dragoman.testing.contracts.store_machine import StoreMachine
from dragoman.testing.fixtures import Clock


class OnSqlite(StoreMachine):
    def open_store(self, folder: Path, clock: Clock) -> Store:
        return open_store(folder / "tasks.db", clock=clock)


EXAMPLES = 200 if os.environ.get("HYPOTHESIS_PROFILE") else 15
"""Each one opens a store several times: less of them than of other properties, and longer ones."""

TestOnSqlite = OnSqlite.TestCase
TestOnSqlite.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
