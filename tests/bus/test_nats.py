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
from tests.bus.credentials import with_claims
from tests.nats import PASSWORD, PREFIX, WHO, NatsServer, granted, grants

from dragoman.bus.local import LocalBus
from dragoman.bus.nats import Address, BadAddress, NatsBus, connection, open_bus
from dragoman.bus.nats import bus as nats_bus
from dragoman.core.log import Event, TaskRef
from dragoman.ports import Job, News, Signal, Stop
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.bus_contract import BusContract, event
from dragoman.testing.changes import AGENT, new_ref

pytestmark = pytest.mark.usefixtures("patient_bus")

_epochs = (f"{os.getpid():x}e{number}" for number in count())
_servers = (f"server{number}" for number in count())


@asynccontextmanager
async def opened(url: str, epoch: str, prefix: str = PREFIX, authority: Path | None = None) -> AsyncIterator[NatsBus]:
    address = Address.parse(url, authority=authority)
    async with open_bus(LocalBus(), address, prefix=prefix, epoch=epoch, server=next(_servers)) as bus:
        yield bus


async def until(condition: Callable[[], object]) -> None:
    """Waits for something that the loop brings about."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is nothing to wait on
            await asyncio.sleep(0.005)


class Apart:
    """Two processes' buses as one: what is said by the one is heard by the other."""

    def __init__(self, says: NatsBus, hears: NatsBus) -> None:
        self.says = says
        self.hears = hears

    @property
    def trouble(self) -> str:
        return self.says.trouble or self.hears.trouble

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        self.says.publish(task, events)

    async def follow(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Stop:
        return await self.hears.follow(task, deliver)

    def offer(self, job: Job) -> None:
        self.says.offer(job)

    async def work(self, agents: Collection[str], take: Callable[[Job], None]) -> Stop:
        return await self.hears.work(agents, take)

    def signal(self, task: TaskRef, signal: Signal) -> None:
        self.says.signal(task, signal)

    async def obey(self, handle: Callable[[TaskRef, Signal], None]) -> Stop:
        return await self.hears.obey(handle)

    def announce(self, news: News) -> None:
        self.says.announce(news)

    async def attend(self, handle: Callable[[News], None]) -> Stop:
        return await self.hears.attend(handle)

    async def settled(self) -> None:
        await self.says.settled()
        await self.hears.settled()

    async def close(self) -> None:
        await self.says.close()
        await self.hears.close()


class OverNats(BusContract):
    @pytest.fixture(autouse=True)
    def _kept(self, bus: NatsBus | Apart) -> None:
        self._bus = bus

    async def told(self) -> None:
        await self._bus.settled()
        await super().told()

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
    async def bus(self, nats: NatsServer) -> AsyncIterator[Apart]:
        epoch = next(_epochs)
        async with opened(nats.url(WHO), epoch) as says, opened(nats.url(WHO), epoch) as hears:
            yield Apart(says, hears)


class TestWithJetStream(TestTwoProcesses):
    """The same where NATS can keep streams; nothing of ours goes into one."""

    @pytest.fixture
    def nats(self, nats_with_streams: NatsServer) -> NatsServer:
        return nats_with_streams


class Heard:
    """What a follower, a worker and whoever obeys were told, by one bus."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.jobs: list[Job] = []
        self.signals: list[tuple[TaskRef, Signal]] = []

    async def listen(self, bus: NatsBus, task: TaskRef) -> None:
        await bus.follow(task, self.events.extend)
        await bus.work([AGENT], self.jobs.append)
        await bus.obey(lambda task, signal: self.signals.append((task, signal)))


# NATS that goes and comes -----------------------------------------------------------------------------------------


async def test_a_bus_whose_nats_is_away_still_serves_its_own_process(own_nats: NatsServer) -> None:
    own_nats.stop()
    ref, heard = new_ref(), Heard()
    async with opened(own_nats.url(WHO), next(_epochs)) as bus:
        assert bus.trouble == "it is away"
        await heard.listen(bus, ref)
        bus.publish(ref, [event(1)])
        bus.offer(Job(AGENT, ref))
        bus.signal(ref, Signal.CANCEL)
        await asyncio.sleep(0)
        assert (len(heard.events), len(heard.jobs), heard.signals) == (1, 1, [(ref, Signal.CANCEL)])


async def test_what_was_listened_to_is_heard_again_when_nats_comes_back(
    own_nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.bus")
    ref, later, heard, epoch = new_ref(), new_ref(), Heard(), next(_epochs)
    async with opened(own_nats.url(WHO), epoch) as one, opened(own_nats.url(WHO), epoch) as other:
        await heard.listen(other, ref)
        own_nats.stop()
        await until(lambda: one.trouble and other.trouble)
        await heard.listen(other, later)
        own_nats.start()
        await until(lambda: not (one.trouble or other.trouble))
        await other.settled()
        for task in (ref, later):
            one.publish(task, [event(7)])
        await one.settled()
        await until(lambda: len(heard.events) == 2)
    said = [record.getMessage() for record in caplog.records]
    assert sorted(" ".join(line.split()[3:5]) for line in said) == [
        "is away",
        "is away",
        *["is back"] * 2,
        *["is there"] * 2,
    ]
    assert PASSWORD not in caplog.text


async def test_a_connection_that_breaks_in_the_midst_of_a_word_is_made_again(
    own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport is gone and takes nothing; uvloop's says so by an error, where the library expects none."""

    def refuses(*_: object) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    ref, heard, epoch = new_ref(), Heard(), next(_epochs)
    async with opened(own_nats.url(WHO), epoch) as one, opened(own_nats.url(WHO), epoch) as other:
        await heard.listen(other, ref)
        client: Any = other._connection._client
        monkeypatch.setattr(client._transport, "writelines", refuses)
        client._pending, client._pending_data_size = [b"PING\r\n"], 6
        own_nats.stop()
        await until(lambda: one.trouble and other.trouble)
        own_nats.start()
        await until(lambda: not (one.trouble or other.trouble))
        await other.settled()
        one.publish(ref, [event(7)])
        await one.settled()
        await until(lambda: len(heard.events) == 1)


async def test_a_transport_that_is_closed_before_its_client_knows_breaks_off_nothing(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: object) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    ref, heard, epoch = new_ref(), Heard(), next(_epochs)
    async with opened(nats.url(WHO), epoch) as one, opened(nats.url(WHO), epoch) as other:
        with monkeypatch.context() as patch:
            patch.setattr(other._connection._client, "settle", refuses)
            await asyncio.gather(other.settled(), heard.listen(other, ref), other.settled())
            await other.settled()
        await other.settled()
        one.publish(ref, [event(7)])
        await one.settled()
        await until(lambda: len(heard.events) == 1)


async def test_a_connection_that_did_not_answer_is_not_held_against_the_next_one(
    own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = asyncio.Event()

    async def too_late() -> None:
        await later.wait()
        raise TimeoutError

    ref, heard, epoch = new_ref(), Heard(), next(_epochs)
    async with opened(own_nats.url(WHO), epoch) as one, opened(own_nats.url(WHO), epoch) as other:
        first = one._connection._client
        monkeypatch.setattr(first, "settle", too_late)
        asking = asyncio.create_task(one.settled())
        own_nats.stop()
        await until(lambda: one.trouble and other.trouble)
        own_nats.start()
        await until(lambda: not (one.trouble or other.trouble))
        later.set()
        await asking
        assert one.trouble == ""
        await heard.listen(other, ref)
        one.publish(ref, [event(7)])
        await one.settled()
        await until(lambda: len(heard.events) == 1)


async def test_a_signal_given_while_nats_is_away_arrives_when_it_is_back(own_nats: NatsServer) -> None:
    ref, heard, epoch = new_ref(), Heard(), next(_epochs)
    async with opened(own_nats.url(WHO), epoch) as one, opened(own_nats.url(WHO), epoch) as other:
        await heard.listen(other, ref)
        own_nats.stop()
        await until(lambda: one.trouble and other.trouble)
        one.signal(ref, Signal.CANCEL)
        own_nats.start()
        await until(lambda: heard.signals)
        assert heard.signals[0] == (ref, Signal.CANCEL)


async def test_who_comes_late_hears_the_signals_of_those_who_are_there(nats: NatsServer) -> None:
    """It was cut off when they were given, and nobody else was."""
    ref, heard, epoch = new_ref(), Heard(), next(_epochs)
    async with opened(nats.url(WHO), epoch) as one:
        one.signal(ref, Signal.CANCEL)
        await one.settled()
        async with opened(nats.url(WHO), epoch) as other:
            await other.obey(lambda task, signal: heard.signals.append((task, signal)))
            other._connected()  # what it does when it comes back
            await until(lambda: heard.signals)


async def test_signals_are_kept_for_a_while_only(own_nats: NatsServer) -> None:
    ref, heard, epoch = new_ref(), Heard(), next(_epochs)
    async with opened(own_nats.url(WHO), epoch) as one, opened(own_nats.url(WHO), epoch) as other:
        await heard.listen(other, ref)
        now = one._clock()
        one._clock = lambda: now
        own_nats.stop()
        await until(lambda: one.trouble and other.trouble)
        one.signal(ref, Signal.PUSHES)  # NATS is away for too long
        now += nats_bus.PATIENCE - 1
        one.signal(ref, Signal.CANCEL)  # it comes back soon
        now += 2
        own_nats.start()
        await until(lambda: not (one.trouble or other.trouble))
        await until(lambda: Signal.CANCEL in [signal for _, signal in heard.signals])
        await one.settled()
        await other.settled()
        now += nats_bus.LINGER + 1
        heard.signals.clear()
        one.signal(ref, Signal.MESSAGE)
        one._repeat()
        await one.settled()
        await until(lambda: len(heard.signals) == 2)
        assert heard.signals == [(ref, Signal.MESSAGE)] * 2


async def test_a_nats_that_stands_still_is_away(own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal as signals

    monkeypatch.setattr(connection, "SETTLE", 0.05)
    async with opened(own_nats.url(WHO), next(_epochs)) as bus:
        own_nats.send(signals.SIGSTOP)
        try:
            await bus.follow(new_ref(), lambda events: None)
            assert bus.trouble == "it is away"
        finally:
            own_nats.send(signals.SIGCONT)
        await until(lambda: not bus.trouble)


async def test_refused_credentials_are_told_once_and_tried_for_ever(
    nats: NatsServer, own_nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(own_nats.url("dragoman:wrong-secret@"), next(_epochs)) as bus:
        assert bus.trouble == "it is away"
        (own_nats.folder / "server.conf").write_text(granted(password="wrong-secret"))
        own_nats.stop()
        own_nats.start()
        await until(lambda: not bus.trouble)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "Authorization Violation" in line
    assert "wrong-secret" not in caplog.text


async def test_grants_that_are_missing_are_named(nats: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(nats.url(WHO), next(_epochs), prefix="elsewhere") as bus:
        await bus.obey(lambda task, signal: None)
        await until(lambda: bus.trouble)
        assert bus.trouble == "it does not grant what a server needs"
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
            await Heard().listen(bus, ref)
            bus.publish(ref, [event(1)])
            bus.offer(Job(AGENT, ref))
            bus.signal(ref, Signal.CANCEL)
            await until(lambda: bus.trouble == "it does not grant what a server needs")
    finally:
        server.remove()


async def test_a_follower_that_fails_is_told_of_and_the_next_event_comes(
    nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    ref, epoch, heard = new_ref(), next(_epochs), list[int]()

    def breaks(events: Sequence[Event]) -> None:
        heard.append(events[0].sequence)
        raise RuntimeError("broken")

    async with opened(nats.url(WHO), epoch) as one, opened(nats.url(WHO), epoch) as other:
        await other.follow(ref, breaks)
        for number in (1, 2):
            one.publish(ref, [event(number)])
        await until(lambda: heard == [1, 2])
        assert other.trouble == ""
    assert caplog.text.count("RuntimeError: broken") == 2


async def test_what_does_not_fit_into_the_queue_is_lost_and_nothing_waits(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, heard, epoch = new_ref(), Heard(), next(_epochs)
    async with opened(nats.url(WHO), epoch) as one, opened(nats.url(WHO), epoch) as other:
        await heard.listen(other, ref)
        monkeypatch.setattr(connection, "QUEUE_BYTES", 1000)
        for number in range(1, 6):
            one.publish(ref, [Event(number, bytes(400))])
        await one.settled()
        one.publish(ref, [Event(6, bytes(400))])
        await one.settled()
        await until(lambda: len(heard.events) == 3)
        assert [said.sequence for said in heard.events] == [1, 2, 6]


# Two clusters on one NATS -----------------------------------------------------------------------------------------


async def test_two_stores_on_one_prefix_hear_nothing_of_each_other_and_say_so(
    nats: NatsServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "dragoman.bus")
    first, second, ref, heard = next(_epochs), next(_epochs), new_ref(), Heard()
    async with opened(nats.url(WHO), first) as one:
        async with opened(nats.url(WHO), second) as other:
            await until(lambda: one.trouble and other.trouble)
            assert one.trouble == other.trouble == "servers of another store use its prefix"
            await heard.listen(other, ref)
            one.publish(ref, [event(1)])
            one.offer(Job(AGENT, ref))
            one.signal(ref, Signal.CANCEL)
            await one.settled()
            await other.settled()
            assert (heard.events, heard.jobs, heard.signals) == ([], [], [])
        told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert sorted((f"epoch {first}, ours is {second}" in line, "--bus-prefix" in line) for line in told) == [
            (False, True),
            (True, True),
        ]
        now = one._clock()
        one._clock = lambda: now + nats_bus.HELLO * nats_bus.MISSED + 1
        one._forget()
        assert one.trouble == ""
    assert "nobody else uses the prefix" in caplog.text


async def test_two_stores_on_two_prefixes_are_at_peace(own_nats: NatsServer) -> None:
    (own_nats.folder / "server.conf").write_text("")
    own_nats.stop()
    own_nats.start()
    async with (
        opened(own_nats.url(), next(_epochs), prefix="one") as one,
        opened(own_nats.url(), next(_epochs), prefix="two.of-them") as other,
    ):
        one._say_hello(fresh=True)
        await one.settled()
        await other.settled()
        assert (one.trouble, other.trouble) == ("", "")


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
            assert bus.trouble == ""
        async with opened(encrypted.url(WHO, "tls"), next(_epochs)) as bus:  # nobody vouches for it
            assert bus.trouble == "it is away"
    finally:
        encrypted.remove()


async def test_credentials_are_not_said_in_the_clear_where_encryption_was_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody in between says that the server does not encrypt."""
    heard: list[bytes] = []

    async def lies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"auth_required":true}\r\n')
        heard.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(lies, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, opened(f"tls://{WHO}127.0.0.1:{port}", next(_epochs)) as bus:
        await until(lambda: heard)
        assert bus.trouble == "it is away"
    assert set(heard) == {b""}
    assert "it does not encrypt" in caplog.text


def test_addresses() -> None:
    one = Address.parse("nats://me:a%40b@one,nats://two:4333")
    assert (one.servers, one.user, one.password, one.token) == (
        ("nats://one:4222", "nats://two:4333"), "me", "a@b", None,
    )  # fmt: skip
    assert str(one) == "nats://one:4222,nats://two:4333"
    other = Address.parse("tls://a-token@[::1]")
    assert (str(other), other.user, other.token, other.encrypted) == ("tls://[::1]:4222", None, "a-token", True)


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
    with pytest.raises(BadAddress, match=rule) as caught:
        Address.parse(text)
    assert "secret-of-mine" not in str(caught.value)


def test_nobody_has_two_credentials(tmp_path: Path) -> None:
    with pytest.raises(BadAddress, match="one or the other"):
        Address.parse("nats://me:x@one", credentials=tmp_path / "user.creds")


async def test_credentials_may_be_a_file_with_claims(tmp_path: Path) -> None:
    settings, file = with_claims(tmp_path, grants("publish"), grants("subscribe"))
    server = NatsServer(settings)
    try:
        server.start()
        ref, heard = new_ref(), Heard()
        address = Address.parse(server.url(), credentials=file)
        async with (
            open_bus(LocalBus(), address, prefix=PREFIX, epoch="0a") as one,
            open_bus(LocalBus(), address, prefix=PREFIX, epoch="0a") as other,
            opened(server.url(WHO), "0a") as stranger,
        ):
            await heard.listen(other, ref)
            one.publish(ref, [event(1)])
            one.offer(Job(AGENT, ref))
            one.signal(ref, Signal.CANCEL)
            await until(lambda: heard.events and heard.jobs and heard.signals)
            assert (one.trouble, other.trouble, stranger.trouble) == ("", "", "it is away")
    finally:
        server.remove()
