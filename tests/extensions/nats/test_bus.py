"""The bus contract on NATS: in one process, and between two."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.extensions.nats.nats_harness import EPOCHS, ReceivedEvents, open_bus
from tests.nats import PASSWORD, WHO, NatsServer

from dragoman.core.task.log import Event, TaskRef
from dragoman.extensions.nats import bus as nats_bus
from dragoman.extensions.nats.bus import NatsBus
from dragoman.ports import Job, RegistryChange, TaskSignal, Unsubscribe
from dragoman.ports.extension import CHECK_EPOCH
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.contracts.bus import BusContract, event
from dragoman.testing.fixtures import AGENT, new_ref

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("patient_bus")]


class TwoProcesses:
    """Two processes' buses as one: it publishes on the first and subscribes on the second."""

    def __init__(self, says: NatsBus, hears: NatsBus) -> None:
        self.says = says
        self.hears = hears

    @property
    def problem(self) -> str:
        return self.says.problem or self.hears.problem

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        self.says.publish(task, events)

    async def subscribe(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Unsubscribe:
        return await self.hears.subscribe(task, deliver)

    def publish_job(self, job: Job) -> None:
        self.says.publish_job(job)

    async def subscribe_jobs(self, agents: Collection[str], handle: Callable[[Job], None]) -> Unsubscribe:
        return await self.hears.subscribe_jobs(agents, handle)

    def publish_signal(self, task: TaskRef, signal: TaskSignal) -> None:
        self.says.publish_signal(task, signal)

    async def subscribe_signals(self, handle: Callable[[TaskRef, TaskSignal], None]) -> Unsubscribe:
        return await self.hears.subscribe_signals(handle)

    def publish_change(self, change: RegistryChange) -> None:
        self.says.publish_change(change)

    async def subscribe_changes(self, handle: Callable[[RegistryChange], None]) -> Unsubscribe:
        return await self.hears.subscribe_changes(handle)

    async def flush(self) -> None:
        await self.says.flush()
        await self.hears.flush()

    async def close(self) -> None:
        await self.says.close()
        await self.hears.close()


class OverNats(BusContract):
    @pytest.fixture(autouse=True)
    def _kept(self, bus: NatsBus | TwoProcesses) -> None:
        self._bus = bus

    async def wait_delivered(self) -> None:
        await self._bus.flush()
        await super().wait_delivered()

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = open_store(tmp_path / "tasks.db")
        yield store
        await store.close()


class TestOneProcess(OverNats):
    @pytest.fixture
    async def bus(self, nats: NatsServer) -> AsyncIterator[NatsBus]:
        async with open_bus(nats.url(WHO), next(EPOCHS)) as bus:
            yield bus


class TestTwoProcesses(OverNats):
    @pytest.fixture
    async def bus(self, nats: NatsServer) -> AsyncIterator[TwoProcesses]:
        epoch = next(EPOCHS)
        async with open_bus(nats.url(WHO), epoch) as says, open_bus(nats.url(WHO), epoch) as hears:
            yield TwoProcesses(says, hears)


class TestWithJetStream(TestTwoProcesses):
    """The same where NATS can keep streams; nothing of ours goes into one."""

    @pytest.fixture
    def nats(self, nats_with_streams: NatsServer) -> NatsServer:
        return nats_with_streams


# Outages of NATS ----------------------------------------------------------------------------------------------------


async def test_a_bus_without_nats_still_serves_its_own_process(own_nats: NatsServer) -> None:
    own_nats.stop()
    ref, received_events = new_ref(), ReceivedEvents()
    async with open_bus(own_nats.url(WHO), next(EPOCHS)) as bus:
        assert bus.problem == "not reachable"
        await received_events.listen(bus, ref)
        bus.publish(ref, [event(1)])
        bus.publish_job(Job(AGENT, ref))
        bus.publish_signal(ref, TaskSignal.CANCEL)
        await asyncio.sleep(0)
        assert (len(received_events.events), len(received_events.jobs), received_events.signals) == (
            1,
            1,
            [(ref, TaskSignal.CANCEL)],
        )


async def test_subscriptions_resume_when_nats_comes_back(
    own_nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.bus")
    ref, later, received_events, epoch = new_ref(), new_ref(), ReceivedEvents(), next(EPOCHS)
    async with open_bus(own_nats.url(WHO), epoch) as one, open_bus(own_nats.url(WHO), epoch) as other:
        await received_events.listen(other, ref)
        own_nats.stop()
        await eventually(lambda: one.problem and other.problem)
        await received_events.listen(other, later)
        own_nats.start()
        await eventually(lambda: not (one.problem or other.problem))
        await other.flush()
        for task in (ref, later):
            one.publish(task, [event(7)])
        await one.flush()
        await eventually(lambda: len(received_events.events) == 2)
    lines = [record.getMessage().partition(" (")[0] for record in caplog.records]
    assert sorted(" ".join(word for word in line.split() if "://" not in word) for line in lines) == [
        *["connected to the bus"] * 2,
        *["reconnected to the bus"] * 2,
        *["the bus is not reachable"] * 2,
    ]
    assert PASSWORD not in caplog.text


async def test_a_signal_sent_during_an_outage_arrives_afterwards(own_nats: NatsServer) -> None:
    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(EPOCHS)
    async with open_bus(own_nats.url(WHO), epoch) as one, open_bus(own_nats.url(WHO), epoch) as other:
        await received_events.listen(other, ref)
        own_nats.stop()
        await eventually(lambda: one.problem and other.problem)
        one.publish_signal(ref, TaskSignal.CANCEL)
        own_nats.start()
        await eventually(lambda: received_events.signals)
        assert received_events.signals[0] == (ref, TaskSignal.CANCEL)


async def test_a_server_that_connects_receives_recent_signals(nats: NatsServer) -> None:
    """The other server was not connected when the signal was sent."""
    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(EPOCHS)
    async with open_bus(nats.url(WHO), epoch) as one:
        one.publish_signal(ref, TaskSignal.CANCEL)
        await one.flush()
        async with open_bus(nats.url(WHO), epoch) as other:
            await other.subscribe_signals(lambda task, signal: received_events.signals.append((task, signal)))
            other._on_connected()  # as after a reconnect
            await eventually(lambda: received_events.signals)


async def test_signals_are_retained_for_a_limited_time(own_nats: NatsServer) -> None:
    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(EPOCHS)
    async with open_bus(own_nats.url(WHO), epoch) as one, open_bus(own_nats.url(WHO), epoch) as other:
        await received_events.listen(other, ref)
        now = one._clock()
        one._clock = lambda: now
        own_nats.stop()
        await eventually(lambda: one.problem and other.problem)
        one.publish_signal(ref, TaskSignal.PUSH_CONFIGS)  # the outage of NATS is too long for this one
        now += nats_bus.UNSENT_SIGNAL_TTL - 1
        one.publish_signal(ref, TaskSignal.CANCEL)  # the rest of the outage is short enough for this one
        now += 2
        own_nats.start()
        await eventually(lambda: not (one.problem or other.problem))
        await eventually(lambda: TaskSignal.CANCEL in [signal for _, signal in received_events.signals])
        await one.flush()
        await other.flush()
        now += nats_bus.SENT_SIGNAL_TTL + 1
        received_events.signals.clear()
        one.publish_signal(ref, TaskSignal.MESSAGE)
        one._resend_signals()
        await one.flush()
        await eventually(lambda: len(received_events.signals) == 2)
        assert received_events.signals == [(ref, TaskSignal.MESSAGE)] * 2


async def test_a_failing_subscriber_is_logged_and_gets_the_next_event(
    nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    ref, epoch, numbers = new_ref(), next(EPOCHS), list[int]()

    def breaks(events: Sequence[Event]) -> None:
        numbers.append(events[0].sequence)
        raise RuntimeError("broken")

    async with open_bus(nats.url(WHO), epoch) as one, open_bus(nats.url(WHO), epoch) as other:
        await other.subscribe(ref, breaks)
        for number in (1, 2):
            one.publish(ref, [event(number)])
        await eventually(lambda: numbers == [1, 2])
        assert other.problem == ""
    assert caplog.text.count("RuntimeError: broken") == 2


# Two clusters on one NATS -----------------------------------------------------------------------------------------


async def test_a_check_of_the_bus_is_noticed_by_nobody_and_notices_no_store(
    nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bus(nats.url(WHO), next(EPOCHS)) as one, open_bus(nats.url(WHO), CHECK_EPOCH) as check:
        one._send_heartbeat(fresh=True)
        check._send_heartbeat(fresh=True)
        for bus in (one, check, one, check):  # sent, then received
            await bus.flush()
        assert (check.problem, one.problem) == ("", "")
    assert "another store" not in caplog.text


async def test_two_stores_on_one_prefix_are_isolated_and_report_the_conflict(
    nats: NatsServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "dragoman.bus")
    first, second, ref, received_events = next(EPOCHS), next(EPOCHS), new_ref(), ReceivedEvents()
    async with open_bus(nats.url(WHO), first) as one:
        async with open_bus(nats.url(WHO), second) as other:
            await eventually(lambda: one.problem and other.problem)
            assert one.problem == other.problem == "servers of another store use the same prefix"
            await received_events.listen(other, ref)
            one.publish(ref, [event(1)])
            one.publish_job(Job(AGENT, ref))
            one.publish_signal(ref, TaskSignal.CANCEL)
            await one.flush()
            await other.flush()
            assert (received_events.events, received_events.jobs, received_events.signals) == ([], [], [])
        texts = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert sorted((f"epoch {first}, ours is {second}" in line, "--bus-prefix" in line) for line in texts) == [
            (False, True),
            (True, True),
        ]
        now = one._clock()
        one._clock = lambda: now + nats_bus.BUS_HEARTBEAT_INTERVAL * nats_bus.MAX_MISSED_HEARTBEATS + 1
        one._expire_foreign_servers()
        assert one.problem == ""
    assert "no other store uses the prefix" in caplog.text


async def test_two_stores_on_two_prefixes_report_no_conflict(own_nats: NatsServer) -> None:
    (own_nats.folder / "server.conf").write_text("")
    own_nats.stop()
    own_nats.start()
    async with (
        open_bus(own_nats.url(), next(EPOCHS), prefix="one") as one,
        open_bus(own_nats.url(), next(EPOCHS), prefix="two.of-them") as other,
    ):
        one._send_heartbeat(fresh=True)
        await one.flush()
        await other.flush()
        assert (one.problem, other.problem) == ("", "")
