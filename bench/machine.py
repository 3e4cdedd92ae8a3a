"""What a run was made on and with: the first row of its file."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench import disk, tools
from bench.servers import CORES, KEPT, PEERS
from tools.environments import ROOT

PACKAGES: Final = ("grpcio", "aiohttp", "uvloop", "protobuf", "orjson")
PEER_PACKAGES: Final = ("a2a-sdk", "fasta2a", "uvicorn", "sqlalchemy")


def described(arguments: dict[str, Any]) -> dict[str, Any]:
    """Date, commit, machine, versions, and how the run was asked for."""
    KEPT.mkdir(exist_ok=True)
    return {
        "section": "run",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": len(CORES) or os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "disk": disk.name_of(KEPT),
        "busy": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "versions": {name: version(name) for name in PACKAGES} | _pinned(),
        "tools": {name: Path(found).name for name in ("grpc", "rest") if (found := tools.find(name))},
        "arguments": arguments,
    }


def _commit() -> str:
    process = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return process.stdout.strip() or "unknown"


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _pinned() -> dict[str, str]:
    lines = [line for path in sorted(PEERS.glob("*/requirements.txt")) for line in path.read_text("utf-8").split()]
    return {name: pin for line in lines for name, _, pin in [line.partition("==")] if name in PEER_PACKAGES}
