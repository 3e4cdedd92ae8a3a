"""Settings of calls to a server, and what follows from them for each transport."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.calling import tls
from dragoman.calling.contents import read_part
from dragoman.calling.errors import ClientError, ResponseErrors
from dragoman.calling.secret_files import check_header_secret
from dragoman.calling.transport import TransportLimits, TransportOptions, WireTrace, no_wire_trace
from dragoman.core.agent_sources import FileForm, check_headers
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.wire.content_links import ContentLink
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    import grpc

ContentReceiver = Callable[[ContentLink, AsyncGenerator[bytes, None]], Awaitable[pb.Part]]
"""Returns the part that replaces a link; reads the content from the chunks, and closes them."""

_CHANNEL_OPTIONS: Final = (
    # The server limits sizes; a limit here would only hide its error.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Detects a dead server while a stream is idle.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Each channel has a connection of its own: the calls of one connection are limited by the server.
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """Settings of calls to a server, over any binding. Raises ValueError for a token or headers that cannot be sent."""

    token: str = field(default="", repr=False)  # an API key or any other bearer token
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # headers of each call; metadata over gRPC
    extensions: str = RESUME_EXTENSION.uri  # URIs that each call activates, separated by commas
    trace: WireTrace = no_wire_trace
    ca: Path | None = None
    cert: Path | None = None
    v03_files: FileForm | None = None  # the form of files in 0.3 over gRPC and REST; None: unknown
    idle_timeout: float | None = None
    """Seconds without a byte after which an HTTP stream or a response counts as broken; None for no limit. The response
    to a send has no limit: some servers respond only when the task has ended."""
    receive_content: ContentReceiver = read_part  # reads the contents that responses link to

    def __post_init__(self) -> None:
        check_header_secret(self.token, "token")
        check_headers(self.headers)

    @property
    def request_headers(self) -> dict[str, str]:
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **self.headers}

    async def grpc_channel(self, address: str) -> grpc.aio.Channel:
        """Opens a channel with a connection of its own. Raises ClientError for unusable certificate files."""
        import grpc  # callers over HTTP do not need it

        channel: grpc.aio.Channel = tls.grpc_channel(grpc.aio, address, _CHANNEL_OPTIONS, ca=self.ca, cert=self.cert)
        return channel

    def for_transport(self, address: str, headers: Mapping[str, str], *, prefix: str = "") -> TransportOptions:
        """The options of a transport. headers: of each call; an HTTP client may have them instead."""
        return TransportOptions(
            errors=_ClientErrors(address),
            limits=TransportLimits(response_timeout=self.idle_timeout, idle_timeout=self.idle_timeout),
            headers=headers,
            rest_prefix=prefix,
            trace=self.trace,
        )


class _ClientErrors(ResponseErrors):
    """Errors for people: a wrong port or an encrypted one is named, not the library's failure to parse it."""

    def from_rpc(self, error: grpc.aio.AioRpcError) -> ClientError:
        return tls.with_advice(self.address, super().from_rpc(error))
