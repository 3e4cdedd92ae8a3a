"""The port of outbound HTTP: webhooks, cards and key sets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


class OutboundForbidden(Exception):
    """The policy forbids this URL. The text names the rule and what it allows, without credentials."""


class OutboundFailed(Exception):
    """No complete response: DNS error, connection refused or broken, timeout, too large. The text says which."""


class ConnectFailed(OutboundFailed):
    """There was no connection: the host is down, and not only one path. Nothing of the request can have arrived."""


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """A response. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class OutboundPort(Protocol):
    """Calls URLs that others choose, under the operator's policy. Never follows a redirect."""

    def check_url(self, url: str) -> object:
        """Checks the text of a URL: scheme, port, user info, literal addresses. Raises OutboundForbidden."""

    async def close(self) -> None:
        """Closes all connections. May be called twice."""


class OutboundHttp(OutboundPort, Protocol):
    """Calls with short responses."""

    async def get(self, url: str, headers: Mapping[str, str] = {}) -> OutboundResponse:
        """Sends a GET. Checks the address of the actual connection.

        Raises OutboundForbidden, and OutboundFailed, also for a compressed body or one of more than 1 MiB.
        """

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, may_send: Callable[[], bool] | None = None
    ) -> OutboundResponse:
        """Sends a POST, like `get`. A longer response is cut at 64 KiB, because the receiver accepted the message.

        `may_send` is called when the connection is ready, right before the first byte of the request is written.
        Nothing is sent where it returns False; raises OutboundFailed then.
        """


class OutboundResponseStream(Protocol):
    """A response that is still being received. `headers` have lower-case names."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body as it arrives. The caller limits how much it reads. Raises OutboundFailed."""


class OutboundStreams(OutboundPort, Protocol):
    """Calls with streamed responses."""

    def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, idle_timeout: float
    ) -> AbstractAsyncContextManager[OutboundResponseStream]:
        """Starts a call. The response may take any time while it is never silent for more than `idle_timeout` seconds.

        Raises OutboundForbidden, OutboundFailed, and ConnectFailed when nothing of the request can have arrived.
        """

    async def resolve(self, url: str) -> Sequence[str]:
        """The permitted addresses of a URL's host, for protocols other than HTTP. Raises as `open`."""
