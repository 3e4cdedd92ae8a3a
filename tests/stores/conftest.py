"""A SQLite store in a new folder, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.fixtures import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the store."""
    return tmp_path / "tasks.db"


@pytest.fixture
async def store(path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    store = open_store(path, clock=clock)
    yield store
    await store.close()
