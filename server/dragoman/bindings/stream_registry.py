"""Ending what would not end by itself: a stream may follow a task for days, and a server stops today.

Or an API key is revoked today: the keys behind open streams are looked at again every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from dragoman.core.access.identity import ANONYMOUS, Identity
from dragoman.core.errors import A2AError, Unauthenticated, Unavailable
from dragoman.ports import Authenticator

_log: Final = logging.getLogger("dragoman.security")

CREDENTIAL_CHECK_INTERVAL: Final = 5.0
"""Seconds after which the keys behind open streams are looked at again."""


@dataclass(slots=True)
class OpenStream:
    """One open stream, and who reads it, as soon as that is known."""

    identity: Identity = ANONYMOUS
    is_sending: bool = False
    """gRPC has events of it in hand. Canceled then, the call would end without a status, and its reader wait on."""
    end_reason: A2AError | None = None
    """Why the server ends it, said while it was sending: to be raised as soon as gRPC has let go of an event."""


class StreamRegistry:
    """The open streams of one server."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[object], OpenStream] = {}
        self._end_reasons: WeakKeyDictionary[asyncio.Task[object], A2AError] = WeakKeyDictionary()
        self.is_closed = False

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._tasks)

    @contextmanager
    def open(self, identity: Identity = ANONYMOUS) -> Iterator[OpenStream]:
        """Counts the current asyncio task as a stream. Raises Unavailable when the server is stopping.

        `close` then raises CancelledError in it, like a client that goes away, and so does `look_again`;
        `ended_here` tells them apart.
        """
        if self.is_closed:
            raise Unavailable
        task = asyncio.current_task()
        assert task is not None
        stream = self._tasks[task] = OpenStream(identity)
        try:
            yield stream
        finally:
            del self._tasks[task]

    def take_end_reason(self) -> A2AError | None:
        """Why the server itself ended this task, when the CancelledError just caught is its own, and None otherwise.
        The task may go on then, to say goodbye."""
        task = asyncio.current_task()
        assert task is not None
        why = self._end_reasons.pop(task, None) or (Unavailable() if self.is_closed else None)
        if why is None or task.cancelling() != 1:
            return None
        task.uncancel()
        return why

    async def watch_credentials(self, authenticator: Authenticator | None) -> None:
        """Ends streams whose readers' credentials were withdrawn, for as long as the server runs."""
        while authenticator is not None:
            await asyncio.sleep(CREDENTIAL_CHECK_INTERVAL)
            await self.recheck_credentials(authenticator)

    async def recheck_credentials(self, authenticator: Authenticator) -> None:
        """Ends the streams of keys that are not good any more."""
        readers = {
            stream.identity.credential_id: stream.identity
            for stream in self._tasks.values()
            if stream.identity.credential_id
        }
        for key, identity in readers.items():
            try:
                await authenticator.recheck(identity)
            except Unauthenticated as error:
                self._end_streams(key, error)
            except A2AError:  # it cannot be found out now; next time
                continue

    def _end_streams(self, key: str, error: A2AError) -> None:
        theirs = [(task, stream) for task, stream in self._tasks.items() if stream.identity.credential_id == key]
        for task, stream in theirs:
            if stream.is_sending:
                stream.end_reason = error
                continue
            self._end_reasons[task] = error
            task.cancel()
        _log.info("streams are ended: %s", error.message, extra={"key": key, "streams": len(theirs)})

    def close(self) -> None:
        """Ends every open stream and refuses new ones."""
        self.is_closed = True
        for task in self._tasks:
            task.cancel()
