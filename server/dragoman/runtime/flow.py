"""What a stream says: its events in order, one at a time or as many as are there."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from operator import attrgetter
from typing import Final, Self

from dragoman.core import states
from dragoman.core.log import Event

Lots = AsyncGenerator[Sequence[Event], None]
"""Events, never none, as many at a time as were at hand."""


class Flow:
    """The events of one stream. Nothing happens before the first is asked for, and what is begun has to be closed."""

    __slots__ = ("_left", "_lots")

    def __init__(self, lots: Lots) -> None:
        self._lots = lots
        self._left: deque[Event] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """The next event. Raises what the operation raises."""
        if not self._left:
            self._left.extend(await anext(self._lots))
        return self._left.popleft()

    async def lot(self) -> Sequence[Event]:
        """The next event and all that are there behind it; none when the stream has ended. Raises likewise."""
        if self._left:
            left, self._left = self._left, deque()
            return tuple(left)
        try:
            return await anext(self._lots)
        except StopAsyncIteration:  # an empty tuple as the default of `anext` is a SystemError in CPython 3.11
            return ()

    async def aclose(self) -> None:
        """Ends it, wherever it is. May be called twice."""
        await self._lots.aclose()


# Where a stream ends ------------------------------------------------------------------------------------------------


def up_to(lot: Sequence[Event], last: Callable[[Event], bool]) -> tuple[Sequence[Event], bool]:
    """These events up to the first that is the last of its stream, and whether there was one."""
    for number, event in enumerate(lot, 1):
        if last(event):
            return lot[:number], True
    return lot, False


ends: Final = attrgetter("ends")
"""Whether the turn ends with an event."""


def terminal(event: Event) -> bool:
    """Whether the task ends with it."""
    return event.state in states.TERMINAL


def terminal_or_ends(event: Event) -> bool:
    """Whether either does."""
    return event.ends or event.state in states.TERMINAL
