"""Wall clocks that jump: what a process with one reads, and which real time a stamp of it stands for."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.chaos.faults.clock_steps import LEAST, WallClock, step_of


@pytest.mark.parametrize("offset", [600.0, -600.0, 0.0])
def test_a_process_reads_a_clock_that_is_off(tmp_path: Path, offset: float) -> None:
    clock = WallClock(tmp_path / "clock")
    clock.set(offset)
    program = "import time; print(time.time(), time.time_ns() / 1e9)"
    environment = {**os.environ, **clock.environment}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    for read in map(float, done.stdout.split()):
        assert abs(read - offset - time.time()) < 60


@pytest.mark.parametrize("how", ["forward", "back"])
def test_stamps_of_a_clock_that_was_off_are_told_from_others(tmp_path: Path, how: str) -> None:
    clock = WallClock(tmp_path / "clock")
    offset = step_of(how, 100, random.Random(1))
    assert abs(offset) >= 100 + LEAST
    clock.set(offset)
    clock.set(0)
    assert clock.real(1050, 1000, 1100) == 1050
    assert clock.real(1050 + offset, 1000, 1100) == 1050
