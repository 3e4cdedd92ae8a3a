"""How long a server that is away, or busy, is tried again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from dragoman.client.failure import Busy, ClientError, Unreachable

T = TypeVar("T")

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0
"""Seconds between two tries, or two looks at a task: from the first to the longest, half as much more each time."""


class Patience:
    """Ends `seconds` after the first of several failures in a row."""

    def __init__(
        self,
        seconds: float,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._sleep = sleep
        self._clock = clock
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    def reached(self) -> None:
        """The server answered."""
        self._since, self._pause = None, FIRST_PAUSE

    async def wait(self, error: ClientError) -> None:
        """Waits before the next try: as long as the server asked for, or longer each time. Raises the error instead,
        when it is over, or when another try would not mend it."""
        if not isinstance(error, Unreachable | Busy):
            raise error
        now = self._clock()
        if self._since is None:
            self._since = now
        pause = max(error.retry_after or 0.0, self._pause)
        if now - self._since + pause > self._seconds:
            raise error
        await self._sleep(pause)
        self._pause = longer(self._pause)

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks what may be asked twice, until there is an answer. Raises ClientError."""
        while True:
            try:
                answer = await ask()
            except ClientError as error:
                await self.wait(error)
            else:
                self.reached()
                return answer


def longer(pause: float) -> float:
    """The pause after this one."""
    return min(pause * 1.5, LONGEST_PAUSE)
