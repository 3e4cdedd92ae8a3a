"""A playground server for each test, and connections to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.dialects.dialect_clients import ServerConnections, open_connections

from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app


@pytest.fixture
async def connections(tmp_path: Path, time_to_stop: None, time_to_think: None) -> AsyncIterator[ServerConnections]:
    any_port = Address("127.0.0.1", 0)
    store = f"sqlite:///{tmp_path}/tasks.db"
    settings = Settings(http=any_port, grpc=any_port, store=store)
    async with open_app(settings, [playground]) as app, open_connections(str(app.http), str(app.grpc)) as opened:
        yield opened
