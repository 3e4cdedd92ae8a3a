"""A store that a newer release has migrated: this release can use it, where the migration allows it.

Runs the complete contract on tables with an added column each. An INSERT without column names, or a SELECT of all
columns, would break with the next release.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.stores.sqlite.test_schema import migrate_to_next
from tests.stores.store_suite import *  # noqa: F403

from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.fixtures import Clock

pytestmark = pytest.mark.long


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    migrate_to_next(tmp_path / "tasks.db")
    store = open_store(tmp_path / "tasks.db", clock=clock)
    yield store
    await store.close()
