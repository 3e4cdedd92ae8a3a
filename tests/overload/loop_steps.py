"""The longest step of an event loop, in CPU time of its own thread.

Time in which the thread waits for a processor does not count, so a busy machine does not lengthen a step.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass


@dataclass
class LongestStep:
    """The step with the most CPU time since the last `reset`."""

    milliseconds: float = 0.0
    callback: str = ""

    def reset(self) -> None:
        """Forgets the steps so far."""
        self.milliseconds, self.callback = 0.0, ""


def measure_steps() -> LongestStep:
    """Measures each callback that the loops of this process run from now on. Cannot be undone."""
    longest = LongestStep()
    run = asyncio.Handle._run

    def measured_run(self: asyncio.Handle) -> None:
        started = time.thread_time()
        run(self)
        milliseconds = (time.thread_time() - started) * 1000
        if milliseconds > longest.milliseconds:
            longest.milliseconds, longest.callback = milliseconds, repr(self)[:300]

    asyncio.Handle._run = measured_run  # type: ignore[method-assign]  # asyncio has no hook for steps
    return longest
