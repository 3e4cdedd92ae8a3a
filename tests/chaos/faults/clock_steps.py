"""Wall clocks of processes under test that jump; the machine's clock stays as it is."""

from __future__ import annotations

import mmap
import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
FOLDER: Final = HERE / "wall_clock"
"""The folder of the `sitecustomize` that reads the offset."""
LEAST: Final = 120.0
MOST: Final = 900.0
"""Seconds of a step."""


class WallClock:
    """The wall clock of processes that are started with `environment`."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(bytes(8))
        self._file = file
        with file.open("r+b") as opened:
            self._offset = mmap.mmap(opened.fileno(), 8)
        self.offsets: set[float] = set()
        """All offsets that it had, in seconds."""

    @property
    def environment(self) -> Mapping[str, str]:
        """For a process with this clock."""
        return {"CHAOS_CLOCK": str(self._file), "PYTHONPATH": f"{FOLDER}:{HERE.parents[2]}"}

    def set(self, seconds: float) -> None:
        """Makes the clock so many seconds off from now on; 0: right."""
        self.offsets.add(seconds)
        self._offset[:] = struct.pack("<q", round(seconds * 1e9))

    def real(self, stamped: float, began: float, over: float) -> float:
        """The time in a run from `began` to `over` that a stamp of this clock stands for, in seconds of the epoch.

        Steps are longer than a run, so a stamp outside of it is of a clock that was off.
        """
        if began <= stamped <= over:
            return stamped
        return min((stamped - offset for offset in self.offsets), key=lambda at: abs(at - (began + over) / 2))


def step_of(how: str, seconds: float, rng: random.Random) -> float:
    """The step of a clock, forward or back: minutes, and longer than a run of so many seconds."""
    step = seconds + rng.uniform(LEAST, MOST)
    return step if how == "forward" else -step
