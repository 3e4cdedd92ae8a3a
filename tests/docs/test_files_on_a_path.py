"""docs/explanation/how-a-message-travels.md states how many files a call passes through; this counts them."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final
from uuid import uuid4

import aiohttp
import orjson
import pytest

from dragoman import Turn, agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import App, open_app

ROOT: Final = Path(__file__).parents[2]
CODE: Final = str(ROOT / "server" / "dragoman")
PAGE: Final = (ROOT / "docs" / "explanation" / "how-a-message-travels.md").read_text()
TOLERANCE: Final = 2
"""Whether a call meets a busy or an idle loop adds or saves a file."""


go_on = asyncio.Event()


@agent(default=True)
async def gated(turn: Turn) -> str:
    await go_on.wait()
    return turn.text


@dataclass
class FileRecorder:
    """The files of the package in which a function was called while `recording`."""

    recording: bool = False
    files: set[str] = field(default_factory=set)

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.recording and event == "call" and frame.f_code.co_filename.startswith(CODE):
            self.files.add(frame.f_code.co_filename)

    @contextmanager
    def record(self) -> Iterator[set[str]]:
        self.files = set()
        self.recording = True
        try:
            yield self.files
        finally:
            self.recording = False


@asynccontextmanager
async def profiled_server(folder: Path, recorder: FileRecorder) -> AsyncIterator[tuple[App, aiohttp.ClientSession]]:
    """A server whose event loop and threads report every call to the recorder."""
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(store=f"sqlite:///{folder}/tasks.db", http=anywhere, grpc=anywhere)
    threading.setprofile(recorder.profile)
    previous = sys.getprofile()
    sys.setprofile(recorder.profile)
    try:
        async with open_app(settings, [gated]) as app, aiohttp.ClientSession() as session:
            yield app, session
    finally:
        sys.setprofile(previous)
        threading.setprofile(None)


async def request(
    app: App, session: aiohttp.ClientSession, method: str, params: dict[str, Any]
) -> aiohttp.ClientResponse:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await session.post(app.public_url, json=body, headers={"A2A-Version": "1.0"})


async def call(app: App, session: aiohttp.ClientSession, method: str, params: dict[str, Any]) -> str:
    async with await request(app, session, method, params) as response:
        return await response.text()


def send_params(message_id: str) -> dict[str, Any]:
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "hello"}]}}


async def count_send(app: App, session: aiohttp.ClientSession, recorder: FileRecorder) -> set[str]:
    """The files of a blocking send to a function agent, the turn included."""
    go_on.set()
    with recorder.record() as files:
        answer = await call(app, session, "SendMessage", send_params(str(uuid4())))
    assert "TASK_STATE_COMPLETED" in answer
    return files


async def count_subscription(app: App, session: aiohttp.ClientSession, recorder: FileRecorder) -> set[str]:
    """The files of a subscription from its request to the end of its stream: a snapshot, a chunk, a last status."""
    go_on.clear()
    params = {**send_params(str(uuid4())), "configuration": {"returnImmediately": True}}
    task_id = orjson.loads(await call(app, session, "SendMessage", params))["result"]["task"]["id"]
    with recorder.record() as files:
        response = await request(app, session, "SubscribeToTask", {"id": task_id})
        assert b'"task"' in await response.content.readuntil(b"\n\n")
        go_on.set()
        assert "TASK_STATE_COMPLETED" in await response.text()
    return files


@pytest.mark.parametrize(("row", "count"), [("blocking send", count_send), ("subscription", count_subscription)])
async def test_a_call_passes_through_the_stated_number_of_files(
    tmp_path: Path, row: str, count: Callable[[App, aiohttp.ClientSession, FileRecorder], Awaitable[set[str]]]
) -> None:
    recorder = FileRecorder()
    async with profiled_server(tmp_path, recorder) as (app, session):
        # Leaves out what only a first call does, and what runs in the background during one of them.
        files = set.intersection(*[await count(app, session, recorder) for _ in range(4)])
    (stated,) = re.findall(rf"\| {row}[^|]* \| (\d+) \|", PAGE)
    assert abs(len(files) - int(stated)) <= TOLERANCE, sorted(files)
