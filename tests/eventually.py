"""Polling for conditions that signal no event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

EVENTUALLY_TIMEOUT: Final = 60.0
"""Seconds until a condition has to hold."""


async def eventually(condition: Callable[[], T], seconds: float = EVENTUALLY_TIMEOUT) -> T:
    """Polls a condition until its result is true, and returns the result. Raises AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds:g} s"
        await asyncio.sleep(0.005)
    return result


def eventually_blocking(condition: Callable[[], T], seconds: float = EVENTUALLY_TIMEOUT) -> T:
    """`eventually` for tests without an event loop."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds:g} s"
        time.sleep(0.02)
    return result
