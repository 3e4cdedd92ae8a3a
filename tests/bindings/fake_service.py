"""Fake operations with fixed responses, behind the real gRPC and HTTP servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

import aiohttp
import grpc
from google.rpc import error_details_pb2, status_pb2

from dragoman.bindings.cards import Cards, PublicAddresses, TrustedNetworks
from dragoman.bindings.grpc import server as grpc_binding
from dragoman.bindings.http import server as http_binding
from dragoman.bindings.options import BoundAddress, ServerOptions
from dragoman.core.access.identity import Caller
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import PushNotificationNotSupported
from dragoman.core.task import frames, states
from dragoman.core.task.log import Event
from dragoman.runtime import Operations
from dragoman.runtime.access import Access, Admission, Call
from dragoman.runtime.feeds import EventStream
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

RESOURCE = "projects/p/locations/l/collections/c/engines/e/assistants/a/agents/echo"

AGENTS: Mapping[str, AgentSpec] = {
    "echo": AgentSpec(id="echo", name="Echo", description="Returns the text", default=True),
    "other": AgentSpec(id="other", name="Other", description="Another agent"),
}

TASK = pb.Task(
    id="t1",
    context_id="c1",
    status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED),
    artifacts=[pb.Artifact(artifact_id="a1", parts=[pb.Part(text="hello")])],
)


def task_event(sequence: int = 1, state: pb.TaskState = states.SUBMITTED) -> Event:
    task = pb.Task(id="t1", context_id="c1", status=pb.TaskStatus(state=state))
    return Event(sequence, frames.frame(1, task.SerializeToString()), state)


def status_event(sequence: int, state: pb.TaskState, *, ends: bool = False) -> Event:
    update = pb.TaskStatusUpdateEvent(task_id="t1", context_id="c1", status=pb.TaskStatus(state=state))
    return Event(sequence, frames.frame(3, update.SerializeToString()), state, ends)


def chunk_event(sequence: int, text: str = "chunk") -> Event:
    artifact = pb.Artifact(artifact_id="a1", parts=[pb.Part(text=text)])
    update = pb.TaskArtifactUpdateEvent(task_id="t1", context_id="c1", artifact=artifact, append=sequence > 2)
    return Event(sequence, frames.frame(4, update.SerializeToString()))


class FakeService:
    """Records requests. Unary calls return or raise `answer`, streams `events`.

    A stream waits for each asyncio.Event among its events.
    """

    enabled = False
    """Whether there are push notifications."""

    def __init__(self, answer: Any = None, events: Sequence[Any] = ()) -> None:
        self.answer = answer
        self.events = events
        self.access = Access(AGENTS, "echo")
        self.admission = Admission()
        self.received: list[tuple[str, Call, Any]] = []
        self.waiting = asyncio.Event()
        """A stream waits for its next event."""
        self.abandoned = asyncio.Event()
        """A call was canceled, or a stream was closed before its end."""

    @property
    def operations(self) -> Operations:
        fake: Any = self
        return Operations(self.admission, self.access, fake, fake, fake, fake)

    def check_enabled(self) -> None:
        if not self.enabled:
            raise PushNotificationNotSupported

    async def dialect_of(self, caller: Caller, task_id: str) -> str:
        return ""

    async def _unary(self, name: str, call: Call, request: Any) -> bytes:
        self.received.append((name, call, request))
        if isinstance(self.answer, asyncio.Event):
            try:
                self.waiting.set()
                await self.answer.wait()
            except asyncio.CancelledError:
                self.abandoned.set()
                raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer.SerializeToString() if self.answer is not None else b""

    async def _stream(self, name: str, call: Call, request: Any) -> EventStream:
        self.received.append((name, call, request))
        try:
            for is_batch, group in groupby(self.events, lambda item: isinstance(item, Event)):
                if is_batch:
                    yield list(group)
                    continue
                for event in group:
                    if isinstance(event, Exception):
                        raise event
                    self.waiting.set()
                    await event.wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.abandoned.set()
            raise

    async def send_message(self, call: Call, request: pb.SendMessageRequest) -> bytes:
        return await self._unary("send_message", call, request)

    async def get_task(self, call: Call, request: pb.GetTaskRequest) -> bytes:
        return await self._unary("get_task", call, request)

    async def list_tasks(self, call: Call, request: pb.ListTasksRequest) -> bytes:
        return await self._unary("list_tasks", call, request)

    async def list(self, call: Call, request: pb.ListTaskPushNotificationConfigsRequest) -> bytes:
        return await self._unary("push_configs.list", call, request)

    async def get(self, call: Call, request: pb.GetTaskPushNotificationConfigRequest) -> bytes:
        return await self._unary("push_configs.get", call, request)

    async def create(self, call: Call, request: pb.TaskPushNotificationConfig) -> bytes:
        return await self._unary("push_configs.create", call, request)

    async def set(self, call: Call, request: pb.TaskPushNotificationConfig) -> bytes:
        return await self._unary("push_configs.set", call, request)

    async def cancel_task(self, call: Call, request: pb.CancelTaskRequest) -> bytes:
        return await self._unary("cancel_task", call, request)

    def send_streaming_message(self, call: Call, request: pb.SendMessageRequest) -> EventStream:
        return self._stream("send_streaming_message", call, request)

    def subscribe_to_task(self, call: Call, request: pb.SubscribeToTaskRequest) -> EventStream:
        return self._stream("subscribe_to_task", call, request)


def make_cards(
    public_url: str = "", public_grpc: str = "", trusted_proxies: TrustedNetworks = (), **settings: Any
) -> Cards:
    addresses = PublicAddresses(public_url, public_grpc, trusted_proxies)
    return Cards(AGENTS, "echo", addresses=addresses, **settings)


@asynccontextmanager
async def over_grpc(
    service: FakeService, cards: Cards | None = None, **options: Any
) -> AsyncIterator[tuple[grpc.aio.Channel, BoundAddress]]:
    """Runs a gRPC server. Yields a channel to it, and its address."""
    async with (
        grpc_binding.serve_grpc(service.operations, cards or make_cards(), ServerOptions(**options)) as bound,
        grpc.aio.insecure_channel(str(bound), options=[("grpc.max_receive_message_length", -1)]) as channel,
    ):
        yield channel, bound


@asynccontextmanager
async def over_http(
    service: FakeService, cards: Cards | None = None, **options: Any
) -> AsyncIterator[aiohttp.ClientSession]:
    """Runs an HTTP server. Yields a client with its base URL."""
    async with (
        http_binding.serve_http(service.operations, cards or make_cards(), ServerOptions(**options)) as bound,
        aiohttp.ClientSession(f"http://{bound}") as client,
    ):
        yield client


def details(error: grpc.aio.AioRpcError) -> tuple[error_details_pb2.ErrorInfo, error_details_pb2.BadRequest]:
    """Returns the ErrorInfo and BadRequest of a failed call, and checks that its Status has the same code and text."""
    trailing = dict([*(error.trailing_metadata() or ())])
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    assert (status.code, status.message) == (error.code().value[0], error.details())
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        assert detail.Unpack(info) or detail.Unpack(bad) or detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR)
    return info, bad
