"""A server for synchronous clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dragoman import Turn, agent
from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app


@agent(description="Says its name")
async def other(turn: Turn) -> str:
    return f"other heard {turn.text}"


class ServerInThread(NamedTuple):
    http: str
    grpc: str


@pytest.fixture
def url(server_in_thread: ServerInThread) -> str:
    return server_in_thread.http


@pytest.fixture
def server_in_thread(tmp_path: Path) -> Iterator[ServerInThread]:
    """A server in a thread, with the agents `playground` (the root agent) and `other`."""
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/tasks.db")
    at: list[ServerInThread] = []
    begun, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with open_app(settings, [playground, other]) as app:
            at.append(ServerInThread(f"http://{app.http}", f"grpc://{app.grpc}"))
            begun.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert begun.wait(60)
    yield at[0]
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()
