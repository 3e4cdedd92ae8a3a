"""Open streams that the server itself ends: because it stops, or because a key behind them was revoked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest
from tests.callers import ByHeader, named

from dragoman import Turn, agent
from dragoman.bindings import stream_registry
from dragoman.bindings.grpc import server as bindings
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import ANONYMOUS, Identity
from dragoman.core.errors import A2AError, Unauthenticated, Unavailable
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

ALICE = Identity("alice", credential_id="a")
BOB = Identity("bob", credential_id="b")


class Withdrawing:
    """Knows which keys are gone. Implements `dragoman.ports.Authenticator`."""

    def __init__(self, texts: Iterable[str] = (), trouble: bool = False) -> None:
        self.departed = set(texts)
        self.trouble = trouble
        self.requests: list[str] = []

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        raise AssertionError

    async def recheck(self, identity: Identity) -> None:
        self.requests.append(identity.credential_id)
        if self.trouble:
            raise Unavailable
        if identity.credential_id in self.departed:
            raise Unauthenticated("revoked")


class Reader:
    """A stream that says how it ended."""

    def __init__(self, streams: StreamRegistry, identity: Identity) -> None:
        self.opened = asyncio.Event()
        self.why: A2AError | None = None
        self.task = asyncio.create_task(self._read(streams, identity))

    async def _read(self, streams: StreamRegistry, identity: Identity) -> None:
        try:
            with streams.open() as stream:
                stream.identity = identity
                self.opened.set()
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.why = streams.take_end_reason()
            if self.why is None:
                raise


async def readers(streams: StreamRegistry, *identities: Identity) -> list[Reader]:
    found = [Reader(streams, identity) for identity in identities]
    for reader in found:
        await reader.opened.wait()
    return found


async def test_the_streams_of_a_key_that_is_gone_end_and_no_others() -> None:
    streams = StreamRegistry()
    first, second, bob, reader = await readers(streams, ALICE, ALICE, BOB, ANONYMOUS)
    authenticator = Withdrawing("a")
    await streams.recheck_credentials(authenticator)
    await asyncio.wait((first.task, second.task))
    assert isinstance(first.why, Unauthenticated)
    assert isinstance(second.why, Unauthenticated)
    assert sorted(authenticator.requests) == ["a", "b"]
    assert not bob.task.done()
    assert not reader.task.done()
    streams.close()
    await asyncio.wait((bob.task, reader.task))
    assert isinstance(bob.why, Unavailable)


async def test_while_the_store_is_in_trouble_nobody_is_cut_off() -> None:
    streams = StreamRegistry()
    (alice,) = await readers(streams, ALICE)
    await streams.recheck_credentials(Withdrawing("a", trouble=True))
    assert not alice.task.done()
    alice.task.cancel()
    await asyncio.wait((alice.task,))
    assert alice.task.cancelled()


async def test_a_client_that_goes_away_is_no_end_of_ours() -> None:
    streams = StreamRegistry()
    (alice,) = await readers(streams, ALICE)
    alice.task.cancel()
    await asyncio.wait((alice.task,))
    assert (alice.task.cancelled(), alice.why) == (True, None)


@agent
async def floods(turn: Turn) -> AsyncIterator[str]:
    """Always has something more to say."""
    while True:
        yield "x" * 2000


class Known(ByHeader):
    """Callers by a header, all with one key, which may be withdrawn."""

    withdrawn = False

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        identity = await super().authenticate(headers)
        return replace(identity, credential_id="key-1") if identity else None

    async def recheck(self, identity: Identity) -> None:
        if self.withdrawn:
            raise Unauthenticated("the key was revoked")


async def test_a_busy_stream_over_grpc_ends_with_a_status_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC has an event in hand almost always. Canceled then, a call would end without a word to its reader."""
    monkeypatch.setattr(stream_registry, "CREDENTIAL_CHECK_INTERVAL", 0.01)
    known = Known()
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/t.db", drain=0)
    async with (
        open_app(settings, [floods], known) as app,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
        asyncio.timeout(60),
    ):
        request = pb.SendMessageRequest(
            message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="x")])
        )
        call = rpc.A2AServiceStub(channel).SendStreamingMessage(request, metadata=tuple(named("alice").items()))

        async def read() -> None:
            seen = 0
            async for _ in call:
                seen += 1
                known.withdrawn = seen > 50

        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await read()
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert ended.value.details() == "the key was revoked"
        await app.drain(0)


async def test_a_stream_that_gRPC_will_not_let_go_of_ends_with_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is still sending something when the server stops, and takes no status."""

    async def takes_none(*_: object) -> None:
        raise grpc.aio.InternalError("GRPC_CALL_ERROR_TOO_MANY_OPERATIONS")

    monkeypatch.setattr(bindings, "_abort_call", takes_none)
    monkeypatch.setattr(
        "dragoman.wiring.app.ServerOptions", partial(ServerOptions, grace=0.2)
    )  # for which it goes on, as fast as it can
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/t.db", drain=0)
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        app = await stack.enter_async_context(open_app(settings, [floods], Known()))
        async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
            request = pb.SendMessageRequest(
                message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="x")])
            )
            call = rpc.A2AServiceStub(channel).SendStreamingMessage(request, metadata=tuple(named("alice").items()))
            begun = asyncio.Event()

            async def read() -> None:
                async for _ in call:
                    begun.set()

            reading = asyncio.create_task(read())
            await begun.wait()
            await stack.aclose()
            with pytest.raises(grpc.aio.AioRpcError):
                await reading
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
