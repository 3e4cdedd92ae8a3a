"""A server for synchronous clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server in a thread."""
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/tasks.db")
    at: list[str] = []
    begun, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with open_app(settings, [playground]) as app:
            at.append(f"http://{app.http}")
            begun.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert begun.wait(60)
    yield at[0]
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()
