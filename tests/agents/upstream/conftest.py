"""A server with the playground, and another that has it as upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, open_app

Open = Callable[..., AbstractAsyncContextManager[App]]


@pytest.fixture(autouse=True)
def _no_settings(no_settings: None) -> None:
    """For all tests here."""


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Opens a server on free ports, with a store named after it."""

    @asynccontextmanager
    async def open_it(
        name: str, *upstream: Any, agents: Sequence[Any] | None = None, **settings: Any
    ) -> AsyncIterator[App]:
        given = {"store": f"sqlite:///{tmp_path}/{name}.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", **settings}
        if upstream:
            given["upstream"] = list(upstream)
        async with open_app(Settings(**given), agents) as app:
            yield app

    return open_it
