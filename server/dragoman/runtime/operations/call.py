"""One request as the operations see it, and the limits that apply to its caller."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from dragoman.core.access.identity import Caller, Identity
from dragoman.core.errors import InvalidParams, RateLimited
from dragoman.core.limits import message_limits
from dragoman.core.limits.admission import QuotaExceeded, TokenBuckets
from dragoman.core.limits.quotas import NO_QUOTA, Quota, Quotas
from dragoman.core.names import ByAgent, Owner
from dragoman.core.task import cursors, states
from dragoman.core.task.log import TaskRecord
from dragoman.ports import Store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BlockingDefault = Literal["wait", "return"]
BLOCKING_DEFAULTS: Final[tuple[BlockingDefault, ...]] = get_args(BlockingDefault)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a request: decoded bytes, and seconds of a blocking send."""

    message_bytes: int = message_limits.MAX_MESSAGE_BYTES
    blocking_wait: float = 300.0
    blocking_default: ByAgent[BlockingDefault] = ByAgent("wait")  # noqa: RUF009
    """What a send does whose caller leaves it open (`Call.leaves_blocking_open`)."""
    message_id_is_key: bool = False
    """Whether the message's id is the idempotency key of a send that has no other."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the caller, and what its transport and dialect imply."""

    caller: Caller
    timeout: float | None = None
    """Seconds a blocking send may wait; None: the server's limit."""
    leaves_blocking_open: bool = False
    """Whether the send does not say whether it waits, in a dialect whose specification does not say it either."""
    shows_finished: bool = False
    """Whether subscribing to a finished task gives the Task and closes, instead of UnsupportedOperation."""
    cursor: str = ""
    """Resume position: the stream continues after it, without a Task first."""
    idempotency_key: str = ""
    """A send with the key of an earlier send returns the result of that send."""
    stops_with_turn: bool = False
    """Whether a subscription ends with the turn, and not only with the task."""
    dialect: str = ""
    """The dialect recorded for tasks created by this call, and used for their webhooks."""
    extensions: tuple[str, ...] = ()
    """The URIs of the extensions that the caller activates."""
    names_tasks: bool = False
    """Whether the caller chooses task ids: a message for an unknown task creates it (A2A 0.1)."""

    def is_over_at(self, record: TaskRecord) -> bool:
        """Whether a subscription of this call ends at once for a task in this state."""
        if states.is_terminal(record.state):
            return True
        return self.stops_with_turn and not record.has_open_turn


BURST_SECONDS: Final = 2
"""Seconds' worth of requests that may arrive at once."""

OPEN_STREAMS_RETRY_SECONDS: Final = 1.0
"""Seconds after which to retry when too many streams are open."""

_LIMIT_MESSAGES: Final = {
    "live_tasks": "{current} of your tasks are unfinished; at most {maximum} may be. Wait, or cancel some",
    "live_tasks_per_agent": "{current} of your tasks with this agent are unfinished; at most {maximum} may be. "
    "Wait, or cancel some",
    "queued_bytes": "{current} bytes of your messages are queued; at most {maximum} may be. Retry later",
    "starts_per_minute": "at most {maximum} of your turns with this agent may begin per minute. Retry later",
    "requests_per_second": "at most {maximum} requests per second are allowed for one caller. Retry later",
    "open_streams": "{current} of your streams and waiting calls are open; at most {maximum} may be. Close some",
}
"""The error text of each limit. The name of its setting is put before it."""


class Admission:
    """Enforces rate limits and quotas in one process."""

    def __init__(self, quotas: Quotas | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._quotas = quotas or Quotas()
        self._clock = clock
        self._buckets = TokenBuckets()
        self._open_streams: Counter[str] = Counter()
        self._quota_cache: dict[tuple[str, bool], Quota] = {}

    def quota(self, identity: Identity, agent: str) -> Quota | None:
        """The quota that the store checks for a message of this principal; None for none."""
        key = agent, identity.is_authenticated
        quota = self._quota_cache.get(key)
        if quota is None:
            quota = self._quota_cache[key] = self._quotas.quota(agent, authenticated=identity.is_authenticated)
        return None if quota == NO_QUOTA else quota

    def check_rate(self, identity: Identity) -> None:
        """Counts a request. Raises RateLimited above the request rate."""
        rate = self._quotas.limit_for("requests_per_second", authenticated=identity.is_authenticated)
        if not rate:
            return
        now, interval = self._clock(), 1 / rate
        if wait := self._buckets.delay(identity.principal, now, interval, BURST_SECONDS * rate):
            raise rate_limited("requests_per_second", rate, rate, wait)
        self._buckets.take(identity.principal, now, interval)

    @contextmanager
    def hold_stream(self, identity: Identity) -> Iterator[None]:
        """Counts an open stream, waiting call or connection of a principal. Raises RateLimited."""
        maximum = self._quotas.limit_for("open_streams", authenticated=identity.is_authenticated)
        principal, count = identity.principal, self._open_streams[identity.principal]
        if maximum and count >= maximum:
            raise rate_limited("open_streams", maximum, count, OPEN_STREAMS_RETRY_SECONDS)
        self._open_streams[principal] = count + 1
        try:
            yield
        finally:
            self._open_streams[principal] -= 1
            if not self._open_streams[principal]:
                del self._open_streams[principal]


def rate_limited(limit: str, maximum: int, current: int, retry_after: float) -> RateLimited:
    """The error for an exceeded limit: the name of its setting, its value, and when to retry."""
    text = _LIMIT_MESSAGES[limit].format(current=current, maximum=maximum)
    # Rounded up to milliseconds, so that a client never retries too early.
    return RateLimited(
        f"{limit}: {text}", limit=limit, maximum=maximum, retry_after=math.ceil(retry_after * 1000) / 1000
    )


def quota_exceeded(error: QuotaExceeded) -> RateLimited:
    """The error for a quota that the store found exceeded."""
    return rate_limited(error.limit, error.maximum, error.current, error.retry_after)


MAX_CACHED_DIALECTS: Final = 4096
"""Tasks whose dialect is cached."""


class DialectCache:
    """Caches the dialect of tasks per caller: it never changes, and pollers ask repeatedly.

    Ids chosen by clients are not cached, because another task may get the same id later.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dialects: dict[tuple[Owner, str, str], str] = {}

    async def dialect_of(self, caller: Caller, task_id: str) -> str:
        """The dialect of a task; empty when the caller sees no such task."""
        key = caller.owner, caller.agent, task_id
        dialect = self._dialects.get(key, "")
        if not dialect and task_id:
            record = await self._store.find(caller.owner, caller.agent, task_id, joined=caller.joined)
            dialect = record.dialect if record else ""
            if dialect and record and not record.alias:
                if len(self._dialects) >= MAX_CACHED_DIALECTS:
                    del self._dialects[next(iter(self._dialects))]
                self._dialects[key] = dialect
        return dialect


# Parameters of reads ------------------------------------------------------------------------------------------------


def task_query(call: Call, request: pb.ListTasksRequest) -> cursors.TaskQuery:
    """The store query of a ListTasks request. Raises InvalidParams."""
    history = history_length(request)
    size = request.page_size if request.HasField("page_size") else cursors.DEFAULT_PAGE_SIZE
    if not 1 <= size <= cursors.MAX_PAGE_SIZE:
        raise InvalidParams.field("pageSize", f"must be 1 to {cursors.MAX_PAGE_SIZE}, not {request.page_size}")
    if request.status and request.status not in states.STORED_STATES:
        raise InvalidParams.field(
            "status", f"must be one of {', '.join(map(states.name, sorted(states.STORED_STATES)))}"
        )
    since = 0
    if request.HasField("status_timestamp_after"):
        since = -(-request.status_timestamp_after.ToNanoseconds() // 1_000_000)
    query = cursors.TaskQuery(
        call.caller.owner,
        call.caller.agent,
        context=request.context_id,
        state=request.status,
        updated_since=since,
        page_size=size,
        history=history,
        artifacts=request.include_artifacts,
        joined=call.caller.joined,
    )
    if request.page_token:
        query = replace(query, after=cursors.parse_page_token(query, request.page_token))
    return query


def history_length(
    request: pb.GetTaskRequest | pb.ListTasksRequest | pb.SendMessageConfiguration, field: str = "historyLength"
) -> int | None:
    """The number of messages to return; None: all. Raises InvalidParams for a negative one, in `field`."""
    if not request.HasField("history_length"):
        return None
    if request.history_length < 0:
        raise InvalidParams.field(field, "must be 0 or more")
    return request.history_length
