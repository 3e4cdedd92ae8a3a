"""The stream of one worker, with a fake hub: frames, credentials, and how the stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.callers import WRONG, ByHeader, named

from dragoman.bindings.grpc import messages
from dragoman.bindings.grpc.server import abort_call
from dragoman.bindings.grpc.worker_service import WORKER_SERVICE, worker_service_handler
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.pipeline import Pipeline
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import ANONYMOUS, Identity
from dragoman.core.errors import AgentIdTaken
from dragoman.core.limits.quotas import Quotas
from dragoman.runtime.access import Admission
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk


class EchoHub:
    """Answers each frame with a Welcome that repeats its name, and rejects the name `taken`."""

    def __init__(self) -> None:
        self.connected: list[tuple[Identity, str]] = []
        self.ended = asyncio.Event()

    async def connect(
        self, frames: AsyncIterator[wk.ConnectRequest], identity: Identity, peer: str
    ) -> AsyncGenerator[wk.ConnectResponse]:
        self.connected.append((identity, peer))
        try:
            async for frame in frames:
                if frame.hello.name == "taken":
                    raise AgentIdTaken("hello.agents: taken")
                yield wk.ConnectResponse(welcome=wk.Welcome(principal=frame.hello.name))
        finally:
            self.ended.set()


class Served:
    """A server with this service only, and a stream to it."""

    def __init__(self, hub: EchoHub, streams: StreamRegistry, call: Any, connect: Any) -> None:
        self.hub = hub
        self.streams = streams
        self.call = call
        self.connect = connect

    async def send(self, name: str) -> str:
        """Sends a hello, and returns the name in the response."""
        await self.call.write(wk.ConnectRequest(hello=wk.Hello(name=name)).SerializeToString())
        return str(wk.ConnectResponse.FromString(await self.call.read()).welcome.principal)

    async def status(self) -> tuple[str, str]:
        return (await self.call.code()).name, await self.call.details()


@asynccontextmanager
async def served(
    caller: dict[str, str] | None = None, limits: dict[str, int] | None = None, **options: Any
) -> AsyncIterator[Served]:
    given, hub, streams = ServerOptions(**options), EchoHub(), StreamRegistry()
    server = grpc.aio.server()
    reader = messages.caller_messages(given.message_bytes)
    operations = SimpleNamespace(admission=Admission(Quotas(limits or {})))
    pipeline = Pipeline(operations, None, given, streams)  # type: ignore[arg-type]  # cards are not used here
    handler = worker_service_handler(hub, pipeline, abort_call, reader)  # type: ignore[arg-type]  # the rest of the hub is not used here
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            connect: Any = channel.stream_stream(f"/{WORKER_SERVICE.full_name}/Connect")
            call = connect(metadata=tuple((caller or {}).items()))
            yield Served(hub, streams, call, connect)
            call.cancel()
    finally:
        await server.stop(0)


async def test_frames_and_responses_keep_their_order() -> None:
    async with served() as stream:
        assert [await stream.send(name) for name in ("a", "b", "c")] == ["a", "b", "c"]
        await stream.call.done_writing()
        assert await stream.status() == ("OK", "")
        ((identity, peer),) = stream.hub.connected
        assert identity == ANONYMOUS
        assert peer.startswith("ipv4:127.0.0.1:")


async def test_the_hub_gets_the_identity_behind_the_credentials() -> None:
    async with served(named("alice", "worker:desk"), authenticator=ByHeader()) as stream:
        await stream.send("a")
        assert stream.hub.connected[0][0] == Identity("alice", frozenset(["worker:desk"]))


@pytest.mark.parametrize(
    ("caller", "text"),
    [
        ({}, 'workers need credentials with the grant "worker": credentials are required'),
        (named(WRONG), "The credentials are missing or invalid"),
    ],
)
async def test_without_valid_credentials_nothing_reaches_the_hub(caller: dict[str, str], text: str) -> None:
    async with served(caller, authenticator=ByHeader()) as stream:
        code, details = await stream.status()
        assert (code, details[: len(text)]) == ("UNAUTHENTICATED", text)
        assert stream.hub.connected == []


async def test_a_draining_server_takes_no_new_workers() -> None:
    draining = asyncio.Event()
    draining.set()
    async with served(draining=draining) as stream:
        assert await stream.status() == ("UNAVAILABLE", "the server is shutting down and takes no new workers")
        assert stream.hub.connected == []


async def test_a_worker_stays_connected_while_the_server_drains() -> None:
    draining = asyncio.Event()
    async with served(draining=draining) as stream:
        await stream.send("a")
        draining.set()
        assert await stream.send("b") == "b"


async def test_the_streams_of_workers_count_against_the_limit_of_their_principal() -> None:
    alice = named("alice", "worker")
    async with served(alice, {"open_streams": 1}, authenticator=ByHeader()) as stream:
        await stream.send("a")
        second = stream.connect(metadata=tuple(alice.items()))
        assert (await second.code()).name == "RESOURCE_EXHAUSTED"
        assert (await second.details()).startswith("open_streams: 1 of your streams")
        assert await stream.send("b") == "b"


async def test_invalid_bytes_end_the_stream() -> None:
    async with served() as stream:
        await stream.call.write(b"\xff")
        code, _ = await stream.status()
        assert code == "INVALID_ARGUMENT"
        await stream.hub.ended.wait()


async def test_an_error_of_the_hub_is_the_status_of_the_stream() -> None:
    async with served() as stream:
        await stream.send("a")
        await stream.call.write(wk.ConnectRequest(hello=wk.Hello(name="taken")).SerializeToString())
        assert await stream.status() == ("ALREADY_EXISTS", "hello.agents: taken")


async def test_shutdown_ends_the_stream_and_the_hub_s_side_of_it() -> None:
    async with served() as stream:
        await stream.send("a")
        assert stream.streams.count == 1
        stream.streams.close()
        code, _ = await stream.status()
        assert code == "UNAVAILABLE"
        await stream.hub.ended.wait()
        assert stream.streams.count == 0


async def test_a_disconnected_worker_ends_the_hub_s_side_of_its_stream() -> None:
    async with served() as stream:
        await stream.send("a")
        stream.call.cancel()
        await stream.hub.ended.wait()
