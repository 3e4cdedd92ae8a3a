"""The ways to a server: a dialect over a binding. Requests and answers are those of 1.0 on every one of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol, get_args

from google.protobuf.message import Message

from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DialectName = Literal["1.0", "0.3", "0.1"]
BindingName = Literal["grpc", "rest", "jsonrpc", "ws"]

DIALECT_NAMES: Final[tuple[str, ...]] = get_args(DialectName)
BINDING_NAMES: Final[tuple[str, ...]] = get_args(BindingName)

WireTrace = Callable[[str, str], None]
"""Is told what goes over the wire: `>` or `<`, and the text."""

StreamResponses = AsyncGenerator[pb.StreamResponse, None]
"""Events of one task, in order. Close it (`contextlib.aclosing`) to stop before it ends."""


def no_wire_trace(direction: str, text: str) -> None:
    """A trace that nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """How a server is called, whatever the road."""

    token: str = field(default="", repr=False)
    """Proves who calls: an API key or any other bearer token."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each call, as metadata over gRPC."""
    extensions: str = RESUME_EXTENSION.uri
    """URIs that each call activates, with commas."""
    trace: WireTrace = no_wire_trace
    ca: Path | None = None
    cert: Path | None = None
    idle_timeout: float | None = None
    """Seconds without a byte after which an HTTP stream, or an answer, is taken for broken; None for no limit. An
    answer to a send is waited for all the same: some servers give it only when the task has ended."""

    @property
    def request_headers(self) -> dict[str, str]:
        """What every call carries."""
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **self.headers}


class Transport(Protocol):
    """Calls by the names of 1.0's RPCs. All raise ClientError."""

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        """The answer to a unary call. `key`: its idempotency key. `parent`: its trace context (a `traceparent`)."""
        ...

    def stream(
        self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = ""
    ) -> StreamResponses:
        """The events of a streaming call, those after a cursor if one is given; each carries its own."""
        ...

    async def close(self) -> None:
        """Lets go of the connection."""
        ...
