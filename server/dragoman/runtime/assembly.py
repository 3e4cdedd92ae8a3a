"""Builds the runtime from its ports, and shuts it down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from dragoman.core import trace
from dragoman.core.access.identity import OPEN_ACCESS, AccessPolicy, Identity
from dragoman.core.audit import AuditLevel
from dragoman.core.errors import InvalidParams
from dragoman.core.limits.quotas import Quotas
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import RetentionPolicy
from dragoman.ids import IDS
from dragoman.ports import Agent, Bus, Store
from dragoman.ports.tracing import Tracer
from dragoman.runtime.access import Access, Admission, Call, Limits
from dragoman.runtime.cancel import CancelOperation
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.lease import LOOP_TIMEOUT, Lease, LoopCheck, watch_lease
from dragoman.runtime.log import EventLog, StoreHealth, UnsettledClaims
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.maintenance.retention import ClockWatch, Retention, StoreClock
from dragoman.runtime.observe.audit import Auditor
from dragoman.runtime.observe.explain import Explainer
from dragoman.runtime.observe.metrics import RuntimeMetrics
from dragoman.runtime.observe.tracing import TracedTurns
from dragoman.runtime.observe.watchdog import Watchdog
from dragoman.runtime.push.delivery import DeliveryDeps, DeliveryRecorder, PushOptions
from dragoman.runtime.push.scheduler import PushScheduler
from dragoman.runtime.push_configs import PushConfigOperations
from dragoman.runtime.read import ReadOperations
from dragoman.runtime.registry import AbsentAgents, AgentRegistry
from dragoman.runtime.scheduler import RunTurns, Scheduler
from dragoman.runtime.send import AppendBuilder, SendOperations, new_task_key
from dragoman.runtime.sessions import LEASE_SECONDS, BlockedLoop, ClaimRecovery, Heartbeat, Reaper
from dragoman.runtime.turn.context import TurnOptions, TurnServices
from dragoman.runtime.turn.runner import TurnRunner
from dragoman.supervision import Background, Component, Polling, polling, running
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class Operations:
    """The A2A operations, the same for every binding (1.0 §3.1). A call takes `admission`, `access`, then one of them.

    Requests are `lf.a2a.v1` messages, responses are serialized ones: the 1.0 gRPC binding passes the bytes on
    untouched, every other dialect decodes them. All operations raise subclasses of core.errors.A2AError.
    """

    admission: Admission
    access: Access
    send: SendOperations
    read: ReadOperations
    cancel: CancelOperation
    push_configs: PushConfigOperations

    async def call_of_turn(self, record: TaskRecord, principal: str, request: wk.TaskCall) -> wk.TaskCallResult:
        """Makes a call of the agent that runs a task, as the principal that sent the message of its turn."""
        identity = Identity(principal)
        call = Call(replace(self.access.creator(record), identity=identity), dialect=record.dialect, names_tasks=True)
        self.admission.check_rate(identity)
        match request.WhichOneof("call"):
            case "get":
                task = pb.Task.FromString(await self.read.get_task(call, request.get))
            case "cancel":
                task = pb.Task.FromString(await self.cancel.cancel_task(call, request.cancel))
            case "send" if request.send.message.task_id:
                request.send.configuration.return_immediately = True
                request.send.metadata.update(trace.delegation(record.agent, record.id))
                task = pb.SendMessageResponse.FromString(await self.send.send_message(call, request.send)).task
            case _:
                raise InvalidParams("task_call: set one of get, cancel, and send with a message.task_id")
        return wk.TaskCallResult(task=task)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime as the bindings and operator commands see it."""

    store: Store
    operations: Operations
    feeds: TaskFeeds
    scheduler: Scheduler
    explainer: Explainer
    maintenance: Maintenance
    retention: Retention
    registry: AgentRegistry
    absent_agents: AbsentAgents
    metrics: RuntimeMetrics
    push_scheduler: PushScheduler | None  # delivers push notifications; None on a server without them
    store_problem: Callable[[], str]  # returns why the store is not usable now; empty if it is
    auditor: Auditor | None = None  # writes the audit log; None without one


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Level and retention of the audit log: milliseconds, 0 for ever."""

    clock: Callable[[], int]
    level: AuditLevel = "all"
    retention_ms: int = 0


@dataclass(frozen=True, slots=True)
class Ports:
    """The adapters of a runtime."""

    store: Store
    bus: Bus
    agents: Sequence[Agent] | AgentRegistry  # the agents, or a registry with them if some come and go
    push_options: PushOptions | None = None  # none: there are no push notifications, and requests for them are rejected
    tracer: Tracer | None = None  # records spans of turns and pushes


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig(TurnOptions):
    """How a runtime behaves."""

    root: str = ""  # the agent addressed by requests that name none; empty: the one with `default=True`, else the first
    allow_no_agents: bool = False  # the root agent is then the first that registers, unless `root` names one
    exclusive: bool = True  # no other process uses this store, so open sessions belong to dead processes
    lease: float = LEASE_SECONDS  # seconds after which others may treat this session as dead unless it is renewed
    run_lease: Lease | None = None
    """By which this process stops its turns before that, unless `exclusive`; None: a new one."""
    loop_timeout: float = LOOP_TIMEOUT
    """Seconds without an answer of the event loop after which the session is not renewed."""
    blocked: BlockedLoop | None = None
    """Where the last process of an `exclusive` store blocked its event loop, if that ended it."""
    limits: Limits = field(default_factory=Limits)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    access_policy: AccessPolicy = OPEN_ACCESS  # which agents are open to callers without credentials
    quotas: Quotas | None = None  # limits of callers
    audit: AuditOptions | None = None  # None: there is no audit log
    heartbeat: type[Heartbeat] = Heartbeat
    watchdog: type[Watchdog] = Watchdog
    """The parts with a thread of their own. A simulation has parts without."""
    run_turns: RunTurns = TurnRunner.run  # runs each turn, unless a tracer does
    new_key: Callable[[], bytes] = new_task_key
    new_context: Callable[[], str] = IDS.uuid  # creates the ids of conversations


class _Session:
    """The session of this process on its store, and what keeps it alive."""

    def __init__(self, ports: Ports, config: RuntimeConfig) -> None:
        self._config = config
        self.store = ports.store
        self.run_lease: Lease | None = None
        if not config.exclusive:
            self.run_lease = config.run_lease or Lease(config.lease, clock=config.clocks.elapsed)
        given = ports.agents
        self.registry = given if isinstance(given, AgentRegistry) else AgentRegistry(given, self.run_lease)
        agents = self.registry.agents
        self.root = config.root or ("" if config.allow_no_agents else root_of(list(agents.values())))
        """The agent addressed by requests that name none."""
        if self.root not in agents and not config.allow_no_agents:
            raise ValueError(f'root agent "{self.root}" is not served; use one of {", ".join(agents)}')

    async def open(self) -> None:
        """Opens the session. Nothing renews it before `heartbeat.start`."""
        config, clocks = self._config, self._config.clocks
        if self.run_lease is not None:  # it may be older than the session
            self.run_lease.extend(self.run_lease.now(), config.lease)
        self.number = await self.store.open_session(config.lease, exclusive=config.exclusive)
        clock_watch = ClockWatch(clock=clocks.monotonic, wall=clocks.wall)
        self.heartbeat = config.heartbeat(
            self.store,
            self.number,
            lease=config.lease,
            interval=config.timings.renew_interval,
            clock=clocks.monotonic,
            run_lease=self.run_lease,
            has_jumped=partial(clock_watch.compare, "the clock of the store"),
            loop_answers=LoopCheck(asyncio.get_running_loop(), config.loop_timeout).answers,
        )
        renew = self.heartbeat.renew_in_thread
        self.store_clock = StoreClock(self.store, clock_watch, self.number, config.lease, renew)


class _Turns:
    """The parts that run turns, and follow their events."""

    operations: Operations  # set before a turn begins, which may call them

    def __init__(self, ports: Ports, config: RuntimeConfig, session: _Session) -> None:
        store, bus, timings, clock = ports.store, ports.bus, config.timings, config.clocks.monotonic
        run_lease = session.run_lease
        agents, renew = session.registry.agents, session.heartbeat.renew_in_thread
        self.feeds = TaskFeeds(store, bus)
        self.push_scheduler: PushScheduler | None = None
        if push := ports.push_options:
            recorder = DeliveryRecorder(store.pushes, timings.push_record_timeout)
            deps = DeliveryDeps(
                store, self.feeds, push, recorder, asyncio.get_running_loop().time, timings, ports.tracer
            )
            self.push_scheduler = PushScheduler(session.number, deps, renew, run_lease)
        claims = UnsettledClaims(timings.claim_wait)
        self.health = StoreHealth(max_wait=timings.append_wait, clock=clock)
        wake_pushes = self.push_scheduler.wake if self.push_scheduler else None
        log = self.event_log = EventLog(store, bus, wake_pushes, run_lease, timings.store_retry, claims, self.health)
        self.reaper = Reaper(store, bus, log, session.number, agents, renew, clock, config.blocked)
        call = lambda *of_turn: self.operations.call_of_turn(*of_turn)  # noqa: E731, PLW0108  # they come later
        services = TurnServices(store, log, config, call, run_lease)
        run_turns = config.run_turns if ports.tracer is None else TracedTurns(store, ports.tracer).run
        self.scheduler = Scheduler(services, bus, agents, session.number, run_turns)
        poll = timings.claim_poll_interval
        self.claim_recovery = ClaimRecovery(claims, log, self.scheduler, run_lease, poll_interval=poll)
        self.absent_agents = AbsentAgents(store, log, self.scheduler)
        self.scheduler.on_unserved = self.absent_agents.end_unserved


@asynccontextmanager
async def open_runtime(ports: Ports, config: RuntimeConfig | None = None) -> AsyncIterator[Runtime]:
    """Opens a session on the store, ends or repeats turns that earlier sessions left open, and serves the agents.

    On exit, running turns end as FAILED, or are released if their agent has retries left. The caller holds the store's
    lock and closes store and bus. Raises ValueError for agents that cannot be served together.
    """
    config = config or RuntimeConfig()
    store, bus, audit, timings = ports.store, ports.bus, config.audit, config.timings
    session = _Session(ports, config)
    await session.open()
    turns = _Turns(ports, config, session)
    await turns.reaper.reap()
    auditor = None
    if audit:
        waits = timings.audit_flush_interval, timings.audit_count_interval
        auditor = Auditor(store.audit, audit.clock, audit.level, *waits)
    on_action = auditor.note_call if auditor and auditor.level == "all" else None
    maintenance = Maintenance(store, bus, turns.feeds, auditor)
    rules = replace(config.retention, declared=session.registry.retention_ages)
    audit_age = audit.retention_ms if audit else 0
    trusts_clock = session.store_clock.is_trusted
    retention = Retention(store, turns.event_log, maintenance, rules, auditor, audit_age, trusts_clock)
    session.registry.observe(turns.absent_agents)
    watchdog = config.watchdog(asyncio.get_running_loop())
    scheduler, feeds, event_log, push_scheduler = turns.scheduler, turns.feeds, turns.event_log, turns.push_scheduler
    metrics = RuntimeMetrics(
        store=store, bus=bus, scheduler=scheduler, feeds=feeds, event_log=event_log, retention=retention,
        watchdog=watchdog, push_scheduler=push_scheduler,
    )  # fmt: skip
    specs, limits, admission = session.registry.specs, config.limits, Admission(config.quotas, config.clocks.monotonic)
    access = Access(specs, session.root, config.isolation, config.access_policy)
    session.registry.add_listener(access.on_agent_added)
    push_configs = PushConfigOperations(store, bus, ports.push_options, on_action)
    appends = AppendBuilder(store, specs, push_configs, admission, limits, config.new_key, config.new_context)
    operations = Operations(
        admission,
        access,
        SendOperations(store, event_log, feeds, scheduler, appends, admission, limits, on_action),
        ReadOperations(store, feeds, specs, admission),
        CancelOperation(store, bus, event_log, feeds, scheduler, specs, on_action, timings, config.cancel_wait),
        push_configs,
    )
    turns.operations = operations
    count_deliveries = push_scheduler.delivery_count if push_scheduler else lambda _: 0
    runtime = Runtime(
        store,
        operations,
        feeds,
        scheduler,
        Explainer(store, scheduler, feeds, specs, count_deliveries, rules.age),
        maintenance,
        retention,
        session.registry,
        turns.absent_agents,
        metrics,
        push_scheduler,
        lambda: session.heartbeat.problem or turns.health.problem,
        auditor,
    )
    async with running(_components(ports, config, session, turns, runtime)):
        yield runtime


def _components(
    ports: Ports, config: RuntimeConfig, session: _Session, turns: _Turns, runtime: Runtime
) -> Iterator[Component]:
    """Yields the components in the order of their start; they stop in reverse order.

    Turns stop while everything that they write with still runs, and pushes go on until the last event of a turn.
    """
    store, timings, reaper, scheduler = ports.store, config.timings, turns.reaper, turns.scheduler
    retention, run_lease = runtime.retention, session.run_lease
    if runtime.auditor:
        yield Component(stop=runtime.auditor.close)
    yield polling(Background.COMPACTION, timings.compaction_interval, retention.compact, at_once=True)
    yield Component(session.heartbeat.start, session.heartbeat.close)
    yield Component(stop=runtime.metrics.watchdog.stop)
    yield polling(Background.RETENTION, timings.retention_interval, retention.run_if_trusted, at_once=True)
    if stored := runtime.operations.admission.stored_bytes:
        count = partial(stored.count, store.erasures.measure)
        yield polling(Background.STORED_BYTES, timings.retention_interval, count)
    yield polling(Background.REAPER, timings.renew_interval, reaper.reap)
    yield polling(Background.FEEDS, timings.version_poll_interval, turns.feeds.poll)
    if turns.push_scheduler:
        yield Component(partial(turns.push_scheduler.start, ports.bus), turns.push_scheduler.stop)
    yield Component(stop=turns.absent_agents.close)
    yield Component(stop=partial(turns.claim_recovery.close, timings.stop_timeout))
    yield Component(scheduler.start, scheduler.stop)
    yield polling(Background.SCHEDULER, timings.backlog_poll_interval, scheduler.poll)
    yield Polling(Background.STORE_PROBE, partial(turns.health.probe_forever, store, timings.store_probe_interval))
    if run_lease is not None:
        yield Polling(Background.LEASE, partial(watch_lease, run_lease, scheduler.check_lease))
    if run_lease is not None or reaper.left_cancels:
        yield polling(Background.CANCEL_REQUESTS, timings.cancel_poll_interval, runtime.operations.cancel.poll)
    yield polling(
        Background.UNCONFIRMED_CANCELS, timings.unconfirmed_cancel_interval, runtime.operations.cancel.end_unconfirmed
    )
    yield Polling(Background.CLAIM_RECOVERY, turns.claim_recovery.poll_forever)
    yield polling(Background.ABSENT_AGENTS, timings.absence_poll_interval, turns.absent_agents.end_abandoned_tasks)


def root_of(agents: Sequence[Agent]) -> str:
    """The id of the agent with `default=True`, else of the first. Raises ValueError for none, or two defaults."""
    if not agents:
        raise ValueError("no agent to serve")
    defaults = [agent.spec.id for agent in agents if agent.spec.default]
    if len(defaults) > 1:
        raise ValueError(f"only one agent can be the default, not {', '.join(defaults)}; set default=True on one")
    return defaults[0] if defaults else agents[0].spec.id
