"""A server with one local agent, to which workers can connect."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Turn, agent
from dragoman.agents.workers.connection import HeartbeatTimings
from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, AppTimings, open_app

Open = Callable[..., AbstractAsyncContextManager[App]]


@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text


@pytest.fixture(autouse=True)
def _no_settings(no_settings: None) -> None:
    """For all tests here."""


@pytest.fixture(autouse=True)
def _no_heartbeat_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables the heartbeat timeout: fake workers send no heartbeats, and a busy machine may pause."""
    monkeypatch.setattr("dragoman.agents.workers.hub.HeartbeatTimings", lambda: HeartbeatTimings(lease=3600.0))


@pytest.fixture
def opened(tmp_path: Path, time_to_stop: None) -> Open:
    """Opens a server on free ports. Later calls use the same store."""

    @asynccontextmanager
    async def open_it(
        authenticator: Any = None, *, own: bool = True, timings: AppTimings | None = None, **settings: Any
    ) -> AsyncIterator[App]:
        given = {"store": f"sqlite:///{tmp_path}/t.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", **settings}
        async with open_app(Settings(**given), [echo] if own else None, authenticator, timings=timings) as app:
            yield app

    return open_it
