"""The ways to a server: a dialect over a binding. Requests and answers are those of 1.0 on every one of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Final, Literal, Protocol, get_args

from google.protobuf.message import Message

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DialectName = Literal["1.0", "0.3", "0.1"]
BindingName = Literal["grpc", "rest", "jsonrpc", "ws"]

DIALECTS: Final[tuple[str, ...]] = get_args(DialectName)
BINDINGS: Final[tuple[str, ...]] = get_args(BindingName)

Trace = Callable[[str, str], None]
"""Is told what goes over the wire: `>` or `<`, and the text."""

Stream = AsyncGenerator[pb.StreamResponse, None]
"""Events of one task, in order. Close it (`contextlib.aclosing`) to stop before it ends."""


class Road(Protocol):
    """Calls by the names of 1.0's RPCs. All raise ClientError."""

    async def call(self, rpc: str, request: Message, *, key: str = "") -> Message:
        """The answer to a unary call. `key`: its idempotency key."""
        ...

    def stream(self, rpc: str, request: Message, *, after: str = "", key: str = "") -> Stream:
        """The events of a streaming call, those after a cursor if one is given; each carries its own."""
        ...

    async def close(self) -> None:
        """Lets go of the connection."""
        ...


def silent(direction: str, text: str) -> None:
    """A trace that nobody reads."""
