"""What the messages are made of, and the subjects they travel on.

A message begins with the number of this layout; one of another number is as good as lost, which every bus may do, so
servers of two versions get along. Texts are UTF-8 behind their length. Subjects are made of digests, hex and base64,
never of what a caller wrote.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import orjson

from dragoman.core.log import Event, TaskRef
from dragoman.core.names import Owner
from dragoman.ports import Job, News, Signal

LAYOUT: Final = 1

_EVENT: Final = struct.Struct("!QBBI")
"""Sequence, state, whether the turn ends, bytes of data."""
_LENGTH: Final = struct.Struct("!I")
_SIGNALS: Final = (Signal.CANCEL, Signal.MESSAGE, Signal.PUSHES)
"""By the number that stands for each: add at the end."""
_NEWS: Final = (News.WORKERS, News.UPSTREAMS)
"""Likewise, from `_FIRST_NEWS` on."""
_FIRST_NEWS: Final = 128
_START: Final = bytes((LAYOUT,))


class Unreadable(ValueError):
    """No message of ours, or one of another version's layout."""


class Subjects:
    """The subjects of one store: `PREFIX.EPOCH.…`, and `PREFIX.hello`, which all who have the prefix share."""

    def __init__(self, prefix: str, epoch: str) -> None:
        self.hello = f"{prefix}.hello"
        self.signals = f"{prefix}.{epoch}.signal"
        self._events = f"{prefix}.{epoch}.event."
        self._jobs = f"{prefix}.{epoch}.job."

    def events(self, task: TaskRef) -> str:
        """Where what is committed of a task is told."""
        digest = blake2b(_ref(task), digest_size=16).digest()
        return self._events + base64.urlsafe_b64encode(digest)[:22].decode()

    def jobs(self, agent: str) -> str:
        """Where tasks that wait for an agent are told."""
        return self._jobs + base64.urlsafe_b64encode(agent.encode()).rstrip(b"=").decode()


# Events ---------------------------------------------------------------------------------------------------------


def events(said: Sequence[Event], limit: int) -> Iterator[bytes]:
    """Messages of at most `limit` bytes. An event that fits into none is told of without its data."""
    frames, size = [_START], 1
    for event in said:
        data = event.data if 1 + _EVENT.size + len(event.data) <= limit else b""
        if size + _EVENT.size + len(data) > limit:
            yield b"".join(frames)
            frames, size = [_START], 1
        frames += (_EVENT.pack(event.sequence, event.state, event.ends, len(data)), data)
        size += _EVENT.size + len(data)
    yield b"".join(frames)


def read_events(message: bytes) -> list[Event]:
    """Raises Unreadable."""
    at, found = _begin(message), []
    while at < len(message):
        try:
            sequence, state, ends, size = _EVENT.unpack_from(message, at)
        except struct.error as error:
            raise Unreadable from error
        at += _EVENT.size + size
        if at > len(message):
            raise Unreadable
        found.append(Event(sequence, message[at - size : at], state, bool(ends)))
    return found


# Jobs and signals -----------------------------------------------------------------------------------------------


def job(said: Job) -> bytes:
    return b"".join((_START, _text(said.agent), _ref(said.task)))


def read_job(message: bytes) -> Job:
    """Raises Unreadable."""
    agent, at = _read_text(message, _begin(message))
    return Job(agent, _read_ref(message, at))


def signal(task: TaskRef, said: Signal) -> bytes:
    return b"".join((_START, bytes((_SIGNALS.index(said),)), _ref(task)))


def read_signal(message: bytes) -> tuple[TaskRef, Signal]:
    """Raises Unreadable."""
    at = _begin(message)
    if at >= len(message) or message[at] >= len(_SIGNALS):
        raise Unreadable
    return _read_ref(message, at + 1), _SIGNALS[message[at]]


def news(said: News) -> bytes:
    return bytes((LAYOUT, _FIRST_NEWS + _NEWS.index(said)))


def read_news(message: bytes) -> News:
    """Raises Unreadable, also for signals."""
    at = _begin(message)
    if len(message) != at + 1 or not 0 <= message[at] - _FIRST_NEWS < len(_NEWS):
        raise Unreadable
    return _NEWS[message[at] - _FIRST_NEWS]


# Presence -------------------------------------------------------------------------------------------------------


class Hello(NamedTuple):
    """A server says that it is there. JSON, which operators can read as well."""

    server: str
    """Hex that this process drew."""
    epoch: str
    """Of its store."""
    fresh: bool
    """It has just connected, and heard nothing before."""


def hello(said: Hello) -> bytes:
    return orjson.dumps(said._asdict())


def read_hello(message: bytes) -> Hello:
    """Raises Unreadable."""
    try:
        said = orjson.loads(message)
        found = Hello(said["server"], said["epoch"], said["fresh"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable from error
    if not (_is_name(found.server) and _is_name(found.epoch)):
        raise Unreadable
    return found


def _is_name(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= 64 and text.isascii() and text.isalnum()


# Pieces ---------------------------------------------------------------------------------------------------------


def _begin(message: bytes) -> int:
    if message[:1] != _START:
        raise Unreadable
    return 1


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(encoded)) + encoded


def _read_text(message: bytes, at: int) -> tuple[str, int]:
    try:
        (size,) = _LENGTH.unpack_from(message, at)
        end = at + _LENGTH.size + size
        if end > len(message):
            raise Unreadable
        return message[end - size : end].decode("utf-8", "surrogatepass"), end
    except (struct.error, UnicodeDecodeError) as error:
        raise Unreadable from error


def _ref(task: TaskRef) -> bytes:
    return b"".join((_text(task.owner.scope), _text(task.owner.principal), task.key))


def _read_ref(message: bytes, at: int) -> TaskRef:
    scope, at = _read_text(message, at)
    principal, at = _read_text(message, at)
    if len(message) - at != 16:
        raise Unreadable
    return TaskRef(Owner(scope, principal), message[at:])
