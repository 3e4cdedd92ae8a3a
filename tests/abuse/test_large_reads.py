"""Three callers at once read an artifact that was streamed in, while another caller sends.

The server's memory, the other caller's times and SQLite's log stay within limits. LARGE_READ_MIB sets the size.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from tests.cli.server import Server, serving
from tests.eventually import eventually

pytestmark = [pytest.mark.longest, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

MIB: Final = 1024 * 1024
SIZE_MIB: Final = int(os.environ.get("LARGE_READ_MIB", "128"))
READERS: Final = 3
MAX_MEMORY_MIB: Final = 400
"""Of the server, for an artifact of any size."""
MAX_WAL_MIB: Final = 256
MAX_SEND_SHARE: Final = 0.5
"""Of the time that the reads take, for one send: one that is held up waits for all of them."""
MAX_SEND_SECONDS: Final = 5.0
"""Allowed in any case: reads may be over soon."""

AGENTS: Final = '''
from dragoman import Turn, agent

@agent(default=True)
async def writer(turn: Turn):
    """Writes as many MiB as the message says."""
    for number in range(16 * int(turn.text)):
        yield f"{number:08d}" * 8192

@agent
async def quick(turn: Turn) -> str:
    """Says it back."""
    return turn.text
'''

READER: Final = """
import hashlib, json, sys, urllib.request

base, task, size = sys.argv[1:]
request = urllib.request.Request(f"{base}/tasks/{task}", headers={"A2A-Version": "1.0"})
with urllib.request.urlopen(request) as response:
    (part,) = json.load(response)["artifacts"][0]["parts"]
digest = hashlib.sha256(part.get("text", "").encode())
if "url" in part:
    assert part["mediaType"] == "text/plain"
    with urllib.request.urlopen(part["url"]) as response:
        assert response.headers["Content-Length"] == size
        while chunk := response.read(1 << 20):
            digest.update(chunk)
print(digest.hexdigest())
"""
PIPE: Final = asyncio.subprocess.PIPE


def expected_digest() -> str:
    digest = hashlib.sha256()
    for number in range(16 * SIZE_MIB):
        digest.update(f"{number:08d}".encode() * 8192)
    return digest.hexdigest()


def memory_mib(server: Server, name: str = "VmHWM") -> int:
    """The peak memory of a server, or its current memory with VmRSS."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1]) // 1024


class Watch:
    """What is measured beside the readers: another caller's sends, and the largest log of the store."""

    def __init__(self, session: aiohttp.ClientSession, server: Server, wal: Path) -> None:
        self._session = session
        self._server = server
        self._wal = wal
        self.send_seconds: list[float] = []
        self.wal_mib = 0

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await send(self._session, f"{self._server.http}/quick", "hello")
            self.send_seconds.append(time.perf_counter() - began)
            if self._wal.exists():
                self.wal_mib = max(self.wal_mib, self._wal.stat().st_size // MIB)
            await asyncio.sleep(0.02)

    def line(self) -> str:
        times = sorted(self.send_seconds)
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        return f"{len(times)} sends, p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, max {times[-1] * 1000:.0f} ms"


async def send(session: aiohttp.ClientSession, url: str, text: str, *, wait: bool = True) -> dict[str, Any]:
    body = {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]},
        "configuration": {"returnImmediately": not wait},
    }
    async with session.post(f"{url}/message:send", json=body) as response:
        assert response.status == 200, await response.text()
        task: dict[str, Any] = (await response.json())["task"]
        return task


async def is_completed(session: aiohttp.ClientSession, server: Server) -> bool:
    async with session.get(f"{server.http}/tasks") as response:
        (task,) = (await response.json())["tasks"]
    assert task["status"]["state"] not in ("TASK_STATE_FAILED", "TASK_STATE_REJECTED"), task
    return bool(task["status"]["state"] == "TASK_STATE_COMPLETED")


async def read_content(server: Server, task_id: str) -> str:
    """Reads a task and follows the link in it, in a process of its own. Returns the digest of its text."""
    arguments = (server.http, task_id, str(SIZE_MIB * MIB))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", READER, *arguments, stdout=PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().strip()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=1200)
    async with aiohttp.ClientSession(timeout=timeout, headers={"A2A-Version": "1.0"}) as session:
        yield session


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_readers_of_a_large_artifact_hold_up_nobody_and_take_no_memory(
    kind: str,
    session: aiohttp.ClientSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db" if kind == "sqlite" else request.getfixturevalue("postgres_database")
    (tmp_path / "app.py").write_text(AGENTS)
    with serving("app.py", "--store", store, cwd=tmp_path) as server:
        watch = Watch(session, server, tmp_path / "tasks.db-wal")
        idle = memory_mib(server)
        watching = asyncio.create_task(watch.run())
        await eventually(lambda: len(watch.send_seconds) >= 50)
        watching.cancel()
        lines = [f"idle: {watch.line()}"]
        watch.send_seconds, began = [], time.perf_counter()
        watching = asyncio.create_task(watch.run())
        task = await send(session, server.http, str(SIZE_MIB), wait=False)
        async with asyncio.timeout(1200):
            while True:
                if await is_completed(session, server):
                    break
                await asyncio.sleep(0.1)
        watching.cancel()
        lines.append(f"streamed in {time.perf_counter() - began:.0f} s: {watch.line()}, WAL {watch.wal_mib} MiB")
        lines.append(f"memory {idle} MiB idle, at most {memory_mib(server)} while it was streamed")
        watch.send_seconds, watch.wal_mib, began = [], 0, time.perf_counter()
        watching = asyncio.create_task(watch.run())
        digests = await asyncio.gather(*(read_content(server, task["id"]) for _ in range(READERS)))
        watching.cancel()
        took = time.perf_counter() - began
        lines.append(f"read in {took:.0f} s: {watch.line()}, WAL {watch.wal_mib} MiB")
        lines.append(f"memory at most {memory_mib(server)} MiB, then {memory_mib(server, 'VmRSS')}")
        with capsys.disabled():
            print(f"\n{kind}, {SIZE_MIB} MiB:", json.dumps(lines, indent=1))
        assert digests == [expected_digest()] * READERS
        assert memory_mib(server) < MAX_MEMORY_MIB
        assert max(watch.send_seconds) < max(MAX_SEND_SECONDS, MAX_SEND_SHARE * took)
        assert watch.wal_mib < MAX_WAL_MIB
