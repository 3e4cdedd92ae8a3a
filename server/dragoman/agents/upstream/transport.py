"""The ways to an agent upstream: calls of 1.0, in whatever dialect and over whatever binding, and how they fail."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, Protocol

from google.protobuf.message import Message

from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.remote_errors import RemoteError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ResponseStream = AsyncGenerator[pb.StreamResponse, None]
"""Events as they come. Close it (`contextlib.aclosing`) to stop before it ends."""


class UpstreamCallFailed(Exception):
    """A call upstream failed. The text is for people, and holds nothing secret."""


class UpstreamUnavailable(UpstreamCallFailed):
    """No answer, or one that broke off. `arrived`: whether the call may have been begun."""

    def __init__(self, text: str, *, may_have_arrived: bool = True) -> None:
        super().__init__(text)
        self.may_have_arrived = may_have_arrived


class UpstreamForbidden(UpstreamCallFailed):
    """This server may not call there."""


class UpstreamProtocolError(UpstreamCallFailed):
    """The answer is not what the protocol says."""


class UpstreamRefused(UpstreamCallFailed):
    """The agent refused the call."""

    def __init__(self, remote_error: RemoteError) -> None:
        super().__init__(f"{remote_error.reason or remote_error.code}: {remote_error.message[:500]}")
        self.remote_error = remote_error
        self.reason = remote_error.reason

    @property
    def is_unknown_call(self) -> bool:
        """Whether the agent does not know the call at all, so that nothing was begun."""
        return self.remote_error.is_unknown_method

    @property
    def is_unsupported(self) -> bool:
        """Whether the agent does without the operation, whatever its card says."""
        return self.remote_error.is_unsupported

    @property
    def is_no_such_task(self) -> bool:
        """Whether the agent does not know the task."""
        return self.remote_error.is_task_not_found

    @property
    def is_busy(self) -> bool:
        """Whether the agent has more to do than it can, so that nothing was begun."""
        return self.remote_error.is_busy


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
