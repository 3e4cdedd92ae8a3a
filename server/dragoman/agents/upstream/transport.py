"""The ways to an agent upstream: calls of 1.0, in whatever dialect and over whatever binding, and how they fail."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, Protocol

from google.protobuf.message import Message

from dragoman.wire.cards.remote_card import Interface
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ResponseStream = AsyncGenerator[pb.StreamResponse, None]
"""Events as they come. Close it (`contextlib.aclosing`) to stop before it ends."""


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """How much an agent may say, and how long it may take. Bytes and seconds."""

    max_response_bytes: int
    """Bytes of one answer, or one event."""
    max_stream_bytes: int
    """Bytes of everything that one call answers."""
    response_timeout: float
    """Seconds for an answer to a call that waits for nothing."""
    idle_timeout: float
    """Seconds without a byte after which a stream is taken for broken."""


DEFAULT_TRANSPORT_LIMITS: Final = TransportLimits(
    max_response_bytes=16 * 1024 * 1024, max_stream_bytes=1024 * 1024 * 1024, response_timeout=30.0, idle_timeout=120.0
)


class UpstreamTransport(Protocol):
    """One interface of an agent. Calls go by the names of 1.0's RPCs; all raise CallFailed."""

    @property
    def interface(self) -> Interface: ...

    async def call(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> Message:
        """The answer to a unary call. `key`: its idempotency key; `extensions`: URIs to activate, with commas."""
        ...

    def stream(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> ResponseStream:
        """The events of a streaming call."""
        ...

    async def close(self) -> None:
        """Lets go of the connection. May be called twice."""
        ...
