"""The composition root: components it opens, settings that reach them, and start errors."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.listing import list_tasks

from dragoman import Turn, agent
from dragoman.bindings.cards import Cards
from dragoman.bindings.options import BoundAddress
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman.ports import OutboundForbidden
from dragoman.ports.extension import StartError
from dragoman.settings.settings import Settings, SettingsError
from dragoman.wiring.agent_loader import LoadError
from dragoman.wiring.app import App, open_app, reachable_url
from dragoman.wiring.infra import open_outbound
from dragoman.wiring.store_lock import hold_store

pytestmark = pytest.mark.usefixtures("no_settings")

Open = Callable[..., AbstractAsyncContextManager[App]]


@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text


@agent
async def slow(turn: Turn) -> None:
    turn.status("at it")
    await asyncio.Event().wait()


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Opens the two agents above on free ports."""

    @asynccontextmanager
    async def open_it(**settings: Any) -> AsyncIterator[App]:
        given = {"store": f"sqlite:///{tmp_path}/t.db", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", **settings}
        async with open_app(Settings(**given), [echo, slow]) as app:
            yield app

    return open_it


async def status_of(url: str, **request: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.request(request.pop("method", "GET"), url, **request) as got:
        return got.status, await got.json()


async def test_both_bindings_reach_the_same_tasks(opened: Open) -> None:
    async with opened() as app, Client(str(app.grpc)) as client:
        task = (await client.send(message("hello"))).task
        assert task.status.state == states.COMPLETED
        status, over_http = await status_of(f"{app.public_url}/tasks/{task.id}", headers={"A2A-Version": "1.0"})
        assert (status, over_http["id"]) == (200, task.id)
        status, card = await status_of(app.card_url)
        assert (status, card["name"]) == (200, "Echo")
    assert (app.root, sorted(app.agents)) == ("echo", ["echo", "slow"])


async def test_tasks_outlive_the_server(opened: Open) -> None:
    async with opened() as app, Client(str(app.grpc)) as client:
        task = (await client.send(message("hello"))).task
    async with opened() as app, Client(str(app.grpc)) as client:
        assert (await client.get(task.id)).artifacts == task.artifacts


async def test_app_is_loaded_from_the_settings(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path}/t.db", http="127.0.0.1:0", grpc="127.0.0.1:0")
    async with open_app(settings) as app:
        assert list(app.agents) == ["playground"]
    with pytest.raises(LoadError, match=r"absent.py: this file does not exist"):
        async with open_app(settings.replaced(app="absent.py")):
            pass


async def test_the_root_agent_can_be_set(opened: Open) -> None:
    async with opened(root="slow") as app:
        assert app.root == "slow"
    with pytest.raises(SettingsError, match=r'^--root: root agent "other" is not served; use one of echo, slow$'):
        async with opened(root="other"):
            pass


async def test_the_card_has_the_public_url(opened: Open) -> None:
    async with opened(public_url="https://agents.example/x/", public_grpc="agents.example:443", insecure=True) as app:
        assert app.card_url == "https://agents.example/x/.well-known/agent-card.json"
        _, card = await status_of(f"http://{app.http}/.well-known/agent-card.json")
    shown = {interface["url"] for interface in card["supportedInterfaces"]}
    assert shown >= {"https://agents.example/x", "agents.example:443"}
    assert not any("127.0.0.1" in url for url in shown)


async def test_limits_reach_both_bindings(opened: Open) -> None:
    async with opened(message_bytes=2048) as app, Client(str(app.grpc)) as client:
        with pytest.raises(ClientError, match=r"RESOURCE_EXHAUSTED|PAYLOAD_TOO_LARGE"):
            await client.send(message("x" * 4096))
        body = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "x" * 4096}]}}
        status, _ = await status_of(f"{app.public_url}/message:send", method="POST", json=body)
        assert status == 413
        assert [task async for task in list_tasks(client)] == []


async def test_the_error_table_reaches_both_bindings(opened: Open) -> None:
    for edition, code, status in (("1.0.1", "FAILED_PRECONDITION", 400), ("1.0.0", "FAILED_PRECONDITION", 409)):
        async with opened(error_table=edition) as app, Client(str(app.grpc)) as client:
            task = (await client.send(message("hello"))).task.id
            with pytest.raises(ClientError) as caught:
                await client.cancel(task)
            assert caught.value.code == code
            got, _ = await status_of(f"{app.public_url}/tasks/{task}:cancel", method="POST")
            assert got == status


async def test_a_blocking_send_returns_after_blocking_wait(opened: Open) -> None:
    async with opened(blocking_wait=0.05) as app, Client(str(app.grpc), agent="slow") as client:
        assert (await client.send(message("hello"))).task.status.state in (states.SUBMITTED, states.WORKING)


async def test_strict_transitions_reach_the_runtime(opened: Open) -> None:
    async with opened(strict_transitions=True) as app, Client(str(app.grpc)) as client:
        events = [event async for event in client.stream(message("hello"))]
    seen = [event.status_update.status.state for event in events if event.HasField("status_update")]
    assert seen == [states.WORKING, states.COMPLETED]


async def test_lossy_numbers_are_accepted_only_if_allowed(opened: Open) -> None:
    body = b'{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"data":9007199254740993}]}}'
    for lossy, expected in ((False, 400), (True, 200)):
        async with opened(lossy_numbers=lossy) as app:
            got, _ = await status_of(
                f"{app.public_url}/message:send",
                method="POST",
                data=body,
                headers={"Content-Type": "application/json", "A2A-Version": "1.0"},
            )
        assert got == expected


async def test_a_draining_server_rejects_messages_and_is_not_ready(opened: Open) -> None:
    async with opened() as app, Client(str(app.grpc)) as client:
        assert (await status_of(f"{app.public_url}/readyz"))[0] == 200
        await app.drain(1)
        async with aiohttp.ClientSession() as session, session.get(f"{app.public_url}/readyz") as got:
            assert got.status == 503
        with pytest.raises(ClientError) as caught:
            await client.send(message("late"))
        assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "UNAVAILABLE")
        assert [task async for task in list_tasks(client)] == []


async def test_a_drain_fails_the_remaining_turns_and_subscribers_see_it(opened: Open) -> None:
    left: list[int] = []
    async with opened() as app, Client(str(app.grpc), agent="slow") as client:
        events = client.stream(message("hello"))
        while (await anext(events)).status_update.status.state != states.WORKING:
            pass
        assert app.running == 1
        draining = asyncio.create_task(app.drain(0.05, left.append))
        last = [event async for event in events][-1]
        await draining
    assert last.status_update.status.state == states.FAILED
    assert left[:1] == [1]
    assert app.running == 0


async def test_a_store_whose_file_is_missing_is_created_with_a_warning(
    opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened():
        pass
    assert "is missing" not in caplog.text
    (tmp_path / "t.db").unlink()
    async with opened():
        pass
    assert f"{tmp_path}/t.db was served before, but its file is missing: a new, empty store is created" in caplog.text


async def test_a_store_is_served_once_under_any_name(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "t.db")
    async with opened():
        (tmp_path / "second").mkdir()
        (tmp_path / "second" / "hard.db").hardlink_to(tmp_path / "t.db")
        for name in ("link.db", "second/hard.db"):
            with pytest.raises(StartError, match="is in use"):
                async with opened(store=f"sqlite:///{tmp_path}/{name}"):
                    pass
    with pytest.raises(StartError, match="one of 2 names"):
        async with opened():
            pass


async def test_a_store_in_use_is_rejected_with_its_holder(opened: Open) -> None:
    async with opened() as app:
        with pytest.raises(StartError, match=rf"process {os.getpid()} has held it .* http http://{app.http} "):
            async with opened():
                pass


async def test_exceptions_of_the_block_propagate_unchanged(opened: Open) -> None:
    with pytest.raises(ZeroDivisionError):
        async with opened():
            raise ZeroDivisionError
    with pytest.raises(asyncio.CancelledError):
        async with opened():
            raise asyncio.CancelledError


async def test_an_isolation_policy_of_an_unknown_agent_is_rejected(opened: Open) -> None:
    with pytest.raises(SettingsError, match='isolation: agent "ecco" is not served; agents are echo, slow'):
        async with opened(isolation="owner,ecco=scope"):
            pass


async def test_a_blocking_default_of_an_unknown_agent_is_rejected(opened: Open) -> None:
    with pytest.raises(SettingsError, match='blocking_default: agent "ecco" is not served; agents are echo, slow'):
        async with opened(blocking_default="wait,ecco=return"):
            pass


@pytest.mark.parametrize(
    ("given", "loopback"),
    [
        ({}, True),
        ({"http": "localhost:0", "grpc": "[::1]:0"}, True),
        ({"http": "0.0.0.0:0", "insecure": True}, False),
        ({"grpc": "0.0.0.0:0", "insecure": True}, False),
        ({"token": "letmein"}, False),
        ({"api_keys": True}, False),
        ({"trusted_proxies": "127.0.0.1", "insecure": True}, False),
        ({"token": "letmein", "outbound_allow": "127.0.0.0/8,[::1]:8000"}, True),
        ({"http": "0.0.0.0:0", "insecure": True, "outbound_allow": "127.0.0.0/8,[::1]:8000"}, True),
    ],
)
async def test_loopback_is_allowed_outbound_only_on_a_private_server_or_by_an_entry(
    given: dict[str, Any], loopback: bool
) -> None:
    outbound = open_outbound(Settings(**given))
    for url in ("http://127.0.0.1:8000/", "http://localhost:8000/", "http://[::1]:8000/"):
        if loopback:
            outbound.check_url(url)
        else:
            with pytest.raises(OutboundForbidden, match="outbound_allow"):
                outbound.check_url(url)
    await outbound.close()


async def test_outbound_settings_reach_the_client() -> None:
    settings = {"outbound_allow": "10.0.0.0/8, hooks.internal:8443", "outbound_ports": "443", "outbound_https_only": 1}
    outbound = open_outbound(Settings(**settings))
    for url in ("https://hooks.example/", "https://10.1.2.3/", "https://hooks.internal:8443/"):
        outbound.check_url(url)
    for url in ("http://hooks.example/", "https://192.168.0.1/", "https://hooks.example:8443/"):
        with pytest.raises(OutboundForbidden):
            outbound.check_url(url)
    await outbound.close()


async def test_an_invalid_outbound_ca_is_rejected_at_startup(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "absent.pem"):
        with pytest.raises(SettingsError, match=r"^--outbound-ca: .* must contain PEM certificates: "):
            open_outbound(Settings(outbound_ca=tmp_path / name))


@pytest.mark.parametrize("option", ["http", "grpc", "metrics"])
async def test_an_address_in_use_is_reported_with_its_option(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        addresses = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", option: address}
        rule = f"{address} is already in use; stop the other process or pass --{option} HOST:PORT"
        with pytest.raises(StartError, match=f"^{rule}$"):
            async with open_app(Settings(store=f"sqlite:///{tmp_path}/t.db", **addresses), [echo]):
                pass
    with hold_store(tmp_path / "t.db"):  # the failed start has released it
        pass


@pytest.mark.parametrize("option", ["http", "grpc"])
async def test_an_address_of_another_machine_is_reported_as_such(tmp_path: Path, option: str) -> None:
    addresses = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", option: "192.0.2.1:8080"}
    settings = Settings(store=f"sqlite:///{tmp_path}/t.db", insecure=True, **addresses)
    rule = rf"^192\.0\.2\.1:8080 is not an address of this machine; pass another --{option} HOST:PORT$"
    with pytest.raises(StartError, match=rule):
        async with open_app(settings, [echo]):
            pass


@pytest.mark.parametrize(
    ("bound", "url"),
    [
        (BoundAddress("127.0.0.1", 80), "http://127.0.0.1:80"),
        (BoundAddress("0.0.0.0", 80), "http://127.0.0.1:80"),
        (BoundAddress("::", 443, tls=True), "https://127.0.0.1:443"),
        (BoundAddress("2001:db8::1", 443, tls=True), "https://[2001:db8::1]:443"),
    ],
)
def test_an_address_of_every_interface_is_reached_by_loopback(bound: BoundAddress, url: str) -> None:
    assert reachable_url(bound) == url


@pytest.mark.parametrize(("setting", "base"), [("https://agents.example", ""), ("", "http://localhost")])
async def test_links_made_before_the_port_is_bound_name_the_setting(
    opened: Open, monkeypatch: pytest.MonkeyPatch, setting: str, base: str
) -> None:
    before: list[str] = []
    open_cards = App._open_cards

    async def remembered(app: App, stack: AsyncExitStack) -> Cards:
        before.append(app.base_url())
        return await open_cards(app, stack)

    monkeypatch.setattr(App, "_open_cards", remembered)
    async with opened(public_url=setting, insecure=True) as app:
        assert before == [setting or base]
        assert app.base_url() == app.public_url == (setting or reachable_url(app.http))
