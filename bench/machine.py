"""Description of the machine and the disk: the first row of a run."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.load import tools
from bench.servers.contestants import BENCH_FOLDER, CORES, PEERS
from tools.environments import ROOT

PACKAGES: Final = ("grpcio", "aiohttp", "uvloop", "protobuf", "orjson")
PEER_PACKAGES: Final = ("a2a-sdk", "fasta2a", "uvicorn", "sqlalchemy")

COMMIT_PAGES: Final = 3
PAGE_BYTES: Final = 4096
"""Approximate growth of SQLite's write-ahead log by a small commit."""

LOG_BYTES: Final = 4 * 2**20
"""Bytes after which the probe overwrites its file from the start, as the write-ahead log does."""


def describe(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns date, commit, machine, versions, and the arguments of the run."""
    BENCH_FOLDER.mkdir(exist_ok=True)
    return {
        "section": "run",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": len(CORES) or os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "disk": disk_name(BENCH_FOLDER),
        "busy": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "versions": {name: version(name) for name in PACKAGES} | _peer_versions(),
        "tools": {name: Path(path).name for name in ("grpc", "rest") if (path := tools.find(name))},
        "arguments": arguments,
    }


def measure_commits(folder: Path, times: int) -> list[float]:
    """Returns the milliseconds of each write and fdatasync, the lower bound of a commit with `synchronous=FULL`."""
    sync = getattr(os, "fdatasync", os.fsync)
    data = os.urandom(COMMIT_PAGES * PAGE_BYTES)
    durations = []
    path = folder / "probe"
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            if file.tell() >= LOG_BYTES:
                file.seek(0)
            begin = time.perf_counter()
            file.write(data)
            sync(file.fileno())
            durations.append((time.perf_counter() - begin) * 1000)
    path.unlink()
    return durations


def disk_name(folder: Path) -> str:
    """Returns file system and device of a folder from Linux's mount table; "unknown" on other systems."""
    try:
        lines = Path("/proc/mounts").read_text("utf-8").splitlines()
    except OSError:
        return "unknown"
    mounts = [line.split() for line in lines]
    parents = [mount for mount in mounts if folder.resolve().is_relative_to(mount[1])]
    device, _, system, *_ = max(parents, key=lambda mount: len(mount[1]), default=["", "", "unknown"])
    return f"{system} on {device}"


def _commit() -> str:
    process = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return process.stdout.strip() or "unknown"


def _cpu() -> str:
    try:
        model = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    except OSError:
        model = None
    return model[1] if model else platform.processor() or platform.machine()


def _peer_versions() -> dict[str, str]:
    files = [PEERS / name / "requirements.txt" for name in ("a2a_sdk", "fasta2a")]
    lines = [line for file in files for line in file.read_text("utf-8").split()]
    return {name: pin for line in lines for name, _, pin in [line.partition("==")] if name in PEER_PACKAGES}
