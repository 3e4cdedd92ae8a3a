"""A server with one agent of its own, and room for others that dial in."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Turn, agent
from dragoman.agents.workers.connection import HeartbeatTimings
from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, open_app

Open = Callable[..., AbstractAsyncContextManager[App]]


@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DRAGOMAN_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _silence_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers by hand give no signs of life, and a machine may stand still for longer than servers wait for them."""
    monkeypatch.setattr("dragoman.agents.workers.hub.HeartbeatTimings", lambda: HeartbeatTimings(lease=3600.0))


@pytest.fixture
def opened(tmp_path: Path, time_to_stop: None) -> Open:
    """Opens a server on free ports; again on the same store the next time."""

    @asynccontextmanager
    async def open_it(authenticator: Any = None, *, own: bool = True, **settings: Any) -> AsyncIterator[App]:
        given = {"store": f"sqlite:///{tmp_path}/t.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", **settings}
        async with open_app(Settings(**given), [echo] if own else None, authenticator) as app:
            yield app

    return open_it
