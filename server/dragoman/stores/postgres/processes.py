"""Whether a process is gone for certain, as far as that can be seen from here: because this machine had it.

A process is named by the boot of its kernel, its space of process ids, its id in it, and the tick in which it began, so
no other is ever taken for it. Whoever cannot be looked for from here is not gone; its session then expires by itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_BEGAN: Final = 19
"""Which field behind the name of a program is the tick in which it began: the 22nd of all, and the name is the 2nd."""


def myself() -> str:
    """This process; empty where the system does not tell enough of it."""
    pid = os.getpid()
    began = _began(pid)
    return f"{here()} {pid} {began}" if here() and began else ""


def here() -> str:
    """Where process ids mean what they mean to us; empty where that is not to be had."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink(PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def is_gone(process: str) -> bool:
    """Whether a process that called itself so has ended. False for all that cannot be seen from here."""
    place, _, rest = process.rpartition("] ")
    if not place or f"{place}]" != here():
        return False
    pid, _, began = rest.partition(" ")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is somebody else's, and there
        pass
    now = _began(int(pid))  # the id may have been given again
    return bool(now) and now != began


def _began(pid: int) -> str:
    """The tick in which a process began; empty when that is not to be had."""
    try:
        return (PROC / str(pid) / "stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()[_BEGAN]
    except (OSError, IndexError):
        return ""
