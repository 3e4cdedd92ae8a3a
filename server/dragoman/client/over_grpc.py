"""gRPC: 1.0 and 0.3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from dragoman.client import trust
from dragoman.client.failure import ClientError
from dragoman.client.roads import Means, Stream, Trace, silent
from dragoman.core import trace as traces
from dragoman.wire import phrases
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_OPTIONS: Final = (
    # The server decides how much is too much; a limit of ours would only hide its answer.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A server that went away is found missing by a stream that has nothing to say.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


class GrpcRoad:
    """One channel to HOST:PORT. Implements `Road`."""

    def __init__(self, address: str, *, old: bool = False, means: Means) -> None:
        """`old`: speaks `a2a.v1` and not `lf.a2a.v1`."""
        self._channel = trust.channel(address, _OPTIONS, ca=means.ca, cert=means.cert)
        self._phrases = phrases.GRPC["0.3" if old else "1.0"]
        self._trace = means.trace
        self._idle = means.idle
        shown = ((name.lower(), value) for name, value in means.shown.items())
        extensions = "x-a2a-extensions" if old else "a2a-extensions"
        self._metadata = (("a2a-version", "0.3" if old else "1.0"), (extensions, means.extensions), *shown)

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        path, write, answer, read = self._phrases[rpc]
        sent = write(request)
        self._tell(">", path, sent)
        method = self._channel.unary_unary(path, type(sent).SerializeToString, answer.FromString)
        limit = None if rpc == "SendMessage" else self._idle
        with _failures(self._trace):
            told = await method(sent, metadata=self._with(key=key, parent=parent), timeout=limit)
        self._tell("<", answer.DESCRIPTOR.full_name, told)
        return read(told)

    async def stream(self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = "") -> Stream:
        path, write, answer, read = self._phrases[rpc]
        sent = write(request)
        self._tell(">", path, sent)
        method = self._channel.unary_stream(path, type(sent).SerializeToString, answer.FromString)
        events = method(sent, metadata=self._with(after=after, key=key, parent=parent))
        try:
            with _failures(self._trace):
                async for event in events:
                    self._tell("<", answer.DESCRIPTOR.full_name, event)
                    told = read(event)
                    assert isinstance(told, pb.StreamResponse)
                    yield told
        finally:
            events.cancel()  # whoever stops reading early tells the server so

    async def close(self) -> None:
        await self._channel.close()

    def _with(self, *, after: str = "", key: str = "", parent: str = "") -> tuple[tuple[str, str], ...]:
        given = (("dragoman-after", after), ("idempotency-key", key), (traces.HEADER, parent))
        return (*self._metadata, *((name, value) for name, value in given if value))

    def _tell(self, direction: str, what: str, message: Message) -> None:
        if self._trace is not silent:
            self._trace(direction, f"{what} {MessageToJson(message, indent=None)}")


@contextmanager
def _failures(trace: Trace) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        trace("<", f"{error.code().name}: {error.details()}")
        raise ClientError.of(error) from error
