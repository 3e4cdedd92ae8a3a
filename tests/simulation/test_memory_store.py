"""The store in memory keeps the contract of every store."""

from __future__ import annotations

import pytest
from tests.simulation.memory.database import MemoryDatabase
from tests.simulation.memory.store import MemoryStore

from dragoman.testing.contracts import StoreContract
from dragoman.testing.contracts.store_contents import StoreContents
from dragoman.testing.contracts.store_daily_usage import StoreDailyUsage
from dragoman.testing.contracts.store_steps import StoreSteps
from dragoman.testing.fixtures import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(MemoryDatabase(clock))


class TestMemoryStore(StoreContract):
    pass


class TestSteps(StoreSteps):
    pass


class TestContents(StoreContents):
    pass


class TestDailyUsage(StoreDailyUsage):
    pass
