"""Access of callers: what one request is, which agent it reaches, whose tasks it sees, and the limits of its caller.

A binding checks the rate (`Admission`), authorizes the caller (`Access`), and passes a `Call` to the operation.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from dragoman.core.access.identity import (
    ANONYMOUS,
    OPEN_ACCESS,
    RESERVED_PRINCIPAL_PREFIX,
    SCOPE_GRANT_PREFIX,
    AccessPolicy,
    Caller,
    Identity,
    Isolation,
)
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import (
    NO_AGENTS_YET,
    AgentNotFound,
    InvalidParams,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.core.limits import message_limits
from dragoman.core.limits.admission import TokenBuckets
from dragoman.core.limits.quotas import NO_QUOTA, Quota, Quotas
from dragoman.core.names import AGENT_ID, DEFAULT_SCOPE, ByAgent, Owner, resolve_tenant
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import ErasureCounts, TaskSelection
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(eq=False, repr=False)
class Access:
    """The agents of a server, as callers reach them."""

    agents: Mapping[str, AgentSpec]  # the agents of this server, by id
    root: str  # the id of the agent addressed by requests that name none; empty if the first that registers becomes it
    isolation: Isolation = field(default_factory=Isolation)
    policy: AccessPolicy = OPEN_ACCESS  # which agents are open to callers without credentials

    def on_agent_added(self, spec: AgentSpec) -> None:
        """Makes a newly registered agent the root agent if there is none yet."""
        self.root = self.root or spec.id

    def resolve_agent(self, tenant: str, identity: Identity = ANONYMOUS) -> tuple[str, str]:
        """The scope and agent that a tenant string names, for this identity.

        Raises AgentNotFound; Unavailable until the first agent comes; Unauthenticated for anonymous callers that may
        not learn whether the agent exists.
        """
        scope, agent = resolve_tenant(tenant, self.root)
        policy = self.policy
        if agent in self.agents and (not policy.hides_agents or policy.may_see(scope, agent, identity)):
            return scope, agent
        if not identity.is_authenticated and not policy.may_see(scope, agent, identity):
            raise Unauthenticated("credentials are required" + (f' for agent "{tenant[:200]}"' if tenant else ""))
        if not self.agents:
            raise Unavailable(NO_AGENTS_YET)
        known = ", ".join(id for id in sorted(self.agents) if policy.may_see(scope, id, identity)) or "(none)"
        # A root agent may be hidden.
        shown = agent if AGENT_ID.fullmatch(agent) and not policy.hides_agents else tenant[:200]
        denied = _denied(scope, agent, identity) if agent in self.agents else None
        raise AgentNotFound(f'tenant: no agent "{shown}" here; use one of {known}') from denied

    def authorize(self, tenant: str, identity: Identity, *, public: bool = False) -> Caller:
        """Checks that an identity may call the agent that a tenant string names.

        Every operation on tasks needs the resulting Caller, whose owner limits what it sees. `public`: the call reads a
        public card; a caller without access to the agent is then treated as anonymous.
        Raises AgentNotFound; Unauthenticated without credentials (except for public agents) and for reserved
        principals; PermissionDenied when the caller's grants do not cover the agent.
        """
        if public:
            scope, agent = self.resolve_agent(tenant)
            effective = identity if identity.may_call(scope, agent) else ANONYMOUS
            return Caller(Owner(scope, effective.principal), agent, effective)
        scope, agent = self.resolve_agent(tenant, identity)
        if self.policy.credentials_required and not identity.is_authenticated and not self.policy.is_public(agent):
            raise Unauthenticated(f'credentials are required for agent "{agent}"')
        if not identity.may_call(scope, agent):
            raise _denied(scope, agent, identity)
        if not identity.principal or identity.principal.startswith(RESERVED_PRINCIPAL_PREFIX):
            raise Unauthenticated(
                f'the principal of these credentials is empty or begins with "{RESERVED_PRINCIPAL_PREFIX}"'
            )
        return Caller(self.isolation.owner(scope, agent, identity.principal), agent, identity)

    def creator(self, record: TaskRecord) -> Caller:
        """The principal that created a task, as a caller of its agent. Raises AgentNotFound if that is not served."""
        if record.agent not in self.agents:
            raise AgentNotFound(f'agent: "{record.agent}" is not served here')
        return Caller(record.ref.owner, record.agent, Identity(record.principal))


def _denied(scope: str, agent: str, identity: Identity) -> PermissionDenied:
    text = f'tenant: these credentials do not reach agent "{agent}" in scope "{scope}"'
    return PermissionDenied(text, log_details=identity.log_details)


BURST_SECONDS: Final = 2  # seconds' worth of requests that may arrive at once
COUNT_PAUSE: Final = 9  # times as long as a count of stored bytes is the pause after it: a tenth of the time is counted
OPEN_STREAMS_RETRY_SECONDS: Final = 1.0  # seconds after which to retry when too many streams are open

_LIMIT_MESSAGES: Final = {
    "live_tasks": "{current} of your tasks are unfinished; at most {maximum} may be. Wait, or cancel some",
    "live_tasks_per_agent": "{current} of your tasks with this agent are unfinished; at most {maximum} may be. "
    "Wait, or cancel some",
    "queued_bytes": "{current} bytes of your messages are queued; at most {maximum} may be. Retry later",
    "starts_per_minute": "at most {maximum} of your turns with this agent may begin per minute. Retry later",
    "requests_per_second": "at most {maximum} requests per second are allowed for one caller. Retry later",
    "open_streams": "{current} of your streams and waiting calls are open; at most {maximum} may be. Close some",
    "stored_bytes": "{current} bytes of your tasks are stored; at most {maximum} may be. Wait until some are erased",
    "scopes": "tenant: this scope would be one more than the {current} in which you have tasks; at most {maximum} are "
    "allowed. Use one of them, or ask the operator for a grant of scopes (scope:NAME)",
}
"""The error text of each limit. The name of its setting is put before it."""


class StoredBytes:
    """Principals whose tasks have as many bytes as may be stored. Counted in the background, from time to time."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self.limit = limit
        self._clock = clock
        self._full: dict[str, int] = {}  # the stored bytes of principals that have reached the limit
        self._senders: set[str] = set()  # principals that sent messages since their last count

    def quota(self, principal: str, quota: Quota | None) -> Quota | None:
        """The quota for a message of a principal, which sends one."""
        self._senders.add(principal)
        stored = self._full.get(principal)
        return quota if stored is None else replace(quota or NO_QUOTA, stored_bytes=self.limit, stored=stored)

    async def count(self, measure: Callable[[TaskSelection], Awaitable[ErasureCounts]]) -> None:
        """Counts for each principal that sent messages, or has reached the limit, what an erasure would delete."""
        for principal in sorted(self._senders | self._full.keys()):
            began = self._clock()
            stored = (await measure(TaskSelection(principal=principal))).bytes
            self._senders.discard(principal)
            self._full.pop(principal, None)
            if stored >= self.limit:
                self._full[principal] = stored
            await asyncio.sleep(COUNT_PAUSE * (self._clock() - began))


class Admission:
    """Enforces rate limits and quotas in one process."""

    def __init__(self, quotas: Quotas | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._quotas = quotas = quotas or Quotas()
        self._clock = clock
        # By `Identity.is_authenticated`.
        self._max_rate = {
            known: quotas.limit_for("requests_per_second", authenticated=known) for known in (False, True)
        }
        self._max_streams = {known: quotas.limit_for("open_streams", authenticated=known) for known in (False, True)}
        self.buckets = TokenBuckets()  # the callers that sent requests lately
        self.open_streams: dict[str, int] = {}  # open streams, waiting calls and connections by principal
        self._quota_cache: dict[tuple[str, bool, bool], Quota | None] = {}
        limit = quotas.limit_for("stored_bytes", authenticated=True)
        self.stored_bytes = StoredBytes(limit, clock) if limit else None

    def quota(self, identity: Identity, agent: str, scope: str = DEFAULT_SCOPE) -> Quota | None:
        """The quota that the store checks for a message of this principal; None for none."""
        limits_scopes = scope != DEFAULT_SCOPE and not identity.granted(SCOPE_GRANT_PREFIX)
        key = agent, identity.is_authenticated, limits_scopes
        if key not in self._quota_cache:
            quota = self._quotas.quota(agent, authenticated=identity.is_authenticated, limits_scopes=limits_scopes)
            self._quota_cache[key] = None if quota == NO_QUOTA else quota
        quota_of_all = self._quota_cache[key]
        return self.stored_bytes.quota(identity.principal, quota_of_all) if self.stored_bytes else quota_of_all

    def check_rate(self, identity: Identity) -> None:
        """Counts a request. Raises RateLimited above the request rate."""
        rate = self._max_rate[identity.is_authenticated]
        if not rate:
            return
        now, interval = self._clock(), 1 / rate
        if wait := self.buckets.delay(identity.principal, now, interval, BURST_SECONDS * rate):
            raise rate_limited("requests_per_second", rate, rate, wait)
        self.buckets.take(identity.principal, now, interval)

    def open_stream(self, identity: Identity) -> None:
        """Counts a stream, waiting call or connection of a principal, until `close_stream`. Raises RateLimited."""
        maximum = self._max_streams[identity.is_authenticated]
        principal = identity.principal
        count = self.open_streams.get(principal, 0)
        if maximum and count >= maximum:
            raise rate_limited("open_streams", maximum, count, OPEN_STREAMS_RETRY_SECONDS)
        self.open_streams[principal] = count + 1

    @contextmanager
    def stream(self, identity: Identity) -> Iterator[None]:
        """Counts a stream, waiting call or connection of a principal while the block runs. Raises RateLimited."""
        self.open_stream(identity)
        try:
            yield
        finally:
            self.close_stream(identity)

    def close_stream(self, identity: Identity) -> None:
        principal = identity.principal
        count = self.open_streams[principal] - 1
        if count:
            self.open_streams[principal] = count
        else:
            del self.open_streams[principal]


def rate_limited(limit: str, maximum: int, current: int, retry_after: float) -> RateLimited:
    """The error for an exceeded limit: the name of its setting, its value, and when to retry."""
    text = _LIMIT_MESSAGES[limit].format(current=current, maximum=maximum)
    # Rounded up to milliseconds, so that a client never retries too early.
    return RateLimited(
        f"{limit}: {text}", limit=limit, maximum=maximum, retry_after=math.ceil(retry_after * 1000) / 1000
    )


BlockingDefault = Literal["wait", "return"]
BLOCKING_DEFAULTS: Final[tuple[BlockingDefault, ...]] = get_args(BlockingDefault)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a request: decoded bytes, and seconds of a blocking send."""

    message_bytes: int = message_limits.MAX_MESSAGE_BYTES
    blocking_wait: float = 300.0
    blocking_default: ByAgent[BlockingDefault] = ByAgent("wait")  # noqa: RUF009
    """The default of blocking, for a send that leaves it open (`Call.leaves_blocking_open`)."""
    message_id_is_key: bool = False  # whether the message's id is the idempotency key of a send that has no other


@dataclass(slots=True)
class Call:
    """One request: the caller, and what its transport and dialect imply.

    Never changed. Not frozen, because each call makes one (see `core.task.log.Append`).
    """

    caller: Caller
    timeout: float | None = None  # seconds a blocking send may wait; None: the server's limit
    leaves_blocking_open: bool = False
    """Whether the send does not say whether it waits, in a dialect whose specification does not say it either."""
    shows_finished: bool = False
    """Whether subscribing to a finished task gives the Task and closes, instead of UnsupportedOperation."""
    cursor: str = ""  # resume position: the stream continues after it, without a Task first
    idempotency_key: str = ""  # a send with the key of an earlier send returns the result of that send
    stops_with_turn: bool = False  # whether a subscription ends with the turn, and not only with the task
    waits_for_auth: bool = False  # whether the stream of a send goes on while the task is AUTH_REQUIRED
    dialect: str = ""  # the dialect recorded for tasks created by this call, and used for their webhooks
    extensions: tuple[str, ...] = ()  # the URIs of the extensions that the caller activates
    names_tasks: bool = False  # whether the caller chooses task ids: a message for an unknown task creates it (A2A 0.1)
    shows_tokens: bool = False
    """Whether a push configuration is shown with its token, to the principal that set it, and its scheme described."""
    describes_schemes: bool = False  # whether the scheme of a push configuration may have a description
    answers_question: bool = False
    """Whether the message answers a question: it is rejected while a turn runs, as nothing is asked then."""
    operator: Identity | None = None  # the operator who makes the call in the caller's name


OnAction = Callable[[str, Call, str], None]
"""Called for each change that a caller made: the action (`task.created`), the call, and the task's id."""


def check_streaming(spec: AgentSpec) -> None:
    """Raises UnsupportedOperation for an agent that does not stream."""
    if not spec.streaming:
        raise UnsupportedOperation("this agent does not stream, as its card says")


def history_length(
    request: pb.GetTaskRequest | pb.ListTasksRequest | pb.SendMessageConfiguration, field: str = "historyLength"
) -> int | None:
    """The number of messages to return; None: all. Raises InvalidParams for a negative one, in `field`."""
    if not request.HasField("history_length"):
        return None
    if request.history_length < 0:
        raise InvalidParams.field(field, "must be 0 or more")
    return request.history_length
