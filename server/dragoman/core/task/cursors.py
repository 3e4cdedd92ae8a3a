"""Cursors, which are resume positions in a task's events, and page tokens.

A cursor is `EPOCH.TASK.N`: 8 hex digits of the store's epoch, 8 of a hash of the task's key, and the decimal sequence
of the last event received. The first two reject a cursor of another store or task, where N would mean something else.
A bare N is accepted too, for people.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from dragoman.core.errors import InvalidParams
from dragoman.core.names import Owner
from dragoman.core.task.log import TaskRecord

_CURSOR: Final = re.compile(r"(?:([0-9a-f]{8})\.([0-9a-f]{8})\.)?(0|[1-9][0-9]{0,15})")


def cursor_prefix(epoch: str, key: bytes) -> str:
    """The prefix of every cursor of a task, up to and including the dot before the sequence."""
    return f"{epoch}.{sha256(key).hexdigest()[:8]}."


def parse_cursor(cursor: str, task_prefix: str, last_sequence: int) -> int:
    """The sequence in a cursor of the task with this prefix and last event.

    Raises InvalidParams for an invalid cursor, one of another store or task, and one beyond the last event: waiting
    there would be waiting for another task's events.
    """
    match = _CURSOR.fullmatch(cursor.strip())
    if match is None:
        raise InvalidParams.field("after", "must be a cursor EPOCH.TASK.N from an event, or a sequence N")
    if match[1] is not None:
        epoch, task = task_prefix.split(".")[:2]
        if match[1] != epoch:
            raise InvalidParams.field("after", "is a cursor of another store; leave it out to start with the task")
        if match[2] != task:
            raise InvalidParams.field("after", "is a cursor of another task; leave it out to start with the task")
    number = int(match[3])
    if number > last_sequence:
        raise InvalidParams.field("after", f"is beyond the task's last event, {last_sequence}")
    return number


DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 100
_PAGE_TOKEN_LAYOUT: Final = struct.Struct(">Iq16s")


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """A ListTasks request to a store (A2A 1.0 §3.1.4).

    `updated_since` is in milliseconds and inclusive. `after` is the sort key of the previous page's last row.
    """

    owner: Owner
    agent: str
    context: str = ""
    state: int = 0
    updated_since: int = 0
    page_size: int = DEFAULT_PAGE_SIZE
    after: tuple[int, bytes] | None = None
    history: int | None = None
    artifacts: bool = False
    joined: bool = False
    """Includes tasks of conversations that the owner has joined."""

    @property
    def _fingerprint(self) -> int:
        filters = (self.owner.scope, self.owner.principal, self.agent, self.context, self.state, self.updated_since)
        return zlib.crc32(repr(filters).encode())


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Serialized tasks, newest status first. `last_key` is the sort key to continue after, None on the last page."""

    tasks: list[bytes] = field(default_factory=list)
    total: int = 0
    last_key: tuple[int, bytes] | None = None


def sort_key(record: TaskRecord) -> tuple[int, bytes]:
    return record.updated, record.ref.key


def page_token(query: TaskQuery, last_key: tuple[int, bytes]) -> str:
    """The token of the page after `last_key`."""
    packed = _PAGE_TOKEN_LAYOUT.pack(query._fingerprint, *last_key)
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def parse_page_token(query: TaskQuery, token: str) -> tuple[int, bytes]:
    """The sort key in a page token. Raises InvalidParams for a token of another query."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        fingerprint, updated, key = _PAGE_TOKEN_LAYOUT.unpack(raw)
    except (binascii.Error, struct.error, ValueError) as error:
        raise InvalidParams.field("pageToken", "is not a token of this server; use nextPageToken unchanged") from error
    if fingerprint != query._fingerprint:
        raise InvalidParams.field("pageToken", "belongs to a query with other filters; repeat that query")
    return updated, key
