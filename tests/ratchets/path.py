"""Records which files of the package a call runs through, and how many of its functions run on the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final
from uuid import uuid4

import aiohttp
import grpc
import orjson

from dragoman import Turn, agent
from dragoman.runtime.timings import Timings
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import App, AppTimings, open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1.a2a_pb2_grpc import A2AServiceStub

SELDOM: Final = 3600.0
"""Seconds between two rounds of background work, which would count as part of a call on a slow machine."""
TIMINGS: Final = Timings(
    backlog_poll_interval=SELDOM,
    version_poll_interval=SELDOM,
    absence_poll_interval=SELDOM,
    cancel_poll_interval=SELDOM,
    working_delay=SELDOM,  # a turn of a few milliseconds writes no WORKING on a slow machine either
    store_probe_interval=SELDOM,
    renew_interval=SELDOM,
    claim_poll_interval=SELDOM,
    push_poll_interval=SELDOM,
    compaction_interval=SELDOM,
)

CODE: Final = str(Path(__file__).parents[2] / "server" / "dragoman")


@dataclass
class Passage:
    """The files in which a function of the package ran, and the number of functions that ran on the event loop."""

    files: set[str] = field(default_factory=set)
    loop_calls: int = 0
    """Frames entered on the loop's thread: a coroutine counts once for each time it goes on."""


@dataclass
class Recorder:
    """Profiles every thread of the process while it records."""

    loop_thread: int
    passage: Passage | None = None

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.passage is not None and event == "call" and frame.f_code.co_filename.startswith(CODE):
            self.passage.files.add(frame.f_code.co_filename)
            self.passage.loop_calls += threading.get_ident() == self.loop_thread

    @contextmanager
    def record(self) -> Iterator[Passage]:
        self.passage = found = Passage()
        try:
            yield found
        finally:
            self.passage = None


@dataclass(frozen=True)
class Caller:
    """A server in this process, called over JSON-RPC and gRPC."""

    app: App
    gate: asyncio.Event
    """The agent waits for it."""
    recorder: Recorder
    session: aiohttp.ClientSession
    stub: Any

    async def request(self, method: str, params: dict[str, Any]) -> aiohttp.ClientResponse:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.session.post(self.app.public_url, json=body, headers={"A2A-Version": "1.0"})

    async def call(self, method: str, params: dict[str, Any]) -> str:
        async with await self.request(method, params) as response:
            return await response.text()

    async def jsonrpc_send(self) -> Passage:
        """Returns the passage of a blocking send to a function agent, the turn included."""
        self.gate.set()
        with self.recorder.record() as passage:
            answer = await self.call("SendMessage", send_params())
        assert "TASK_STATE_COMPLETED" in answer
        return passage

    async def grpc_send(self) -> Passage:
        """Returns the passage of the same send over gRPC."""
        self.gate.set()
        with self.recorder.record() as passage:
            answer = await self.stub.SendMessage(grpc_request())
        assert answer.task.status.state == pb.TASK_STATE_COMPLETED
        return passage

    async def jsonrpc_subscription(self) -> Passage:
        """Returns the passage of a subscription from its request to its end: a snapshot, a chunk, a last status."""
        self.gate.clear()
        params = {**send_params(), "configuration": {"returnImmediately": True}}
        task_id = orjson.loads(await self.call("SendMessage", params))["result"]["task"]["id"]
        with self.recorder.record() as passage:
            response = await self.request("SubscribeToTask", {"id": task_id})
            assert b'"task"' in await response.content.readuntil(b"\n\n")
            self.gate.set()
            assert "TASK_STATE_COMPLETED" in await response.text()
        return passage

    async def grpc_subscription(self) -> Passage:
        """Returns the passage of the same subscription over gRPC."""
        self.gate.clear()
        request = grpc_request()
        request.configuration.return_immediately = True
        task_id = (await self.stub.SendMessage(request)).task.id
        with self.recorder.record() as passage:
            stream = aiter(self.stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task_id)))
            assert (await anext(stream)).HasField("task")
            self.gate.set()
            last = [event async for event in stream][-1]
        assert last.status_update.status.state == pb.TASK_STATE_COMPLETED
        return passage


def send_params() -> dict[str, Any]:
    return {"message": {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "hello"}]}}


def grpc_request() -> pb.SendMessageRequest:
    part = pb.Part(text="hello")
    return pb.SendMessageRequest(message=pb.Message(message_id=str(uuid4()), role=pb.ROLE_USER, parts=[part]))


@asynccontextmanager
async def recorded_server(folder: Path, work: Callable[[], None] = lambda: None) -> AsyncIterator[Caller]:
    """Serves a function that does this work on SQLite; its threads report every call to the caller's recorder."""
    gate = asyncio.Event()

    @agent(default=True)
    async def gated(turn: Turn) -> str:
        work()
        await gate.wait()
        return turn.text

    anywhere = Address("127.0.0.1", 0)
    settings = Settings(store=f"sqlite:///{folder}/tasks.db", http=anywhere, grpc=anywhere)
    recorder = Recorder(threading.get_ident())
    threading.setprofile(recorder.profile)
    previous = sys.getprofile()
    sys.setprofile(recorder.profile)
    try:
        async with (
            open_app(settings, [gated], timings=AppTimings(runtime=TIMINGS)) as app,
            aiohttp.ClientSession() as session,
            grpc.aio.insecure_channel(str(app.grpc)) as channel,
        ):
            yield Caller(app, gate, recorder, session, A2AServiceStub(channel))
    finally:
        sys.setprofile(previous)
        threading.setprofile(None)
