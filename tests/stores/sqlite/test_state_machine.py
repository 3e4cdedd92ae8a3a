"""SQLite against the model: the same changes and crashes give the same tasks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from dragoman.ports import Store
from dragoman.stores.sqlite import open_store
from dragoman.testing.contracts.store_machine import StoreMachine
from dragoman.testing.fixtures import Clock

pytestmark = pytest.mark.long


class OnSqlite(StoreMachine):
    def open_store(self, folder: Path, clock: Clock) -> Store:
        return open_store(folder / "tasks.db", clock=clock)


EXAMPLES = 200 if os.environ.get("HYPOTHESIS_PROFILE") else 15
"""Each example opens a store several times: fewer and longer examples than for other properties."""

TestOnSqlite = OnSqlite.TestCase
TestOnSqlite.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
