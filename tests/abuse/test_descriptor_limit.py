"""A server that may open no more files: it says so in single lines, and works when descriptors are free again."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import pytest
from tests.cli.server import Server, serving
from tests.eventually import eventually

if sys.platform == "linux":
    import resource

pytestmark = [pytest.mark.longest, pytest.mark.skipif(sys.platform != "linux", reason="sets limits of another process")]

AGENT: Final = """
from dragoman import Turn, agent

@agent(default=True, input_modes=["*/*"])
async def echo(turn: Turn) -> str:
    return turn.text
"""

RECOVERY_TIMEOUT: Final = 90.0
"""Seconds in which the server works again, on any machine."""

SPARE: Final = 4
"""Descriptors that the server may still open when the limit is set."""


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/tasks.db"
        return
    yield request.getfixturevalue("postgres_database")


def open_files(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


async def send(
    session: aiohttp.ClientSession, server: Server, number: str, part: dict[str, str]
) -> tuple[int, dict[str, Any]]:
    body = {"message": {"messageId": number, "role": "ROLE_USER", "parts": [part]}}
    try:
        async with session.post(f"{server.http}/message:send", json=body) as response:
            return response.status, await response.json()
    except (aiohttp.ClientError, TimeoutError):
        return 0, {}


async def test_a_server_without_free_descriptors_says_so_and_recovers(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(AGENT)
    with serving("app.py", "--store", store, cwd=tmp_path) as server:
        address = urlsplit(server.http)
        timeout = aiohttp.ClientTimeout(total=10)

        async def works(number: str) -> bool:
            status, body = await send(session, server, number, {"text": "small"})
            return status == 200 and body["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

        async with aiohttp.ClientSession(timeout=timeout, headers={"A2A-Version": "1.0"}) as session:
            # The connection stays open.
            assert await works("before")
            limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
            allowed = open_files(server) + SPARE
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (allowed, limits[1]))
            idle: list[asyncio.StreamWriter] = []
            for _ in range(3 * SPARE):
                with suppress(OSError):
                    idle.append((await asyncio.open_connection(address.hostname, address.port))[1])
            await eventually(lambda: open_files(server) >= allowed)
            # Over the open connection: a file for a large part needs a descriptor, too.
            refused = [await send(session, server, f"refused {number}", {"raw": "A" * 800_000}) for number in range(3)]
            line = await asyncio.to_thread(server.err.until, "new connections cannot be accepted")
            for writer in idle:
                writer.close()
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)

            async with asyncio.timeout(RECOVERY_TIMEOUT):
                while not await works("after"):  # noqa: ASYNC110 - another process's state
                    await asyncio.sleep(0.2)
        server.process.terminate()
        assert server.ends() == 0
        log = server.err.rest()
    with capsys.disabled():
        print(f"\n{store.split(':')[0]}: {[status for status, _ in refused]}", line, sep="\n")
    assert "raise `ulimit -n` (LimitNOFILE), or lower --connections" in line
    assert log.count("new connections cannot be accepted") == 1
    assert {status for status, _ in refused} <= {200, 503}
    assert "Traceback" not in log
