"""Outbound requests to real servers on this machine, with DNS answers set by the tests."""

from __future__ import annotations

import asyncio
import errno
import gzip
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.certificates import Authority, write
from tests.postgres import free_port

from dragoman.core.net.addresses import AddressPolicy, parse_allow_entry
from dragoman.core.net.targets import OutboundPolicy
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundForbidden, OutboundHttp, OutboundResponse
from dragoman.security.outbound import MAX_GET_BODY_BYTES, MAX_POST_BODY_BYTES, OutboundClient, OutboundTimeouts
from dragoman.security.tls.certificate_files import CertificateFiles

HERE = OutboundPolicy(AddressPolicy(loopback=True))
PUBLIC = "93.184.215.14"


class Names:
    """A name server with a list of answers per host, the last of which is repeated."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {host.replace("_", "."): list(lists) for host, lists in answers.items()}
        self.lookups: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append(host)
        lists = self.answers.get(host)
        if not lists:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return lists.pop(0) if len(lists) > 1 else lists[0]


class ConnectedSocket:
    """Records connections instead of opening them."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    def __call__(self, info: Any) -> socket.socket:
        self.addresses.append(info[4][0])
        raise OSError(errno.ENETUNREACH, "not in a test")


class Receiver:
    """A web server that records requests and returns configured responses."""

    def __init__(self, answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        self.answer = answer
        self.got: list[tuple[str, str, dict[str, str], bytes]] = []
        self.port = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.got.append((request.method, str(request.rel_url.raw_path_qs), headers, await request.read()))
        return await self.answer(request)


async def well(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="well", headers={"Set-Cookie": "a=b", "X-Two": "1"})


@asynccontextmanager
async def receiving(
    answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = well, host: str = "127.0.0.1"
) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer)
    runner = web.ServerRunner(web.Server(receiver), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, 0).start()
    receiver.port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        await runner.cleanup()


@asynccontextmanager
async def guarding(rules: OutboundPolicy = HERE, **options: Any) -> AsyncIterator[OutboundClient]:
    guard = OutboundClient(rules, **options)
    try:
        yield guard
    finally:
        await guard.close()
        await guard.close()  # can be called twice


async def test_requests_and_responses_pass_unchanged() -> None:
    async with receiving() as receiver, guarding() as guard:
        outbound: OutboundHttp = guard
        url = f"http://127.0.0.1:{receiver.port}/a%2Fb/../c?x=%20&y=1#z"
        reply = await outbound.post(url, b"body", {"Content-Type": "text/x", "Authorization": "Bearer t"})
        got = await outbound.get(url, {"Accept": "application/json"})
    assert reply == OutboundResponse(200, reply.headers, b"well")
    assert (got.status, got.headers["x-two"]) == (200, "1")
    (method, path, headers, body), (second, _, later, _) = receiver.got
    assert (method, path, body) == ("POST", "/a%2Fb/../c?x=%20&y=1", b"body")
    assert (headers["content-type"], headers["authorization"]) == ("text/x", "Bearer t")
    assert headers["user-agent"] == "Dragoman"
    assert headers["accept-encoding"] == "identity"
    assert (second, later["accept"]) == ("GET", "application/json")
    assert "cookie" not in later  # though the first answer set one


@pytest.mark.parametrize("size", [0, 4, 300_000])
async def test_a_request_that_may_no_longer_be_sent_once_connected_is_not_sent(size: int) -> None:
    async with receiving() as receiver, guarding() as guard:
        url, connected = f"http://127.0.0.1:{receiver.port}/", []

        def may_send() -> bool:
            connected.append(len(receiver.got))
            return len(connected) == 2

        with pytest.raises(OutboundFailed, match="not sent: the delivery now belongs to another process"):
            await guard.post(url, b"x" * size, {}, may_send=may_send)
        assert (await guard.post(url, b"x" * size, {}, may_send=may_send)).status == 200
    assert connected == [0, 0]
    assert [len(body) for _, _, _, body in receiver.got] == [size]


# Text forms ------------------------------------------------------------------------------------------------

REFUSED = [
    *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "0177.0.0.1", "0", "0.0.0.0"),
    *("localhost", "LOCALHOST.", "x.localhost", "10.0.0.5", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1"),
    *("169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "224.0.0.1", "255.255.255.255"),
    *("[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1]", "[fe80::1%25lo]"),
    *("[fd00::1]", "[fec0::1]", "[fd00:ec2::254]", "[ff02::1]", "[2001:db8::1]", "[64:ff9b::127.0.0.1]"),
    *("[64:ff9b::10.0.0.5]", "[2002:7f00:1::]", "[2002:a00:5::]", "[2001:0:7f00:1::]", "[::ffff:169.254.169.254]"),
    *("[::ffff:0:127.0.0.1]", "[2a00::5efe:10.0.0.5]", "%31%32%37.0.0.1", "①②⑦.0.0.1", "user@8.8.8.8"),
]


@pytest.mark.parametrize("host", REFUSED)
async def test_every_spelling_of_a_private_address_is_rejected(host: str) -> None:
    connected_to = ConnectedSocket()
    names = Names()
    async with guarding(OutboundPolicy(), lookup=names, dial=connected_to) as guard:
        for url in (f"http://{host}/", f"https://{host}:8443/"):
            with pytest.raises(OutboundForbidden):
                guard.check_url(url)
            with pytest.raises(OutboundForbidden):
                await guard.get(url)
            with pytest.raises(OutboundForbidden):
                await guard.post(url, b"", {})
    assert (connected_to.addresses, names.lookups) == ([], [])


async def test_errors_name_the_rule_and_no_secrets() -> None:
    async with guarding(OutboundPolicy()) as guard:
        for url in (
            "ftp://hooks.example/secret",
            "https://secret:secret@hooks.example/secret",
            "https://hooks.example:25/secret?secret",
            "https://10.0.0.5/secret?secret",
            "https://localhost/secret",
            "https://secret\x00/",
        ):
            with pytest.raises(OutboundForbidden) as caught:
                guard.check_url(url)
            assert "secret" not in str(caught.value)
    assert "outbound_allow" not in str(caught.value)


# Names -----------------------------------------------------------------------------------------------------

INNER = [
    *("127.0.0.1", "0.0.0.0", "10.0.0.5", "192.168.1.1", "100.64.0.1", "169.254.169.254", "::1", "::", "fd00::1"),
    *("fe80::1%eth0", "::ffff:127.0.0.1", "::ffff:10.0.0.5", "64:ff9b::a00:5", "2002:a00:5::", "fd00:ec2::254"),
]


@pytest.mark.parametrize("address", INNER)
async def test_a_host_that_resolves_to_a_private_address_is_rejected(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    connected_to = ConnectedSocket()
    caplog.set_level(logging.WARNING, "dragoman.outbound")
    async with guarding(OutboundPolicy(), lookup=Names(hooks_example=[[address]]), dial=connected_to) as guard:
        guard.check_url("http://hooks.example/")  # the URL itself is valid
        with pytest.raises(OutboundForbidden) as caught:
            await guard.get("http://hooks.example/")
    assert connected_to.addresses == []
    assert address not in str(caught.value)  # callers do not learn our addresses
    assert "allowed are public addresses" in str(caught.value)
    assert address in caplog.text  # operators do
    if address == "10.0.0.5":  # quoted in docs/how-to/outbound.md
        page = (Path(__file__).parents[2] / "docs" / "how-to" / "outbound.md").read_text("utf-8")
        assert f"WARNING dragoman.outbound: {caplog.records[-1].getMessage()}\n" in page


async def test_only_the_public_ones_of_mixed_addresses_are_used() -> None:
    connected_to = ConnectedSocket()
    answers = ["10.0.0.5", PUBLIC, "::1", "2606:4700::1111", "127.0.0.1", PUBLIC]
    async with guarding(OutboundPolicy(), lookup=Names(hooks_example=[answers]), dial=connected_to) as guard:
        with pytest.raises(OutboundFailed, match=r"^hooks.example:80: "):
            await guard.get("http://hooks.example/")
    assert sorted(connected_to.addresses) == ["2606:4700::1111", PUBLIC]


async def test_changed_dns_answers_are_checked_each_time() -> None:
    connected_to = ConnectedSocket()
    names = Names(hooks_example=[[PUBLIC], ["127.0.0.1"]])
    async with receiving() as receiver, guarding(OutboundPolicy(), lookup=names, dial=connected_to) as guard:
        url = f"http://hooks.example:{receiver.port}/"
        guard.check_url(url)
        assert names.lookups == []  # checking a URL resolves nothing, so no answer can be outdated
        with pytest.raises(OutboundFailed):
            await guard.post(url, b"", {})
        with pytest.raises(OutboundForbidden):
            await guard.post(url, b"", {})
    assert names.lookups == ["hooks.example"] * 2  # once per connection: the checked address is the one connected to
    assert connected_to.addresses == [PUBLIC]
    assert receiver.got == []


async def test_the_checked_address_is_the_one_connected_to() -> None:
    names = Names(hooks_internal=[["127.0.0.1"], ["127.0.0.2"]])
    async with receiving() as receiver, guarding(lookup=names) as guard:
        await guard.post(f"http://hooks.internal:{receiver.port}/", b"1", {})
        await guard.post(f"http://hooks.internal:{receiver.port}/", b"2", {})
    assert names.lookups == ["hooks.internal"]  # the second call used the connection of the first
    assert [headers["host"] for _, _, headers, _ in receiver.got] == [f"hooks.internal:{receiver.port}"] * 2


async def test_the_peer_address_is_checked_before_a_byte_is_sent() -> None:
    async with receiving() as receiver:

        def elsewhere(info: Any) -> socket.socket:
            """A socket that connects to this machine instead, as a network could."""

            class Led(socket.socket):
                def connect(self, _: Any) -> None:
                    super().connect(("127.0.0.1", receiver.port))

            return Led(info[0], info[1], info[2])

        async with guarding(OutboundPolicy(), lookup=Names(hooks_example=[[PUBLIC]]), dial=elsewhere) as guard:
            with pytest.raises(OutboundForbidden):
                await guard.post(f"http://hooks.example:{receiver.port}/", b"", {})
    assert receiver.got == []


async def test_an_unknown_host_is_a_failure() -> None:
    async with guarding(OutboundPolicy(), lookup=Names()) as guard:
        with pytest.raises(OutboundFailed, match=r"^absent.example:443: no such host"):
            await guard.get("https://absent.example/secret")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.ip_addresses(v=4),
            st.ip_addresses(v=6),
            st.sampled_from(INNER).map(lambda text: ip_address(text)),
            st.ip_addresses(v=4).map(lambda inside: ip_address(f"::ffff:{inside}")),
            st.ip_addresses(v=4, network="10.0.0.0/8"),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(("", "10.0.0.0/8", "hooks.example", "hooks.example:8080", "::/0", "0.0.0.0/0")),
    st.booleans(),
    st.sampled_from((80, 8080)),
)
async def test_special_addresses_are_never_connected_to_unless_allowed(
    answers: list[IPv4Address | IPv6Address], entry: str, loopback: bool, port: int
) -> None:
    connected_to = ConnectedSocket()
    allowed = AddressPolicy((parse_allow_entry(entry),) if entry else (), loopback=loopback)
    names = Names(hooks_example=[[str(address) for address in answers]])
    async with guarding(OutboundPolicy(allowed), lookup=names, dial=connected_to) as guard:
        with pytest.raises((OutboundForbidden, OutboundFailed)):
            await guard.get(f"http://hooks.example:{port}/")
        for address in answers:
            host = f"[{address}]" if address.version == 6 else str(address)
            with pytest.raises((OutboundForbidden, OutboundFailed)):
                await guard.get(f"http://{host}:{port}/")
    named = entry in ("hooks.example", f"hooks.example:{port}")
    for text in connected_to.addresses:
        address = ip_address(text)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        real = mapped or address
        private = isinstance(real, IPv4Address) and str(real).startswith("10.")
        assert (
            real.is_global
            or (real.is_loopback and loopback)
            or named
            or entry in ("::/0", "0.0.0.0/0")
            or (private and entry == "10.0.0.0/8")
        ), f"{text} was dialled"
        assert not any((real.is_multicast, real.is_link_local, real.is_unspecified))


# Allowed ---------------------------------------------------------------------------------------------------


def own_address() -> str | None:
    """A non-loopback address of this machine, if any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


async def test_an_allowed_private_receiver_works() -> None:
    address = own_address()
    if address is None or AddressPolicy().problem(ip_address(address), 80) == "":
        pytest.skip("this machine has no private address")
    names = Names(hooks_internal=[[address]])
    async with receiving(host=address) as receiver:
        url = f"http://hooks.internal:{receiver.port}/"
        for entry in (address, f"{address}/32", f"{address}:{receiver.port}", "hooks.internal"):
            async with guarding(OutboundPolicy(AddressPolicy((parse_allow_entry(entry),))), lookup=names) as guard:
                assert (await guard.post(url, b"", {})).status == 200
        for entry in ("other.internal", f"{address}:1", f"hooks.internal:{receiver.port + 1}"):
            async with guarding(OutboundPolicy(AddressPolicy((parse_allow_entry(entry),))), lookup=names) as guard:
                with pytest.raises(OutboundForbidden):
                    await guard.post(url, b"", {})
    assert len(receiver.got) == 4


async def test_loopback_is_allowed_on_private_servers_and_by_entries_that_name_it() -> None:
    everything = tuple(parse_allow_entry(entry) for entry in ("0.0.0.0/0", "::/0", "hooks.internal", "64.0.0.0/2"))
    async with receiving() as receiver:
        for host in ("127.0.0.1", "localhost"):
            async with guarding(lookup=Names(localhost=[["127.0.0.1"]])) as guard:
                assert (await guard.get(f"http://{host}:{receiver.port}/")).body == b"well"
            async with guarding(OutboundPolicy(AddressPolicy(everything))) as guard:
                with pytest.raises(OutboundForbidden, match="outbound_allow"):
                    await guard.get(f"http://{host}:{receiver.port}/")
            for entry in ("127.0.0.1", f"127.0.0.1:{receiver.port}", "127.0.0.0/8"):
                policy = OutboundPolicy(AddressPolicy((parse_allow_entry(entry),)))
                async with guarding(policy, lookup=Names(localhost=[["127.0.0.1"]])) as guard:
                    assert (await guard.get(f"http://{host}:{receiver.port}/")).body == b"well"


# Responses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_returned_and_not_followed(status: int) -> None:
    async with receiving() as inner:

        async def away(_: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": f"http://127.0.0.1:{inner.port}/inner"})

        async with receiving(away) as receiver, guarding() as guard:
            for reply in (
                await guard.get(f"http://127.0.0.1:{receiver.port}/"),
                await guard.post(f"http://127.0.0.1:{receiver.port}/", b"", {}),
            ):
                assert reply.status == status
    assert inner.got == []


async def test_proxies_in_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        async with guarding() as guard:
            await guard.get(f"http://127.0.0.1:{receiver.port}/")
    assert (len(proxy.got), len(receiver.got)) == (0, 1)


async def test_long_responses_are_truncated_for_post_and_rejected_for_get() -> None:
    async def long(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"x" * size)

    size = MAX_GET_BODY_BYTES
    async with receiving(long) as receiver, guarding() as guard:
        url = f"http://127.0.0.1:{receiver.port}/"
        whole = await guard.get(url)
        assert whole == OutboundResponse(200, whole.headers, b"x" * size)
        assert (await guard.post(url, b"", {})).body == b"x" * MAX_POST_BODY_BYTES
        size += 1
        with pytest.raises(OutboundFailed, match=f"responded with more than {MAX_GET_BODY_BYTES} bytes"):
            await guard.get(url)


async def test_an_endless_response_is_not_read_completely() -> None:
    ended = asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        finally:
            ended.set()

    async with receiving(endless) as receiver, guarding() as guard:
        with pytest.raises(OutboundFailed, match="more than"):
            await guard.get(f"http://127.0.0.1:{receiver.port}/")
        await ended.wait()


async def test_a_compressed_response_is_never_decompressed() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)

    async def packed(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with receiving(packed) as receiver, guarding() as guard:
        url = f"http://127.0.0.1:{receiver.port}/"
        assert (await guard.post(url, b"", {})).body == bomb[: 64 * 1024]
        with pytest.raises(OutboundFailed, match="compressed response, which was not requested"):
            await guard.get(url)


@pytest.mark.parametrize(
    ("timeouts", "text"),
    [
        (OutboundTimeouts(total=0.05), r"not done within 0.05 s"),
        (OutboundTimeouts(read=0.05), r"silent for 0.05 s"),
    ],
)
async def test_a_silent_receiver_times_out(timeouts: OutboundTimeouts, text: str) -> None:
    async def silent(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with receiving(silent) as receiver, guarding(timeouts=timeouts) as guard:
        with pytest.raises(OutboundFailed, match=text):
            await guard.get(f"http://127.0.0.1:{receiver.port}/")


async def test_a_silent_name_server_times_out() -> None:
    async def silent(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async with guarding(OutboundPolicy(), lookup=silent, timeouts=OutboundTimeouts(connect=0.05)) as guard:
        with pytest.raises(OutboundFailed, match=r"no connection within 0.05 s"):
            await guard.get("http://hooks.example/")


async def test_errors_contain_nothing_of_a_private_service() -> None:
    async def no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"SSH-2.0-OpenSSH_secret\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(no_http, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, guarding() as guard:
        for url in (f"http://127.0.0.1:{port}/secret", f"https://127.0.0.1:{port}/secret"):
            with pytest.raises(OutboundFailed) as caught:
                await guard.get(url)
            assert "secret" not in str(caught.value)
            assert caught.value.__cause__ is None
            assert str(caught.value).startswith(f"127.0.0.1:{port}: ")


async def test_a_closed_port_is_a_connect_failure() -> None:
    port = free_port()
    async with guarding() as guard:
        with pytest.raises(OutboundFailed, match=rf"^127.0.0.1:{port}: refused the connection$"):
            await guard.get(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "other.example"},
        {"content-length": "5"},
        {"Transfer-Encoding": "chunked"},
        {"Proxy-Authorization": "Basic x"},
        {"X-Token": "a\r\nHost: other.example"},
        {"X-Token": "a\x00"},
        {"X Token": "a"},
        {"X-Token:": "a"},
        {"": "a"},
    ],
)
async def test_headers_cannot_change_where_a_request_goes(headers: dict[str, str]) -> None:
    async with receiving() as receiver, guarding() as guard:
        with pytest.raises(OutboundForbidden, match="header"):
            await guard.post(f"http://127.0.0.1:{receiver.port}/", b"", headers)
    assert receiver.got == []


@asynccontextmanager
async def encrypted(authority: Authority, folder: Path) -> AsyncIterator[int]:
    """A receiver with a certificate for the names of this machine."""
    context = CertificateFiles(*write(folder, authority.issue())).ssl_context
    runner = web.ServerRunner(web.Server(well), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_certificates_are_verified_with_system_and_given_cas(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    names = Names(localhost=[["127.0.0.1"]], hooks_example=[["127.0.0.1"]])
    async with encrypted(authority, tmp_path) as port:
        async with guarding(lookup=names, ca=authority.ca) as guard:
            assert (await guard.get(f"https://localhost:{port}/")).body == b"well"
            assert (await guard.post(f"https://127.0.0.1:{port}/", b"", {})).body == b"well"
            with pytest.raises(OutboundFailed, match=r"^hooks.example:\d+: its TLS certificate is invalid: .*mismatch"):
                await guard.get(f"https://hooks.example:{port}/")
            with pytest.raises(OutboundFailed, match=r"connection lost|invalid HTTP") as taken:
                await guard.get(f"http://localhost:{port}/")
            assert not isinstance(taken.value, ConnectFailed)
        async with guarding(lookup=names) as guard:
            with pytest.raises(OutboundFailed, match="its TLS certificate is invalid: "):
                await guard.get(f"https://localhost:{port}/")


async def test_hosts_are_resolved_by_the_system() -> None:
    async with receiving() as receiver, guarding() as guard:
        assert (await guard.get(f"http://localhost:{receiver.port}/")).body == b"well"


async def test_a_ca_file_without_certificates_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for name, why in (("ca.pem", "NO_CERTIFICATE"), ("absent.pem", "No such file")):
        with pytest.raises(OSError, match=why):
            OutboundClient(HERE, ca=tmp_path / name)
