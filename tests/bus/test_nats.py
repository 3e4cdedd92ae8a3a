"""The bus contract on NATS: in one process, and between two."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.bus.nats_credentials import with_claims
from tests.eventually import eventually
from tests.nats import PASSWORD, PREFIX, WHO, NatsServer, granted, grants

from dragoman.bus.local import LocalBus
from dragoman.bus.nats import InvalidNatsAddress, NatsAddress, NatsBus, connection, open_nats_bus
from dragoman.bus.nats import bus as nats_bus
from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import Job, RegistryChange, TaskSignal, Unsubscribe
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.contracts.bus import BusContract, event
from dragoman.testing.fixtures import AGENT, new_ref

pytestmark = pytest.mark.usefixtures("patient_bus")

_epochs = (f"{os.getpid():x}e{number}" for number in count())
_servers = (f"server{number}" for number in count())


@asynccontextmanager
async def opened(url: str, epoch: str, prefix: str = PREFIX, authority: Path | None = None) -> AsyncIterator[NatsBus]:
    address = NatsAddress.parse(url, ca_file=authority)
    async with open_nats_bus(LocalBus(), address, prefix=prefix, epoch=epoch, server=next(_servers)) as bus:
        yield bus


class TwoProcesses:
    """Two processes' buses as one: what is said by the one is heard by the other."""

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
        async with opened(nats.url(WHO), next(_epochs)) as bus:
            yield bus


class TestTwoProcesses(OverNats):
    @pytest.fixture
    async def bus(self, nats: NatsServer) -> AsyncIterator[TwoProcesses]:
        epoch = next(_epochs)
        async with opened(nats.url(WHO), epoch) as says, opened(nats.url(WHO), epoch) as hears:
            yield TwoProcesses(says, hears)


class TestWithJetStream(TestTwoProcesses):
    """The same where NATS can keep streams; nothing of ours goes into one."""

    @pytest.fixture
    def nats(self, nats_with_streams: NatsServer) -> NatsServer:
        return nats_with_streams


class ReceivedEvents:
    """What a follower, a worker and whoever obeys were told, by one bus."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.jobs: list[Job] = []
        self.signals: list[tuple[TaskRef, TaskSignal]] = []

    async def listen(self, bus: NatsBus, task: TaskRef) -> None:
        await bus.subscribe(task, self.events.extend)
        await bus.subscribe_jobs([AGENT], self.jobs.append)
        await bus.subscribe_signals(lambda task, signal: self.signals.append((task, signal)))


# NATS that goes and comes -----------------------------------------------------------------------------------------


async def test_a_bus_whose_nats_is_away_still_serves_its_own_process(own_nats: NatsServer) -> None:
    own_nats.stop()
    ref, received_events = new_ref(), ReceivedEvents()
    async with opened(own_nats.url(WHO), next(_epochs)) as bus:
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
    ref, later, received_events, epoch = new_ref(), new_ref(), ReceivedEvents(), next(_epochs)
    async with opened(own_nats.url(WHO), epoch) as one, opened(own_nats.url(WHO), epoch) as other:
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


async def test_a_connection_that_breaks_mid_message_is_reopened(
    own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport is gone and takes nothing; uvloop's says so by an error, where the library expects none."""

    def refuses(*_: object) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(_epochs)
    async with opened(own_nats.url(WHO), epoch) as one, opened(own_nats.url(WHO), epoch) as other:
        await received_events.listen(other, ref)
        client: Any = other._connection._client
        monkeypatch.setattr(client._transport, "writelines", refuses)
        client._pending, client._pending_data_size = [b"PING\r\n"], 6
        own_nats.stop()
        await eventually(lambda: one.problem and other.problem)
        own_nats.start()
        await eventually(lambda: not (one.problem or other.problem))
        await other.flush()
        one.publish(ref, [event(7)])
        await one.flush()
        await eventually(lambda: len(received_events.events) == 1)


async def test_a_transport_that_is_closed_before_its_client_knows_breaks_off_nothing(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: object) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(_epochs)
    async with opened(nats.url(WHO), epoch) as one, opened(nats.url(WHO), epoch) as other:
        with monkeypatch.context() as patch:
            patch.setattr(other._connection._client, "flush_fully", refuses)
            await asyncio.gather(other.flush(), received_events.listen(other, ref), other.flush())
            await other.flush()
        await other.flush()
        one.publish(ref, [event(7)])
        await one.flush()
        await eventually(lambda: len(received_events.events) == 1)


async def test_a_connection_that_did_not_answer_is_not_held_against_the_next_one(
    own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = asyncio.Event()

    async def too_late() -> None:
        await later.wait()
        raise TimeoutError

    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(_epochs)
    async with opened(own_nats.url(WHO), epoch) as one, opened(own_nats.url(WHO), epoch) as other:
        first = one._connection._client
        monkeypatch.setattr(first, "flush_fully", too_late)
        asking = asyncio.create_task(one.flush())
        own_nats.stop()
        await eventually(lambda: one.problem and other.problem)
        own_nats.start()
        await eventually(lambda: not (one.problem or other.problem))
        later.set()
        await asking
        assert one.problem == ""
        await received_events.listen(other, ref)
        one.publish(ref, [event(7)])
        await one.flush()
        await eventually(lambda: len(received_events.events) == 1)


async def test_a_signal_given_while_nats_is_away_arrives_when_it_is_back(own_nats: NatsServer) -> None:
    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(_epochs)
    async with opened(own_nats.url(WHO), epoch) as one, opened(own_nats.url(WHO), epoch) as other:
        await received_events.listen(other, ref)
        own_nats.stop()
        await eventually(lambda: one.problem and other.problem)
        one.publish_signal(ref, TaskSignal.CANCEL)
        own_nats.start()
        await eventually(lambda: received_events.signals)
        assert received_events.signals[0] == (ref, TaskSignal.CANCEL)


async def test_who_comes_late_hears_the_signals_of_those_who_are_there(nats: NatsServer) -> None:
    """It was cut off when they were given, and nobody else was."""
    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(_epochs)
    async with opened(nats.url(WHO), epoch) as one:
        one.publish_signal(ref, TaskSignal.CANCEL)
        await one.flush()
        async with opened(nats.url(WHO), epoch) as other:
            await other.subscribe_signals(lambda task, signal: received_events.signals.append((task, signal)))
            other._on_connected()  # what it does when it comes back
            await eventually(lambda: received_events.signals)


async def test_signals_are_kept_for_a_while_only(own_nats: NatsServer) -> None:
    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(_epochs)
    async with opened(own_nats.url(WHO), epoch) as one, opened(own_nats.url(WHO), epoch) as other:
        await received_events.listen(other, ref)
        now = one._clock()
        one._clock = lambda: now
        own_nats.stop()
        await eventually(lambda: one.problem and other.problem)
        one.publish_signal(ref, TaskSignal.PUSH_CONFIGS)  # NATS is away for too long
        now += nats_bus.UNSENT_SIGNAL_TTL - 1
        one.publish_signal(ref, TaskSignal.CANCEL)  # it comes back soon
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


async def test_a_nats_that_stands_still_is_away(own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal as signals

    monkeypatch.setattr(connection, "NATS_FLUSH_TIMEOUT", 0.05)
    async with opened(own_nats.url(WHO), next(_epochs)) as bus:
        own_nats.send(signals.SIGSTOP)
        try:
            await bus.subscribe(new_ref(), lambda events: None)
            assert bus.problem == "not reachable"
        finally:
            own_nats.send(signals.SIGCONT)
        await eventually(lambda: not bus.problem)


async def test_rejected_credentials_are_logged_once_and_retried_forever(
    nats: NatsServer, own_nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(own_nats.url("dragoman:wrong-secret@"), next(_epochs)) as bus:
        assert bus.problem == "not reachable"
        (own_nats.folder / "server.conf").write_text(granted(password="wrong-secret"))
        own_nats.stop()
        own_nats.start()
        await eventually(lambda: not bus.problem)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "Authorization Violation" in line
    assert "wrong-secret" not in caplog.text


async def test_grants_that_are_missing_are_named(nats: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(nats.url(WHO), next(_epochs), prefix="elsewhere") as bus:
        await bus.subscribe_signals(lambda task, signal: None)
        await eventually(lambda: bus.problem)
        assert bus.problem == "missing permissions"
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "permissions violation" in line
    assert "docs/how-to/postgresql.md" in line


@pytest.mark.parametrize(
    ("verb", "subject"), [(verb, subject) for verb in ("publish", "subscribe") for subject in grants(verb)]
)
async def test_a_server_needs_each_of_its_grants(verb: str, subject: str) -> None:
    line = ", ".join(f'"{one}"' for one in grants(verb))
    fewer = ", ".join(f'"{one}"' for one in grants(verb) if one != subject)
    settings = granted().replace(f"{verb}: [{line}]", f"{verb}: [{fewer}]")
    assert settings != granted()
    server, ref = NatsServer(settings), new_ref()
    try:
        server.start()
        async with opened(server.url(WHO), "0a") as bus:
            await ReceivedEvents().listen(bus, ref)
            bus.publish(ref, [event(1)])
            bus.publish_job(Job(AGENT, ref))
            bus.publish_signal(ref, TaskSignal.CANCEL)
            await eventually(lambda: bus.problem == "missing permissions")
    finally:
        server.remove()


async def test_a_failing_subscriber_is_logged_and_gets_the_next_event(
    nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    ref, epoch, numbers = new_ref(), next(_epochs), list[int]()

    def breaks(events: Sequence[Event]) -> None:
        numbers.append(events[0].sequence)
        raise RuntimeError("broken")

    async with opened(nats.url(WHO), epoch) as one, opened(nats.url(WHO), epoch) as other:
        await other.subscribe(ref, breaks)
        for number in (1, 2):
            one.publish(ref, [event(number)])
        await eventually(lambda: numbers == [1, 2])
        assert other.problem == ""
    assert caplog.text.count("RuntimeError: broken") == 2


async def test_what_does_not_fit_into_the_queue_is_lost_and_nothing_waits(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(_epochs)
    async with opened(nats.url(WHO), epoch) as one, opened(nats.url(WHO), epoch) as other:
        await received_events.listen(other, ref)
        monkeypatch.setattr(connection, "MAX_BUS_QUEUE_BYTES", 1000)
        for number in range(1, 6):
            one.publish(ref, [Event(number, bytes(400))])
        await one.flush()
        one.publish(ref, [Event(6, bytes(400))])
        await one.flush()
        await eventually(lambda: len(received_events.events) == 3)
        assert [response_event.sequence for response_event in received_events.events] == [1, 2, 6]


# Two clusters on one NATS -----------------------------------------------------------------------------------------


async def test_two_stores_on_one_prefix_hear_nothing_of_each_other_and_say_so(
    nats: NatsServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "dragoman.bus")
    first, second, ref, received_events = next(_epochs), next(_epochs), new_ref(), ReceivedEvents()
    async with opened(nats.url(WHO), first) as one:
        async with opened(nats.url(WHO), second) as other:
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


async def test_two_stores_on_two_prefixes_are_at_peace(own_nats: NatsServer) -> None:
    (own_nats.folder / "server.conf").write_text("")
    own_nats.stop()
    own_nats.start()
    async with (
        opened(own_nats.url(), next(_epochs), prefix="one") as one,
        opened(own_nats.url(), next(_epochs), prefix="two.of-them") as other,
    ):
        one._send_heartbeat(fresh=True)
        await one.flush()
        await other.flush()
        assert (one.problem, other.problem) == ("", "")


# Encryption and addresses -----------------------------------------------------------------------------------------


@pytest.fixture
def encrypted(tmp_path: Path) -> NatsServer:
    """A NATS that encrypts, not yet started; its authority is in `ca.pem`."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    proof = authority.issue_cert("127.0.0.1")
    proof.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    pem = tmp_path / "server.pem"
    return NatsServer(granted() + f'tls: {{ cert_file: "{pem}", key_file: "{pem}" }}')


async def test_a_connection_may_be_encrypted(encrypted: NatsServer, tmp_path: Path) -> None:
    encrypted.start()
    try:
        async with opened(encrypted.url(WHO, "tls"), next(_epochs), authority=tmp_path / "ca.pem") as bus:
            assert bus.problem == ""
        async with opened(encrypted.url(WHO, "tls"), next(_epochs)) as bus:  # nobody vouches for it
            assert bus.problem == "not reachable"
    finally:
        encrypted.remove()


async def test_credentials_are_not_sent_in_the_clear_with_tls_required(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody in between says that the server does not encrypt."""
    received: list[bytes] = []

    async def lies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"auth_required":true}\r\n')
        received.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(lies, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, opened(f"tls://{WHO}127.0.0.1:{port}", next(_epochs)) as bus:
        await eventually(lambda: received)
        assert bus.problem == "not reachable"
    assert set(received) == {b""}
    assert "does not offer TLS" in caplog.text


def test_addresses() -> None:
    one = NatsAddress.parse("nats://me:a%40b@one,nats://two:4333")
    assert (one.servers, one.user, one.password, one.token) == (
        ("nats://one:4222", "nats://two:4333"), "me", "a@b", None,
    )  # fmt: skip
    assert str(one) == "nats://one:4222,nats://two:4333"
    other = NatsAddress.parse("tls://a-token@[::1]")
    assert (str(other), other.user, other.token, other.uses_tls) == ("tls://[::1]:4222", None, "a-token", True)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("localhost:4222", "is no address"),
        ("http://me:secret-of-mine@one", "is no address"),
        ("nats://me:secret-of-mine@one/x", "is no address"),
        ("nats://me:secret-of-mine@one:port", "is no address"),
        ("nats://me:secret-of-mine@", "is no address"),
        ("nats://one,nats://me:secret-of-mine@two", "after the first"),
        ("nats://one,tls://two", "mixes"),
    ],
)
def test_addresses_that_are_none(text: str, rule: str) -> None:
    with pytest.raises(InvalidNatsAddress, match=rule) as caught:
        NatsAddress.parse(text)
    assert "secret-of-mine" not in str(caught.value)


def test_two_kinds_of_credentials_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidNatsAddress, match="one or the other"):
        NatsAddress.parse("nats://me:x@one", credentials=tmp_path / "user.creds")


async def test_credentials_may_be_a_file_with_claims(tmp_path: Path) -> None:
    settings, file = with_claims(tmp_path, grants("publish"), grants("subscribe"))
    server = NatsServer(settings)
    try:
        server.start()
        ref, received_events = new_ref(), ReceivedEvents()
        address = NatsAddress.parse(server.url(), credentials=file)
        async with (
            open_nats_bus(LocalBus(), address, prefix=PREFIX, epoch="0a") as one,
            open_nats_bus(LocalBus(), address, prefix=PREFIX, epoch="0a") as other,
            opened(server.url(WHO), "0a") as stranger,
        ):
            await received_events.listen(other, ref)
            one.publish(ref, [event(1)])
            one.publish_job(Job(AGENT, ref))
            one.publish_signal(ref, TaskSignal.CANCEL)
            await eventually(lambda: received_events.events and received_events.jobs and received_events.signals)
            assert (one.problem, other.problem, stranger.problem) == ("", "", "not reachable")
    finally:
        server.remove()
