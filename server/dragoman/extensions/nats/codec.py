"""Binary format and subjects of bus messages.

A message starts with the layout version. Other versions are dropped, which any bus may do, so servers of two versions
can coexist. Texts are length-prefixed UTF-8. Subjects consist of digests, hex and base64, never of caller input.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import orjson

from dragoman.core.names import Owner
from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import Job, RegistryChange, TaskSignal

BUS_LAYOUT_VERSION: Final = 1

_EVENT: Final = struct.Struct("!QBBI")
"""Sequence, state, whether the turn ends, length of the data in bytes."""
_LENGTH: Final = struct.Struct("!I")
_SIGNALS: Final = (TaskSignal.CANCEL, TaskSignal.MESSAGE, TaskSignal.PUSH_CONFIGS)
"""The index is the wire value: append only."""
_CHANGES: Final = (RegistryChange.WORKERS, RegistryChange.UPSTREAMS)
"""The index plus `_FIRST_CHANGE` is the wire value: append only."""
_FIRST_CHANGE: Final = 128
_START: Final = bytes((BUS_LAYOUT_VERSION,))


class InvalidBusMessage(ValueError):
    """The message is malformed or has another layout version."""


class Subjects:
    """The subjects of one store: `PREFIX.EPOCH.…`, and `PREFIX.hello`, shared by all servers with the prefix."""

    def __init__(self, prefix: str, epoch: str) -> None:
        self.heartbeats = f"{prefix}.hello"
        self.signals = f"{prefix}.{epoch}.signal"
        self._events = f"{prefix}.{epoch}.event."
        self._jobs = f"{prefix}.{epoch}.job."

    def events(self, task: TaskRef) -> str:
        """The subject of a task's committed events."""
        digest = blake2b(_encode_ref(task), digest_size=16).digest()
        return self._events + base64.urlsafe_b64encode(digest)[:22].decode()

    def jobs(self, agent: str) -> str:
        """The subject of tasks that wait for an agent."""
        return self._jobs + base64.urlsafe_b64encode(agent.encode()).rstrip(b"=").decode()


# Events -------------------------------------------------------------------------------------------------------------


def encode_events(events: Sequence[Event], limit: int) -> Iterator[bytes]:
    """Yields messages of at most `limit` bytes. An event too large for a message is sent without its data."""
    frames, size = [_START], 1
    for event in events:
        data = event.data if 1 + _EVENT.size + len(event.data) <= limit else b""
        if size + _EVENT.size + len(data) > limit:
            yield b"".join(frames)
            frames, size = [_START], 1
        frames += (_EVENT.pack(event.sequence, event.state, event.ends, len(data)), data)
        size += _EVENT.size + len(data)
    yield b"".join(frames)


def decode_events(message: bytes) -> list[Event]:
    """Raises InvalidBusMessage."""
    at, found = _check_version(message), []
    while at < len(message):
        try:
            sequence, state, ends, size = _EVENT.unpack_from(message, at)
        except struct.error as error:
            raise InvalidBusMessage from error
        at += _EVENT.size + size
        if at > len(message):
            raise InvalidBusMessage
        found.append(Event(sequence, message[at - size : at], state, bool(ends)))
    return found


# Jobs and signals ---------------------------------------------------------------------------------------------------


def encode_job(job: Job) -> bytes:
    return b"".join((_START, _encode_text(job.agent), _encode_ref(job.task)))


def decode_job(message: bytes) -> Job:
    """Raises InvalidBusMessage."""
    agent, at = _decode_text(message, _check_version(message))
    return Job(agent, _decode_ref(message, at))


def encode_signal(task: TaskRef, signal: TaskSignal) -> bytes:
    return b"".join((_START, bytes((_SIGNALS.index(signal),)), _encode_ref(task)))


def decode_signal(message: bytes) -> tuple[TaskRef, TaskSignal]:
    """Raises InvalidBusMessage."""
    at = _check_version(message)
    if at >= len(message) or message[at] >= len(_SIGNALS):
        raise InvalidBusMessage
    return _decode_ref(message, at + 1), _SIGNALS[message[at]]


def encode_change(change: RegistryChange) -> bytes:
    return bytes((BUS_LAYOUT_VERSION, _FIRST_CHANGE + _CHANGES.index(change)))


def decode_change(message: bytes) -> RegistryChange:
    """Raises InvalidBusMessage, also for signals."""
    at = _check_version(message)
    if len(message) != at + 1 or not 0 <= message[at] - _FIRST_CHANGE < len(_CHANGES):
        raise InvalidBusMessage
    return _CHANGES[message[at] - _FIRST_CHANGE]


# Heartbeats ---------------------------------------------------------------------------------------------------------


class BusHeartbeat(NamedTuple):
    """The heartbeat of a server; JSON, so that operators can read it too."""

    server: str
    """Random name of the process, in hex."""
    epoch: str
    """Epoch of its store."""
    fresh: bool
    """Whether it has just connected and may have missed messages."""


def encode_heartbeat(heartbeat: BusHeartbeat) -> bytes:
    return orjson.dumps(heartbeat._asdict())


def decode_heartbeat(message: bytes) -> BusHeartbeat:
    """Raises InvalidBusMessage."""
    try:
        fields = orjson.loads(message)
        heartbeat = BusHeartbeat(fields["server"], fields["epoch"], fields["fresh"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidBusMessage from error
    if not (_is_name(heartbeat.server) and _is_name(heartbeat.epoch)):
        raise InvalidBusMessage
    return heartbeat


def _is_name(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= 64 and text.isascii() and text.isalnum()


# Primitives ---------------------------------------------------------------------------------------------------------


def _check_version(message: bytes) -> int:
    if message[:1] != _START:
        raise InvalidBusMessage
    return 1


def _encode_text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(encoded)) + encoded


def _decode_text(message: bytes, offset: int) -> tuple[str, int]:
    try:
        (size,) = _LENGTH.unpack_from(message, offset)
        end = offset + _LENGTH.size + size
        if end > len(message):
            raise InvalidBusMessage
        return message[end - size : end].decode("utf-8", "surrogatepass"), end
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidBusMessage from error


def _encode_ref(task: TaskRef) -> bytes:
    return b"".join((_encode_text(task.owner.scope), _encode_text(task.owner.principal), task.key))


def _decode_ref(message: bytes, offset: int) -> TaskRef:
    scope, offset = _decode_text(message, offset)
    principal, offset = _decode_text(message, offset)
    if len(message) - offset != 16:
        raise InvalidBusMessage
    return TaskRef(Owner(scope, principal), message[offset:])
