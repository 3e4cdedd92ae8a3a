"""Registry of open streams, which ends them on shutdown and when credentials end.

A stream can follow a task for days, so the credentials behind open streams are rechecked every few seconds.
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


@dataclass(slots=True)
class OpenStream:
    """One open stream, and its reader once authenticated."""

    identity: Identity = ANONYMOUS
    is_sending: bool = False
    """gRPC is sending its events. Canceled then, the call would end without a status, and the client keep waiting."""
    end_reason: A2AError | None = None  # set by the server while it is sending; raised after the current event


class StreamRegistry:
    """The open streams of one server."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[object], OpenStream] = {}
        self._end_reasons: WeakKeyDictionary[asyncio.Task[object], A2AError] = WeakKeyDictionary()
        self.is_closed = False

    @property
    def count(self) -> int:
        return len(self._tasks)

    @contextmanager
    def open(self, identity: Identity = ANONYMOUS) -> Iterator[OpenStream]:
        """Counts the current asyncio task as a stream. Raises Unavailable when the server is stopping.

        `close` and `recheck_credentials` cancel the task, as a disconnecting client does; `take_end_reason` tells them
        apart.
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
        """Why the server ended this task; None when the CancelledError just caught is not the registry's.

        Uncancels the task, so that it can send the reason to the client.
        """
        task = asyncio.current_task()
        assert task is not None
        reason = self._end_reasons.pop(task, None) or (Unavailable() if self.is_closed else None)
        if reason is None or task.cancelling() != 1:
            return None
        task.uncancel()
        return reason

    async def watch_credentials(self, authenticator: Authenticator | None, interval: float) -> None:
        """Ends streams without valid credentials, found every `interval` seconds; runs until canceled."""
        while authenticator is not None:
            await asyncio.sleep(interval)
            await self.recheck_credentials(authenticator)

    async def recheck_credentials(self, authenticator: Authenticator) -> None:
        for identity in {stream.identity for stream in self._tasks.values() if stream.identity.is_authenticated}:
            try:
                await authenticator.recheck(identity)
            except Unauthenticated as error:
                self._end_streams(identity, error)
            except A2AError:  # unknown for now; the next check decides
                continue

    def _end_streams(self, identity: Identity, error: A2AError) -> None:
        matching = [(task, stream) for task, stream in self._tasks.items() if stream.identity == identity]
        for task, stream in matching:
            if stream.is_sending:
                stream.end_reason = error
                continue
            self._end_reasons[task] = error
            task.cancel()
        _log.info("streams ended: %s", error.message, extra={**identity.log_details, "streams": len(matching)})

    def close(self) -> None:
        self.is_closed = True
        for task in self._tasks:
            task.cancel()
