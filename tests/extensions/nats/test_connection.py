"""The connection to NATS: reconnects, permissions, the send queue, TLS and credentials."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.eventually import eventually
from tests.extensions.nats.credentials import with_claims
from tests.extensions.nats.nats_harness import EPOCHS, ReceivedEvents, open_bus
from tests.nats import PREFIX, WHO, NatsServer, granted, grants

from dragoman.bus.local import LocalBus
from dragoman.core.task.log import Event
from dragoman.extensions.nats import connection
from dragoman.extensions.nats.address import NatsAddress
from dragoman.extensions.nats.bus import open_nats_bus
from dragoman.ports import Job, TaskSignal
from dragoman.testing.contracts.bus import event
from dragoman.testing.fixtures import AGENT, new_ref

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("patient_bus")]


async def test_a_connection_that_breaks_mid_message_is_reopened(
    own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport is closed; uvloop raises an error that the library does not expect."""

    def refuses(*_: object) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(EPOCHS)
    async with open_bus(own_nats.url(WHO), epoch) as one, open_bus(own_nats.url(WHO), epoch) as other:
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


async def test_a_transport_closed_before_its_client_is_does_not_interrupt_calls(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_: object) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(EPOCHS)
    async with open_bus(nats.url(WHO), epoch) as one, open_bus(nats.url(WHO), epoch) as other:
        with monkeypatch.context() as patch:
            patch.setattr(other._connection._client, "flush_fully", refuses)
            await asyncio.gather(other.flush(), received_events.listen(other, ref), other.flush())
            await other.flush()
        await other.flush()
        one.publish(ref, [event(7)])
        await one.flush()
        await eventually(lambda: len(received_events.events) == 1)


async def test_a_flush_timeout_does_not_affect_the_next_connection(
    own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = asyncio.Event()

    async def too_late() -> None:
        await later.wait()
        raise TimeoutError

    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(EPOCHS)
    async with open_bus(own_nats.url(WHO), epoch) as one, open_bus(own_nats.url(WHO), epoch) as other:
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


async def test_a_frozen_nats_counts_as_unreachable(own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal as signals

    monkeypatch.setattr(connection, "NATS_FLUSH_TIMEOUT", 0.05)
    async with open_bus(own_nats.url(WHO), next(EPOCHS)) as bus:
        own_nats.send(signals.SIGSTOP)
        try:
            await bus.subscribe(new_ref(), lambda events: None)
            assert bus.problem == "not reachable"
        finally:
            own_nats.send(signals.SIGCONT)
        await eventually(lambda: not bus.problem)


async def test_a_flush_answered_after_its_timeout_does_not_end_the_connection(own_nats: NatsServer) -> None:
    import signal as signals

    client: Any = connection._NatsClient()
    await client.connect(own_nats.url(WHO), allow_reconnect=False)
    own_nats.send(signals.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            await client.flush(0.01)
    finally:
        own_nats.send(signals.SIGCONT)
    await client.flush(10)
    await client.close()


async def test_rejected_credentials_are_logged_once_and_retried_forever(
    nats: NatsServer, own_nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bus(own_nats.url("dragoman:wrong-secret@"), next(EPOCHS)) as bus:
        assert bus.problem == "not reachable"
        (own_nats.folder / "server.conf").write_text(granted(password="wrong-secret"))
        own_nats.stop()
        own_nats.start()
        await eventually(lambda: not bus.problem)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "Authorization Violation" in line
    assert "wrong-secret" not in caplog.text


async def test_missing_permissions_are_reported(nats: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    async with open_bus(nats.url(WHO), next(EPOCHS), prefix="elsewhere") as bus:
        await bus.subscribe_signals(lambda task, signal: None)
        await eventually(lambda: bus.problem)
        assert bus.problem == "missing permissions"
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "permissions violation" in line
    assert "docs/how-to/postgresql.md" in line


@pytest.mark.parametrize(
    ("verb", "subject"), [(verb, subject) for verb in ("publish", "subscribe") for subject in grants(verb)]
)
async def test_a_server_needs_each_of_its_permissions(verb: str, subject: str) -> None:
    line = ", ".join(f'"{one}"' for one in grants(verb))
    fewer = ", ".join(f'"{one}"' for one in grants(verb) if one != subject)
    settings = granted().replace(f"{verb}: [{line}]", f"{verb}: [{fewer}]")
    assert settings != granted()
    server, ref = NatsServer(settings), new_ref()
    try:
        server.start()
        async with open_bus(server.url(WHO), "0a") as bus:
            await ReceivedEvents().listen(bus, ref)
            bus.publish(ref, [event(1)])
            bus.publish_job(Job(AGENT, ref))
            bus.publish_signal(ref, TaskSignal.CANCEL)
            await eventually(lambda: bus.problem == "missing permissions")
    finally:
        server.remove()


async def test_messages_beyond_the_queue_limit_are_dropped_without_waiting(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, received_events, epoch = new_ref(), ReceivedEvents(), next(EPOCHS)
    async with open_bus(nats.url(WHO), epoch) as one, open_bus(nats.url(WHO), epoch) as other:
        await received_events.listen(other, ref)
        monkeypatch.setattr(connection, "MAX_BUS_QUEUE_BYTES", 1000)
        for number in range(1, 6):
            one.publish(ref, [Event(number, bytes(400))])
        await one.flush()
        one.publish(ref, [Event(6, bytes(400))])
        await one.flush()
        await eventually(lambda: len(received_events.events) == 3)
        assert [response_event.sequence for response_event in received_events.events] == [1, 2, 6]


# TLS and credentials ----------------------------------------------------------------------------------------------


@pytest.fixture
def encrypted(tmp_path: Path) -> NatsServer:
    """A NATS server with TLS, not yet started; its CA is in `ca.pem`."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    proof = authority.issue_cert("127.0.0.1")
    proof.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    pem = tmp_path / "server.pem"
    return NatsServer(granted() + f'tls: {{ cert_file: "{pem}", key_file: "{pem}" }}')


async def test_a_connection_can_use_tls(encrypted: NatsServer, tmp_path: Path) -> None:
    encrypted.start()
    try:
        async with open_bus(encrypted.url(WHO, "tls"), next(EPOCHS), authority=tmp_path / "ca.pem") as bus:
            assert bus.problem == ""
        async with open_bus(encrypted.url(WHO, "tls"), next(EPOCHS)) as bus:  # without its CA
            assert bus.problem == "not reachable"
    finally:
        encrypted.remove()


async def test_credentials_are_not_sent_without_tls_to_a_tls_url(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A man in the middle claims that the server has no TLS."""
    received: list[bytes] = []

    async def lies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"auth_required":true}\r\n')
        received.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(lies, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, open_bus(f"tls://{WHO}127.0.0.1:{port}", next(EPOCHS)) as bus:
        await eventually(lambda: received)
        assert bus.problem == "not reachable"
    assert set(received) == {b""}
    assert "does not offer TLS" in caplog.text


async def test_a_credentials_file_is_accepted(tmp_path: Path) -> None:
    settings, file = with_claims(tmp_path, grants("publish"), grants("subscribe"))
    server = NatsServer(settings)
    try:
        server.start()
        ref, received_events = new_ref(), ReceivedEvents()
        address = NatsAddress.parse(server.url(), credentials=file)
        async with (
            open_nats_bus(LocalBus(), address, prefix=PREFIX, epoch="0a") as one,
            open_nats_bus(LocalBus(), address, prefix=PREFIX, epoch="0a") as other,
            open_bus(server.url(WHO), "0a") as stranger,
        ):
            await received_events.listen(other, ref)
            one.publish(ref, [event(1)])
            one.publish_job(Job(AGENT, ref))
            one.publish_signal(ref, TaskSignal.CANCEL)
            await eventually(lambda: received_events.events and received_events.jobs and received_events.signals)
            assert (one.problem, other.problem, stranger.problem) == ("", "", "not reachable")
    finally:
        server.remove()
