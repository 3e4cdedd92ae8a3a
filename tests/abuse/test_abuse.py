"""What a stranger does harms nobody but itself: every attack, on a server in a process of its own.

The server lives, answers others all the while, and needs no more memory than a limit. What it took is printed;
ABUSE_SECONDS says how long each goes on, for measuring.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.abuse.attacks import ATTACKS
from tests.cli.server import clean_environment

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = os.environ.get("ABUSE_SECONDS", "0.5")
MEMORY: Final = 600
"""MiB that a server may have had at most: a few messages of the largest size, and what they are made into."""
PIPE: Final = asyncio.subprocess.PIPE


@asynccontextmanager
async def program(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of ours, which ends with its input."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *words),
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(ROOT)},
        stdin=PIPE,
        stdout=PIPE,
        limit=1 << 24,  # all that the probe measured is one line
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(60):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


def peak(process: asyncio.subprocess.Process) -> int:
    """MiB that a process has had at most."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(one for one in text.splitlines() if one.startswith("VmHWM")).split()[1]) // 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_leaves_others_served_and_memory_bounded(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{tmp_path}/tasks.db"}
    async with program("tests.overload.served", json.dumps(settings)) as server:
        at = json.loads(await line(server))
        async with program("tests.overload.probe", at["http"]) as other:
            assert await line(other) == "probing"
            async with program("tests.abuse.attacks", name, at["http"], at["grpc"], SECONDS) as attacker:
                did = int(await line(attacker))
            assert other.stdin is not None
            other.stdin.close()
            took = sorted(json.loads(await line(other)))  # it fails at an answer that is none
        assert did > 0
        assert server.returncode is None
        assert peak(server) < MEMORY
        # Whoever asks now is served as before.
        assert server.stdin is not None
        server.stdin.write(b"look\n")
        assert json.loads(await line(server))["running"] == 0
        with capsys.disabled():
            p50, p99 = statistics.median(took), took[int(len(took) * 0.99)]
            print(
                f"\n{name}: {did} in {SECONDS} s; {len(took)} answers to another, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
                f"most {took[-1]:.0f} ms; {peak(server)} MiB"
            )
