"""Putting the runtime together from its ports, and taking it apart again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from dragoman.core.access.identity import OPEN_ACCESS, AccessPolicy, Isolation
from dragoman.core.audit import AuditLevel
from dragoman.core.limits.quotas import NO_BUDGETS, Quotas, TaskBudgets
from dragoman.core.push.delivery import DEFAULT_PUSH_RETRY_POLICY, PushRetryPolicy
from dragoman.core.task.maintenance import RetentionPolicy
from dragoman.ports import Agent, Bus, OutboundHttp, Store, WebhookEncoder
from dragoman.ports.tracing import Tracer
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.log import EventLog
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.maintenance.retention import Retention, compact_forever
from dragoman.runtime.observe.audit import AuditedService, Auditor
from dragoman.runtime.observe.explain import Explainer
from dragoman.runtime.observe.metrics import MetricsDeps, RuntimeMetrics, Watchdog
from dragoman.runtime.observe.tracing import TracedTurns
from dragoman.runtime.operations.call import Admission, Limits
from dragoman.runtime.operations.cancel import CancelOperation, PendingWaits
from dragoman.runtime.operations.push_configs import PushConfigOperations
from dragoman.runtime.operations.send import new_context_id, new_task_key
from dragoman.runtime.operations.service import TaskService
from dragoman.runtime.push.breaker import HostBreaker
from dragoman.runtime.push.delivery import CLAIM_HOLD_SECONDS, DeliveryDeps, DeliveryRecorder, HostLimiter
from dragoman.runtime.push.scheduler import MAX_CALLS, MAX_CALLS_PER_HOST, PushScheduler, Redelivery
from dragoman.runtime.registry import AgentRegistry
from dragoman.runtime.scheduler import DEFAULT_SLOTS, WORKER_WAIT_SECONDS, Scheduler
from dragoman.runtime.sessions import LEASE_SECONDS, ClaimRecovery, Heartbeat, Reaper
from dragoman.runtime.turn.events import NO_COALESCING, Coalesce
from dragoman.runtime.turn.input import ReferenceResolver


@dataclass(frozen=True, slots=True)
class Runtime:
    """What stands between the bindings and the ports."""

    service: TaskService
    scheduler: Scheduler
    explainer: Explainer
    maintenance: Maintenance
    redelivery: Redelivery
    retention: Retention
    registry: AgentRegistry
    metrics: RuntimeMetrics
    push_scheduler: PushScheduler | None
    """Who delivers push notifications; None on a server that has none."""
    auditor: Auditor | None = None
    """Who tells the audit log; None where there is none."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What the audit log is told, and for how long it keeps that: milliseconds, 0 for ever."""

    clock: Callable[[], int]
    level: AuditLevel = "all"
    retention_ms: int = 0


@dataclass(frozen=True, slots=True)
class PushOptions:
    """What push notifications need besides the store: the way out, the words, and how long to go on trying."""

    outbound: OutboundHttp
    encoder: WebhookEncoder
    retry_policy: PushRetryPolicy = DEFAULT_PUSH_RETRY_POLICY
    random: Callable[[], float] = random.random
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    claim_hold: float = CLAIM_HOLD_SECONDS
    ready: asyncio.Event | None = None
    """Set once the server listens: letters tell where."""


@asynccontextmanager
async def open_runtime(
    store: Store,
    bus: Bus,
    agents: Sequence[Agent],
    *,
    root: str = "",
    limits: Limits | None = None,
    slots: int = DEFAULT_SLOTS,
    strict: bool = False,
    exclusive: bool = True,
    lease: float = LEASE_SECONDS,
    retention: RetentionPolicy | None = None,
    coalesce: Coalesce = NO_COALESCING,
    isolation: Isolation | None = None,
    access_policy: AccessPolicy = OPEN_ACCESS,
    push_options: PushOptions | None = None,
    quotas: Quotas | None = None,
    worker_wait: float = WORKER_WAIT_SECONDS,
    tracer: Tracer | None = None,
    budgets: TaskBudgets = NO_BUDGETS,
    allow_no_agents: bool = False,
    runs_agents: bool = True,
    audit: AuditOptions | None = None,
    new_key: Callable[[], bytes] = new_task_key,
    new_context: Callable[[], str] = new_context_id,
) -> AsyncIterator[Runtime]:
    """Opens a session on the store, ends what earlier ones left running, and serves these agents.

    `alone`: nobody else serves this store, so sessions that are still open are those of the dead. `lease`: seconds
    after which others may take this one for dead when it is not renewed.

    Without `pushing` there are no push notifications, and what is asked of them is refused.

    `root` is the id of the agent meant when a request names none: by default the one that says `default=True`,
    else the first. `retention` says how long tasks are kept, `isolation` who sees them, `doorway` whom we let in
    without credentials, `quotas` what callers may take up; `worker_wait`: seconds for which tasks wait for agents
    elsewhere that are away; `tracer` is told of runs and pushes; `budgets`: what tasks may use. `vacant`: there need be
    no agent yet; the root agent is then the first that comes, unless `root` names one. Without `runs` the turns of
    these agents are left to other processes on the store.

    `audit` says what the audit log is told: nothing without it. `new_key` and `new_context` give tasks and
    conversations their ids.

    On leaving, runs that are left end as FAILED. The caller holds the store's lock and closes store and bus. Raises
    ValueError for agents that cannot be served together.
    """
    by_id = {agent.spec.id: agent for agent in agents}
    root = root or ("" if allow_no_agents else root_of(agents))
    if root not in by_id and not allow_no_agents:
        raise ValueError(f'root agent "{root}" is not served; use one of {", ".join(by_id)}')
    session = await store.open_session(lease, exclusive=exclusive)
    followers = TaskFeeds(store, bus)
    courier = _push_scheduler(store, followers, session, push_options, tracer) if push_options else None
    appends = EventLog(store, bus, courier.wake if courier else None)
    specs = {name: agent.spec for name, agent in by_id.items()}
    heartbeat = Heartbeat(store, session, lease=lease)
    reaper = Reaper(store, bus, appends, session, specs, heartbeat.renew)
    await reaper.reap()
    webhooks = (
        PushConfigOperations(store, bus, push_options.outbound, push_options.encoder)
        if push_options
        else PushConfigOperations(store, bus, None, None)
    )
    isolation = isolation or Isolation()
    dispatch = Scheduler(
        store,
        bus,
        appends,
        by_id,
        session,
        ReferenceResolver(store, isolation),
        slots=slots,
        strict=strict,
        coalesce=coalesce,
        worker_wait=worker_wait,
        runs_agents=runs_agents,
    )
    dispatch.budgets = budgets
    if tracer is not None:
        dispatch.run_turns = TracedTurns(store, tracer).run
    waits = PendingWaits()
    canceling = CancelOperation(store, bus, appends, followers, dispatch, specs, waits)
    auditor = Auditor(store.audit, audit.clock, audit.level) if audit else None
    make = partial(AuditedService, auditor) if auditor else TaskService
    service = make(
        store,
        appends,
        followers,
        dispatch,
        specs,
        root,
        limits or Limits(),
        isolation,
        webhooks,
        Admission(quotas),
        canceling,
        waits,
        new_key=new_key,
        new_context=new_context,
        access_policy=access_policy,
    )
    upkeep = Maintenance(store, bus, followers, auditor)
    declared = {name: spec.retention for name, spec in specs.items()}
    rules = replace(retention or RetentionPolicy(), declared=declared)
    kept = Retention(
        store, appends, upkeep, rules, auditor=auditor, audit_retention_ms=audit.retention_ms if audit else 0
    )
    enlisting = AgentRegistry(store, appends, dispatch, by_id, specs, declared)
    enlisting.add_listener(service.on_agent_added)
    # Not a TaskGroup: it would wrap whatever the caller's block raises.
    keeping_up = asyncio.create_task(followers.poll_forever(), name="followers keep up")
    reaping = asyncio.create_task(reaper.poll_forever(), name="reaper")
    heartbeat.start()
    watchdog = Watchdog(asyncio.get_running_loop())
    tidying = asyncio.create_task(compact_forever(store), name="the store is kept tidy")
    keeping = asyncio.create_task(kept.run_forever(), name="retention")
    giving_up = asyncio.create_task(enlisting.poll_forever(), name="agents that stay away")
    asking = asyncio.create_task(ClaimRecovery(appends, dispatch).poll_forever(), name="claims that nobody answered")
    others = (
        []
        if exclusive
        else [
            asyncio.create_task(dispatch.poll_forever(), name="what others left waiting"),
            asyncio.create_task(canceling.poll_forever(), name="cancels that others were asked for"),
        ]
    )
    try:
        await dispatch.start()
        if courier:
            await courier.start(bus)
        explainer = Explainer(store, dispatch, followers, specs, courier.delivery_count if courier else None, rules.age)
        parts = MetricsDeps(
            store=store, bus=bus, scheduler=dispatch, feeds=followers, event_log=appends, retention=kept,
            watchdog=watchdog, push_scheduler=courier,
        )  # fmt: skip
        redelivery = Redelivery(store, bus)
        yield Runtime(
            service, dispatch, explainer, upkeep, redelivery, kept, enlisting, RuntimeMetrics(parts), courier, auditor
        )
    finally:
        keeping.cancel()
        giving_up.cancel()
        asking.cancel()
        for looking in others:
            looking.cancel()
        await dispatch.stop()
        await enlisting.close()
        if courier:  # after the last words of whatever ran
            await courier.stop()
        keeping_up.cancel()
        reaping.cancel()
        watchdog.stop()
        await asyncio.to_thread(heartbeat.stop)
        tidying.cancel()
        await asyncio.wait(
            (keeping, giving_up, asking, reaping, tidying, *others)
        )  # they must not find the store closed
        if auditor:
            await auditor.close()


def _push_scheduler(
    store: Store, feeds: TaskFeeds, session: int, push_options: PushOptions, tracer: Tracer | None
) -> PushScheduler:
    means = DeliveryDeps(
        store=store,
        feeds=feeds,
        outbound=push_options.outbound,
        encoder=push_options.encoder,
        recorder=DeliveryRecorder(store.pushes),
        retry_policy=push_options.retry_policy,
        random=push_options.random,
        clock=asyncio.get_running_loop().time,
        now=push_options.now,
        host_limiter=HostLimiter(MAX_CALLS, MAX_CALLS_PER_HOST),
        breaker=HostBreaker(),
        claim_hold=push_options.claim_hold,
        tracer=tracer,
    )
    return PushScheduler(store, session, means, push_options.ready)


def root_of(agents: Sequence[Agent]) -> str:
    """The id of the agent that says `default=True`, else of the first. Raises ValueError for none, or two defaults."""
    if not agents:
        raise ValueError("no agent to serve")
    defaults = [agent.spec.id for agent in agents if agent.spec.default]
    if len(defaults) > 1:
        raise ValueError(f"only one agent can be the default; these say so: {', '.join(defaults)}")
    return defaults[0] if defaults else agents[0].spec.id
