"""What calls to other servers go through."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


class OutboundForbidden(Exception):
    """A URL that this server does not call. The text names the rule and what it allows, without credentials."""


class OutboundFailed(Exception):
    """No answer: no such host, refused, broken off, too slow or too long. The text says which."""


class ConnectFailed(OutboundFailed):
    """No connection, or one that was closed without a word: it is the host that is missing, not a path of it."""


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """What a server answered. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class OutboundHttp(Protocol):
    """The one way out: webhooks, cards of other agents, key sets. Never follows a redirect."""

    def check_url(self, url: str) -> None:
        """Looks at the text of a URL alone: scheme, port, user info, literal addresses. Raises Forbidden."""
        ...

    async def get(self, url: str, headers: Mapping[str, str] = {}) -> OutboundResponse:
        """GET. The address that is really connected to is checked. Raises Forbidden, Unreachable.

        A body that is longer than is read (1 MiB), or compressed, is an Unreachable.
        """
        ...

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> OutboundResponse:
        """POST, likewise; but a long answer is cut (64 KiB), because the receiver took the message."""
        ...

    async def close(self) -> None:
        """Closes its connections. May be called twice."""
        ...


class OutboundResponseStream(Protocol):
    """An answer that is still coming. `headers` have lower-case names."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Its body, as it comes. How much of it to read is the caller's to say. Raises Unreachable."""
        ...


class OutboundStreams(Protocol):
    """The same way out by the same rules, for answers that are read as they come."""

    def check_url(self, url: str) -> None:
        """As of `OutboundHttp`."""
        ...

    def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, idle_timeout: float
    ) -> AbstractAsyncContextManager[OutboundResponseStream]:
        """A call whose answer may come for as long as it is not silent for more than `silence` seconds.

        Raises Forbidden, Unreachable (NobodyThere when nothing of the call can have arrived).
        """
        ...

    async def resolve(self, url: str) -> Sequence[str]:
        """The addresses that a URL's host stands for and that may be connected to, for protocols that are not HTTP.

        Raises Forbidden, Unreachable.
        """
        ...

    async def close(self) -> None:
        """As of `OutboundHttp`."""
        ...
