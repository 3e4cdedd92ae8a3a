"""The bus contract on one process's own bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.bus.local import LocalBus
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.bus_contract import BusContract


class TestLocalBus(BusContract):
    @pytest.fixture
    def bus(self) -> LocalBus:
        return LocalBus()

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = open_store(tmp_path / "tasks.db")
        yield store
        await store.close()
