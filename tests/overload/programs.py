"""Programs of tests beside their process: a server, a probe of its health, attackers. Each speaks in lines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.cli.server import clean_environment

ROOT: Final = Path(__file__).parents[2]
PIPE: Final = asyncio.subprocess.PIPE


@asynccontextmanager
async def program(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs a Python module while the block runs; the end of its input stops it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *arguments),
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(ROOT)},
        stdin=PIPE,
        stdout=PIPE,
        limit=1 << 24,  # the probe prints all its measurements as one line
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


async def read_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


def peak_memory(process: asyncio.subprocess.Process) -> int:
    """Returns the peak memory of a process in MiB."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024
