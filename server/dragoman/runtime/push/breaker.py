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

BREAKER_THRESHOLD: Final = 3
"""Calls in a row that found nobody, after which a host rests."""

MAX_FAILING_HOSTS: Final = 1024
"""Hosts that are remembered, those that were called in vain last."""


class HostState:
    """What is known of one that was called in vain."""

    __slots__ = ("failures", "probe")

    def __init__(self) -> None:
        self.failures = 0
        self.probe: asyncio.Future[str] | None = None
        """The call under way that finds out: why there was nobody; empty when there was, or when nobody knows."""


class HostBreaker:
    """The hosts that rest. `ended` is told when one no longer does."""

    def __init__(self, on_closed: Callable[[], None] | None = None) -> None:
        self.on_closed = on_closed
        self._hosts: OrderedDict[str, HostState] = OrderedDict()

    def __contains__(self, host: str) -> bool:
        """Whether a host rests."""
        known = self._hosts.get(host)
        return known is not None and known.failures >= BREAKER_THRESHOLD

    def record_failure(self, host: str, reason: str) -> None:
        """A call found nobody."""
        known = self._hosts.setdefault(host, HostState())
        self._hosts.move_to_end(host)
        known.failures += 1
        if known.probe is not None and not known.probe.done():
            known.probe.set_result(reason)
        while len(self._hosts) > MAX_FAILING_HOSTS:
            self._hosts.popitem(last=False)

    def record_success(self, host: str) -> None:
        """A call found somebody, whatever they said."""
        rested = host in self
        self._hosts.pop(host, None)
        if rested and self.on_closed is not None:
            self.on_closed()

    @asynccontextmanager
    async def call(self, host: str) -> AsyncIterator[str]:
        """Around a call to be made: why it need not be made. Waits for the one that finds out, if the host rests."""
        known = self._hosts.get(host)
        while host in self and known is not None and known.probe is not None:
            if why := await asyncio.shield(known.probe):
                yield why
                return
            known = self._hosts.get(host)
        if host not in self or known is None:
            yield ""
            return
        known.probe = asking = asyncio.get_running_loop().create_future()
        try:
            yield ""
        finally:
            known.probe = None
            if not asking.done():
                asking.set_result("")
