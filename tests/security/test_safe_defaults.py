"""Safe defaults: one test for each line of the table in docs/how-to/hardening.md, by its name."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
from pydantic import SecretStr

from dragoman import AgentError, Turn, agent
from dragoman.core.errors import InvalidParams
from dragoman.core.limits.quotas import DEFAULT_LIMITS
from dragoman.core.net import targets
from dragoman.ports import OutboundForbidden
from dragoman.settings.settings import Address, Settings, SettingsError, load_settings
from dragoman.wire.json import request as json_request
from dragoman.wiring.app import open_app
from dragoman.wiring.infra import open_outbound

PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "hardening.md"
NONE: Final = load_settings({})


@agent
async def echo(turn: Turn) -> str:
    """Echoes the text."""
    return turn.text


def settings(folder: Path) -> Settings:
    anywhere = Address("127.0.0.1", 0)
    return Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{folder}/tasks.db", api_keys=True)


def test_every_line_of_the_page_has_a_test_and_vice_versa() -> None:
    rows = re.findall(r"^\| .* \| `([a-z_]+)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    own = {name.removeprefix("test_") for name in dir(sys.modules[__name__]) if name.startswith("test_")}
    assert set(rows) == own - {"every_line_of_the_page_has_a_test_and_vice_versa"}


def test_the_server_listens_on_loopback_only() -> None:
    assert NONE.listen.is_loopback


@pytest.mark.parametrize("port", ["http", "grpc"])
def test_public_addresses_need_authentication(port: str) -> None:
    with pytest.raises(SettingsError, match="insecure"):
        load_settings({port: "0.0.0.0:8080"})
    assert not load_settings({port: "0.0.0.0:8080", "api_keys": True}).listen.insecure


PROXIES: Final = ({"trusted_proxies": "127.0.0.1"}, {"public_url": "https://a.example"}, {"public_grpc": "a.example:1"})


@pytest.mark.parametrize("given", PROXIES, ids=str)
def test_a_proxy_needs_authentication(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="insecure"):
        load_settings(given)
    assert not load_settings({**given, "api_keys": True}).listen.insecure


async def test_nobody_behind_a_proxy_is_local(tmp_path: Path) -> None:
    proxied = settings(tmp_path).replaced(api_keys=False, insecure=True, public_url="https://a.example")
    async with (
        open_app(proxied, [echo]) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        http.get("/operations/agents") as answer,
    ):
        assert answer.status == 401


async def test_messages_of_unknown_callers_are_not_read(tmp_path: Path) -> None:
    async with (
        open_app(settings(tmp_path), [echo]) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        call: Any = channel.stream_stream("/lf.a2a.v1.A2AService/SendMessage")()
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED  # it has sent no message

        async def body() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.Event().wait()

        async with http.post("/message:send", data=body(), headers={"Content-Type": "application/json"}) as answer:
            assert answer.status == 401


def test_a_short_token_is_rejected_on_public_addresses() -> None:
    with pytest.raises(SettingsError, match="16"):
        load_settings({"http": "0.0.0.0:8080", "token": "letmein"})


def test_tasks_belong_to_their_owner() -> None:
    assert NONE.access.isolation.of("any") == "owner"
    assert NONE.access.public_agents == ()


PRIVATE: Final = ("10.0.0.1", "192.168.1.1", "169.254.169.254", "[fd00::1]", "127.0.0.1", "[::ffff:10.0.0.1]")


@pytest.mark.parametrize("host", PRIVATE)
async def test_webhooks_cannot_target_private_addresses(host: str) -> None:
    public = load_settings({"http": "0.0.0.0:8080", "grpc": "0.0.0.0:50051", "api_keys": True})
    out = open_outbound(public)
    try:
        with pytest.raises(OutboundForbidden):
            await out.post(f"http://{host}/x", b"{}", {})
    finally:
        await out.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
async def test_webhooks_cannot_target_this_machine_behind_a_proxy(tmp_path: Path, host: str) -> None:
    call = {**MESSAGE, "configuration": {"taskPushNotificationConfig": {"url": f"http://{host}:9000/hook"}}}
    authenticated = unasked(tmp_path).replaced(token=SecretStr("secret"))
    async with (
        open_app(authenticated, [echo]) as app,
        aiohttp.ClientSession(f"http://{app.http}", headers={"Authorization": "Bearer secret"}) as http,
        http.post("/message:send", json=call) as answer,
    ):
        text = await answer.text()
    assert answer.status == 400
    assert "configuration.taskPushNotificationConfig.url" in text or "task_push_notification_config.url" in text
    assert "outbound_allow" in text


async def test_exception_texts_are_hidden_from_other_machines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @agent
    async def leaky(turn: Turn) -> str:
        raise ConnectionError("warehouse.internal:5439: password authentication failed for user etl")

    @agent
    async def polite(turn: Turn) -> str:
        raise AgentError("The warehouse is closed.") from OSError("warehouse.internal is away")

    async with (
        open_app(settings(tmp_path).replaced(token=SecretStr("secret")), [leaky, polite]) as app,
        aiohttp.ClientSession(f"http://{app.http}", headers={"Authorization": "Bearer secret"}) as http,
    ):
        texts = []
        for name in ("leaky", "polite"):
            async with http.post(f"/{name}/message:send", json=MESSAGE) as answer:
                texts.append(await answer.text())
    assert "warehouse.internal" not in "".join(texts)
    assert "The warehouse is closed." in texts[1]
    [error_id] = re.findall(r"The agent failed\. .* under error id ([0-9a-f]{12})\.", texts[0])
    [record] = [one for one in caplog.records if error_id in one.getMessage()]
    assert "warehouse.internal:5439" in record.getMessage()
    assert record.__dict__["error_id"] == error_id


def test_webhooks_cannot_target_ports_of_other_protocols() -> None:
    for port in (22, 25, 6379):
        assert targets.OutboundPolicy().problem(targets.parse_target(f"http://a.example:{port}/")) != ""
    assert targets.OutboundPolicy().problem(targets.parse_target("https://a.example/")) == ""


def untyped(method: str, path: str, call: object = None) -> tuple[str, str, bytes]:
    """A request that a page can send without preflight: its body has no Content-Type."""
    return method, path, b"" if call is None else json.dumps(call).encode()


MESSAGE: Final = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
REQUESTS: Final = (
    untyped("POST", "/message:send", MESSAGE),
    untyped("POST", "/v1/message:send", MESSAGE),
    untyped("POST", "/", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": MESSAGE}),
    untyped("GET", "/tasks"),
    untyped("GET", "/operations/agents"),
)


async def tried(http: aiohttp.ClientSession, headers: dict[str, str]) -> set[int]:
    """The statuses of a page's requests and of a WebSocket."""
    found = set()
    for method, path, data in REQUESTS:
        async with http.request(
            method, path, data=data or None, headers=headers, skip_auto_headers=["Content-Type"]
        ) as answer:
            found.add(answer.status)
    try:
        async with http.ws_connect("/ws", headers=headers):
            found.add(101)
    except aiohttp.WSServerHandshakeError as error:
        found.add(error.status)
    return found


async def tasks(http: aiohttp.ClientSession) -> int:
    async with http.get("/tasks") as answer:
        return int((await answer.json()).get("totalSize", 0))


def unasked(folder: Path) -> Settings:
    """The settings of a developer's server: only addresses and store."""
    anywhere = Address("127.0.0.1", 0)
    return Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{folder}/tasks.db")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_pages_of_other_origins_cannot_call(tmp_path: Path, headers: dict[str, str]) -> None:
    async with open_app(unasked(tmp_path), [echo]) as app, aiohttp.ClientSession(f"http://{app.http}") as http:
        assert await tried(http, headers) == {403}
        assert await tasks(http) == 0
        assert await tried(http, {"Origin": f"http://{app.http}", "Sec-Fetch-Site": "same-origin"}) == {200, 101}
        assert await tasks(http) == 3


async def test_foreign_host_names_are_rejected(tmp_path: Path) -> None:
    async with open_app(unasked(tmp_path), [echo]) as app, aiohttp.ClientSession(f"http://{app.http}") as http:
        host = f"evil.example:{app.http.port}"
        assert await tried(http, {"Host": host}) == {403}
        assert await tried(http, {"Host": host, "Origin": f"http://{host}"}) == {403}
        assert await tasks(http) == 0
        assert await tried(http, {"Host": f"localhost:{app.http.port}"}) == {200, 101}


def test_proxy_headers_are_not_trusted() -> None:
    assert NONE.public.trusted_proxies == ()


def test_everything_has_a_limit() -> None:
    public = load_settings({"http": "0.0.0.0:8080", "api_keys": True})
    unlimited = {"stored_bytes"}  # how much is too much depends on the disk
    assert all(
        public.quotas.limit_for(limit, authenticated=known) > 0
        for limit in DEFAULT_LIMITS.keys() - unlimited
        for known in (True, False)
    )
    assert 0 < NONE.limits.message_bytes <= 16 * 1024 * 1024
    assert NONE.limits.connections > 0


@pytest.mark.parametrize("body", [b'{"a":1,"a":2}', b"[9007199254740993]"])
def test_ambiguous_requests_are_rejected(body: bytes) -> None:
    assert not NONE.protocol.lossy_numbers
    with pytest.raises(InvalidParams):
        json_request.loads(body)


def test_acknowledged_tasks_are_on_disk() -> None:
    assert NONE.store.sqlite_synchronous == "full"


def test_the_audit_log_is_kept() -> None:
    assert NONE.retention.audit == "all"
    assert NONE.retention.audit_age == 365 * 24 * 3600 * 1000


async def test_the_store_is_readable_by_its_user_only(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path), [echo]):
        # The lock file names the holder, which others may read.
        found = [path for path in tmp_path.iterdir() if path.name.startswith("tasks.db") and "lock" not in path.name]
        assert len(found) > 1
        open_to_others = [path.name for path in found if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]
        assert open_to_others == []


async def test_credentials_are_not_logged_or_returned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "dgm_secret_that_is_no_key"
    async with open_app(settings(tmp_path), [echo]) as app, aiohttp.ClientSession(f"http://{app.http}") as http:
        for headers in ({"Authorization": f"Bearer {secret}"}, {"X-API-Key": secret}):
            async with http.get("/tasks", headers=headers) as answer:
                assert answer.status == 401
                assert secret not in await answer.text()
                assert secret not in str(answer.headers)
    assert caplog.records
    assert secret not in caplog.text
