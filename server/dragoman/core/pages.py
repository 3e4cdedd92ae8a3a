"""Page tokens: opaque to clients, tied to the query they came from, and worthless for any other.

A token holds the sort key of the last task shown (status time, task key), so a page costs the same wherever it
is and tasks that change meanwhile are neither lost nor shown twice (A2A 1.0 §3.1.4: newest status first).
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from dataclasses import dataclass, field
from typing import Final

from dragoman.core.errors import InvalidParams
from dragoman.core.log import Head
from dragoman.core.names import Owner

DEFAULT_SIZE: Final = 50
MAX_SIZE: Final = 100
_FORM: Final = struct.Struct(">Iq16s")


@dataclass(frozen=True, slots=True)
class Query:
    """What ListTasks asks of a store. `since` is in milliseconds and inclusive; `after` is the last row shown."""

    owner: Owner
    agent: str
    context: str = ""
    state: int = 0
    since: int = 0
    size: int = DEFAULT_SIZE
    after: tuple[int, bytes] | None = None
    history: int | None = None
    artifacts: bool = False
    joined: bool = False
    """Also the tasks of conversations that the owner has joined."""

    @property
    def _fingerprint(self) -> int:
        filters = (self.owner.scope, self.owner.principal, self.agent, self.context, self.state, self.since)
        return zlib.crc32(repr(filters).encode())


@dataclass(frozen=True, slots=True)
class Page:
    """Serialized tasks, newest status first; `last` is the sort key to go on from, None on the last page."""

    tasks: list[bytes] = field(default_factory=list)
    total: int = 0
    last: tuple[int, bytes] | None = None


def sort_key(head: Head) -> tuple[int, bytes]:
    return head.updated, head.ref.key


def token(query: Query, last: tuple[int, bytes]) -> str:
    """The token of the page after `last`."""
    packed = _FORM.pack(query._fingerprint, *last)
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def after(query: Query, token: str) -> tuple[int, bytes]:
    """The sort key inside a token. Raises InvalidParams unless this query made it."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        fingerprint, updated, key = _FORM.unpack(raw)
    except (binascii.Error, struct.error, ValueError) as error:
        raise InvalidParams.field("pageToken", "not a token of this server; use nextPageToken as it came") from error
    if fingerprint != query._fingerprint:
        raise InvalidParams.field("pageToken", "belongs to other filters; repeat the query it came from")
    return updated, key
