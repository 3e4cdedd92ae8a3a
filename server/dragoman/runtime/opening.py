"""Putting the runtime together from its ports, and taking it apart again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from dragoman.core.audit import Level
from dragoman.core.identity import OPEN, Doorway
from dragoman.core.isolation import Isolation
from dragoman.core.push import PATIENCE, Patience
from dragoman.core.quotas import Quotas
from dragoman.core.retention import Rules
from dragoman.core.usage import ANY, Budgets
from dragoman.ports import Agent, Bus, Letters, Outbound, Store
from dragoman.ports.tracing import Tracer
from dragoman.runtime.admission import Admission
from dragoman.runtime.audited import AuditedService
from dragoman.runtime.auditing import Auditor
from dragoman.runtime.call import Limits
from dragoman.runtime.canceling import Canceling
from dragoman.runtime.carrier import HOLD, Means, Turns
from dragoman.runtime.coalesce import OFF, Coalesce
from dragoman.runtime.dispatch import SLOTS, WORKER_WAIT, Dispatch
from dragoman.runtime.enlisting import Enlisting
from dragoman.runtime.explain import Explainer
from dragoman.runtime.follow import Followers
from dragoman.runtime.ledger import Ledger
from dragoman.runtime.log import Log
from dragoman.runtime.push import CALLS, CALLS_PER_HOST, Courier
from dragoman.runtime.redelivery import Redelivery
from dragoman.runtime.referring import Referring
from dragoman.runtime.resting import Rests
from dragoman.runtime.retention import Retention
from dragoman.runtime.sending import new_context_id, new_task_key
from dragoman.runtime.service import TaskService
from dragoman.runtime.sessions import LEASE, Heartbeat, Reaper
from dragoman.runtime.tidying import keep_tidy
from dragoman.runtime.tracing import Traced
from dragoman.runtime.unanswered import Unanswered
from dragoman.runtime.upkeep import Upkeep
from dragoman.runtime.vitals import Parts, Vitals
from dragoman.runtime.waits import Waits
from dragoman.runtime.watchdog import Watchdog
from dragoman.runtime.webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class Runtime:
    """What stands between the bindings and the ports."""

    service: TaskService
    dispatch: Dispatch
    explainer: Explainer
    upkeep: Upkeep
    redelivery: Redelivery
    retention: Retention
    enlisting: Enlisting
    vitals: Vitals
    courier: Courier | None
    """Who delivers push notifications; None on a server that has none."""
    auditor: Auditor | None = None
    """Who tells the audit log; None where there is none."""


@dataclass(frozen=True, slots=True)
class Auditing:
    """What the audit log is told, and for how long it keeps that: milliseconds, 0 for ever."""

    clock: Callable[[], int]
    level: Level = "all"
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Pushing:
    """What push notifications need besides the store: the way out, the words, and how long to go on trying."""

    outbound: Outbound
    letters: Letters
    patience: Patience = PATIENCE
    dice: Callable[[], float] = random.random
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    hold: float = HOLD
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
    slots: int = SLOTS,
    strict: bool = False,
    alone: bool = True,
    lease: float = LEASE,
    retention: Rules | None = None,
    coalesce: Coalesce = OFF,
    isolation: Isolation | None = None,
    doorway: Doorway = OPEN,
    pushing: Pushing | None = None,
    quotas: Quotas | None = None,
    worker_wait: float = WORKER_WAIT,
    tracer: Tracer | None = None,
    budgets: Budgets = ANY,
    vacant: bool = False,
    runs: bool = True,
    audit: Auditing | None = None,
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
    root = root or ("" if vacant else root_of(agents))
    if root not in by_id and not vacant:
        raise ValueError(f'root agent "{root}" is not served; use one of {", ".join(by_id)}')
    session = await store.open_session(lease, alone=alone)
    followers = Followers(store, bus)
    courier = _courier(store, followers, session, pushing, tracer) if pushing else None
    appends = Log(store, bus, courier.nudge if courier else None)
    specs = {name: agent.spec for name, agent in by_id.items()}
    heartbeat = Heartbeat(store, session, lease=lease)
    reaper = Reaper(store, bus, appends, session, specs, heartbeat.beat)
    await reaper.reap()
    webhooks = Webhooks(store, bus, pushing.outbound, pushing.letters) if pushing else Webhooks(store, bus, None, None)
    isolation = isolation or Isolation()
    dispatch = Dispatch(
        store,
        bus,
        appends,
        by_id,
        session,
        Referring(store, isolation),
        slots=slots,
        strict=strict,
        coalesce=coalesce,
        patience=worker_wait,
        runs=runs,
    )
    dispatch.budgets = budgets
    if tracer is not None:
        dispatch.drive = Traced(store, tracer).drive
    waits = Waits()
    canceling = Canceling(store, bus, appends, followers, dispatch, specs, waits)
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
        doorway=doorway,
    )
    upkeep = Upkeep(store, bus, followers, auditor)
    declared = {name: spec.retention for name, spec in specs.items()}
    rules = replace(retention or Rules(), declared=declared)
    kept = Retention(store, appends, upkeep, rules, auditor=auditor, audit=audit.kept if audit else 0)
    enlisting = Enlisting(store, appends, dispatch, by_id, specs, declared)
    enlisting.show(service.welcome)
    # Not a TaskGroup: it would wrap whatever the caller's block raises.
    keeping_up = asyncio.create_task(followers.keep_up(), name="followers keep up")
    reaping = asyncio.create_task(reaper.watch(), name="reaper")
    heartbeat.start()
    watchdog = Watchdog(asyncio.get_running_loop())
    tidying = asyncio.create_task(keep_tidy(store), name="the store is kept tidy")
    keeping = asyncio.create_task(kept.keep_on(), name="retention")
    giving_up = asyncio.create_task(enlisting.watch(), name="agents that stay away")
    asking = asyncio.create_task(Unanswered(appends, dispatch).watch(), name="claims that nobody answered")
    others = (
        []
        if alone
        else [
            asyncio.create_task(dispatch.keep_looking(), name="what others left waiting"),
            asyncio.create_task(canceling.keep_looking(), name="cancels that others were asked for"),
        ]
    )
    try:
        await dispatch.start()
        if courier:
            await courier.start(bus)
        explainer = Explainer(store, dispatch, followers, specs, courier.following if courier else None, rules.age)
        parts = Parts(
            store=store, bus=bus, dispatch=dispatch, followers=followers, log=appends, retention=kept,
            watchdog=watchdog, courier=courier,
        )  # fmt: skip
        redelivery = Redelivery(store, bus)
        yield Runtime(
            service, dispatch, explainer, upkeep, redelivery, kept, enlisting, Vitals(parts), courier, auditor
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


def _courier(store: Store, followers: Followers, session: int, pushing: Pushing, tracer: Tracer | None) -> Courier:
    means = Means(
        store=store,
        followers=followers,
        outbound=pushing.outbound,
        letters=pushing.letters,
        ledger=Ledger(store.pushes),
        patience=pushing.patience,
        dice=pushing.dice,
        clock=asyncio.get_running_loop().time,
        now=pushing.now,
        turn=Turns(CALLS, CALLS_PER_HOST),
        rests=Rests(),
        hold=pushing.hold,
        tracer=tracer,
    )
    return Courier(store, session, means, pushing.ready)


def root_of(agents: Sequence[Agent]) -> str:
    """The id of the agent that says `default=True`, else of the first. Raises ValueError for none, or two defaults."""
    if not agents:
        raise ValueError("no agent to serve")
    defaults = [agent.spec.id for agent in agents if agent.spec.default]
    if len(defaults) > 1:
        raise ValueError(f"only one agent can be the default; these say so: {', '.join(defaults)}")
    return defaults[0] if defaults else agents[0].spec.id
