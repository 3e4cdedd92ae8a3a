"""Open streams that the server itself ends: because it stops, or because a key behind them was revoked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from dragoman.bindings.closing import Streams
from dragoman.core.errors import A2AError, Unauthenticated, Unavailable
from dragoman.core.identity import NOBODY, Identity

ALICE = Identity("alice", key="a")
BOB = Identity("bob", key="b")


class Withdrawing:
    """Knows which keys are gone. Implements `dragoman.ports.Authenticator`."""

    def __init__(self, gone: Iterable[str] = (), trouble: bool = False) -> None:
        self.gone = set(gone)
        self.trouble = trouble
        self.asked: list[str] = []

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        raise AssertionError

    async def check(self, identity: Identity) -> None:
        self.asked.append(identity.key)
        if self.trouble:
            raise Unavailable
        if identity.key in self.gone:
            raise Unauthenticated("revoked")


class Reader:
    """A stream that says how it ended."""

    def __init__(self, streams: Streams, identity: Identity) -> None:
        self.opened = asyncio.Event()
        self.why: A2AError | None = None
        self.task = asyncio.create_task(self._read(streams, identity))

    async def _read(self, streams: Streams, identity: Identity) -> None:
        try:
            with streams.open() as stream:
                stream.identity = identity
                self.opened.set()
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.why = streams.ended_here()
            if self.why is None:
                raise


async def readers(streams: Streams, *identities: Identity) -> list[Reader]:
    found = [Reader(streams, identity) for identity in identities]
    for reader in found:
        await reader.opened.wait()
    return found


async def test_the_streams_of_a_key_that_is_gone_end_and_no_others() -> None:
    streams = Streams()
    first, second, bob, nobody = await readers(streams, ALICE, ALICE, BOB, NOBODY)
    authenticator = Withdrawing("a")
    await streams.look_again(authenticator)
    await asyncio.wait((first.task, second.task))
    assert isinstance(first.why, Unauthenticated)
    assert isinstance(second.why, Unauthenticated)
    assert sorted(authenticator.asked) == ["a", "b"]
    assert not bob.task.done()
    assert not nobody.task.done()
    streams.close()
    await asyncio.wait((bob.task, nobody.task))
    assert isinstance(bob.why, Unavailable)


async def test_while_the_store_is_in_trouble_nobody_is_cut_off() -> None:
    streams = Streams()
    (alice,) = await readers(streams, ALICE)
    await streams.look_again(Withdrawing("a", trouble=True))
    assert not alice.task.done()
    alice.task.cancel()
    await asyncio.wait((alice.task,))
    assert alice.task.cancelled()


async def test_a_client_that_goes_away_is_no_end_of_ours() -> None:
    streams = Streams()
    (alice,) = await readers(streams, ALICE)
    alice.task.cancel()
    await asyncio.wait((alice.task,))
    assert (alice.task.cancelled(), alice.why) == (True, None)
