"""What processes have spent: CPU time by thread, and memory, as Linux tells. Elsewhere both are 0."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


def cpu_by_thread(pid: int) -> dict[str, float]:
    """Seconds of CPU of each thread that is alive, by `NUMBER NAME`. Empty where it cannot be told."""
    found: dict[str, float] = {}
    for task in (_PROC / str(pid) / "task").glob("*"):
        try:
            name = (task / "comm").read_text().strip()
            found[f"{task.name} {name}"] = int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # it has just ended, or the kernel keeps no such statistics
            continue
    return found


def cpu(pid: int) -> float:
    """Seconds of CPU of all threads that are alive; 0 where it cannot be told."""
    return sum(cpu_by_thread(pid).values())


def resident(pid: int) -> int:
    """Bytes of memory a process holds; 0 where it cannot be told."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """The processes that a process has begun, and that are alive. Empty where it cannot be told."""
    found: list[int] = []
    for task in (_PROC / str(pid) / "task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found
