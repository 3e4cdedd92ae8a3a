"""Client certificates on both ports: accepted and rejected ones, principals and grants."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from tests.certificates import DAY, Authority, ClientAuthority, serial_of, write
from tests.eventually import eventually

from dragoman import Turn, agent
from dragoman.bindings.options import BoundAddress
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.client.options import CallOptions
from dragoman.core.task import states
from dragoman.settings.settings import Settings, SettingsError
from dragoman.wiring.app import App, AppTimings, open_app
from dragoman.worker.stream import ServerStream
from dragoman.worker.worker import Worker
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("no_settings")]

HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"  # with empty SETTINGS
BINDINGS: Final = ["grpc", "rest", "jsonrpc", "ws"]


@agent(default=True)
async def echo(turn: Turn) -> str:
    return f"{turn.principal}: {turn.text}"


@agent
async def endless(turn: Turn) -> None:
    await turn.chunk("first")
    await asyncio.Event().wait()


@agent
async def far(turn: Turn) -> str:
    return "from afar"


@pytest.fixture(scope="module")
def _authority_of_servers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, tuple[bytes, bytes]]:
    authority = Authority(tmp_path_factory.mktemp("servers"))
    return authority, authority.issue()


@pytest.fixture
def server_ca(_authority_of_servers: tuple[Authority, tuple[bytes, bytes]]) -> Path:
    return _authority_of_servers[0].ca


@pytest.fixture
def clients(tmp_path: Path) -> ClientAuthority:
    return ClientAuthority(tmp_path)


@pytest.fixture
def response(
    tmp_path: Path, clients: ClientAuthority, _authority_of_servers: tuple[Authority, tuple[bytes, bytes]]
) -> dict[str, Any]:
    certificate, key = write(tmp_path, _authority_of_servers[1])
    return {
        "store": f"sqlite:///{tmp_path}/t.db",
        "http": "127.0.0.1:0",
        "grpc": "127.0.0.1:0",
        "tls_cert": certificate,
        "tls_key": key,
        "tls_client_ca": clients.ca,
    }


OFTEN_CHECKED = AppTimings(credential_check_interval=0.05)


@asynccontextmanager
async def opened(values: dict[str, Any], **more: Any) -> AsyncIterator[App]:
    async with open_app(Settings.model_validate({**values, **more}), [echo, endless], timings=OFTEN_CHECKED) as app:
        yield app


def client_of(app: App, binding: str, ca: Path, cert: Path | None, *, token: str = "", agent: str = "") -> Client:
    address = f"grpcs://{app.grpc}" if binding == "grpc" else app.http.url
    return Client(address, binding=binding, agent=agent, options=CallOptions(ca=ca, cert=cert, token=token))


async def ask(client: Client) -> str:
    async with client:
        task = (await client.send(message("hello"))).task
        assert task.status.state == states.COMPLETED
        return task.artifacts[0].parts[0].text


async def refused(client: Client) -> str:
    """The error of a call."""
    with pytest.raises(ClientError) as caught:
        await ask(client)
    return f"{caught.value.code}: {caught.value.message}"


async def test_a_client_certificate_authenticates_on_every_binding(
    response: dict[str, Any], clients: ClientAuthority, server_ca: Path
) -> None:
    alice, bob = clients.issue("alice"), clients.issue("bob")
    async with opened(response) as app:
        for binding in BINDINGS:
            assert await ask(client_of(app, binding, server_ca, alice)) == "alice: hello"
        async with client_of(app, "grpc", server_ca, alice) as mine, client_of(app, "rest", server_ca, bob) as theirs:
            task = (await mine.send(message("hello"))).task.id
            with pytest.raises(ClientError, match="NOT_FOUND"):
                await theirs.get(task)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_untrusted_certificates_are_rejected(
    response: dict[str, Any], tmp_path: Path, clients: ClientAuthority, server_ca: Path, binding: str
) -> None:
    revoked, good = clients.issue("alice"), clients.issue("alice")
    (tmp_path / "revoked").write_text(f"{serial_of(revoked):x}  # the old laptop\n")
    async with opened(response, tls_client_revoked=tmp_path / "revoked") as app:
        assert await ask(client_of(app, binding, server_ca, good)) == "alice: hello"
        for cert in (
            ClientAuthority(tmp_path, "strangers").issue("alice"),
            clients.issue("alice", ends=-timedelta(hours=1)),
            clients.issue("alice", begins=timedelta(hours=1)),
        ):
            assert "UNAVAILABLE" in await refused(client_of(app, binding, server_ca, cert))
        # WebSocket clients do not get the reason of a failed handshake.
        why = "UNAUTHENTICATED" if binding == "ws" else "this certificate was revoked"
        assert why in await refused(client_of(app, binding, server_ca, revoked))
        text = await refused(client_of(app, binding, server_ca, None))
        # gRPC cannot request certificates without requiring them; HTTP has other credentials and public pages.
        assert ("UNAVAILABLE" if binding == "grpc" else "UNAUTHENTICATED") in text
        assert ("or connect with a certificate" in text) == (binding in ("rest", "jsonrpc"))
        nameless = await refused(client_of(app, binding, server_ca, clients.issue("", uri="spiffe://x/y")))
        assert ("UNAUTHENTICATED" if binding == "ws" else "it must have one common name") in nameless


async def test_the_principal_comes_from_the_configured_field(
    response: dict[str, Any], clients: ClientAuthority, server_ca: Path
) -> None:
    cert = clients.issue("alice", uri="spiffe://example.org/billing")
    async with opened(response, tls_client_principal="uri") as app:
        assert await ask(client_of(app, "grpc", server_ca, cert)) == "spiffe://example.org/billing: hello"
        assert "it must have one URI" in await refused(client_of(app, "rest", server_ca, clients.issue("alice")))


async def test_other_credentials_precede_the_certificate(
    response: dict[str, Any], clients: ClientAuthority, server_ca: Path
) -> None:
    cert, token = clients.issue("gateway"), "token-of-the-operator"
    async with opened(response, token=token) as app:
        for binding in ("grpc", "rest"):
            assert await ask(client_of(app, binding, server_ca, cert, token=token)) == "token: hello"
            assert await ask(client_of(app, binding, server_ca, cert)) == "gateway: hello"
            assert "UNAUTHENTICATED" in await refused(client_of(app, binding, server_ca, cert, token="wrong"))
        assert await ask(client_of(app, "rest", server_ca, None, token=token)) == "token: hello"


async def test_certificate_principals_have_their_configured_grants(
    response: dict[str, Any], clients: ClientAuthority, server_ca: Path
) -> None:
    async with opened(response, tls_client_grants="root=operator,narrow=agent:endless") as app:
        address = f"grpcs://{app.grpc}"
        async with Operator(address, ca=server_ca, cert=clients.issue("root")) as operator:
            assert len((await operator.list_keys(ops.ListKeysRequest())).keys) == 0
        async with Operator(address, ca=server_ca, cert=clients.issue("alice")) as stranger:
            with pytest.raises(ClientError, match="PERMISSION_DENIED"):
                await stranger.list_keys(ops.ListKeysRequest())
        assert "PERMISSION_DENIED" in await refused(client_of(app, "grpc", server_ca, clients.issue("narrow")))


async def test_a_worker_authenticates_by_certificate(
    response: dict[str, Any], tmp_path: Path, clients: ClientAuthority, server_ca: Path
) -> None:
    (tmp_path / "revoked").touch()
    box, other = clients.issue("box1"), clients.issue("other")
    settings = {"tls_client_grants": {"box1": ["worker:far"]}, "tls_client_revoked": tmp_path / "revoked"}
    async with opened(response, **settings) as app:
        address = f"grpcs://{app.grpc}"
        open_stream = partial(ServerStream, ca=server_ca)
        with pytest.raises(ClientError, match="worker"):
            await Worker([far], address, open_stream=partial(open_stream, cert=other)).run()
        working = asyncio.create_task(
            Worker([far], address, open_stream=partial(ServerStream, ca=server_ca, cert=box)).run()
        )
        await eventually(lambda: not ("far" not in app.agents))
        assert await ask(client_of(app, "grpc", server_ca, other, agent="far")) == "from afar"
        # After revocation the open stream ends, and new connections are rejected.
        (tmp_path / "revoked").write_text(f"{serial_of(box):x}\n")
        assert app.infra.certificates is not None
        app.infra.certificates.refresh(force=True)
        async with asyncio.timeout(60):
            with pytest.raises(ClientError, match="this certificate was revoked"):
                await working


@pytest.mark.parametrize("form", ["pem", "der", "serials"])
async def test_revocations_apply_at_once_while_the_server_runs(
    response: dict[str, Any], tmp_path: Path, clients: ClientAuthority, server_ca: Path, form: str
) -> None:
    file, alice, bob = tmp_path / "revoked", clients.issue("alice"), clients.issue("bob")

    def write_list(*revoked: Path) -> None:
        if form == "serials":
            text = "".join(f"serial={serial_of(path):X}\n" for path in revoked)
            file.write_text(f"# as openssl x509 -serial has them\n{text}")
        else:
            file.write_bytes(clients.crl(*revoked, der=form == "der"))

    write_list()
    async with opened(response, tls_client_revoked=file) as app, client_of(app, "grpc", server_ca, alice) as open_one:
        assert app.infra.certificates is not None
        await open_one.send(message("hello"))
        write_list(alice)
        app.infra.certificates.refresh()
        with pytest.raises(ClientError, match="this certificate was revoked"):  # also on an open connection
            await open_one.send(message("hello"))
        assert "revoked" in await refused(client_of(app, "rest", server_ca, alice))
        assert await ask(client_of(app, "rest", server_ca, bob)) == "bob: hello"
        # An invalid file changes nothing.
        for bad in (b"\xff", b"no number\n", ClientAuthority(tmp_path, "strangers").crl(), clients.crl()[:200]):
            file.write_bytes(bad)
            app.infra.certificates.refresh()
            assert "revoked" in await refused(client_of(app, "rest", server_ca, alice))
        file.unlink()
        app.infra.certificates.refresh()
        assert "revoked" in await refused(client_of(app, "rest", server_ca, alice))


async def test_an_outdated_crl_applies_with_a_warning(
    response: dict[str, Any],
    tmp_path: Path,
    clients: ClientAuthority,
    server_ca: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    alice, bob = clients.issue("alice"), clients.issue("bob")
    (tmp_path / "revoked").write_bytes(clients.crl(alice, due=-DAY))
    async with opened(response, tls_client_revoked=tmp_path / "revoked") as app:
        assert "is old: the next one was due" in caplog.text
        assert "revoked" in await refused(client_of(app, "rest", server_ca, alice))
        assert await ask(client_of(app, "rest", server_ca, bob)) == "bob: hello"


@pytest.mark.parametrize("port", ["http", "grpc"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_does_not_outlive_the_ca_of_its_certificate(
    response: dict[str, Any], server_ca: Path, clients: ClientAuthority, tmp_path: Path, port: str, version: Any
) -> None:
    """A resumed handshake verifies no certificate: the server would take the one that is in its session."""
    context = ssl.create_default_context(cafile=server_ca)
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(clients.issue("alice"))
    context.set_alpn_protocols(["h2" if port == "grpc" else "http/1.1"])

    def connect(address: BoundAddress, session: ssl.SSLSession | None = None) -> tuple[ssl.SSLSession | None, bool]:
        """Returns the session, and whether it was resumed. Raises OSError if the server ends the handshake."""
        with (
            socket.create_connection((address.host, address.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as wrapped,
        ):
            # TLS 1.3 sends tickets, and rejects certificates, after the handshake of the client.
            wrapped.send(HTTP2_PREFACE if port == "grpc" else b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if not wrapped.recv(1):
                raise ConnectionResetError
            return wrapped.session, bool(wrapped.session_reused)

    async with opened(response) as app:
        address = getattr(app, port)
        session, _ = await asyncio.to_thread(connect, address)
        assert session is not None
        resumed = (await asyncio.to_thread(connect, address, session))[1]
        assert resumed or port == "grpc"  # without a change of the CAs, HTTP resumes sessions
        clients.ca.write_bytes(ClientAuthority(tmp_path, "successors").ca.read_bytes())
        assert app.infra.certificates is not None
        assert app.infra.certificates.refresh()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(connect, address, session)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(connect, address)


async def test_changed_client_cas_are_loaded_while_the_server_runs(
    response: dict[str, Any], tmp_path: Path, clients: ClientAuthority, server_ca: Path
) -> None:
    later = ClientAuthority(tmp_path, "later")
    alice, carol = clients.issue("alice"), later.issue("carol")
    async with opened(response) as app:
        assert app.infra.certificates is not None
        clients.ca.write_bytes(later.ca.read_bytes())
        assert app.infra.certificates.refresh()
        for binding in ("grpc", "rest"):
            assert await ask(client_of(app, binding, server_ca, carol)) == "carol: hello"
            assert "UNAVAILABLE" in await refused(client_of(app, binding, server_ca, alice))
        clients.ca.write_text("nothing\n")
        assert not app.infra.certificates.refresh()
        assert await ask(client_of(app, "grpc", server_ca, carol)) == "carol: hello"


async def test_the_card_lists_mutual_tls(response: dict[str, Any]) -> None:
    async with opened(response) as app, aiohttp.ClientSession() as session:
        async with session.get(app.card_url, ssl=False, headers={"A2A-Version": "1.0"}) as answer:
            card = await answer.json()
        async with session.get(app.card_url, ssl=False, headers={"A2A-Version": "0.3"}) as answer:
            old = await answer.json()
    assert card["securitySchemes"] == {"mtls": {"mtlsSecurityScheme": {}}}
    assert card["securityRequirements"] == [{"schemes": {"mtls": {"list": []}}}]
    assert old["securitySchemes"] == {"mtls": {"type": "mutualTLS"}}


async def test_invalid_files_are_rejected_at_startup(response: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("nothing\n")
    for more, why in (
        ({"tls_client_ca": tmp_path / "absent"}, "absent: No such file"),
        ({"tls_client_ca": tmp_path / "bad"}, "bad must contain CA certificates in PEM"),
        ({"tls_client_revoked": tmp_path / "absent"}, "absent: No such file"),
        ({"tls_client_revoked": tmp_path / "bad"}, "bad, line 1: is neither a serial number in hexadecimal"),
        ({"tls_cert": None, "tls_key": None}, "needs encrypted ports"),
        ({"tls_client_ca": None, "tls_client_grants": "a=operator"}, "has no effect without --tls-client-ca"),
    ):
        with pytest.raises(SettingsError, match=why):
            async with opened(response, **more):
                pass
