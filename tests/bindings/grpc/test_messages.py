"""Request messages over gRPC: read after authentication, within limits of time and memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from tests.bindings.fake_service import TASK, FakeService, over_grpc
from tests.callers import WRONG, ByHeader, named
from tests.eventually import eventually

from dragoman.bindings.grpc import messages
from dragoman.bindings.grpc.messages import MessageReader
from dragoman.core.access.identity import AccessPolicy
from dragoman.core.errors import InvalidRequest, PayloadTooLarge, Unavailable

PACKAGE: Final = Path(__file__).parents[3] / "server" / "dragoman"


class FakeCall:
    """The context of a call whose message arrives when the test says so."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.message: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def peer(self) -> str:
        return self._peer

    async def read(self) -> object:
        return await self.message


class Reads:
    """Reads of a `MessageReader` of 1,000 bytes a message and 4,000 in all, with a clock that the test sets."""

    def __init__(self, received: Mapping[str, int]) -> None:
        self.now = 0.0
        self.reader = MessageReader(
            1000,
            4000,
            slow_after=1.0,
            read_timeout=60.0,
            max_held=1000,
            received=lambda peers: {peer: received[peer] for peer in peers if peer in received},
            clock=lambda: self.now,
        )
        self.tasks: list[asyncio.Task[bytes | None]] = []

    async def start(self, principal: str, peer: str = "") -> FakeCall:
        call = FakeCall(peer)
        self.tasks.append(asyncio.create_task(self.reader.next(call, principal)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        return call

    async def ended(self) -> list[int]:
        """Checks, and returns which reads have ended."""
        self.reader.check()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [number for number, task in enumerate(self.tasks) if task.done()]

    async def cancel(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@asynccontextmanager
async def reads(received: Mapping[str, int] | None = None) -> AsyncIterator[Reads]:
    opened = Reads(received or {})
    try:
        yield opened
    finally:
        await opened.cancel()


async def test_a_message_is_returned_and_its_end_is_none() -> None:
    async with reads() as read:
        first, second = await read.start("alice"), await read.start("alice")
        first.message.set_result(b"hello")
        second.message.set_result(grpc.aio.EOF)
        assert await asyncio.gather(*read.tasks) == [b"hello", None]


async def test_a_message_over_the_limit_is_too_large() -> None:
    async with reads() as read:
        (await read.start("alice")).message.set_result(bytes(1001))
        with pytest.raises(PayloadTooLarge):
            await read.tasks[0]


async def test_a_call_without_a_message_is_invalid() -> None:
    async with over_grpc(FakeService(TASK)) as (channel, _):
        call: Any = channel.stream_unary("/lf.a2a.v1.A2AService/GetTask")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(iter(()))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "has no message" in str(caught.value.details())


async def test_a_message_that_is_incomplete_for_too_long_ends_its_call() -> None:
    async with reads() as read:
        await read.start("alice")
        read.now = 59.0
        await read.start("alice")
        assert await read.ended() == []
        read.now = 61.0
        assert await read.ended() == [0]
        with pytest.raises(InvalidRequest, match="incomplete after 60 s"):
            await read.tasks[0]


async def test_the_callers_that_hold_most_lose_their_oldest_beyond_the_budget() -> None:
    async with reads() as read:
        for principal in ("alice", "bob", "carol", "alice", "carol", "carol"):
            await read.start(principal)
        read.now = 2.0
        # Six of four: carol has three, then alice and carol have two, and alice's came first.
        assert await read.ended() == [0, 2]
        for task in (read.tasks[0], read.tasks[2]):
            with pytest.raises(Unavailable, match="too many large messages"):
                await task


async def test_messages_count_as_much_as_their_connections_have_received() -> None:
    async with reads({"a": 2000, "b": 500_000}) as read:
        for _ in range(10):
            await read.start("alice", "a")
        await read.start("bob", "b")
        await read.start("carol", "unknown")
        read.now = 2.0
        assert await read.ended() == []
        await read.start("bob", "b")
        read.now = 4.0
        assert await read.ended() == [0, 10]  # alice and bob hold 2,000 each, of which alice's first one is 200


async def test_messages_that_arrive_at_once_are_not_counted() -> None:
    async with reads() as read:
        for _ in range(20):
            await read.start("alice")
        read.now = 0.5
        assert await read.ended() == []


async def test_a_connection_has_a_number_of_messages_read_and_others_do_not_wait_for_it() -> None:
    async with reads() as read:
        read.reader = MessageReader(1000, 4000, slow_after=1.0, read_timeout=60.0, max_held=1000, connection_reads=1)
        calls = [await read.start("anonymous", peer) for peer in ("a", "b", "a")]
        assert await read.ended() == [2]
        with pytest.raises(Unavailable, match="of this connection"):
            await read.tasks.pop()
        calls[0].message.set_result(b"first")
        calls[1].message.set_result(b"second")
        assert await asyncio.gather(*read.tasks) == [b"first", b"second"]
        third = await read.start("anonymous", "a")
        third.message.set_result(b"third")
        assert await read.tasks[-1] == b"third"


async def test_a_read_that_its_caller_cancels_is_no_error_of_the_reader() -> None:
    async with reads() as read:
        await read.start("alice")
        read.tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await read.tasks[0]


def stalled_call(channel: Any, path: str, caller: dict[str, str]) -> Any:
    """A call that sends no message."""
    silence = asyncio.Event()

    async def requests() -> AsyncIterator[bytes]:
        await silence.wait()
        yield b""

    return channel.stream_stream(path)(requests(), metadata=tuple(caller.items()))


CLOSED: Final = AccessPolicy(credentials_required=True)


@pytest.mark.parametrize("caller", [{}, named(WRONG)], ids=["without", "wrong"])
@pytest.mark.parametrize(
    "path", ["/lf.a2a.v1.A2AService/SendMessage", "/a2a.v1.A2AService/SendMessage", "/lf.a2a.v1.A2AService/GetTask"]
)
async def test_wrong_credentials_are_rejected_before_the_message_is_read(path: str, caller: dict[str, str]) -> None:
    async with over_grpc(FakeService(TASK), authenticator=ByHeader(), access_policy=CLOSED) as (channel, _):
        async with asyncio.timeout(60):
            assert await stalled_call(channel, path, caller).code() is grpc.StatusCode.UNAUTHENTICATED


async def test_health_rejects_a_message_that_no_health_check_has() -> None:
    async with over_grpc(FakeService(TASK)) as (channel, _):
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await check(b"")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(b"\x0a\xe8\xa7\x01" + b"a" * (messages.MAX_PUBLIC_BYTES + 1))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_stalled_health_checks_end_while_others_are_answered() -> None:
    async with over_grpc(FakeService(TASK)) as (channel, _):
        stalled = [stalled_call(channel, "/grpc.health.v1.Health/Check", {}) for _ in range(20)]
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        await eventually(lambda: sum(call.done() for call in stalled) == 20 - messages.MAX_PUBLIC_READS)
        assert await check(b"")
        codes = {await call.code() for call in stalled if call.done()}
        assert codes == {grpc.StatusCode.UNAVAILABLE}
        for call in stalled:
            call.cancel()
