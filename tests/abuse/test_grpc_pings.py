"""Keep-alive pings of gRPC clients: one every five seconds is accepted, a flood of them is not."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

import pytest
from tests.bindings.fake_service import FakeService, over_grpc
from tests.bindings.raw_client import RawClient

pytestmark = pytest.mark.long

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
PING, GOAWAY, ACK = 6, 7, 1
"""Types of frames, and a flag (RFC 9113 §6.7, §6.8)."""


async def ping_until_goaway(peer: RawClient, seconds: float, pings: int) -> int:
    """Sends a ping every so many seconds. Returns after a GOAWAY, or so many answers, how many came."""

    async def ping() -> None:
        while True:
            await peer.send(b"\x00\x00\x08" + bytes((PING, 0, 0, 0, 0, 0)) + bytes(8))
            await asyncio.sleep(seconds)

    await peer.send(PREFACE)
    pinging = asyncio.create_task(ping())
    answers = kind = 0
    with suppress(asyncio.IncompleteReadError, ConnectionError):  # of a connection that was closed with pings unread
        while answers < pings and kind != GOAWAY:
            length, kind, flags = struct.unpack(">IBB4x", b"\x00" + await peer.reader.readexactly(9))
            await peer.reader.readexactly(length)
            answers += (kind, flags) == (PING, ACK)
    pinging.cancel()
    return answers


async def test_a_client_may_ping_every_five_seconds() -> None:
    async with over_grpc(FakeService()) as (_, bound), RawClient.connect(bound) as peer:
        assert await ping_until_goaway(peer, 5.0, 6) == 6


async def test_a_flood_of_pings_ends_the_connection() -> None:
    async with over_grpc(FakeService()) as (_, bound), RawClient.connect(bound) as peer:
        assert await ping_until_goaway(peer, 0.0, 10**6) < 10**6
