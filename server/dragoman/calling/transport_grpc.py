"""gRPC: 1.0 and 0.3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from dragoman.calling import tls
from dragoman.calling.errors import ClientError
from dragoman.calling.transport import CallOptions, StreamResponses, WireTrace, no_wire_trace
from dragoman.core import trace as traces
from dragoman.wire import client_operations
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_CHANNEL_OPTIONS: Final = (
    # The server decides how much is too much; a limit of ours would only hide its answer.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A server that went away is found missing by a stream that has nothing to say.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


class GrpcTransport:
    """One channel to HOST:PORT. Implements `Road`."""

    def __init__(self, address: str, *, is_v03: bool = False, options: CallOptions) -> None:
        """`old`: speaks `a2a.v1` and not `lf.a2a.v1`."""
        self._channel = tls.grpc_channel(address, _CHANNEL_OPTIONS, ca=options.ca, cert=options.cert)
        self._operations = client_operations.GRPC_OPERATIONS["0.3" if is_v03 else "1.0"]
        self._trace = options.trace
        self._idle_timeout = options.idle_timeout
        shown = ((name.lower(), value) for name, value in options.request_headers.items())
        extensions = "x-a2a-extensions" if is_v03 else "a2a-extensions"
        self._metadata = (("a2a-version", "0.3" if is_v03 else "1.0"), (extensions, options.extensions), *shown)

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        path, write, answer, read = self._operations[rpc]
        sent = write(request)
        self._trace_message(">", path, sent)
        method = self._channel.unary_unary(path, type(sent).SerializeToString, answer.FromString)
        limit = None if rpc == "SendMessage" else self._idle_timeout
        with _translate_errors(self._trace):
            told = await method(sent, metadata=self._call_metadata(key=key, parent=parent), timeout=limit)
        self._trace_message("<", answer.DESCRIPTOR.full_name, told)
        return read(told)

    async def stream(
        self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = ""
    ) -> StreamResponses:
        path, write, answer, read = self._operations[rpc]
        sent = write(request)
        self._trace_message(">", path, sent)
        method = self._channel.unary_stream(path, type(sent).SerializeToString, answer.FromString)
        events = method(sent, metadata=self._call_metadata(after=after, key=key, parent=parent))
        try:
            with _translate_errors(self._trace):
                async for event in events:
                    self._trace_message("<", answer.DESCRIPTOR.full_name, event)
                    told = read(event)
                    assert isinstance(told, pb.StreamResponse)
                    yield told
        finally:
            events.cancel()  # whoever stops reading early tells the server so

    async def close(self) -> None:
        await self._channel.close()

    def _call_metadata(self, *, after: str = "", key: str = "", parent: str = "") -> tuple[tuple[str, str], ...]:
        given = (("dragoman-after", after), ("idempotency-key", key), (traces.TRACE_HEADER, parent))
        return (*self._metadata, *((name, value) for name, value in given if value))

    def _trace_message(self, direction: str, name: str, message: Message) -> None:
        if self._trace is not no_wire_trace:
            self._trace(direction, f"{name} {MessageToJson(message, indent=None)}")


@contextmanager
def _translate_errors(trace: WireTrace) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        trace("<", f"{error.code().name}: {error.details()}")
        raise ClientError.from_rpc_error(error) from error
