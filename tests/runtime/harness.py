"""A test harness: a runtime on a real store and bus, with short methods for client calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dragoman.agents.functions.declaration import agent as declare
from dragoman.agents.functions.turn import Turn
from dragoman.bus.local import LocalBus
from dragoman.core.access.identity import ANONYMOUS
from dragoman.core.task.log import Event
from dragoman.ports import Bus, Store
from dragoman.runtime import Call, Ports, Runtime, RuntimeConfig, open_runtime
from dragoman.runtime.feeds import EventStream
from dragoman.runtime.lease import Lease
from dragoman.stores.sqlite import open_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def request(text: str = "hello", **message: Any) -> pb.SendMessageRequest:
    """A send request with one text part."""
    return pb.SendMessageRequest(
        message=pb.Message(message_id=f"m-{text}", role=pb.ROLE_USER, parts=[pb.Part(text=text)], **message)
    )


def texts(task: pb.Task) -> list[str]:
    """The text of each artifact."""
    return ["".join(part.text for part in artifact.parts) for artifact in task.artifacts]


def state(task: pb.Task) -> str:
    """The task's state without its prefix."""
    return pb.TaskState.Name(task.status.state).removeprefix("TASK_STATE_")


def status_text(task: pb.Task) -> str:
    """The text of the task's status message. Fails if the message does not name its task and context."""
    message = task.status.message
    assert not message.parts or (message.task_id, message.context_id) == (task.id, task.context_id)
    return "".join(part.text for part in message.parts)


@dataclass
class Harness:
    """A runtime, with the calls of an anonymous client."""

    runtime: Runtime
    store: Store
    bus: Bus = field(default_factory=LocalBus)
    reached: dict[str, asyncio.Event] = field(default_factory=dict)

    @property
    def call(self) -> Call:
        return Call(self.runtime.operations.access.authorize("", ANONYMOUS))

    def at(self, place: str) -> asyncio.Event:
        """A named event, which agents and tests set or wait for."""
        return self.reached.setdefault(place, asyncio.Event())

    async def answer(self, text: str = "hello", seconds: float | None = None, **message: Any) -> pb.SendMessageResponse:
        call = Call(self.call.caller, seconds)
        return pb.SendMessageResponse.FromString(
            await self.runtime.operations.send.send_message(call, request(text, **message))
        )

    async def send(self, text: str = "hello", **message: Any) -> pb.Task:
        """A blocking send."""
        return (await self.answer(text, **message)).task

    async def start(self, text: str = "hello", **message: Any) -> pb.Task:
        """A send that returns immediately."""
        send_request = request(text, **message)
        send_request.configuration.return_immediately = True
        return pb.SendMessageResponse.FromString(
            await self.runtime.operations.send.send_message(self.call, send_request)
        ).task

    async def get(self, task_id: str) -> pb.Task:
        return pb.Task.FromString(await self.runtime.operations.read.get_task(self.call, pb.GetTaskRequest(id=task_id)))

    async def cancel(self, task_id: str, **metadata: Any) -> pb.Task:
        cancel_request = pb.CancelTaskRequest(id=task_id, metadata=metadata)
        return pb.Task.FromString(await self.runtime.operations.cancel.cancel_task(self.call, cancel_request))

    async def idle(self) -> None:
        """Returns when no turn is running."""
        await self.runtime.scheduler.runs.wait_idle()

    def stream(self, text: str = "hello", **message: Any) -> AsyncGenerator[Event, None]:
        return by_event(self.runtime.operations.send.send_streaming_message(self.call, request(text, **message)))

    def follow(self, task_id: str, **call: Any) -> AsyncGenerator[Event, None]:
        """A subscription. `call`: fields of its Call."""
        subscribe = self.runtime.operations.read.subscribe_to_task
        return by_event(subscribe(replace(self.call, **call), pb.SubscribeToTaskRequest(id=task_id)))

    async def list(self, **filters: Any) -> pb.ListTasksResponse:
        send_request = pb.ListTasksRequest(**filters)
        return pb.ListTasksResponse.FromString(await self.runtime.operations.read.list_tasks(self.call, send_request))

    async def ended(self, task_id: str) -> pb.Task:
        """The task once it has ended."""
        try:
            async for _ in self.follow(task_id):
                pass
        except Exception as error:
            if "ended" not in str(error):
                raise
        return await self.get(task_id)


AGENT_OPTIONS = (
    "agent_retention",
    "direct",
    "streaming",
    "cancelable",
    "while_working",
    "on_crash",
    "retry",
    "idle_limit",
    "time_limit",
    "id",
)


class EndlessLease(Lease):
    """A lease that never lapses: nothing renews it in most tests, and on a slow machine a test outlasts 10 seconds."""

    def __init__(self) -> None:
        super().__init__(math.inf)

    def extend(self, began: float, seconds: float) -> None:
        """Changes nothing."""


@asynccontextmanager
async def open_harness(
    tmp_path: Path,
    *functions: Callable[[Turn], object],
    bus: Bus | None = None,
    store: Store | None = None,
    **options: Any,
) -> AsyncIterator[Harness]:
    """Serves these functions as agents, the first as root. `options` are those of Ports, RuntimeConfig and `@agent`.

    The lease of the process never lapses, unless `run_lease` has another; None: that of a server.
    """
    agent_options: dict[str, Any] = {name: options.pop(name) for name in AGENT_OPTIONS if name in options}
    if "agent_retention" in agent_options:
        agent_options["retention"] = agent_options.pop("agent_retention")
    agents = [declare(**agent_options)(function) for function in functions]
    opened = store or open_store(tmp_path / "tasks.db")
    if not options.get("exclusive", True):
        options.setdefault("run_lease", EndlessLease())
    try:
        bus = bus or LocalBus()
        ports = Ports(opened, bus, agents, options.pop("push_options", None), options.pop("tracer", None))
        async with open_runtime(ports, RuntimeConfig(**options)) as runtime:
            yield Harness(runtime, opened, bus)
    finally:
        await opened.close()


async def by_event(stream: EventStream) -> AsyncGenerator[Event, None]:
    """The events of a stream, one by one."""
    async with aclosing(stream):
        async for batch in stream:
            for event in batch:
                yield event


async def collect(stream: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in stream]


def kinds(events: list[Event]) -> list[str]:
    """One word per event: its state, or the text of its artifact."""
    words = []
    for event in events:
        response = pb.StreamResponse.FromString(event.data)
        match response.WhichOneof("payload"):
            case "task":
                words.append(f"task {state(response.task)}")
            case "status_update":
                words.append(pb.TaskState.Name(response.status_update.status.state).removeprefix("TASK_STATE_"))
            case "artifact_update":
                words.append("".join(part.text for part in response.artifact_update.artifact.parts))
            case "message":
                words.append("message")
    return words


async def disconnect(task: Awaitable[object]) -> None:
    """Cancels a call, as a client that disconnects does."""
    future = asyncio.ensure_future(task)
    future.cancel()
    await asyncio.wait([future])
