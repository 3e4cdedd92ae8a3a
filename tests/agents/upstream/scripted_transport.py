"""An upstream agent that follows a script, call by call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Unpack, cast

from google.protobuf.message import Message
from tests.agents.turn_context import RecordingTurnContext
from tests.clocks import SleepingClock

from dragoman.agents.called.agent import Sleep
from dragoman.agents.upstream.agent import UpstreamAgent
from dragoman.agents.upstream.transport import LinkedContents
from dragoman.agents.upstream.turn import UpstreamTurn
from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import CallRefused, ServerUnavailable
from dragoman.calling.transport import CallFields, StreamResponses
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.ports import TurnResult
from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.remote_errors import RemoteError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ScriptedResult = Any
"""The result of a call: a response, a stream event, an error, or an event to wait for."""


def refused(reason: str, message: str = "no") -> CallRefused:
    return CallRefused.from_answer(RemoteError("FAILED_PRECONDITION", message, reason))


CONNECT_FAILURE = ServerUnavailable.for_reason("there: refused the connection", may_have_arrived=False)
BROKEN_RESPONSE = ServerUnavailable.for_reason("there: broke off")


@dataclass
class ScriptedTransport:
    """Implements `UpstreamTransport`. Each call takes the next entry of its method; the last entry is repeated."""

    results: dict[str, list[Sequence[ScriptedResult]]]
    dialect: str = "1.0"
    requests: list[tuple[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    _called: dict[str, asyncio.Event] = field(default_factory=dict)

    @property
    def interface(self) -> Interface:
        return Interface("http://there", "JSONRPC", self.dialect)

    def _next(self, rpc: str, request: Message, *, key: str = "", **_: str) -> Sequence[ScriptedResult]:
        copy = type(request)()
        copy.CopyFrom(request)
        self.requests.append((rpc, copy))
        self.called(rpc).set()
        self.keys.append(key)
        entries = self.results.get(rpc)
        if not entries:
            raise refused("UNSUPPORTED_OPERATION")
        return entries.pop(0) if len(entries) > 1 else entries[0]

    async def call(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> Message:
        (answer,) = self._next(rpc, request, **fields)
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

    async def stream(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> StreamResponses:
        for text in self._next(rpc, request, **fields):
            if isinstance(text, Exception):
                raise text
            if isinstance(text, asyncio.Event):
                await text.wait()
            else:
                yield pb.StreamResponse(**{_NAMES[type(text)]: text})

    async def close(self) -> None:
        """Does nothing."""

    def called(self, rpc: str) -> asyncio.Event:
        """Set once the method was called."""
        return self._called.setdefault(rpc, asyncio.Event())

    def calls(self, rpc: str) -> list[Any]:
        return [request for name, request in self.requests if name == rpc]


_NAMES: dict[Any, str] = {
    pb.Task: "task",
    pb.Message: "message",
    pb.TaskStatusUpdateEvent: "status_update",
    pb.TaskArtifactUpdateEvent: "artifact_update",
}


def task(state: str, *texts: str, id: str = "t-1", text: str = "", text_id: str = "", message_id: str = "") -> pb.Task:
    """The upstream task, with an artifact of these texts."""
    result = pb.Task(id=id, context_id="c-1", status=status(state, text, text_id).status)
    if texts:
        result.artifacts.add(artifact_id="output", parts=[pb.Part(text=text) for text in texts])
    if message_id:
        result.history.add(message_id=message_id, role=pb.ROLE_USER, parts=[pb.Part(text="x")])
    return result


def status(state: str, text: str = "", text_id: str = "") -> pb.TaskStatusUpdateEvent:
    result = pb.TaskStatusUpdateEvent(task_id="t-1", context_id="c-1")
    result.status.state = cast(pb.TaskState, pb.TaskState.Value(f"TASK_STATE_{state}"))
    if text:
        result.status.message.CopyFrom(
            pb.Message(message_id=text_id or text, role=pb.ROLE_AGENT, parts=[pb.Part(text=text)])
        )
    return result


def chunk(text: str, *, append: bool = True) -> pb.TaskArtifactUpdateEvent:
    result = pb.TaskArtifactUpdateEvent(task_id="t-1", context_id="c-1", append=append)
    result.artifact.CopyFrom(pb.Artifact(artifact_id="output", parts=[pb.Part(text=text)]))
    return result


def agent(
    *scripts: ScriptedTransport,
    streams: bool = True,
    idempotent: bool = False,
    linked_contents: LinkedContents | None = None,
    sleep: Sleep | None = None,
) -> UpstreamAgent:
    clock, numbers = SleepingClock(), count(1)
    spec = AgentSpec(id="there", name="There", description="Elsewhere", streaming=streams)
    result = UpstreamAgent(
        spec,
        UpstreamSpec(url="http://there", turns=10),
        CircuitBreaker(clock),
        partial(UpstreamTurn, new_id=lambda: f"id-{next(numbers)}", sleep=sleep or clock.sleep),
    )
    result.transports, result.idempotent, result.linked_contents = scripts, idempotent, linked_contents
    return result


async def run_turn(
    turn_context: RecordingTurnContext, *scripts: ScriptedTransport, **options: Any
) -> tuple[pb.Task, TurnResult]:
    """Runs one turn: the task as its caller sees it, and the result."""
    async with asyncio.timeout(60):
        result = await agent(*scripts, **options).take_turn(turn_context)
    return turn_context.task(result), result
