"""What is taken from the environment for systemd's protocol, and what an unusable socket does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path

import pytest

from dragoman.wiring.systemd import READY, ServiceNotifier


@pytest.mark.parametrize(
    ("variables", "sends"),
    [
        ({}, False),
        ({"WATCHDOG_USEC": "1000000"}, False),  # nobody listens
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "x"}, False),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"}, False),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, False),  # of another process
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000000"}, True),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}, True),
    ],
)
async def test_the_watchdog_is_served_if_systemd_asks_this_process(variables: dict[str, str], sends: bool) -> None:
    environment = {**variables, "OTHER": "1"}
    notifier = ServiceNotifier.from_environment(environment)
    assert environment == {"OTHER": "1"}  # child processes do not notify
    serving = asyncio.create_task(notifier.keep_alive())
    done, _ = await asyncio.wait([serving], timeout=0.05)
    assert bool(done) is not sends
    serving.cancel()


async def test_each_beat_is_half_of_the_time_that_systemd_allows(tmp_path: Path) -> None:
    times: list[float] = []

    class TimedNotifier(ServiceNotifier):
        def notify(self, state: bytes) -> None:
            times.append(asyncio.get_running_loop().time())  # when it is sent: it may be received later
            super().notify(state)

    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(60)
        serving = asyncio.create_task(TimedNotifier(address, 0.2).keep_alive())
        for _ in range(3):
            assert await asyncio.to_thread(systemd.recv, 100) == b"WATCHDOG=1"
        serving.cancel()
    assert times[2] - times[0] >= 0.18


@pytest.mark.parametrize("address", ["gone", "@dragoman-gone"])  # the second is abstract, which only Linux has
def test_a_socket_that_is_gone_is_logged(address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), contextlib.chdir(tmp_path):
        ServiceNotifier(address).notify(READY)
    assert "systemd could not be told READY=1: [Errno " in caplog.text
