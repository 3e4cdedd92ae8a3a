"""TLS on both ports: clients with and without trust, plain requests, and certificates changed under open streams."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.certificates import Authority, encrypted, write

from dragoman import Turn, agent
from dragoman.bindings.http.listener import TlsListener
from dragoman.calling import tls
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.client.options import CallOptions
from dragoman.core.task import states
from dragoman.security.tls.certificate_files import CertificateFiles
from dragoman.settings.settings import Settings, SettingsError
from dragoman.wire.cards.remote_card import GRPC_LISTING
from dragoman.wiring.app import App, open_app

gate = asyncio.Event()


@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text


@agent
async def gated(turn: Turn) -> None:
    await turn.chunk("first")
    await gate.wait()
    await turn.chunk("second")


@pytest.fixture(autouse=True)
def _closed_gate(no_settings: None) -> None:
    global gate
    gate = asyncio.Event()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def opened(folder: Path, authority: Authority, **settings: Any) -> AsyncIterator[App]:
    certificate, key = write(folder, authority.issue())
    given = {"store": f"sqlite:///{folder}/t.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", **settings}
    async with open_app(Settings(tls_cert=certificate, tls_key=key, **given), [echo, gated]) as app:
        yield app


def client_of(app: App, binding: str, ca: Path | None, agent: str = "") -> Client:
    address = f"grpcs://{app.grpc}" if binding == "grpc" else app.http.url
    return Client(address, binding=binding, agent=agent, options=CallOptions(ca=ca))


async def shown_by(address: str, port: int, *, name: str | None = None) -> bytes:
    """The certificates that a port presents with and without SNI."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])

    def ask() -> bytes:
        with (
            socket.create_connection((address, port)) as plain,
            context.wrap_socket(plain, server_hostname=name) as wrapped,
        ):
            return wrapped.getpeercert(binary_form=True) or b""

    return await asyncio.to_thread(ask)


def der(pair: tuple[bytes, bytes]) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair[0].decode().partition("-----END CERTIFICATE-----")[0] + ssl.PEM_FOOTER + "\n")


@pytest.mark.parametrize("binding", ["grpc", "rest", "jsonrpc", "ws"])
async def test_every_binding_is_served_over_tls(tmp_path: Path, authority: Authority, binding: str) -> None:
    async with opened(tmp_path, authority) as app, client_of(app, binding, authority.ca) as client:
        assert (await client.send(message("hello"))).task.status.state == states.COMPLETED
        events = [event async for event in client.stream(message("hello"))]
        assert events[0].HasField("task")
        assert events[-1].status_update.status.state == states.COMPLETED


@pytest.mark.parametrize("binding", ["grpc", "rest", "ws"])
async def test_an_untrusted_ca_is_reported_with_a_remedy(tmp_path: Path, authority: Authority, binding: str) -> None:
    stranger = Authority(tmp_path, "stranger")
    async with opened(tmp_path, authority) as app:
        for ca in (None, stranger.ca):
            async with client_of(app, binding, ca) as client:
                with pytest.raises(ClientError) as caught:
                    await client.get("t1")
                assert caught.value.unreachable
                assert "--ca" in tls.tls_advice(caught.value.message)


async def test_an_address_without_scheme_uses_tls_if_a_ca_is_given(tmp_path: Path, authority: Authority) -> None:
    async with (
        opened(tmp_path, authority) as app,
        Client(str(app.grpc), options=CallOptions(ca=authority.ca)) as client,
    ):
        assert (await client.send(message("hello"))).task.status.state == states.COMPLETED


async def test_plain_http_gets_a_response_that_asks_for_https(tmp_path: Path, authority: Authority) -> None:
    async with opened(tmp_path, authority) as app, aiohttp.ClientSession() as session:
        async with session.get(f"http://{app.http}/healthz") as answer:
            assert (answer.status, await answer.text()) == (400, "This port speaks HTTPS; use https://\n")
        # also with an unread body
        async with session.post(f"http://{app.http}/message:send", data=b"x" * 300_000) as answer:
            assert answer.status == 400


async def test_our_client_reports_plain_grpc_to_a_tls_port(tmp_path: Path, authority: Authority) -> None:
    async with opened(tmp_path, authority) as app, Client(str(app.grpc)) as client:
        with pytest.raises(ClientError) as caught:
            await client.get("t1")
        assert "try grpcs://" in tls.tls_advice(caught.value.message)


@pytest.mark.parametrize("which", ["http", "grpc"])
async def test_tls_versions_before_1_2_are_rejected(tmp_path: Path, authority: Authority, which: str) -> None:
    context = ssl.create_default_context(cafile=authority.ca)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.set_alpn_protocols(["h2", "http/1.1"])

    def shake_hands(port: int, newest: ssl.TLSVersion) -> str | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the test needs an old version
            context.minimum_version = ssl.TLSVersion.TLSv1_1
            context.maximum_version = newest
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
        ):
            return wrapped.version()

    async with opened(tmp_path, authority) as app:
        port = (app.http if which == "http" else app.grpc).port
        assert await asyncio.to_thread(shake_hands, port, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        assert await asyncio.to_thread(shake_hands, port, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(shake_hands, port, old)


async def test_cards_have_https_and_tls_addresses(tmp_path: Path, authority: Authority) -> None:
    async with opened(tmp_path, authority) as app, aiohttp.ClientSession() as session:
        assert app.card_url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=authority.ca)
        async with session.get(app.card_url, ssl=context, headers={"A2A-Extensions": GRPC_LISTING}) as answer:
            card = await answer.json()
        async with session.get(f"https://localhost:{app.http.port}/openapi.json", ssl=context) as answer:
            assert (await answer.json())["servers"] == [{"url": f"https://localhost:{app.http.port}"}]
    urls = {(interface["protocolBinding"], interface["url"]) for interface in card["supportedInterfaces"]}
    assert {url for binding, url in urls if binding != "GRPC"} == {app.http.url}
    assert {url for binding, url in urls if binding == "GRPC"} == {str(app.grpc), f"dns:///{app.grpc}"}
    assert card["url"] == app.http.url


async def test_new_connections_use_a_new_certificate_and_open_streams_continue(
    tmp_path: Path, authority: Authority
) -> None:
    other = Authority(tmp_path, "other")
    async with opened(tmp_path, authority) as app, AsyncExitStack() as stack:
        assert app.infra.certificates is not None
        streams = []
        for binding in ("grpc", "rest", "ws"):
            client = await stack.enter_async_context(client_of(app, binding, authority.ca, "gated"))
            events = client.stream(message("go"))
            while (await anext(events)).WhichOneof("payload") != "artifact_update":
                pass
            streams.append(events)
        new = other.issue()
        write(tmp_path, new)
        assert app.infra.certificates.refresh()
        for bound in (app.http, app.grpc):
            for name in ("localhost", None):  # without SNI, too
                assert await shown_by("127.0.0.1", bound.port, name=name) == der(new)
        for binding in ("grpc", "rest", "ws"):
            async with client_of(app, binding, other.ca) as client:
                assert (await client.send(message("hello"))).task.status.state == states.COMPLETED
            async with client_of(app, binding, authority.ca) as client:
                with pytest.raises(ClientError, match="UNAVAILABLE"):
                    await client.get("t1")
        gate.set()
        for events in streams:
            rest = [event async for event in events]
            assert rest[-1].status_update.status.state == states.COMPLETED


async def test_an_invalid_new_pair_leaves_the_old_one_in_use(tmp_path: Path, authority: Authority) -> None:
    async with opened(tmp_path, authority) as app:
        assert app.infra.certificates is not None
        before = der(app.infra.certificates.pair)
        new = authority.issue()
        for bad in ((new[0], b""), (new[0][:300], new[1]), (new[0], authority.issue()[1]), (new[0], encrypted(new[1]))):
            write(tmp_path, bad)
            assert not app.infra.certificates.refresh()
            for bound in (app.http, app.grpc):
                assert await shown_by("127.0.0.1", bound.port) == before
            for binding in ("grpc", "rest"):
                async with client_of(app, binding, authority.ca) as client:
                    assert (await client.send(message("hello"))).task.status.state == states.COMPLETED


async def test_an_invalid_pair_is_rejected_at_startup(tmp_path: Path, authority: Authority) -> None:
    certificate, key = write(tmp_path, authority.issue())
    (tmp_path / "absent.pem").unlink(missing_ok=True)
    for given, why in (
        ({"tls_cert": certificate}, "set both or neither"),
        ({"tls_key": key}, "set both or neither"),
        ({"tls_cert": certificate, "tls_key": tmp_path / "absent.pem"}, "absent.pem: No such file"),
        ({"tls_cert": key, "tls_key": key}, "must contain a certificate"),
    ):
        settings = Settings(store=f"sqlite:///{tmp_path}/t.db", http="127.0.0.1:0", grpc="127.0.0.1:0", **given)
        with pytest.raises(SettingsError, match=rf"^--tls-cert, --tls-key: .*{why}"):
            async with open_app(settings, [echo]):
                pass


# The listener ----------------------------------------------------------------------------------------------


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


@asynccontextmanager
async def endpoint_entry(folder: Path, authority: Authority, **options: Any) -> AsyncIterator[int]:
    opened = TlsListener(Greeter, CertificateFiles(*write(folder, authority.issue())), **options)
    _, port = await opened.open("127.0.0.1", 0)
    try:
        yield port
    finally:
        await opened.close()


@pytest.mark.parametrize("response", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
async def test_an_unfinished_handshake_times_out(tmp_path: Path, authority: Authority, response: bytes) -> None:
    async with endpoint_entry(tmp_path, authority, handshake_timeout=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(response)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_the_oldest_handshakes_beyond_the_cap_are_closed(tmp_path: Path, authority: Authority) -> None:
    async with endpoint_entry(tmp_path, authority, max_handshakes=3) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        for reader, _ in silent[:3]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        context = ssl.create_default_context(cafile=authority.ca)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert await reader.read() == b"hello"
        for _, each in (*silent, (reader, writer)):
            each.close()


async def test_an_address_in_use_raises_an_error(tmp_path: Path, authority: Authority) -> None:
    async with endpoint_entry(tmp_path, authority) as port:
        certificates = CertificateFiles(*write(tmp_path, authority.issue()))
        with pytest.raises(OSError, match="in use"):
            await TlsListener(Greeter, certificates).open("127.0.0.1", port)
