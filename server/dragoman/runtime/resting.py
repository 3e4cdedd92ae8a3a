"""Hosts that are not there: who was called in vain several times in a row is called seldom, until somebody answers.

Calling a host that is down costs as much as calling one that is well, for every webhook of every new task, and brings
nothing. So such a host rests: one call at a time finds out whether it is back, and who was about to call it meanwhile
shares what comes of that. Only a missing connection counts, no status and no silence: those may be one path's fault.
What is known is lost with the process, and costs a few calls to learn again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

IN_VAIN: Final = 3
"""Calls in a row that found nobody, after which a host rests."""

REMEMBERED: Final = 1024
"""Hosts that are remembered, those that were called in vain last."""


class Host:
    """What is known of one that was called in vain."""

    __slots__ = ("asking", "in_vain")

    def __init__(self) -> None:
        self.in_vain = 0
        self.asking: asyncio.Future[str] | None = None
        """The call under way that finds out: why there was nobody; empty when there was, or when nobody knows."""


class Rests:
    """The hosts that rest. `ended` is told when one no longer does."""

    def __init__(self, ended: Callable[[], None] | None = None) -> None:
        self.ended = ended
        self._hosts: OrderedDict[str, Host] = OrderedDict()

    def __contains__(self, host: str) -> bool:
        """Whether a host rests."""
        known = self._hosts.get(host)
        return known is not None and known.in_vain >= IN_VAIN

    def in_vain(self, host: str, why: str) -> None:
        """A call found nobody."""
        known = self._hosts.setdefault(host, Host())
        self._hosts.move_to_end(host)
        known.in_vain += 1
        if known.asking is not None and not known.asking.done():
            known.asking.set_result(why)
        while len(self._hosts) > REMEMBERED:
            self._hosts.popitem(last=False)

    def there(self, host: str) -> None:
        """A call found somebody, whatever they said."""
        rested = host in self
        self._hosts.pop(host, None)
        if rested and self.ended is not None:
            self.ended()

    @asynccontextmanager
    async def call(self, host: str) -> AsyncIterator[str]:
        """Around a call to be made: why it need not be made. Waits for the one that finds out, if the host rests."""
        known = self._hosts.get(host)
        while host in self and known is not None and known.asking is not None:
            if why := await asyncio.shield(known.asking):
                yield why
                return
            known = self._hosts.get(host)
        if host not in self or known is None:
            yield ""
            return
        known.asking = asking = asyncio.get_running_loop().create_future()
        try:
            yield ""
        finally:
            known.asking = None
            if not asking.done():
                asking.set_result("")
