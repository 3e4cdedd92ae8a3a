"""A running server whose database file is removed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from tests.cli.server import serving

pytestmark = pytest.mark.long


def dragoman(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "dragoman", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_a_server_whose_file_is_removed_says_so_and_saves_its_tasks(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    with serving("--store", store, cwd=tmp_path) as server:
        async with aiohttp.ClientSession(server.http, headers={"A2A-Version": "1.0"}) as session:

            async def send() -> tuple[int, str]:
                message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo x"}]}
                async with session.post("/message:send", json={"message": message}) as response:
                    return response.status, await response.text()

            for _ in range(27):
                assert (await send())[0] == 200
            (tmp_path / "tasks.db").unlink()
            server.err.until("tasks.db was removed or renamed: writes are rejected")
            status, text = await send()
            assert status == 503
            assert "the database file was removed or replaced, so writes are rejected until it is back" in text
            async with asyncio.timeout(60):
                while (answer := await session.get("/readyz")).status == 200:
                    pass
            assert "the database file was removed or replaced" in (await answer.json())["reason"]
        dragoman(tmp_path, "backup", f"{tmp_path}/saved", "--server", server.grpc)
        server.process.terminate()
        assert server.ends() == 0
        assert "Traceback" not in server.err.rest()
    assert not (tmp_path / "tasks.db").exists()
    for left in tmp_path.glob("tasks.db-*"):
        left.unlink()
    assert "27 tasks" in dragoman(tmp_path, "restore", "saved", "--store", store)
