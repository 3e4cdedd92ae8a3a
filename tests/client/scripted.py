"""An agent elsewhere that answers as a test says, call by call, and a clock that only sleep moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from google.protobuf.message import Message

from dragoman.client.events import Event
from dragoman.client.failure import ClientError, NotSupported, Unreachable
from dragoman.client.line import Line
from dragoman.client.pursuit import Pursuit
from dragoman.client.roads import Means, Road
from dragoman.client.telling import Teller
from dragoman.core.card import Extension
from dragoman.core.extensions import IDEMPOTENCY, RESUME
from dragoman.wire.card_reading import Card, Interface
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BROKEN = Unreachable.at("there", "broke off")
NOBODY = Unreachable.at("there", "refused the connection", arrived=False)
UNSUPPORTED = NotSupported("FAILED_PRECONDITION", "no", reason="UNSUPPORTED_OPERATION")
HOLD = object()
"""In a script: silence for ever."""


class Clock:
    """Seconds that pass when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def __call__(self) -> float:
        return self.now


class Script:
    """Implements `Road`. `says` has for each call what it gives, one entry each time; the last entry is given again."""

    def __init__(self, **says: list[Sequence[Any]]) -> None:
        self._says = says
        self.asked: list[tuple[str, Any]] = []
        self.keys: list[str] = []
        self.after: list[str] = []

    def _next(self, rpc: str, request: Message, key: str, after: str = "") -> Sequence[Any]:
        copy = type(request)()
        copy.CopyFrom(request)
        self.asked.append((rpc, copy))
        self.keys.append(key)
        self.after.append(after)
        entries = self._says.get(rpc)
        if not entries:
            raise UNSUPPORTED
        return entries.pop(0) if len(entries) > 1 else entries[0]

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        (answer,) = self._next(rpc, request, key)
        if isinstance(answer, ClientError):
            raise answer
        copy: Message = type(answer)()
        copy.CopyFrom(answer)
        if rpc == "SendMessage":
            held = {"message": copy} if isinstance(copy, pb.Message) else {"task": copy}
            return pb.SendMessageResponse(**cast(Any, held))
        return copy

    async def stream(
        self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = ""
    ) -> AsyncGenerator[pb.StreamResponse, None]:
        for said in self._next(rpc, request, key, after):
            if said is HOLD:
                await asyncio.Event().wait()
            elif isinstance(said, ClientError):
                raise said
            else:
                yield pb.StreamResponse(**{_NAMES[type(said)]: said})

    async def close(self) -> None:
        """There is nothing to let go of."""

    def calls(self, rpc: str) -> list[Any]:
        return [request for name, request in self.asked if name == rpc]


_NAMES: dict[Any, str] = {
    pb.Task: "task",
    pb.Message: "message",
    pb.TaskStatusUpdateEvent: "status_update",
    pb.TaskArtifactUpdateEvent: "artifact_update",
}


class Scripted(Line):
    """A line whose roads are scripts, of the first interface first."""

    def __init__(self, *scripts: Script, streams: bool = True, idempotent: bool = False, dialect: str = "1.0") -> None:
        interfaces = tuple(Interface(f"http://{n}", "JSONRPC", dialect) for n in range(len(scripts)))
        own = (Extension(uri=IDEMPOTENCY.uri),) if idempotent else ()
        card = Card(
            name="There", description="x", version="1", interfaces=interfaces, streaming=streams, extensions=own
        )
        super().__init__(card, interfaces, Means())
        self._scripts = dict(zip(interfaces, scripts, strict=True))

    @property
    def road(self) -> Road:
        return cast(Road, self._scripts[self.interface])


def pursuit(line: Line, teller: Teller, clock: Clock, *, silence: float | None = None) -> Pursuit:
    return Pursuit(line, teller, key="k", patience=60, silence=silence, sleep=clock.sleep, clock=clock)


async def run(
    *scripts: Script,
    teller: Teller | None = None,
    clock: Clock | None = None,
    silence: float | None = None,
    **options: Any,
) -> list[Event]:
    """The events of one turn."""
    line, found = Scripted(*scripts, **options), teller or Teller()
    message = pb.Message(message_id="m-1", role=pb.ROLE_USER, parts=[pb.Part(text="go")], task_id=found.task.id)
    async with asyncio.timeout(60):
        turn = pursuit(line, found, clock or Clock(), silence=silence)
        return [event async for event in turn.send(line.request(message))]


def task(state: str, *texts: str, said: str = "", heard: str = "", artifact: str = "output") -> pb.Task:
    """The task there, with an artifact of these texts."""
    made = pb.Task(id="t-1", context_id="c-1", status=status(state, said).status)
    if texts:
        made.artifacts.add(artifact_id=artifact, parts=[pb.Part(text=text) for text in texts])
    if heard:
        made.history.add(message_id=heard, role=pb.ROLE_USER, parts=[pb.Part(text="x")])
    return made


def status(state: str, said: str = "", cursor: str = "") -> pb.TaskStatusUpdateEvent:
    made = pb.TaskStatusUpdateEvent(task_id="t-1", context_id="c-1")
    made.status.state = cast(pb.TaskState, pb.TaskState.Value(f"TASK_STATE_{state}"))
    if said:
        made.status.message.CopyFrom(pb.Message(message_id=said, role=pb.ROLE_AGENT, parts=[pb.Part(text=said)]))
    if cursor:
        made.metadata.update({RESUME.uri: {"cursor": cursor}})
    return made


def chunk(text: str, *, append: bool = True, cursor: str = "") -> pb.TaskArtifactUpdateEvent:
    made = pb.TaskArtifactUpdateEvent(task_id="t-1", context_id="c-1", append=append)
    made.artifact.CopyFrom(pb.Artifact(artifact_id="output", parts=[pb.Part(text=text)]))
    if cursor:
        made.metadata.update({RESUME.uri: {"cursor": cursor}})
    return made
