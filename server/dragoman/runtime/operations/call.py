"""One request as the operations see it, and what a caller may ask for."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from dragoman.core.access.identity import Caller, Identity
from dragoman.core.errors import RateLimited
from dragoman.core.limits import message_limits
from dragoman.core.limits.admission import QuotaExceeded, TokenBuckets
from dragoman.core.limits.quotas import NO_QUOTA, Quota, Quotas
from dragoman.core.names import Owner
from dragoman.ports import Store


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller may ask for: decoded bytes of a request, seconds of a blocking send."""

    message_bytes: int = message_limits.MAX_MESSAGE_BYTES
    blocking_wait: float = 300.0
    message_id_is_key: bool = False
    """A message's id is the idempotency key of its send, when it has no other."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who asks which agent, and what the asker's transport and dialect imply."""

    caller: Caller
    timeout: float | None = None
    """Seconds a blocking send may wait; None for the server's limit."""
    shows_finished: bool = False
    """Subscribing to a finished task gives the Task and closes, instead of UnsupportedOperation."""
    cursor: str = ""
    """A cursor: the subscription, or a stream that is asked for again, goes on after it, without a Task first."""
    idempotency_key: str = ""
    """An idempotency key: a send with the key of an earlier one is answered as that one was."""
    stops_with_turn: bool = False
    """A subscription ends when the turn does, and not only with the task."""
    dialect: str = ""
    """What a task that begins here is said to be made in, and in whose words a webhook is told."""
    extensions: tuple[str, ...] = ()
    """The URIs of extensions that the caller activates."""
    names_tasks: bool = False
    """The caller chooses the ids of its tasks: a message for one that is not there creates it (A2A 0.1)."""


BURST_SECONDS: Final = 2
"""Seconds' worth of requests that may come at once."""

OPEN_STREAMS_RETRY_SECONDS: Final = 1.0
"""Seconds after which to try again when too much is open."""

_LIMIT_MESSAGES: Final = {
    "live_tasks": "{has} of your tasks have not ended, and at most {most} may be unfinished; wait, or cancel some",
    "live_tasks_per_agent": "{has} of your tasks with this agent have not ended, and at most {most} may be unfinished; "
    "wait, or cancel some",
    "queued_bytes": "{has} bytes of your messages wait to be taken up, and at most {most} may; wait",
    "starts_per_minute": "at most {most} of your turns with this agent may begin in a minute; wait",
    "requests_per_second": "at most {most} requests of one caller are answered in a second; wait",
    "open_streams": "{has} of your streams and waiting calls are open, and at most {most} may be; close some",
}
"""What each limit says. The name of the setting goes before it."""


class Admission:
    """The limits of one process."""

    def __init__(self, quotas: Quotas | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds, and never goes back."""
        self._quotas = quotas or Quotas()
        self._clock = clock
        self._buckets = TokenBuckets()
        self._open_streams: Counter[str] = Counter()
        self._quota_cache: dict[tuple[str, bool], Quota] = {}

    def quota(self, identity: Identity, agent: str) -> Quota | None:
        """What the store has to hold a message of this principal against; None for nothing."""
        key = agent, identity.is_authenticated
        quota = self._quota_cache.get(key)
        if quota is None:
            quota = self._quota_cache[key] = self._quotas.quota(agent, authenticated=identity.is_authenticated)
        return None if quota == NO_QUOTA else quota

    def check_rate(self, identity: Identity) -> None:
        """Counts a request. Raises RateLimited when they come too often."""
        rate = self._quotas.limit_for("requests_per_second", authenticated=identity.is_authenticated)
        if not rate:
            return
        now, every = self._clock(), 1 / rate
        if wait := self._buckets.delay(identity.principal, now, every, BURST_SECONDS * rate):
            raise rate_limited("requests_per_second", rate, rate, wait)
        self._buckets.take(identity.principal, now, every)

    @contextmanager
    def hold_stream(self, identity: Identity) -> Iterator[None]:
        """Counts what stays open for a principal: a stream, a call that waits, a connection. Raises RateLimited."""
        most = self._quotas.limit_for("open_streams", authenticated=identity.is_authenticated)
        principal, count = identity.principal, self._open_streams[identity.principal]
        if most and count >= most:
            raise rate_limited("open_streams", most, count, OPEN_STREAMS_RETRY_SECONDS)
        self._open_streams[principal] = count + 1
        try:
            yield
        finally:
            self._open_streams[principal] -= 1
            if not self._open_streams[principal]:
                del self._open_streams[principal]


def rate_limited(limit: str, maximum: int, current: int, retry_after: float) -> RateLimited:
    """What a caller is told: the limit by the name of its setting, its value, and when to try again."""
    said = _LIMIT_MESSAGES[limit].format(has=current, most=maximum)
    # No earlier than it is worth while, on clocks that count milliseconds.
    return RateLimited(
        f"{limit}: {said}", limit=limit, maximum=maximum, retry_after=math.ceil(retry_after * 1000) / 1000
    )


def quota_exceeded(error: QuotaExceeded) -> RateLimited:
    """The same for a refusal of the store."""
    return rate_limited(error.limit, error.maximum, error.current, error.retry_after)


MAX_CACHED_DIALECTS: Final = 4096
"""Tasks of which that is remembered."""


class DialectCache:
    """Asks the store once for each caller and task: it never changes, and who polls asks again.

    Not for ids that clients chose: another task may have such a one later.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dialects: dict[tuple[Owner, str, str], str] = {}

    async def dialect_of(self, caller: Caller, task_id: str) -> str:
        """The dialect of a task; empty when there is none that the caller may see."""
        asked = caller.owner, caller.agent, task_id
        dialect = self._dialects.get(asked, "")
        if not dialect and task_id:
            head = await self._store.find(caller.owner, caller.agent, task_id, joined=caller.joined)
            dialect = head.dialect if head else ""
            if dialect and head and not head.alias:
                if len(self._dialects) >= MAX_CACHED_DIALECTS:
                    del self._dialects[next(iter(self._dialects))]
                self._dialects[asked] = dialect
        return dialect
