"""The cross-origin policy: which requests of web pages are served, and how others are rejected."""

from __future__ import annotations

import asyncio
import json
import ssl
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from tests.bindings.fake_service import TASK, FakeService, make_cards, over_http, status_event, task_event
from tests.callers import ByHeader, named
from tests.certificates import Authority, write

from dragoman.bindings.cards import Cards
from dragoman.bindings.http.server import serve_http
from dragoman.bindings.options import ServerOptions
from dragoman.core.task import states
from dragoman.security.tls.certificate_files import CertificateFiles
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EVIL: Final = "https://evil.example"
PAGE: Final = "https://pub.example"
FOREIGN: Final = {"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
OPENED: Final = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
MESSAGE: Final = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
CALL: Final = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": MESSAGE}
LIST: Final = ("GET", "/tasks", None)
ENDPOINTS: Final[list[tuple[str, str, Any]]] = [
    LIST,
    ("GET", "/v1/tasks/t1", None),
    ("GET", "/tasks/t1:subscribe", None),
    ("POST", "/message:send", MESSAGE),
    ("POST", "/v1/message:send", MESSAGE),
    ("POST", "/", CALL),
    ("POST", "/other", CALL),
    ("GET", "/.well-known/agent-card.json", None),
    ("GET", "/agents", None),
    ("GET", "/openapi.json", None),
    ("GET", "/console", None),
    ("GET", "/ws", None),
    ("GET", "/nothing/here", None),
]


def service() -> FakeService:
    return FakeService(pb.SendMessageResponse(task=TASK), [task_event(), status_event(2, states.COMPLETED, ends=True)])


async def requested(
    client: aiohttp.ClientSession, endpoint: tuple[str, str, Any], headers: dict[str, str]
) -> tuple[int, dict[str, Any]]:
    """Returns the status, and the body if it is a JSON object. Sends no Content-Type, as a page can do."""
    method, path, content = endpoint
    data = json.dumps(content).encode() if content is not None else None
    if path == "/ws":
        headers = {**headers, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        headers["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    async with client.request(
        method, path, data=data, headers=headers, skip_auto_headers=["Content-Type"], allow_redirects=False
    ) as answer:
        text = "" if answer.status == 101 else await answer.text()
        return answer.status, json.loads(text) if text.startswith("{") else {}


async def status(headers: dict[str, str], cards: Cards | None = None, **options: Any) -> int:
    """Returns the status of ListTasks with these headers."""
    async with over_http(FakeService(pb.ListTasksResponse()), cards, **options) as client:
        return (await requested(client, LIST, headers))[0]


# Pages of other origins ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        FOREIGN,
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[nonsense"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"},
        {**OPENED, "Sec-Fetch-Dest": "iframe"},
    ],
)
async def test_pages_of_other_origins_are_rejected_on_every_path(headers: dict[str, str]) -> None:
    fake = service()
    async with over_http(fake) as client:
        for endpoint in ENDPOINTS:
            code, body = await requested(client, endpoint, headers)
            assert code == 403, endpoint
            text = json.dumps(body)
            assert "--cors" in text, endpoint
            assert ("Origin" if "Origin" in headers else "Sec-Fetch-Site") in text, endpoint
    assert fake.received == []


async def test_the_rejection_has_the_error_format_of_the_dialect() -> None:
    async with over_http(service()) as client:
        bodies = {endpoint[1]: (await requested(client, endpoint, FOREIGN))[1] for endpoint in ENDPOINTS}
    text = f'Origin: a page of "{EVIL}" may not call; add its origin to --cors to allow it'
    v1 = bodies["/message:send"]["error"]
    assert (v1["code"], v1["status"], v1["message"]) == (403, "PERMISSION_DENIED", text)
    v03 = bodies["/v1/message:send"]
    assert (v03["code"], v03["type"], v03["message"]) == (-32603, "InternalError", text)
    for path in ("/", "/other"):
        rpc = bodies[path]
        assert (rpc["jsonrpc"], rpc["id"], rpc["error"]["code"], rpc["error"]["message"]) == ("2.0", None, -32603, text)


async def test_rejected_pages_get_no_authentication_challenge() -> None:
    async with (
        over_http(service(), authenticator=ByHeader()) as client,
        client.post("/", json=CALL, headers=FOREIGN) as answer,
    ):
        assert (answer.status, answer.headers.get("WWW-Authenticate")) == (403, None)


async def test_cross_site_navigation_opens_pages_but_cannot_post() -> None:
    fake = service()
    async with over_http(fake) as client:
        for path, expected in (("/console", 200), ("/", 302), ("/docs", 200)):
            assert (await requested(client, ("GET", path, None), {**OPENED, "Accept": "text/html"}))[0] == expected
        assert (await requested(client, ("POST", "/message:send", MESSAGE), {**OPENED, "Origin": EVIL}))[0] == 403
        assert (await requested(client, ("POST", "/", CALL), {**OPENED, "Origin": "null"}))[0] == 403
    assert fake.received == []


async def test_health_and_blob_links_are_allowed_for_every_page() -> None:
    async with over_http(service()) as client:
        assert (await requested(client, ("GET", "/healthz", None), FOREIGN))[0] == 200
        assert (await requested(client, ("GET", f"/blobs/{'0' * 64}", None), FOREIGN))[0] == 404


# Pages of this server, allowed origins, and clients that are not browsers -----------------------------------


@pytest.mark.parametrize(
    "endpoint", [LIST, ("POST", "/message:send", MESSAGE), ("POST", "/", CALL), ("GET", "/ws", None)]
)
async def test_requests_without_origin_headers_are_served(endpoint: tuple[str, str, Any]) -> None:
    async with over_http(service()) as client:
        for headers in ({}, {"Sec-Fetch-Mode": "cors"}, {"Origin": ""}, {"User-Agent": "Mozilla/5.0"}):
            assert (await requested(client, endpoint, headers))[0] in (101, 200), headers


@pytest.mark.parametrize(
    "endpoint", [LIST, ("POST", "/message:send", MESSAGE), ("POST", "/", CALL), ("GET", "/ws", None)]
)
async def test_pages_of_this_server_may_call(endpoint: tuple[str, str, Any]) -> None:
    async with over_http(service()) as client:
        at = str(client._base_url).rstrip("/")
        for headers in (
            {"Origin": at},
            {"Origin": at, "Sec-Fetch-Site": "same-origin"},
            {"Sec-Fetch-Site": "none"},
            # A proxy terminated TLS, and changed `Host` or kept it.
            {"Origin": PAGE, "Sec-Fetch-Site": "same-origin"},
            {"Origin": "https://localhost:8443", "Host": "localhost:8443"},
            {"Origin": "https://localhost", "Host": "localhost"},
        ):
            assert (await requested(client, endpoint, headers))[0] in (101, 200), headers


@pytest.mark.parametrize(
    ("cards", "headers", "expected"),
    [
        ({}, {"Origin": PAGE}, 403),
        ({"public_url": PAGE}, {"Origin": PAGE}, 200),
        ({"public_url": f"{PAGE}/agents"}, {"Origin": PAGE}, 200),
        ({"public_url": f"{PAGE}:8443"}, {"Origin": f"{PAGE}:8443"}, 200),
        ({"public_url": f"{PAGE}:8443"}, {"Origin": PAGE}, 403),
        ({"public_url": PAGE}, {"Origin": EVIL}, 403),
        ({"trusted_proxies": (ip_network("127.0.0.1"),)}, {"Origin": PAGE, "X-Forwarded-Host": "pub.example"}, 200),
        ({}, {"Origin": PAGE, "X-Forwarded-Host": "pub.example"}, 403),
    ],
)
async def test_own_origins_are_those_of_public_url_and_trusted_proxies(
    cards: dict[str, Any], headers: dict[str, str], expected: int
) -> None:
    assert await status(headers, make_cards(**cards)) == expected


async def test_pages_of_allowed_origins_may_call() -> None:
    async with over_http(service(), cors=(PAGE, "null")) as client:
        for endpoint in ENDPOINTS[:-2]:
            for origin in (PAGE, "null"):
                assert (await requested(client, endpoint, {**FOREIGN, "Origin": origin}))[0] == 200, endpoint
            assert (await requested(client, endpoint, FOREIGN))[0] == 403, endpoint
        async with client.ws_connect("/ws", headers={**FOREIGN, "Origin": PAGE}) as socket:
            await socket.send_json(CALL)
            assert (await socket.receive_json())["result"]["task"]["id"] == "t1"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await client.ws_connect("/ws", headers={"Origin": EVIL})
    assert await status(FOREIGN, cors=("*",)) == 200
    assert await status({"Sec-Fetch-Site": "cross-site"}, cors=("*",)) == 200


# Host names (DNS rebinding) --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("evil.example", 403),
        ("EVIL.example.:18780", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("evil{}.example", 400),
        ("localhost:1234", 200),
        ("127.0.0.1", 200),
        ("127.9.9.9:81", 200),
        ("[::1]:8080", 200),
        ("[::ffff:127.0.0.1]:8080", 200),
        ("demo.localhost", 200),
        ("", 200),
        ("evil.123", 403),
        ("[evil.com]", 403),
        ("evil.com:80@127.0.0.1", 400),
        ("127.0.0.1:80@evil.com", 400),
        ("localhost:80:80", 400),
        ("127.1", 403),
        ("192.168.1.7:8080", 403),
        ("agents:8080", 403),
        ("host.docker.internal:8080", 403),
        ("agents.test", 403),
    ],
)
async def test_without_authentication_only_local_host_names_are_served(host: str, expected: int) -> None:
    assert await status({"Host": host}) == expected
    # A matching Origin, as from a page of that name, changes nothing.
    assert await status({"Host": host, "Origin": f"http://{host}"} if host else {}) == expected


@pytest.mark.parametrize("host", ["evil.123", "[evil.com]", "evil.com:80@127.0.0.1", "192.168.1.7"])
async def test_every_path_but_health_checks_host_names(host: str) -> None:
    fake = service()
    async with over_http(fake) as client:
        for endpoint in (*ENDPOINTS, ("GET", "/console/console.js", None), ("GET", "/metrics", None)):
            expected = 400 if "@" in host else 403
            assert (await requested(client, endpoint, {"Host": host}))[0] == expected, endpoint
    assert fake.received == []


async def test_each_of_several_hosts_is_checked() -> None:
    async with over_http(service()) as client:
        port = client._base_url.port  # type: ignore[union-attr]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /tasks HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        head = await reader.readline()
        writer.close()
        assert head.split()[1] == b"400"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /tasks HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", b"400"),
        (b"GET /tasks HTTP/1.1\r\nA2A-Version: 1.0\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\n", b"400"),
        (b"GET /tasks/t#1 HTTP/1.1\r\nHost: localhost\r\n", b"400"),
        (b"GET /tasks/t1#a?b HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: x\r\n", b"400"),
        (b"GET /tasks/t1 HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n", b"200"),
        (b"GET http://localhost/tasks/t1 HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n", b"200"),
        (b"GET /healthz HTTP/1.0\r\n", b"200"),
    ],
)
async def test_a_request_names_one_host_and_one_path(sent: bytes, status: bytes) -> None:
    """RFC 9112 §3.2. A server must accept the absolute form of a target (§3.2.2)."""
    async with over_http(service()) as client:
        port = client._base_url.port  # type: ignore[union-attr]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent + b"\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        assert head.split()[1] == status


async def test_a_rejected_host_name_is_reported_with_the_options_that_allow_it() -> None:
    fake = service()
    async with over_http(fake) as client:
        for endpoint in ENDPOINTS:
            code, body = await requested(client, endpoint, {"Host": "evil.example"})
            text = json.dumps(body)
            assert code == 403, endpoint
            assert all(word in text for word in ("Host: ", "evil.example", "--public-url", "--cors")), endpoint
    assert fake.received == []


@pytest.mark.parametrize("host", ["tasks.example", "tasks.example:8443"])
async def test_host_names_in_public_url_or_cors_are_allowed(host: str) -> None:
    headers = {"Host": host}
    assert await status(headers, make_cards(public_url="https://tasks.example/agents")) == 200
    assert await status(headers, cors=("https://tasks.example",)) == 200
    assert await status(headers, cors=("*",)) == 200
    assert await status(headers, make_cards(public_url="https://other.example")) == 403
    # A trusted proxy on this machine serves it under names that only the proxy knows.
    assert await status(headers, make_cards(trusted_proxies=(ip_network("127.0.0.1"),))) == 200


async def test_public_authenticated_and_tls_servers_accept_any_host_name(tmp_path: Path) -> None:
    headers = {"Host": "box.example:8080"}
    assert await status(headers, host="0.0.0.0") == 200
    assert await status({**headers, **named("alice")}, authenticator=ByHeader()) == 200
    authority = Authority(tmp_path)
    files = CertificateFiles(*write(tmp_path, authority.issue()))
    context = ssl.create_default_context(cafile=str(authority.ca))
    async with (
        serve_http(
            FakeService(pb.ListTasksResponse()).operations, make_cards(), ServerOptions(certificates=files)
        ) as bound,
        aiohttp.ClientSession() as client,
        client.get(f"https://{bound}/tasks", headers=headers, ssl=context, server_hostname="localhost") as answer,
    ):
        assert answer.status == 200
