"""A disk that is full while a server works: single lines in the log, and everything works when there is space again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from tests.cli.server import Server, serving

if sys.platform == "linux":
    import resource

pytestmark = [pytest.mark.longest, pytest.mark.skipif(sys.platform != "linux", reason="sets limits of another process")]

AGENT: Final = """
import asyncio
from dragoman import Turn, agent

@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text

@agent
async def counter(turn: Turn):
    for n in range(500):
        yield f"chunk {n}\\n"
        await asyncio.sleep(0.01)
"""

RECOVERY_TIMEOUT: Final = 90.0
"""Seconds in which the server works again, on any machine."""

SPACE_BYTES: Final = 400_000
"""What the log of the database may still grow by."""

CALLERS: Final = 8
SENDS: Final = 15
"""Each with 8 KB: more than fits."""


async def send(session: aiohttp.ClientSession, server: Server, agent: str, text: str, **more: Any) -> tuple[int, Any]:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}, **more}
    try:
        async with session.post(f"{server.http}{agent}/message:send", json=body) as response:
            return response.status, await response.json()
    except (aiohttp.ClientError, TimeoutError):
        return 0, {}


async def state_of(session: aiohttp.ClientSession, server: Server, task: str) -> str:
    async with session.get(f"{server.http}/counter/tasks/{task}") as response:
        return str((await response.json())["status"]["state"])


async def test_a_full_disk_is_one_line_a_failure_and_everything_works_afterwards(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(AGENT)
    log_file = tmp_path / "tasks.db-wal"
    with serving("app.py", "--store", f"sqlite:///{tmp_path}/tasks.db", cwd=tmp_path) as server:
        timeout = aiohttp.ClientTimeout(total=20)
        async with aiohttp.ClientSession(timeout=timeout, headers={"A2A-Version": "1.0"}) as session:
            # A turn that produces events meanwhile, too.
            background = {"configuration": {"returnImmediately": True}}
            status, body = await send(session, server, "/counter", "go", **background)
            assert status == 200
            counting = body["task"]["id"]
            limits = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
            allowed = log_file.stat().st_size + SPACE_BYTES
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (allowed, limits[1]))

            async def caller() -> list[int]:
                return [(await send(session, server, "", "x" * 8_000))[0] for _ in range(SENDS)]

            statuses = [status for each in await asyncio.gather(*(caller() for _ in range(CALLERS))) for status in each]
            assert set(statuses) == {200, 503}
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)

            async with asyncio.timeout(RECOVERY_TIMEOUT):
                while (await send(session, server, "", "small"))[0] != 200:  # noqa: ASYNC110 - another process's state
                    await asyncio.sleep(0.2)
                while await state_of(session, server, counting) != "TASK_STATE_COMPLETED":  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        server.process.terminate()
        assert server.ends() == 0
        log = server.err.rest()
    assert "the disk is full; free some space" in log or "the disk fails to read or write, or is full" in log
    tracebacks = [line for line in log.splitlines() if "Traceback" in line]
    assert tracebacks == []
    errors = [line for line in log.splitlines() if " ERROR " in line]
    assert len(errors) <= statuses.count(503) + 20, "more lines than failures"
