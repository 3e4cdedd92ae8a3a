"""The ways to an agent upstream: calls of 1.0, in whatever dialect and over whatever binding, and how they fail."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, Protocol

from google.protobuf.message import Message

from dragoman.wire.card_reading import Interface
from dragoman.wire.complaints import Complaint
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Stream = AsyncGenerator[pb.StreamResponse, None]
"""Events as they come. Close it (`contextlib.aclosing`) to stop before it ends."""


class CallFailed(Exception):
    """A call upstream failed. The text is for people, and holds nothing secret."""


class Away(CallFailed):
    """No answer, or one that broke off. `arrived`: whether the call may have been begun."""

    def __init__(self, text: str, *, arrived: bool = True) -> None:
        super().__init__(text)
        self.arrived = arrived


class Blocked(CallFailed):
    """This server may not call there."""


class Nonsense(CallFailed):
    """The answer is not what the protocol says."""


class Refused(CallFailed):
    """The agent refused the call."""

    def __init__(self, complaint: Complaint) -> None:
        super().__init__(f"{complaint.reason or complaint.code}: {complaint.message[:500]}")
        self.complaint = complaint
        self.reason = complaint.reason

    @property
    def is_unknown_call(self) -> bool:
        """Whether the agent does not know the call at all, so that nothing was begun."""
        return self.complaint.is_unknown_call

    @property
    def is_unsupported(self) -> bool:
        """Whether the agent does without the operation, whatever its card says."""
        return self.complaint.is_unsupported

    @property
    def is_no_such_task(self) -> bool:
        """Whether the agent does not know the task."""
        return self.complaint.is_no_such_task

    @property
    def is_busy(self) -> bool:
        """Whether the agent has more to do than it can, so that nothing was begun."""
        return self.complaint.is_busy


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much an agent may say, and how long it may take. Bytes and seconds."""

    answer: int
    """Bytes of one answer, or one event."""
    total: int
    """Bytes of everything that one call answers."""
    reply: float
    """Seconds for an answer to a call that waits for nothing."""
    silence: float
    """Seconds without a byte after which a stream is taken for broken."""


BOUNDS: Final = Bounds(answer=16 * 1024 * 1024, total=1024 * 1024 * 1024, reply=30.0, silence=120.0)


class Road(Protocol):
    """One interface of an agent. Calls go by the names of 1.0's RPCs; all raise CallFailed."""

    @property
    def interface(self) -> Interface: ...

    async def call(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> Message:
        """The answer to a unary call. `key`: its idempotency key; `extensions`: URIs to activate, with commas."""
        ...

    def stream(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> Stream:
        """The events of a streaming call."""
        ...

    async def close(self) -> None:
        """Lets go of the connection. May be called twice."""
        ...
