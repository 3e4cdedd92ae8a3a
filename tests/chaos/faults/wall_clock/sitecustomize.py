"""Gives a process a wall clock that a test can step; this folder is on the PYTHONPATH of processes under test only.

Python imports this module at its start. `time.time` and `time.time_ns` add the nanoseconds in the file CHAOS_CLOCK; all
else is the real process. `tests/chaos/faults/clock_steps.py` writes that file.
"""

import mmap
import os
import struct
import time


def _install(path: str) -> None:
    real = time.time_ns
    with open(path, "rb") as file:
        offset = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)

    def time_ns() -> int:
        """The stepped clock."""
        shift: int = struct.unpack_from("<q", offset)[0]
        return real() + shift

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


if "CHAOS_CLOCK" in os.environ:
    _install(os.environ["CHAOS_CLOCK"])
