"""The ways to a server: a dialect over a binding. Requests and answers are those of 1.0 on every one of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol, get_args

from google.protobuf.message import Message

from dragoman.core.extensions import RESUME
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DialectName = Literal["1.0", "0.3", "0.1"]
BindingName = Literal["grpc", "rest", "jsonrpc", "ws"]

DIALECTS: Final[tuple[str, ...]] = get_args(DialectName)
BINDINGS: Final[tuple[str, ...]] = get_args(BindingName)

Trace = Callable[[str, str], None]
"""Is told what goes over the wire: `>` or `<`, and the text."""

Stream = AsyncGenerator[pb.StreamResponse, None]
"""Events of one task, in order. Close it (`contextlib.aclosing`) to stop before it ends."""


def silent(direction: str, text: str) -> None:
    """A trace that nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """How a server is called, whatever the road."""

    token: str = field(default="", repr=False)
    """Proves who calls: an API key or any other bearer token."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each call, as metadata over gRPC."""
    extensions: str = RESUME.uri
    """URIs that each call activates, with commas."""
    trace: Trace = silent
    ca: Path | None = None
    cert: Path | None = None
    idle: float | None = None
    """Seconds without a byte after which an HTTP stream, or an answer, is taken for broken; None for no limit. An
    answer to a send is waited for all the same: some servers give it only when the task has ended."""

    @property
    def shown(self) -> dict[str, str]:
        """What every call carries."""
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **self.headers}


class Road(Protocol):
    """Calls by the names of 1.0's RPCs. All raise ClientError."""

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        """The answer to a unary call. `key`: its idempotency key. `parent`: its trace context (a `traceparent`)."""
        ...

    def stream(self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = "") -> Stream:
        """The events of a streaming call, those after a cursor if one is given; each carries its own."""
        ...

    async def close(self) -> None:
        """Lets go of the connection."""
        ...
