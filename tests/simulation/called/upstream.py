"""A2A servers that are called: the operations of A2A 1.0 over a peer's work, and the transports to them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Unpack

import orjson
from google.protobuf.message import Message
from tests.simulation.called.peer import SILENCE, CallLost, Peer, Work
from tests.simulation.loop import HostLoop

from dragoman.agents.upstream.transport import LinkedContents, TransportFactory, UpstreamTransport
from dragoman.calling.errors import CallRefused, ServerUnavailable
from dragoman.calling.transport import CallFields, StreamResponses
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.cards.agent_spec import IDEMPOTENCY_EXTENSION
from dragoman.core.task import states
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundResponseStream
from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.remote_errors import RemoteError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ARTIFACT: Final = "output"


def _refused(reason: str, code: str = "FAILED_PRECONDITION") -> CallRefused:
    return CallRefused.from_answer(RemoteError(code, reason.lower(), reason))


class A2aServer:
    """The operations of one A2A server. `streams`, `idempotent`: what its card says."""

    def __init__(self, peer: Peer, *, streams: bool, idempotent: bool) -> None:
        self.peer = peer
        self.streams = streams
        self.idempotent = idempotent
        self._by_key: dict[str, Work] = {}

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://{self.peer.name}.example"

    def card(self) -> bytes:
        """Its agent card, as JSON."""
        extensions = [{"uri": IDEMPOTENCY_EXTENSION.uri}] if self.idempotent else []
        return orjson.dumps(
            {
                "name": self.peer.name,
                "supportedInterfaces": [
                    {"url": f"{self.url}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
                ],
                "capabilities": {"streaming": self.streams, "extensions": extensions},
            }
        )

    async def handle(self, rpc: str, request: Any, key: str) -> Message:
        """The response to a unary call. Raises CallRefused."""
        match rpc:
            case "SendMessage":
                return pb.SendMessageResponse(task=task_of(self._receive(request.message, key)))
            case "GetTask":
                return task_of(self._find(request.id))
            case "CancelTask":
                work = self._find(request.id)
                if not self.peer.cancel(work):
                    raise _refused("TASK_NOT_CANCELABLE")
                return task_of(work)
            case "ListTasks":
                found = [work for work in self.peer.known if not work.tool and work.context == request.context_id]
                return pb.ListTasksResponse(tasks=map(task_of, found))
        raise _refused("METHOD_NOT_FOUND", "UNIMPLEMENTED")

    async def open(self, rpc: str, request: Any, key: str) -> Work:
        """The work whose events a streaming call reads. Raises CallRefused."""
        if rpc == "SendStreamingMessage":
            return self._receive(request.message, key)
        work = self._find(request.id)
        if not work.is_active:
            raise _refused("UNSUPPORTED_OPERATION")
        return work

    def _receive(self, message: pb.Message, key: str) -> Work:
        """Takes a message: begins a task, or continues one."""
        if self.idempotent and key in self._by_key and not self._by_key[key].is_lost:
            return self._by_key[key]
        if message.task_id:
            work = self._find(message.task_id)
            if not work.is_active:
                raise _refused("UNSUPPORTED_OPERATION")
            work.messages.append(message)
            if work.state == states.INPUT_REQUIRED:
                self.peer.resume(work)
        else:
            work = self.peer.begin("".join(part.text for part in message.parts), context=message.context_id)
            work.messages.append(message)
        self._by_key[key] = work
        return work

    def _find(self, id: str) -> Work:
        work = self.peer.find(id)
        if work is None:
            raise _refused("TASK_NOT_FOUND", "NOT_FOUND")
        return work


def task_of(work: Work) -> pb.Task:
    """The task of some work."""
    task = pb.Task(id=work.id, context_id=work.context, status=_status_of(work), history=work.messages)
    if work.output:
        task.artifacts.append(pb.Artifact(artifact_id=ARTIFACT, parts=[pb.Part(text=work.output)]))
    return task


def _status_of(work: Work) -> pb.TaskStatus:
    status = pb.TaskStatus(state=work.state)  # type: ignore[arg-type]  # a number of the enum
    if work.text_sent:
        message_id = f"{work.id}-{work.state}"
        parts = [pb.Part(text=work.text_sent)]
        status.message.CopyFrom(pb.Message(message_id=message_id, role=pb.ROLE_AGENT, task_id=work.id, parts=parts))
    return status


def _event_of(work: Work, chunk: str | None, *, is_first: bool) -> pb.StreamResponse:
    if chunk is None:
        update = pb.TaskStatusUpdateEvent(task_id=work.id, context_id=work.context, status=_status_of(work))
        return pb.StreamResponse(status_update=update)
    artifact = pb.Artifact(artifact_id=ARTIFACT, parts=[pb.Part(text=chunk)])
    added = pb.TaskArtifactUpdateEvent(task_id=work.id, context_id=work.context, artifact=artifact, append=not is_first)
    return pb.StreamResponse(artifact_update=added)


class SimulatedTransport:
    """Implements `UpstreamTransport` from one machine to one A2A server."""

    def __init__(self, server: A2aServer, client: HostLoop, interface: Interface) -> None:
        self.interface = interface
        self._server = server
        self._client = client

    async def call(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> Message:
        copy, key = type(request).FromString(request.SerializeToString()), fields.get("key", "")
        with _as_unavailable(self._server.url):
            found = await self._server.peer.call(self._client, lambda: self._server.handle(rpc, copy, key))
        return type(found).FromString(found.SerializeToString())

    async def stream(self, rpc: str, request: Message, **fields: Unpack[CallFields]) -> StreamResponses:
        copy, key = type(request).FromString(request.SerializeToString()), fields.get("key", "")
        events = _Events(self._server.peer, self._client)
        try:
            with _as_unavailable(self._server.url):
                await self._server.peer.call(self._client, lambda: events.open(self._server, rpc, copy, key))
                while (event := await events.next()) is not None:
                    yield event
        finally:
            events.close()

    async def close(self) -> None:
        return


class _Events:
    """The events of one stream, on their way to a client."""

    def __init__(self, peer: Peer, client: HostLoop) -> None:
        self._peer = peer
        self._client = client
        self._received: deque[pb.StreamResponse | None] = deque()
        self._changed = asyncio.Event()
        self._is_broken = False
        self._work: Work | None = None
        self._withdraw: Callable[[], None] = lambda: None
        self._is_closed = False
        self._last_arrival = 0.0

    async def open(self, server: A2aServer, rpc: str, request: Any, key: str) -> None:
        """Opens the stream, at the other server."""
        work = await server.open(rpc, request, key)
        if self._is_closed:
            return
        self._work = work
        self._withdraw = self._peer.on_end(self._break)
        self._send(pb.StreamResponse(task=task_of(work)))
        if work.is_active:
            work.observers.append(self._observe)
        else:
            self._send(None)

    def _observe(self, chunk: Any) -> None:
        assert self._work is not None
        work = self._work
        self._send(_event_of(work, chunk, is_first=len(work.output.split()) == 1))
        if chunk is None and (not work.is_active or work.state == states.INPUT_REQUIRED):
            work.observers.remove(self._observe)
            self._send(None)

    def _send(self, event: pb.StreamResponse | None) -> None:
        """Sends an event, behind those before."""
        world = self._peer.world
        arrival = self._last_arrival = max(world.now + self._peer.delay(), self._last_arrival + 1e-9)

        def deliver() -> None:
            if not (self._is_closed or self._client.killed):
                self._received.append(event)
                self._client.call_soon(self._changed.set)

        self._peer.send(deliver, arrival - world.now)

    def _break(self) -> None:
        if not (self._is_closed or self._client.killed):
            self._is_broken = True
            self._client.call_soon(self._changed.set)

    async def next(self) -> pb.StreamResponse | None:
        """The next event; None at the end. Raises CallLost."""
        while not self._received:
            if self._is_broken:
                raise CallLost(may_have_arrived=True)
            self._changed.clear()
            try:
                async with asyncio.timeout(SILENCE):
                    await self._changed.wait()
            except TimeoutError:
                if not self._peer.responds:
                    raise CallLost(may_have_arrived=True) from None
        return self._received.popleft()

    def close(self) -> None:
        """Closes the client's end."""
        self._is_closed = True
        self._withdraw()
        if self._work is not None and self._observe in self._work.observers:
            self._work.observers.remove(self._observe)


@contextmanager
def _as_unavailable(url: str) -> Iterator[None]:
    """Turns a lost call into the error of a transport."""
    try:
        yield
    except CallLost as lost:
        raise ServerUnavailable.for_address(url, lost, may_have_arrived=lost.may_have_arrived) from None


@dataclass(slots=True)
class _CardResponse:
    """The response to a request for a card."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body


class CardClient:
    """Implements `dragoman.ports.OutboundStreams` for the cards of A2A servers."""

    def __init__(self, servers: Iterable[A2aServer], client: HostLoop) -> None:
        self._servers = tuple(servers)
        self._client = client

    def check_url(self, url: str) -> None:
        return

    def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, idle_timeout: float
    ) -> AbstractAsyncContextManager[OutboundResponseStream]:
        return self._open(url)

    @asynccontextmanager
    async def _open(self, url: str) -> AsyncIterator[OutboundResponseStream]:
        (server,) = [one for one in self._servers if url.startswith(one.url)]

        async def read() -> bytes:
            return server.card()

        try:
            card = await server.peer.call(self._client, read)
        except CallLost as lost:
            raise (OutboundFailed if lost.may_have_arrived else ConnectFailed)(str(lost)) from None
        yield _CardResponse(card)

    async def resolve(self, url: str) -> list[str]:
        return []

    async def close(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class SimulatedTransports(TransportFactory):
    """Opens transports to A2A servers from one machine."""

    servers: tuple[A2aServer, ...] = ()
    client: HostLoop | None = None

    def create(self, upstream: UpstreamSpec, interface: Interface) -> UpstreamTransport:
        assert self.client is not None
        (server,) = [one for one in self.servers if one.url == upstream.url]
        return SimulatedTransport(server, self.client, interface)

    def linked_contents(self, upstream: UpstreamSpec, interfaces: Iterable[Interface]) -> LinkedContents | None:  # type: ignore[override]  # none: contents are short
        return None
