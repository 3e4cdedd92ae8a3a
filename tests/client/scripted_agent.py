"""A scripted remote agent, and a clock that only sleep advances."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Unpack, cast

from google.protobuf.message import Message
from tests.clocks import SleepingClock

from dragoman.calling.errors import ClientError, NotSupported, ServerUnavailable
from dragoman.calling.retry import RetryBudget
from dragoman.calling.transport import CallFields, StreamResponses
from dragoman.client.agent_connection import AgentConnection
from dragoman.client.event_reducer import EventReducer
from dragoman.client.events import Event
from dragoman.client.options import CallOptions
from dragoman.client.transport import ContentTransport
from dragoman.client.turn_stream import TurnStream
from dragoman.core.cards.agent_spec import IDEMPOTENCY_EXTENSION, RESUME_EXTENSION, Extension
from dragoman.wire.cards.remote_card import Interface, RemoteCard
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BROKEN = ServerUnavailable.for_address("there", "broke off")
CONNECTION_REFUSED = ServerUnavailable.for_address("there", "refused the connection", may_have_arrived=False)
UNSUPPORTED = NotSupported("FAILED_PRECONDITION", "no", reason="UNSUPPORTED_OPERATION")
HOLD = object()
"""In a script: no further response."""


class Script:
    """Implements `Transport`. Each call takes the next entry of its method; the last entry is used again."""

    def __init__(self, **says: list[Sequence[Any]]) -> None:
        self._says = says
        self.requests: list[tuple[str, Any]] = []
        self.keys: list[str] = []
        self.after: list[str] = []

    def _next(self, rpc: str, request: Message, *, key: str = "", after: str = "", **_: str) -> Sequence[Any]:
        copy = type(request)()
        copy.CopyFrom(request)
        self.requests.append((rpc, copy))
        self.keys.append(key)
        self.after.append(after)
        entries = self._says.get(rpc)
        if not entries:
            raise UNSUPPORTED
        return entries.pop(0) if len(entries) > 1 else entries[0]

    async def call(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> Message:
        (answer,) = self._next(rpc, request, **fields)
        if isinstance(answer, ClientError):
            raise answer
        copy: Message = type(answer)()
        copy.CopyFrom(answer)
        if rpc == "SendMessage":
            held = {"message": copy} if isinstance(copy, pb.Message) else {"task": copy}
            return pb.SendMessageResponse(**cast(Any, held))
        return copy

    async def stream(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> StreamResponses:
        for text in self._next(rpc, request, **fields):
            if text is HOLD:
                await asyncio.Event().wait()
            elif isinstance(text, ClientError):
                raise text
            else:
                yield pb.StreamResponse(**{_NAMES[type(text)]: text})

    async def close(self) -> None:
        """Does nothing."""

    def calls(self, rpc: str) -> list[Any]:
        return [request for name, request in self.requests if name == rpc]


_NAMES: dict[Any, str] = {
    pb.Task: "task",
    pb.Message: "message",
    pb.TaskStatusUpdateEvent: "status_update",
    pb.TaskArtifactUpdateEvent: "artifact_update",
}


class ScriptedConnection(AgentConnection):
    """A connection whose transports are scripts, in the order of the interfaces."""

    def __init__(self, *scripts: Script, streams: bool = True, idempotent: bool = False, dialect: str = "1.0") -> None:
        interfaces = tuple(Interface(f"http://{n}", "JSONRPC", dialect) for n in range(len(scripts)))
        own = (Extension(uri=IDEMPOTENCY_EXTENSION.uri),) if idempotent else ()
        card = RemoteCard(
            name="There", description="x", version="1", interfaces=interfaces, streaming=streams, extensions=own
        )
        super().__init__(card, interfaces, CallOptions())
        self._scripts = dict(zip(interfaces, scripts, strict=True))

    @property
    def transport(self) -> ContentTransport:
        return ContentTransport(self._scripts[self.interface], (), CallOptions())


def turn_stream(
    connection: AgentConnection, reducer: EventReducer, clock: SleepingClock, *, inactivity_timeout: float | None = None
) -> TurnStream:
    retries = RetryBudget(60, sleep=clock.sleep, clock=clock)
    return TurnStream(connection, reducer, retries, key="k", inactivity_timeout=inactivity_timeout)


async def run(
    *scripts: Script,
    reducer: EventReducer | None = None,
    clock: SleepingClock | None = None,
    silence: float | None = None,
    **options: Any,
) -> list[Event]:
    """The events of one turn."""
    connection, found = ScriptedConnection(*scripts, **options), reducer or EventReducer()
    message = pb.Message(message_id="m-1", role=pb.ROLE_USER, parts=[pb.Part(text="go")], task_id=found.task.id)
    async with asyncio.timeout(60):
        turn = turn_stream(connection, found, clock or SleepingClock(), inactivity_timeout=silence)
        return [event async for event in turn.send(connection.request(message))]


def task(state: str, *texts: str, text: str = "", message_id: str = "", artifact: str = "output") -> pb.Task:
    """The remote task, with an artifact of these texts."""
    result = pb.Task(id="t-1", context_id="c-1", status=status(state, text).status)
    if texts:
        result.artifacts.add(artifact_id=artifact, parts=[pb.Part(text=text) for text in texts])
    if message_id:
        result.history.add(message_id=message_id, role=pb.ROLE_USER, parts=[pb.Part(text="x")])
    return result


def status(state: str, text: str = "", cursor: str = "") -> pb.TaskStatusUpdateEvent:
    result = pb.TaskStatusUpdateEvent(task_id="t-1", context_id="c-1")
    result.status.state = cast(pb.TaskState, pb.TaskState.Value(f"TASK_STATE_{state}"))
    if text:
        result.status.message.CopyFrom(pb.Message(message_id=text, role=pb.ROLE_AGENT, parts=[pb.Part(text=text)]))
    if cursor:
        result.metadata.update({RESUME_EXTENSION.uri: {"cursor": cursor}})
    return result


def chunk(text: str, *, append: bool = True, cursor: str = "") -> pb.TaskArtifactUpdateEvent:
    result = pb.TaskArtifactUpdateEvent(task_id="t-1", context_id="c-1", append=append)
    result.artifact.CopyFrom(pb.Artifact(artifact_id="output", parts=[pb.Part(text=text)]))
    if cursor:
        result.metadata.update({RESUME_EXTENSION.uri: {"cursor": cursor}})
    return result
