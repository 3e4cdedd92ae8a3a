"""Several processes that deliver the same webhooks: order holds, and only the event in flight is repeated.

Time is an argument: the store's clock and each process's own pass together, and sessions are renewed by the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.runtime.push.push_harness import HOOK, RETRY_POLICY
from tests.runtime.push.receivers import OK, Receivers, Stamp

from dragoman.bindings.event_encoders import DialectWebhookEncoder
from dragoman.bus.local import LocalBus
from dragoman.core.errors import Unavailable
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import DeliveryReport, PushRecord
from dragoman.core.task.log import TaskRef
from dragoman.extensions.postgres import store as postgres
from dragoman.ports import OutboundResponse, Store
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.lease import Lease
from dragoman.runtime.push.delivery import DeliveryDeps, DeliveryRecorder, PushOptions
from dragoman.runtime.push.scheduler import PushScheduler
from dragoman.runtime.timings import Timings
from dragoman.security.secret_box import AesGcmSecretBox
from dragoman.stores import sqlite
from dragoman.testing.fixtures import Clock, created, follow_up, new_ref

pytestmark = pytest.mark.long

LEASE = 10.0
EVENTS = 3


class Network:
    """The connections of one process to all receivers."""

    def __init__(self, receivers: Receivers) -> None:
        self._receivers = receivers
        self.connecting = 0
        """Requests that have waited, or wait, for their connection."""
        self.is_up = asyncio.Event()
        self.is_up.set()

    def check_url(self, url: str) -> None:
        self._receivers.check_url(url)

    async def get(self, url: str, headers: Mapping[str, str] = {}) -> OutboundResponse:
        return await self._receivers.get(url, headers)

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, may_send: Callable[[], bool] | None = None
    ) -> OutboundResponse:
        self.connecting += 1
        await self.is_up.wait()
        return await self._receivers.post(url, body, headers, may_send=may_send)

    async def close(self) -> None:
        """Holds nothing to close."""


class Process:
    """One process with a push scheduler: polled, and its session renewed, by the test."""

    def __init__(self, store: Store, session: int, receivers: Receivers) -> None:
        self.store = store
        self.network = Network(receivers)
        self.time = 0.0
        self.trusts_expiry = True
        self.lease = Lease(LEASE, clock=lambda: self.time)
        self._session = session
        encoder = DialectWebhookEncoder(Stamp(), AesGcmSecretBox())
        deps = DeliveryDeps(
            store,
            TaskFeeds(store, LocalBus()),
            PushOptions(self.network, encoder, RETRY_POLICY, random=lambda: 1.0),
            DeliveryRecorder(store.pushes),
            clock=lambda: self.time,
            timings=Timings(push_claim_hold=0.01),
        )
        self.scheduler = PushScheduler(session, deps, self._trusts_expiry, self.lease)

    async def _trusts_expiry(self) -> bool:
        return self.trusts_expiry

    async def renew(self) -> None:
        began = self.lease.now()
        await asyncio.to_thread(self.store.renew_session, self._session, LEASE)
        self.lease.extend(began, LEASE)

    async def poll(self) -> None:
        await self.scheduler.poll()

    async def idle(self) -> None:
        """Returns when it delivers nothing."""
        await eventually(lambda: self.scheduler.held == 0)

    async def deliver(self) -> None:
        """Delivers what is due."""
        await self.poll()
        await self.idle()


class Two:
    """Two processes on one store, a task with EVENTS events, and its receiver."""

    def __init__(self, first: Process, second: Process, clock: Clock, receivers: Receivers, task: TaskRef) -> None:
        self.first, self.second = first, second
        self.clock = clock
        self.receivers = receivers
        self.task = task

    def pass_(self, seconds: float) -> None:
        self.clock.now += round(seconds * 1000)
        self.first.time += seconds
        self.second.time += seconds

    @property
    def got(self) -> list[int]:
        """The events that the receiver has taken, in order."""
        return self.receivers.taken(HOOK)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A SQLite file, or the URL of a PostgreSQL database."""
    return tmp_path / "tasks.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def two(address: Path | str) -> AsyncIterator[Two]:
    clock, receivers = Clock(), Receivers()

    async def opened() -> Store:
        if isinstance(address, str):
            return await postgres.open_store(address, clock=clock)
        return sqlite.open_store(address, clock=clock)

    async with AsyncExitStack() as stack:
        processes = []
        for _ in range(2):
            store = await opened()
            stack.push_async_callback(store.close)
            processes.append(Process(store, await store.open_session(LEASE), receivers))
        change = replace(created(new_ref()), push_config=PushConfig(id="hook", url=HOOK, dialect="1.0"))
        await processes[0].store.append(change)
        for number in range(2, EVENTS + 1):
            await processes[0].store.append(follow_up(change.task, f"message {number}"))
        yield Two(processes[0], processes[1], clock, receivers, change.task)
        for process in processes:
            process.network.is_up.set()
            await process.idle()


def held(receivers: Receivers, *before: OutboundResponse) -> asyncio.Event:
    """Has the receiver hold the first request after `before`, until the event is set."""
    let_go = asyncio.Event()

    async def slow() -> OutboundResponse:
        await let_go.wait()
        return OK

    receivers.answer(HOOK, *before, slow)
    return let_go


@pytest.mark.parametrize("renewed", [False, True])
async def test_a_process_that_lost_its_lease_while_it_connected_sends_nothing(two: Two, renewed: bool) -> None:
    """A renewal afterwards revives the session, but not its claims."""
    two.first.network.is_up.clear()
    await two.first.poll()
    await eventually(lambda: two.first.network.connecting == 1)
    two.pass_(LEASE + 1)
    await two.second.renew()
    await two.second.deliver()
    assert two.got == [1, 2, 3]
    if renewed:
        await two.first.renew()
    two.first.network.is_up.set()
    await two.first.idle()
    assert two.got == [1, 2, 3]


async def test_a_request_ends_with_the_lease_before_another_process_may_send(two: Two) -> None:
    let_go = held(two.receivers)
    await two.first.poll()
    await eventually(lambda: two.receivers.calls == 1)
    two.pass_(LEASE - 1)  # the lease has ended by its own clock, the session has not by the store's
    await two.second.renew()
    two.first.scheduler.end_lapsed_calls()
    await eventually(lambda: two.receivers.calls == 0)
    two.pass_(2)
    await two.second.deliver()
    let_go.set()
    assert (two.got, two.receivers.most) == ([1, 2, 3], 1)


async def test_a_request_is_not_ended_while_the_lease_is_renewed(two: Two) -> None:
    let_go = held(two.receivers)
    await two.first.poll()
    await eventually(lambda: two.receivers.calls == 1)
    for _ in range(10):
        two.pass_(2)
        await two.first.renew()
        await two.second.renew()
        two.first.scheduler.end_lapsed_calls()
        await two.second.deliver()
    assert two.receivers.calls == 1
    let_go.set()
    await two.first.idle()
    assert (two.got, two.receivers.most) == ([1, 2, 3], 1)


async def test_after_an_outage_the_holder_records_what_was_taken_before_others_claim(two: Two) -> None:
    """The first event is taken, and the store stands still before it is recorded."""
    away = Outage(two.first.store)
    await two.first.poll()
    await eventually(lambda: away.refused > 0)
    assert two.got == [1], "only the event in flight is sent while the store does not answer"
    two.pass_(30)
    two.second.trusts_expiry = False  # as its own renewal was late
    await two.second.renew()
    await two.second.deliver()
    assert two.got == [1]
    away.over = True
    await two.first.idle()
    assert two.got == [1], "the lease has ended meanwhile"
    await two.second.deliver()
    assert two.got == [1, 2, 3]


async def test_an_outage_repeats_only_the_event_in_flight_when_its_holder_does_not_return(two: Two) -> None:
    away = Outage(two.first.store)
    await two.first.poll()
    await eventually(lambda: away.refused > 0)
    two.pass_(30)
    await two.second.renew()
    await two.second.deliver()
    assert two.got == [1, 1, 2, 3]
    away.over = True
    await two.first.idle()
    assert two.got == [1, 1, 2, 3]
    one, again, *_ = two.receivers.at(HOOK)
    assert (one.body, one.headers["Dragoman-Event"]) == (again.body, again.headers["Dragoman-Event"])


async def test_a_report_whose_commit_is_unknown_repeats_nothing(two: Two) -> None:
    away = Outage(two.first.store, commits=True)
    await two.first.poll()
    await eventually(lambda: away.refused > 0)
    away.over = True
    await two.first.idle()
    assert two.got == [1, 2, 3]


async def test_a_process_without_a_lease_claims_nothing_until_it_has_renewed(two: Two) -> None:
    two.pass_(LEASE - 1)
    await two.first.deliver()
    assert two.got == []
    await two.first.renew()
    await two.first.deliver()
    assert two.got == [1, 2, 3]


class Outage:
    """The reports of a store are refused, and perhaps committed all the same, until it is over."""

    def __init__(self, store: Any, *, commits: bool = False) -> None:
        self.over = False
        self.refused = 0
        self._commits = commits
        self._apply: Callable[[Sequence[DeliveryReport]], Awaitable[list[PushRecord | None]]] = (
            store.pushes.apply_reports
        )
        store.pushes.apply_reports = self._refuse

    async def _refuse(self, reports: Sequence[DeliveryReport]) -> list[PushRecord | None]:
        if self.over:
            return await self._apply(reports)
        if self._commits:
            await self._apply(reports)
        self.refused += 1
        error = Unavailable("the store does not answer")
        error.outcome_unknown = True
        raise error
