"""Resource usage of processes and ports on Linux: CPU time by thread, memory, and bytes exchanged. 0 elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


def cpu_by_thread(pid: int) -> dict[str, float]:
    """Returns the CPU seconds of each live thread by `NUMBER NAME`; empty where /proc has no such statistics."""
    seconds: dict[str, float] = {}
    for task in (_PROC / str(pid) / "task").glob("*"):
        try:
            name = (task / "comm").read_text().strip()
            seconds[f"{task.name} {name}"] = int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # the thread has just ended, or the kernel has no scheduler statistics
            continue
    return seconds


def cpu(pid: int) -> float:
    """Returns the CPU seconds of all live threads of a process."""
    return sum(cpu_by_thread(pid).values())


def resident(pid: int) -> int:
    """Returns the resident memory of a process in bytes."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def child_processes(pid: int) -> list[int]:
    """Returns the ids of the live child processes."""
    pids: list[int] = []
    for task in (_PROC / str(pid) / "task").glob("*/children"):
        try:
            pids += map(int, task.read_text().split())
        except OSError:
            continue
    return pids


def bytes_exchanged(port: int) -> tuple[float, float]:
    """Returns the bytes received and sent by the server on a loopback port, summed over its open connections.

    Both are 0 if `ss` is not installed, which reads them from the kernel.
    """
    if (ss := shutil.which("ss")) is None:
        return 0.0, 0.0
    command = [ss, "-tinH", "state", "established", f"( sport = :{port} )"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return sum_field(output, "bytes_received"), sum_field(output, "bytes_sent")


def sum_field(output: str, name: str) -> float:
    """Returns the sum of a field in the output of `ss`."""
    return float(sum(map(int, re.findall(rf"\b{name}:(\d+)", output))))
