"""Builds the runtime from its ports, and shuts it down."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from dragoman.core.access.identity import OPEN_ACCESS, AccessPolicy, Isolation
from dragoman.core.audit import AuditLevel
from dragoman.core.limits.quotas import NO_BUDGETS, Quotas, TaskBudgets
from dragoman.core.push.delivery import DEFAULT_PUSH_RETRY_POLICY, PushRetryPolicy
from dragoman.core.task.maintenance import RetentionPolicy
from dragoman.ports import Agent, Bus, OutboundHttp, RemoteAgent, Store, WebhookEncoder, is_remote
from dragoman.ports.tracing import Tracer
from dragoman.runtime.access import Access, Admission, Limits
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.lease import LOOP_TIMEOUT, Lease, LoopCheck, watch_lease
from dragoman.runtime.log import EventLog, UnsettledClaims
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.maintenance.retention import ClockWatch, Retention, StoreClock, compact_forever
from dragoman.runtime.observe.audit import Auditor
from dragoman.runtime.observe.explain import Explainer
from dragoman.runtime.observe.metrics import MetricsDeps, RuntimeMetrics
from dragoman.runtime.observe.store_health import StoreHealth
from dragoman.runtime.observe.tracing import TracedTurns
from dragoman.runtime.observe.watchdog import Watchdog
from dragoman.runtime.operations import Operations
from dragoman.runtime.operations.append_builder import AppendBuilder, new_context_id, new_task_key
from dragoman.runtime.operations.cancel import CancelOperation
from dragoman.runtime.operations.push_configs import PushConfigOperations
from dragoman.runtime.operations.read import ReadOperations, SubscribeOperation
from dragoman.runtime.operations.send import SendOperations
from dragoman.runtime.push.breaker import HostLimiter
from dragoman.runtime.push.delivery import DeliveryDeps, DeliveryRecorder
from dragoman.runtime.push.scheduler import MAX_CALLS, MAX_CALLS_PER_HOST, PushScheduler, Redelivery
from dragoman.runtime.registry import AbsentAgents, AgentRegistry, UnservedTasks
from dragoman.runtime.scheduler import DEFAULT_SLOTS, WORKER_WAIT_SECONDS, RunTurns, Scheduler, SchedulerOptions
from dragoman.runtime.sessions import LEASE_SECONDS, BlockedLoop, ClaimRecovery, Heartbeat, Reaper
from dragoman.runtime.timings import DEFAULT_TIMINGS, SYSTEM_CLOCKS, Clocks, Timings
from dragoman.runtime.turn.context import ReferenceResolver, TurnServices
from dragoman.runtime.turn.events import NO_COALESCING, Coalesce
from dragoman.runtime.turn.runner import TurnRunner
from dragoman.supervision import Background, start_task


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime as the bindings and operator commands see it."""

    store: Store
    operations: Operations
    feeds: TaskFeeds
    scheduler: Scheduler
    explainer: Explainer
    maintenance: Maintenance
    redelivery: Redelivery
    retention: Retention
    registry: AgentRegistry
    absent_agents: AbsentAgents
    metrics: RuntimeMetrics
    push_scheduler: PushScheduler | None
    """Delivers push notifications; None on a server without them."""
    store_problem: Callable[[], str]
    """Returns why the store is not usable now; empty if it is."""
    auditor: Auditor | None = None
    """Writes the audit log; None without one."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Level and retention of the audit log: milliseconds, 0 for ever."""

    clock: Callable[[], int]
    level: AuditLevel = "all"
    retention_ms: int = 0


@dataclass(frozen=True, slots=True)
class PushOptions:
    """Dependencies of push notifications besides the store: HTTP client, encoder, and retry policy."""

    outbound: OutboundHttp
    encoder: WebhookEncoder
    retry_policy: PushRetryPolicy = DEFAULT_PUSH_RETRY_POLICY
    random: Callable[[], float] = random.random
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ready: asyncio.Event | None = None
    """Set once the server listens: webhook requests contain its URL."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The adapters of a runtime."""

    store: Store
    bus: Bus
    agents: Sequence[Agent] | AgentRegistry
    """The agents, or a registry with them if some come and go."""
    push_options: PushOptions | None = None
    """None: there are no push notifications, and requests for them are rejected."""
    tracer: Tracer | None = None
    """Records spans of turns and pushes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """How a runtime behaves."""

    root: str = ""
    """The agent addressed by requests that name none; empty: the one with `default=True`, else the first."""
    allow_no_agents: bool = False
    """The root agent is then the first that registers, unless `root` names one."""
    runs_agents: bool = True
    """False: the turns of these agents are left to other processes on the store."""
    slots: int = DEFAULT_SLOTS
    strict: bool = False
    """Whether agents may make only the transitions of the strict table."""
    shows_error_texts: bool = True
    """Whether callers see what any exception of an agent says; else only what an AgentError says."""
    exclusive: bool = True
    """No other process uses this store, so open sessions belong to dead processes."""
    lease: float = LEASE_SECONDS
    """Seconds after which others may treat this session as dead unless it is renewed."""
    run_lease: Lease | None = None
    """By which this process stops its turns before that, unless `exclusive`; None: a new one."""
    loop_timeout: float = LOOP_TIMEOUT
    """Seconds without an answer of the event loop after which the session is not renewed."""
    blocked: BlockedLoop | None = None
    """Where the last process of an `exclusive` store blocked its event loop, if that ended it."""
    worker_wait: float = WORKER_WAIT_SECONDS
    """Seconds that tasks wait for absent remote agents."""
    limits: Limits = field(default_factory=Limits)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    coalesce: Coalesce = NO_COALESCING
    isolation: Isolation = field(default_factory=Isolation)
    access_policy: AccessPolicy = OPEN_ACCESS
    """Which agents are open to callers without credentials."""
    quotas: Quotas | None = None
    """Limits of callers."""
    budgets: TaskBudgets = NO_BUDGETS
    audit: AuditOptions | None = None
    """None: there is no audit log."""
    timings: Timings = field(default_factory=lambda: DEFAULT_TIMINGS)
    clocks: Clocks = field(default_factory=lambda: SYSTEM_CLOCKS)
    heartbeat: type[Heartbeat] = Heartbeat
    watchdog: type[Watchdog] = Watchdog
    """The parts with a thread of their own. A simulation has parts without."""
    run_turns: RunTurns = TurnRunner.run
    """Runs each turn, unless a tracer does."""
    new_key: Callable[[], bytes] = new_task_key
    new_context: Callable[[], str] = new_context_id
    """Creates the ids of conversations."""


@asynccontextmanager
async def open_runtime(ports: Ports, config: RuntimeConfig | None = None) -> AsyncIterator[Runtime]:
    """Opens a session on the store, ends or repeats turns that earlier sessions left open, and serves the agents.

    On exit, running turns end as FAILED, or are released if their agent has retries left. The caller holds the store's
    lock and closes store and bus. Raises ValueError for agents that cannot be served together.
    """
    config = config or RuntimeConfig()
    store, bus, timings, clocks = ports.store, ports.bus, config.timings, config.clocks
    run_lease = None if config.exclusive else config.run_lease or Lease(config.lease, clock=clocks.elapsed)
    registry = ports.agents if isinstance(ports.agents, AgentRegistry) else AgentRegistry(ports.agents, run_lease)
    agents, specs = registry.agents, registry.specs
    root = config.root or ("" if config.allow_no_agents else root_of(list(agents.values())))
    if root not in agents and not config.allow_no_agents:
        raise ValueError(f'root agent "{root}" is not served; use one of {", ".join(agents)}')
    if run_lease is not None:  # it may be older than the session
        run_lease.extend(run_lease.now(), config.lease)
    session = await store.open_session(config.lease, exclusive=config.exclusive)
    clock_watch = ClockWatch(clock=clocks.monotonic, wall=clocks.wall)
    has_jumped = partial(clock_watch.compare, "the clock of the store")
    heartbeat = config.heartbeat(
        store,
        session,
        lease=config.lease,
        interval=timings.renew_interval,
        clock=clocks.monotonic,
        run_lease=run_lease,
        has_jumped=has_jumped,
        loop_answers=LoopCheck(asyncio.get_running_loop(), config.loop_timeout).answers,
    )
    store_clock = StoreClock(store, clock_watch, session, config.lease, heartbeat.renew_in_thread)
    feeds = TaskFeeds(store, bus, timings.version_poll_interval)
    push_scheduler = (
        PushScheduler(
            store,
            session,
            _delivery_deps(ports, feeds, ports.push_options, timings),
            ports.push_options.ready,
            lease=run_lease,
            trusts_expiry=heartbeat.renew_in_thread,
            poll_interval=timings.push_poll_interval,
            stop_timeout=timings.push_stop_timeout,
        )
        if ports.push_options
        else None
    )
    claims = UnsettledClaims(timings.claim_wait)
    health = StoreHealth(max_wait=timings.append_wait, clock=clocks.monotonic)
    event_log = EventLog(
        store, bus, push_scheduler.wake if push_scheduler else None, run_lease, timings.store_retry, claims, health
    )
    reaper = Reaper(
        store,
        bus,
        event_log,
        session,
        specs,
        heartbeat.renew_in_thread,
        remote=partial(_remote_agent, agents),
        clock=clocks.monotonic,
        blocked=config.blocked,
    )
    await reaper.reap()
    services = TurnServices(
        store,
        event_log,
        ReferenceResolver(store, config.isolation),
        strict=config.strict,
        coalesce=config.coalesce,
        budgets=config.budgets,
        lease=run_lease,
        timings=timings,
        shows_error_texts=config.shows_error_texts,
        clock=clocks.monotonic,
    )
    unserved = UnservedTasks(event_log)
    scheduler = Scheduler(
        services,
        bus,
        agents,
        session,
        SchedulerOptions(config.slots, config.worker_wait, config.runs_agents, clocks.wall_ms),
        config.run_turns if ports.tracer is None else TracedTurns(store, ports.tracer).run,
        unserved.end,
    )
    audit, limits = config.audit, config.limits
    auditor = (
        Auditor(
            store.audit,
            audit.clock,
            audit.level,
            flush_interval=timings.audit_flush_interval,
            count_interval=timings.audit_count_interval,
        )
        if audit
        else None
    )
    on_action = auditor.note_call if auditor and auditor.records_tasks else None
    admission = Admission(config.quotas)
    access = Access(specs, root, config.isolation, config.access_policy)
    push_configs = PushConfigOperations(
        store,
        bus,
        ports.push_options.outbound if ports.push_options else None,
        ports.push_options.encoder if ports.push_options else None,
        on_action,
    )
    appends = AppendBuilder(store, specs, push_configs, admission, limits, config.new_key, config.new_context)
    cancel_operation = CancelOperation(store, bus, event_log, feeds, scheduler, specs, on_action, timings)
    operations = Operations(
        admission,
        access,
        SendOperations(store, event_log, feeds, scheduler, appends, admission, limits, on_action),
        ReadOperations(store),
        SubscribeOperation(store, feeds, specs, admission),
        cancel_operation,
        push_configs,
    )
    maintenance = Maintenance(store, bus, feeds, auditor)
    rules = replace(config.retention, declared=registry.retention_ages)
    retention_job = Retention(
        store,
        event_log,
        maintenance,
        rules,
        auditor=auditor,
        audit_retention_ms=audit.retention_ms if audit else 0,
        trusts_clock=store_clock.is_trusted,
    )
    registry.add_listener(access.on_agent_added)
    absent_agents = AbsentAgents(store, event_log, scheduler, unserved, timings.absence_poll_interval)
    registry.observe(absent_agents)
    # Not a TaskGroup: it would wrap exceptions of the caller's block.
    polling_versions = start_task(Background.FEEDS, feeds.poll_forever)
    reaping = start_task(Background.REAPER, partial(reaper.poll_forever, timings.renew_interval))
    heartbeat.start()
    watchdog = config.watchdog(asyncio.get_running_loop())
    compacting = start_task(
        Background.COMPACTION, partial(compact_forever, store, timings.compaction_interval, store_clock.is_trusted)
    )
    retaining = start_task(Background.RETENTION, partial(retention_job.run_forever, timings.retention_interval))
    ending_abandoned = start_task(Background.ABSENT_AGENTS, absent_agents.poll_forever)
    claim_recovery = ClaimRecovery(claims, event_log, scheduler, run_lease, poll_interval=timings.claim_poll_interval)
    recovering = start_task(Background.CLAIM_RECOVERY, claim_recovery.poll_forever)
    polls = [
        start_task(Background.SCHEDULER, scheduler.poll_forever),
        start_task(Background.STORE_PROBE, partial(health.probe_forever, store, timings.store_probe_interval)),
    ]
    if run_lease is not None:
        polls.append(start_task(Background.LEASE, partial(watch_lease, run_lease, scheduler.check_lease)))
    if run_lease is not None or reaper.left_cancels:
        polls.append(start_task(Background.CANCEL_REQUESTS, cancel_operation.poll_forever))
    try:
        await scheduler.start()
        if push_scheduler:
            await push_scheduler.start(bus)
        explainer = Explainer(
            store, scheduler, feeds, specs, push_scheduler.delivery_count if push_scheduler else None, rules.age
        )
        deps = MetricsDeps(
            store=store, bus=bus, scheduler=scheduler, feeds=feeds, event_log=event_log, retention=retention_job,
            watchdog=watchdog, push_scheduler=push_scheduler,
        )  # fmt: skip
        redelivery = Redelivery(store, bus)
        yield Runtime(
            store,
            operations,
            feeds,
            scheduler,
            explainer,
            maintenance,
            redelivery,
            retention_job,
            registry,
            absent_agents,
            RuntimeMetrics(deps),
            push_scheduler,
            lambda: heartbeat.problem or health.problem,
            auditor,
        )
    finally:
        retaining.cancel()
        ending_abandoned.cancel()
        recovering.cancel()
        for poll in polls:
            poll.cancel()
        await scheduler.stop()
        await claim_recovery.close(timings.stop_timeout)
        await unserved.close()
        if push_scheduler:  # after the last events of running turns
            await push_scheduler.stop()
        polling_versions.cancel()
        reaping.cancel()
        watchdog.stop()
        await heartbeat.close()
        compacting.cancel()
        # They must not use a closed store.
        await asyncio.wait((polling_versions, retaining, ending_abandoned, recovering, reaping, compacting, *polls))
        if auditor:
            await auditor.close()


def _delivery_deps(ports: Ports, feeds: TaskFeeds, push_options: PushOptions, timings: Timings) -> DeliveryDeps:
    return DeliveryDeps(
        store=ports.store,
        feeds=feeds,
        outbound=push_options.outbound,
        encoder=push_options.encoder,
        recorder=DeliveryRecorder(ports.store.pushes, timings.push_record_timeout),
        retry_policy=push_options.retry_policy,
        random=push_options.random,
        clock=asyncio.get_running_loop().time,
        now=push_options.now,
        host_limiter=HostLimiter(MAX_CALLS, MAX_CALLS_PER_HOST),
        claim_hold=timings.push_claim_hold,
        tracer=ports.tracer,
    )


def _remote_agent(agents: Mapping[str, Agent], agent: str) -> RemoteAgent | None:
    return found if is_remote(found := agents.get(agent)) else None


def root_of(agents: Sequence[Agent]) -> str:
    """The id of the agent with `default=True`, else of the first. Raises ValueError for none, or two defaults."""
    if not agents:
        raise ValueError("no agent to serve")
    defaults = [agent.spec.id for agent in agents if agent.spec.default]
    if len(defaults) > 1:
        raise ValueError(f"only one agent can be the default, not {', '.join(defaults)}; set default=True on one")
    return defaults[0] if defaults else agents[0].spec.id
