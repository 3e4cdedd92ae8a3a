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

LOOK_AGAIN: Final = 5.0
"""Seconds after which the keys behind open streams are looked at again."""


@dataclass(slots=True)
class Stream:
    """One open stream, and who reads it, as soon as that is known."""

    identity: Identity = ANONYMOUS
    sending: bool = False
    """gRPC has events of it in hand. Canceled then, the call would end without a status, and its reader wait on."""
    ended: A2AError | None = None
    """Why the server ends it, said while it was sending: to be raised as soon as gRPC has let go of an event."""


class Streams:
    """The open streams of one server."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[object], Stream] = {}
        self._withdrawn: WeakKeyDictionary[asyncio.Task[object], A2AError] = WeakKeyDictionary()
        self.closed = False

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._tasks)

    @contextmanager
    def open(self, identity: Identity = ANONYMOUS) -> Iterator[Stream]:
        """Counts the current asyncio task as a stream. Raises Unavailable when the server is stopping.

        `close` then raises CancelledError in it, like a client that goes away, and so does `look_again`;
        `ended_here` tells them apart.
        """
        if self.closed:
            raise Unavailable
        task = asyncio.current_task()
        assert task is not None
        stream = self._tasks[task] = Stream(identity)
        try:
            yield stream
        finally:
            del self._tasks[task]

    def ended_here(self) -> A2AError | None:
        """Why the server itself ended this task, when the CancelledError just caught is its own, and None otherwise.
        The task may go on then, to say goodbye."""
        task = asyncio.current_task()
        assert task is not None
        why = self._withdrawn.pop(task, None) or (Unavailable() if self.closed else None)
        if why is None or task.cancelling() != 1:
            return None
        task.uncancel()
        return why

    async def watch(self, authenticator: Authenticator | None) -> None:
        """Ends streams whose readers' credentials were withdrawn, for as long as the server runs."""
        while authenticator is not None:
            await asyncio.sleep(LOOK_AGAIN)
            await self.look_again(authenticator)

    async def look_again(self, authenticator: Authenticator) -> None:
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
                self._withdraw(key, error)
            except A2AError:  # it cannot be found out now; next time
                continue

    def _withdraw(self, key: str, error: A2AError) -> None:
        theirs = [(task, stream) for task, stream in self._tasks.items() if stream.identity.credential_id == key]
        for task, stream in theirs:
            if stream.sending:
                stream.ended = error
                continue
            self._withdrawn[task] = error
            task.cancel()
        _log.info("streams are ended: %s", error.message, extra={"key": key, "streams": len(theirs)})

    def close(self) -> None:
        """Ends every open stream and refuses new ones."""
        self.closed = True
        for task in self._tasks:
            task.cancel()
