"""The listeners of a server: addresses in use, and the addresses that clients are told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dragoman import Turn, agent
from dragoman.bindings.options import BoundAddress
from dragoman.ports.extension import StartError
from dragoman.settings.settings import Settings
from dragoman.wiring.app import open_app
from dragoman.wiring.listeners import ServerUrl, reachable_url
from dragoman.wiring.store_lock import hold_store


@agent
async def echo(turn: Turn) -> str:
    return turn.text


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


def test_links_made_before_the_port_is_bound_name_the_setting() -> None:
    assert ServerUrl("https://agents.example").get() == "https://agents.example"
    url = ServerUrl("")
    assert url.get() == "http://localhost"
    url.value = "http://127.0.0.1:8080"
    assert url.get() == "http://127.0.0.1:8080"
