"""An agent upstream that answers as a test says, call by call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from google.protobuf.message import Message
from tests.agents.turn_context import RecordingTurnContext

from dragoman.agents.upstream.agent import CircuitBreaker, UpstreamAgent
from dragoman.calling.errors import CallRefused, ServerUnavailable
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.ports import TurnResult
from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.remote_errors import RemoteError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ScriptedResult = Any
"""What a call gives: an answer, an event of a stream, a failure, or silence until something is set."""


def refused(reason: str, message: str = "no") -> CallRefused:
    return CallRefused.from_answer(RemoteError("FAILED_PRECONDITION", message, reason))


CONNECT_FAILURE = ServerUnavailable.for_reason("there: refused the connection", may_have_arrived=False)
BROKEN_RESPONSE = ServerUnavailable.for_reason("there: broke off")


@dataclass
class ScriptedTransport:
    """Implements `Road`. `says` has for each call what it gives, one entry each time; the last entry is given again."""

    results: dict[str, list[Sequence[ScriptedResult]]]
    dialect: str = "1.0"
    requests: list[tuple[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    _called: dict[str, asyncio.Event] = field(default_factory=dict)

    @property
    def interface(self) -> Interface:
        return Interface("http://there", "JSONRPC", self.dialect)

    def _next(self, rpc: str, request: Message, key: str) -> Sequence[ScriptedResult]:
        copy = type(request)()
        copy.CopyFrom(request)
        self.requests.append((rpc, copy))
        self.called(rpc).set()
        self.keys.append(key)
        entries = self.results.get(rpc)
        if not entries:
            raise refused("UNSUPPORTED_OPERATION")
        return entries.pop(0) if len(entries) > 1 else entries[0]

    async def call(
        self, rpc: str, request: Message, *, key: str = "", parent: str = "", extensions: str = ""
    ) -> Message:
        (answer,) = self._next(rpc, request, key)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            raise BROKEN_RESPONSE
        if rpc == "SendMessage" and answer is None:
            return pb.SendMessageResponse()
        if rpc == "SendMessage":
            return pb.SendMessageResponse(**{"message" if isinstance(answer, pb.Message) else "task": answer})
        found: Message = answer
        return found

    async def stream(
        self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = "", extensions: str = ""
    ) -> AsyncGenerator[pb.StreamResponse, None]:
        for value in self._next(rpc, request, key):
            if isinstance(value, Exception):
                raise value
            if isinstance(value, asyncio.Event):
                await value.wait()
            else:
                yield pb.StreamResponse(**{_NAMES[type(value)]: value})

    async def close(self) -> None:
        """There is nothing to let go of."""

    def called(self, rpc: str) -> asyncio.Event:
        """Is set once there was such a call."""
        return self._called.setdefault(rpc, asyncio.Event())

    def calls(self, rpc: str) -> list[Any]:
        return [request for name, request in self.requests if name == rpc]


_NAMES: dict[Any, str] = {
    pb.Task: "task",
    pb.Message: "message",
    pb.TaskStatusUpdateEvent: "status_update",
    pb.TaskArtifactUpdateEvent: "artifact_update",
}


def task(
    state: str, *texts: str, id: str = "t-1", response_text: str = "", response_id: str = "", received_text: str = ""
) -> pb.Task:
    """The task there, with an artifact of these texts."""
    created_task = pb.Task(id=id, context_id="c-1", status=status(state, response_text, response_id).status)
    if texts:
        created_task.artifacts.add(artifact_id="output", parts=[pb.Part(text=text) for text in texts])
    if received_text:
        created_task.history.add(message_id=received_text, role=pb.ROLE_USER, parts=[pb.Part(text="x")])
    return created_task


def status(state: str, text: str = "", response_id: str = "") -> pb.TaskStatusUpdateEvent:
    event = pb.TaskStatusUpdateEvent(task_id="t-1", context_id="c-1")
    event.status.state = cast(pb.TaskState, pb.TaskState.Value(f"TASK_STATE_{state}"))
    if text:
        event.status.message.CopyFrom(
            pb.Message(message_id=response_id or text, role=pb.ROLE_AGENT, parts=[pb.Part(text=text)])
        )
    return event


def chunk(text: str, *, append: bool = True) -> pb.TaskArtifactUpdateEvent:
    event = pb.TaskArtifactUpdateEvent(task_id="t-1", context_id="c-1", append=append)
    event.artifact.CopyFrom(pb.Artifact(artifact_id="output", parts=[pb.Part(text=text)]))
    return event


class Clock:
    """Seconds that pass when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def __call__(self) -> float:
        return self.now


def agent(*scripts: ScriptedTransport, streams: bool = True, idempotent: bool = False) -> UpstreamAgent:
    clock, numbers = Clock(), count(1)
    spec = AgentSpec(id="there", name="There", description="Elsewhere", streaming=streams)
    upstream_agent = UpstreamAgent(
        spec, "http://there", 10, CircuitBreaker(clock), lambda: f"id-{next(numbers)}", sleep=clock.sleep
    )
    upstream_agent.transports, upstream_agent.idempotent = scripts, idempotent
    return upstream_agent


async def run_turn(
    turn_context: RecordingTurnContext, *scripts: ScriptedTransport, **options: bool
) -> tuple[pb.Task, TurnResult]:
    """One turn: the task as its caller sees it, and the ending."""
    async with asyncio.timeout(60):
        ending = await agent(*scripts, **options).take_turn(turn_context)
    return turn_context.task(ending), ending
