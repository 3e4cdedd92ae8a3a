"""An A2A server whose answers are mutated, and one turn of an agent that calls it.

The answers are those of a whole conversation in each dialect. The server mutates some of the first ones, then answers
as it should, so a turn that waits and tries again must come to an end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Final

import orjson
from tests.agents.turn_context import RecordingTurnContext
from tests.clocks import SleepingClock
from tests.fuzz.remote.mutations import Answer, events_answer, json_answer, lower_names, mutated_answer

from dragoman.agents.upstream import discovery
from dragoman.agents.upstream.agent import UpstreamAgent
from dragoman.agents.upstream.discovery import DiscoveredAgent
from dragoman.agents.upstream.transport import GuardedHttpClient, TransportFactory
from dragoman.agents.upstream.turn import UpstreamTurn
from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import ClientError, NotSupported, ResponseErrors
from dragoman.calling.transport import TransportLimits, TransportOptions
from dragoman.calling.transport_http import JsonRpcTransport, RestTransport
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.task import states
from dragoman.ports import ConnectFailed, OutboundFailed, TurnResult, WorkerLost
from dragoman.wire.cards import agent_card
from dragoman.wire.cards.agent_card import CardView
from dragoman.wire.cards.remote_card import Interface
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HOST: Final = "http://there.example"
BINDINGS: Final = (("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3"), ("0.1", "0.1"))
"""Binding and dialect of each kind of server; a 0.1 card names neither."""
MAX_MUTATIONS: Final = 3
MAX_ATTEMPTS: Final = 12
LIMITS: Final = TransportLimits(
    max_response_bytes=1 << 20, max_stream_bytes=1 << 22, response_timeout=5.0, blocking_timeout=5.0, idle_timeout=5.0
)
TURN_SECONDS: Final = 30.0
"""Most seconds of a turn. Waits between attempts take none, as the clock of the turn is simulated."""

_ENDED: Final = (*sorted(states.TERMINAL), states.INPUT_REQUIRED, states.AUTH_REQUIRED)


class NoEnd(AssertionError):
    """A turn that did not end, or raised what the runtime does not expect."""


class HttpOnly:
    """The parts of `dragoman.ports.OutboundStreams` beside `open`: every URL is allowed, and no other protocol."""

    def check_url(self, url: str) -> None:
        """Allows every URL."""

    async def resolve(self, url: str) -> Sequence[str]:
        """There is no address for other protocols than HTTP."""
        raise OutboundFailed("the name cannot be resolved")

    async def close(self) -> None:
        """Does nothing."""


class MutatingServer(HttpOnly):
    """An A2A server, as an implementation of `dragoman.ports.OutboundStreams`."""

    def __init__(self, chance: random.Random, binding: str, dialect: str, mutations: int) -> None:
        """mutations: the most answers to mutate."""
        self.chance = chance
        self.binding = "JSONRPC" if dialect == "0.1" else binding
        self.dialect = dialect
        self.mutations_left = mutations
        self.sent: list[Answer] = []
        """The answers so far, to explain a failure."""

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, idle_timeout: float
    ) -> AsyncIterator[AnswerStream]:
        """Answers a request."""
        is_card = ".well-known" in url
        values, is_stream = ([self.card()], False) if is_card else self._values(url, orjson.loads(body or b"{}"))
        # Without a card there is no turn, so most cards are as they should be.
        if self.mutations_left and self.chance.random() < (0.2 if is_card else 0.6):
            self.mutations_left -= 1
            answer = mutated_answer(values, self.chance, is_stream=is_stream)
        else:
            answer = events_answer(values) if is_stream else json_answer(values[0])
        self.sent.append(answer)
        if answer.refused:
            raise ConnectFailed("refused the connection")
        yield AnswerStream(answer)

    def card(self) -> Any:
        """The card of its dialect."""
        skill = {"id": "s", "name": "Skill", "description": "Works", "tags": ["t"], "examples": ["Work"]}
        shared = {
            "name": "Words",
            "description": "Does what a message says",
            "version": "1",
            "provider": {"organization": "We", "url": "https://we.example"},
            "iconUrl": "https://we.example/icon.png",
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [skill],
        }
        extension = {"uri": "https://we.example/e", "description": "e", "required": False, "params": {"a": [1]}}
        capabilities = {"streaming": self.chance.random() < 0.6, "pushNotifications": False, "extensions": [extension]}
        url = f"{HOST}/agent"
        if self.dialect == "1.0":
            interface = {"protocolBinding": self.binding, "protocolVersion": "1.0", "url": url, "tenant": ""}
            return {**shared, "capabilities": capabilities, "supportedInterfaces": [interface]}
        if self.dialect == "0.3":
            transport = {"protocolVersion": "0.3.0", "preferredTransport": self.binding, "url": url}
            security = {
                "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X"}},
                "security": [{"k": []}],
            }
            return {**shared, **transport, **security, "capabilities": capabilities, "additionalInterfaces": []}
        authentication = {"schemes": ["none"]}  # only 0.1 has it
        return {**shared, "url": url, "authentication": authentication, "capabilities": {"streaming": True}}

    def _values(self, url: str, request: Any) -> tuple[list[Any], bool]:
        """The JSON of the right answer to a call, and whether it is a stream."""
        name = str(request.get("method", "")) or url.partition("?")[0].rpartition("/")[2]
        is_stream = any(word in name.lower() for word in ("stream", "subscribe"))
        build = _dialect_01 if self.dialect == "0.1" else _dialect_03 if self.dialect == "0.3" else _dialect_10
        parameters = request.get("params", {}) if "jsonrpc" in request else request
        task = str(parameters.get("id") or "t-1")
        events = build(task, rest=self.binding == "HTTP+JSON")
        if is_stream:
            values = events[:3] if self.dialect == "0.1" else events
        elif "send" in name.lower():
            # The first event of 0.1 is no task, and its sends wait for the end.
            values = [events[0] if self.dialect != "0.1" and self.chance.random() < 0.5 else events[-1]]
        elif "list" in name.lower() or name == "tasks":
            values = [{"tasks": [_task_of(events)], "nextPageToken": "", "pageSize": 50, "totalSize": 1}]
        else:
            values = [_task_of(events)]
        if "jsonrpc" in request:
            values = [{"jsonrpc": "2.0", "id": request["id"], "result": value} for value in values]
        return values, is_stream


def _task_of(events: list[Any]) -> Any:
    """The ended task among the answers."""
    last = events[-1]
    return last.get("task", last)


def _dialect_10(task: str, *, rest: bool) -> list[Any]:
    """A working task, a chunk of its artifact, and the ended task."""
    ids = {"taskId": task, "contextId": "c-1"}
    message = {"messageId": "m-1", "role": "ROLE_AGENT", "parts": [{"text": "done"}], "metadata": {"n": 1}}
    artifact = {"artifactId": "a", "name": "n", "parts": [{"text": "word"}, {"data": {"x": [1, 2]}}, {"raw": "AAEC"}]}
    base = {"id": task, "contextId": "c-1", "history": [message], "metadata": {"k": "v"}}
    working = {"state": "TASK_STATE_WORKING", "message": message, "timestamp": "2026-11-27T10:11:12.123Z"}
    done = {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-27T10:11:13Z"}
    return [
        {"task": {**base, "status": working}},
        {"artifactUpdate": {**ids, "artifact": artifact, "append": False, "lastChunk": True}},
        {"statusUpdate": {**ids, "status": working, "metadata": {"n": 1}}},
        {"task": {**base, "status": done, "artifacts": [artifact]}},
    ]


def _dialect_03(task: str, *, rest: bool) -> list[Any]:
    """The same in 0.3: with `kind` over JSON-RPC, as `a2a.v1` over REST."""
    ids = {"taskId": task, "contextId": "c-1"}
    if rest:
        message = {"messageId": "m-1", "role": "ROLE_AGENT", "content": [{"text": "done"}]}
        artifact = {
            "artifactId": "a",
            "parts": [{"text": "word"}, {"file": {"fileWithBytes": "AAEC", "mimeType": "x/y"}}],
        }
        working: dict[str, Any] = {
            "state": "TASK_STATE_WORKING",
            "update": message,
            "timestamp": "2026-11-27T10:11:12Z",
        }
        done = {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-27T10:11:13Z"}
        base: dict[str, Any] = {"id": task, "contextId": "c-1", "history": [message]}
        return [
            {"task": {**base, "status": working}},
            {"artifactUpdate": {**ids, "artifact": artifact}},
            {"statusUpdate": {**ids, "status": working, "final": False}},
            {"task": {**base, "status": done, "artifacts": [artifact]}},
        ]
    message = {"kind": "message", "messageId": "m-1", "role": "agent", "parts": [{"kind": "text", "text": "done"}]}
    file = {"kind": "file", "file": {"bytes": "AAEC", "mimeType": "x/y", "name": "f"}}
    artifact = {
        "artifactId": "a",
        "parts": [{"kind": "text", "text": "word"}, file, {"kind": "data", "data": {"x": 1}}],
    }
    working = {"state": "working", "message": message, "timestamp": "2026-11-27T10:11:12Z"}
    base = {"kind": "task", "id": task, "contextId": "c-1", "history": [message]}
    return [
        {**base, "status": working},
        {"kind": "artifact-update", **ids, "artifact": artifact, "append": False, "lastChunk": True},
        {"kind": "status-update", **ids, "status": working, "final": False},
        {**base, "status": {"state": "completed"}, "artifacts": [artifact]},
    ]


def _dialect_01(task: str, *, rest: bool) -> list[Any]:
    """The same in 0.1, whose streams have no tasks."""
    artifact = {
        "index": 0,
        "name": "n",
        "parts": [{"type": "text", "text": "word"}],
        "append": False,
        "lastChunk": True,
    }
    message = {"role": "agent", "parts": [{"type": "text", "text": "done"}]}
    working = {"state": "working", "message": message, "timestamp": "2026-11-27T10:11:12Z"}
    done = {"state": "completed", "timestamp": "2026-11-27T10:11:13Z"}
    ended = {"id": task, "sessionId": "c-1", "status": done, "artifacts": [artifact], "history": [message]}
    return [
        {"id": task, "status": working, "final": False},
        {"id": task, "artifact": artifact},
        {"id": task, "status": done, "final": True},
        ended,
    ]


class AnswerStream:
    """Implements `dragoman.ports.OutboundResponseStream`."""

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers = lower_names(answer.headers)
        self._answer = answer

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._answer.chunks:
            yield chunk
        if self._answer.cut:
            raise OutboundFailed("the connection broke")


async def check_turn(chance: random.Random, mutations: int = MAX_MUTATIONS) -> str:
    """One turn at a mutating server. Returns how it ended, and raises NoEnd if the runtime would not expect it."""
    binding, dialect = chance.choice(BINDINGS)
    server = MutatingServer(chance, binding, dialect, mutations)
    upstream = UpstreamSpec(url=f"{HOST}/agent", id="there")
    factory = TransportFactory(server, limits=LIMITS)
    try:
        discovered = await discovery.discover(upstream, factory)
    except ClientError:
        return "no card"
    _show(discovered)
    clock, numbers = SleepingClock(), count(1)
    context = RecordingTurnContext("hello")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        agent = _agent(discovered, upstream, factory, clock, numbers)
        context.attempt, context.task_state = attempt, context.task_states[-1]
        try:
            async with asyncio.timeout(TURN_SECONDS):
                result = await agent.take_turn(context)
        except WorkerLost:
            continue
        except Exception as error:
            raise NoEnd(f"{binding} {dialect}: {type(error).__name__}: {error}") from error
        return check_result(context, result)
    raise NoEnd(f"{binding} {dialect}: {MAX_ATTEMPTS} attempts did not end the turn")


def _show(discovered: DiscoveredAgent) -> None:
    """Shows the agent in our own card of each version."""
    view = CardView(http="http://here.example", is_root=False)
    for document in (agent_card.v1_document, agent_card.v03_document, agent_card.v01_document):
        try:
            orjson.loads(document(discovered.spec, view))
        except Exception as error:
            raise NoEnd(f"{document.__name__}: {type(error).__name__}: {error}") from error


def _agent(
    discovered: DiscoveredAgent,
    upstream: UpstreamSpec,
    factory: TransportFactory,
    clock: SleepingClock,
    numbers: count[int],
) -> UpstreamAgent:
    """The agent as the registry makes it of a card."""
    new_turn = partial(UpstreamTurn, new_id=lambda: f"id-{next(numbers)}", sleep=clock.sleep)
    agent = UpstreamAgent(discovered.spec, upstream, CircuitBreaker(clock), new_turn)
    agent.transports = [factory.create(upstream, interface) for interface in discovered.interfaces]
    agent.linked_contents = factory.linked_contents(upstream, discovered.interfaces)
    agent.required_extensions, agent.idempotent = discovered.required_extensions, discovered.idempotent
    agent.supports_streaming = discovered.streaming
    return agent


def check_result(context: RecordingTurnContext, result: TurnResult) -> str:
    """Checks that the result ends the turn, and that the task can be stored and sent."""
    state = result.status.state
    if result.reply is None and state not in _ENDED:
        raise NoEnd(f"the turn ended in {states.name(state)}")
    task = context.task(result)
    assert pb.Task.FromString(task.SerializeToString()) == task
    return "reply" if result.reply is not None else states.name(state).removeprefix("TASK_STATE_").lower()


async def check_calls(chance: random.Random, mutations: int = MAX_MUTATIONS) -> str:
    """Calls of the client library to a mutating server. Each returns a response, or raises a ClientError.

    Returns the name of the first error, except for calls that the dialect does not have.
    """
    binding, dialect = chance.choice(BINDINGS)
    server = MutatingServer(chance, binding, dialect, mutations)
    options = TransportOptions(errors=ResponseErrors(HOST), limits=LIMITS)
    interface = Interface(f"{HOST}/agent", server.binding, dialect)
    http = GuardedHttpClient(server)
    transport = (RestTransport if server.binding == "HTTP+JSON" else JsonRpcTransport)(interface, http, options)
    message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="x")])
    ends: list[str] = []
    for rpc, request in (
        ("SendMessage", pb.SendMessageRequest(message=message)),
        ("SendStreamingMessage", pb.SendMessageRequest(message=message)),
        ("GetTask", pb.GetTaskRequest(id="t-1")),
        ("ListTasks", pb.ListTasksRequest()),
        ("CancelTask", pb.CancelTaskRequest(id="t-1")),
        ("SubscribeToTask", pb.SubscribeToTaskRequest(id="t-1")),
    ):
        try:
            if rpc in ("SendStreamingMessage", "SubscribeToTask"):
                async for event in transport.stream(rpc, request):
                    event.SerializeToString()
            else:
                (await transport.call(rpc, request)).SerializeToString()
        except ClientError as error:
            if not (isinstance(error, NotSupported) and error.message.startswith(f"{dialect} has no")):
                ends.append(type(error).__name__)
        except Exception as error:
            raise NoEnd(f"{rpc} over {binding} {dialect}: {type(error).__name__}: {error}") from error
    return ends[0] if ends else "answered"
