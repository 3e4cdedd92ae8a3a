"""Streams that the server ends: at shutdown, or when their credentials were revoked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from tests.callers import ByHeader, named

from dragoman import Turn, agent
from dragoman.bindings.grpc import server as bindings
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import ANONYMOUS, Identity
from dragoman.core.errors import A2AError, Unauthenticated, Unavailable
from dragoman.security.authenticators.composite import CompositeAuthenticator
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import AppTimings, open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

ALICE = Identity("alice", credential_id="a")
BOB = Identity("bob", credential_id="b")


class RevokingAuthenticator:
    """Knows which keys are revoked. Implements `dragoman.ports.Authenticator`."""

    def __init__(self, revoked: Iterable[str] = (), unavailable: bool = False) -> None:
        self.revoked = set(revoked)
        self.unavailable = unavailable
        self.rechecked: list[str] = []

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        raise AssertionError

    async def recheck(self, identity: Identity) -> None:
        self.rechecked.append(identity.credential_id)
        if self.unavailable:
            raise Unavailable
        if identity.credential_id in self.revoked:
            raise Unauthenticated("revoked")


class Reader:
    """An open stream, which records why it ended."""

    def __init__(self, streams: StreamRegistry, identity: Identity) -> None:
        self.opened = asyncio.Event()
        self.end_reason: A2AError | None = None
        self.task = asyncio.create_task(self._read(streams, identity))

    async def _read(self, streams: StreamRegistry, identity: Identity) -> None:
        try:
            with streams.open() as stream:
                stream.identity = identity
                self.opened.set()
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.end_reason = streams.take_end_reason()
            if self.end_reason is None:
                raise


async def readers(streams: StreamRegistry, *identities: Identity) -> list[Reader]:
    opened = [Reader(streams, identity) for identity in identities]
    for reader in opened:
        await reader.opened.wait()
    return opened


async def test_only_the_streams_of_a_revoked_key_end() -> None:
    streams = StreamRegistry()
    first, second, bob, reader = await readers(streams, ALICE, ALICE, BOB, ANONYMOUS)
    authenticator = RevokingAuthenticator("a")
    await streams.recheck_credentials(authenticator)
    await asyncio.wait((first.task, second.task))
    assert isinstance(first.end_reason, Unauthenticated)
    assert isinstance(second.end_reason, Unauthenticated)
    assert sorted(authenticator.rechecked) == ["a", "b"]
    assert not bob.task.done()
    assert not reader.task.done()
    streams.close()
    await asyncio.wait((bob.task, reader.task))
    assert isinstance(bob.end_reason, Unavailable)


async def test_the_streams_of_an_expired_token_end_and_those_of_its_successor_stay() -> None:
    """Both tokens are of one principal, and have no id."""
    now = 1000
    authenticator = CompositeAuthenticator((), lambda: now)
    streams = StreamRegistry()
    old, new, static = await readers(
        streams, Identity("alice", expires=2000), Identity("alice", expires=3000), Identity("token")
    )
    await streams.recheck_credentials(authenticator)
    assert not old.task.done()
    now = 2000
    await streams.recheck_credentials(authenticator)
    await asyncio.wait((old.task,))
    assert isinstance(old.end_reason, Unauthenticated)
    assert old.end_reason.message == "the token has expired"
    assert not new.task.done()
    assert not static.task.done()
    streams.close()
    await asyncio.wait((new.task, static.task))


async def test_streams_stay_open_while_credentials_cannot_be_checked() -> None:
    streams = StreamRegistry()
    (alice,) = await readers(streams, ALICE)
    await streams.recheck_credentials(RevokingAuthenticator("a", unavailable=True))
    assert not alice.task.done()
    alice.task.cancel()
    await asyncio.wait((alice.task,))
    assert alice.task.cancelled()


async def test_a_disconnected_client_is_not_an_end_by_the_server() -> None:
    streams = StreamRegistry()
    (alice,) = await readers(streams, ALICE)
    alice.task.cancel()
    await asyncio.wait((alice.task,))
    assert (alice.task.cancelled(), alice.end_reason) == (True, None)


@agent
async def endless(turn: Turn) -> AsyncIterator[str]:
    """Streams chunks without end."""
    while True:
        yield "x" * 2000


class RevocableKey(ByHeader):
    """Identifies callers by a header, all with one key that can be revoked."""

    revoked = False

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        identity = await super().authenticate(headers)
        return replace(identity, credential_id="key-1") if identity else None

    async def recheck(self, identity: Identity) -> None:
        if self.revoked:
            raise Unauthenticated("the key was revoked")


async def test_a_busy_grpc_stream_ends_with_a_status(tmp_path: Path) -> None:
    """gRPC is almost always sending an event. A call that is canceled then would end without a status."""
    authenticator = RevocableKey()
    any_port = Address("127.0.0.1", 0)
    settings = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/t.db", drain=0)
    async with (
        open_app(settings, [endless], authenticator, timings=AppTimings(credential_check_interval=0.01)) as app,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
        asyncio.timeout(60),
    ):
        request = pb.SendMessageRequest(
            message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="x")])
        )
        call = rpc.A2AServiceStub(channel).SendStreamingMessage(request, metadata=tuple(named("alice").items()))

        async def read() -> None:
            count = 0
            async for _ in call:
                count += 1
                authenticator.revoked = count > 50

        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await read()
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert ended.value.details() == "the key was revoked"
        await app.drain(0)


async def test_a_stream_that_cannot_be_aborted_ends_with_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC is still sending at shutdown and rejects the status."""

    async def fail_to_abort(*_: object) -> None:
        raise grpc.aio.InternalError("GRPC_CALL_ERROR_TOO_MANY_OPERATIONS")

    monkeypatch.setattr(bindings, "abort_with", fail_to_abort)
    any_port = Address("127.0.0.1", 0)
    settings = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/t.db", drain=0)
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        timings = AppTimings(grace=0.2)  # for which the stream goes on
        app = await stack.enter_async_context(open_app(settings, [endless], RevocableKey(), timings=timings))
        async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
            request = pb.SendMessageRequest(
                message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="x")])
            )
            call = rpc.A2AServiceStub(channel).SendStreamingMessage(request, metadata=tuple(named("alice").items()))
            started = asyncio.Event()

            async def read() -> None:
                async for _ in call:
                    started.set()

            read_task = asyncio.create_task(read())
            await started.wait()
            await stack.aclose()
            with pytest.raises(grpc.aio.AioRpcError):
                await read_task
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
