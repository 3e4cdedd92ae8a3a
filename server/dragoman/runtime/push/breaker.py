"""Per-host circuit breaker and request limiter for webhooks.

After three failed connections, one probe at a time is sent until the host responds.

Calling a host that is down costs as much as calling a healthy one, for every webhook of every new task. While the
breaker is open one request at a time probes the host, and other deliveries share its result. Only failed connections
count, not error statuses or timeouts, which may concern one path. State is per process and lost with it, which costs a
few requests.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

BREAKER_THRESHOLD: Final = 3
"""Consecutive failed connections that open the breaker."""

MAX_FAILING_HOSTS: Final = 1024
"""Hosts remembered, the most recently failed."""


class HostState:
    """State of a host with failed connections."""

    __slots__ = ("failures", "probe")

    def __init__(self) -> None:
        self.failures = 0
        self.probe: asyncio.Future[str] | None = None
        """The probe under way; its result is the error, empty for success or an unknown outcome."""


class HostBreaker:
    """The circuit breakers of all hosts. `on_closed` is called when one closes."""

    def __init__(self, on_closed: Callable[[], None] = lambda: None) -> None:
        self._on_closed = on_closed
        self._hosts: OrderedDict[str, HostState] = OrderedDict()

    def __contains__(self, host: str) -> bool:
        """Whether the breaker of a host is open."""
        state = self._hosts.get(host)
        return state is not None and state.failures >= BREAKER_THRESHOLD

    def record_failure(self, host: str, reason: str) -> None:
        """Records a failed connection."""
        state = self._hosts.setdefault(host, HostState())
        self._hosts.move_to_end(host)
        state.failures += 1
        if state.probe is not None and not state.probe.done():
            state.probe.set_result(reason)
        while len(self._hosts) > MAX_FAILING_HOSTS:
            self._hosts.popitem(last=False)

    def record_success(self, host: str) -> None:
        """Records a response, of any status."""
        was_open = host in self
        self._hosts.pop(host, None)
        if was_open:
            self._on_closed()

    @asynccontextmanager
    async def call(self, host: str) -> AsyncIterator[str]:
        """Wraps a request: gives the reason to skip it, or empty. Waits for the probe while the breaker is open."""
        state = self._hosts.get(host)
        while host in self and state is not None and state.probe is not None:
            if error := await asyncio.shield(state.probe):
                yield error
                return
            state = self._hosts.get(host)
        if host not in self or state is None:
            yield ""
            return
        state.probe = probe = asyncio.get_running_loop().create_future()
        try:
            yield ""
        finally:
            state.probe = None
            if not probe.done():
                probe.set_result("")


MAX_CALLS: Final = 256
MAX_CALLS_PER_HOST: Final = 8
"""Concurrent webhook requests, in total and per host."""


class HostLimiter:
    """Limits concurrent requests, in total and per host, in order of arrival."""

    def __init__(self, total: int = MAX_CALLS, per_host: int = MAX_CALLS_PER_HOST) -> None:
        self._total = asyncio.Semaphore(total)
        self._per_host = per_host
        self._hosts: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def __call__(self, host: str) -> AsyncIterator[None]:
        """Holds a slot for one request."""
        limit, users = self._hosts.setdefault(host, (asyncio.Semaphore(self._per_host), []))
        users.append(None)
        try:
            async with limit, self._total:
                yield
        finally:
            users.pop()
            if not users:
                self._hosts.pop(host, None)
