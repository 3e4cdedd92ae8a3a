"""What the servers need to prove who they are."""

from __future__ import annotations

import ssl
from typing import NamedTuple, Protocol


class Pair(NamedTuple):
    """A certificate with what leads to its authority, and the key of the first, both in PEM."""

    chain: bytes
    key: bytes


class Certificates(Protocol):
    """The server's certificate, which may become another one while connections are open."""

    @property
    def pair(self) -> Pair:
        """The pair in use. May be asked from any thread."""
        ...

    @property
    def clients(self) -> bytes:
        """Certificates (PEM) of the authorities whose clients are asked for theirs; empty: nobody is asked."""
        ...

    @property
    def context(self) -> ssl.SSLContext:
        """For the servers that use `ssl`: one object for good, which shows new connections the pair in use."""
        ...
