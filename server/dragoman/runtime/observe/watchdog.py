"""The watchdog of the event loop: measures its delays, and logs the agent and the line that block it."""

from __future__ import annotations

import asyncio
import logging
import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Final

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.counters import Histogram
from dragoman.supervision import Background, start_thread

log = logging.getLogger("dragoman.runtime")

BLOCKED_LOOP_SECONDS: Final = 1.0  # seconds without progress after which the loop counts as blocked
WATCHDOG_INTERVAL: Final = 0.25

_FOREIGN_PATHS: Final = (str(Path(__file__).resolve().parents[2]), sysconfig.get_path("stdlib"))
"""Where no author of agents writes code: this package and Python's own library."""


def is_author_file(file: str) -> bool:
    """Whether a file belongs to the author of an agent: not to this package, Python or an installed package."""
    return not file.startswith((*_FOREIGN_PATHS, "<frozen")) and "site-packages" not in file


class Watchdog:
    """Watches the loop it is created on, until it is stopped."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        blocked: float = BLOCKED_LOOP_SECONDS,
        interval: float = WATCHDOG_INTERVAL,
    ) -> None:
        self._loop = loop
        self._blocked = blocked
        self._interval = interval
        self._loop_thread = threading.get_ident()
        self.delays = Histogram()  # seconds until the loop ran a new callback, sampled several times a second
        self._last_alive = time.monotonic()
        self._stop = threading.Event()
        self._thread = start_thread(Background.WATCHDOG, self._run)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        reported = False
        before = time.monotonic()
        while not self._stop.wait(self._interval):
            try:
                self._loop.call_soon_threadsafe(self._alive, time.monotonic())
            except RuntimeError:  # the loop is closed
                return
            now = time.monotonic()
            paused = now - before > self._blocked  # this thread was paused too: the process was stopped
            before = now
            late = now - self._last_alive
            if late < self._blocked or paused:
                reported = False
            elif not reported:
                reported = True
                agent, file, line = self._blocking_line()
                text = "the event loop has been blocked for %.1f s by agent %s: %s, line %d"
                log.warning(text, late, agent, file, line, extra={"agent": agent})

    def _alive(self, scheduled_at: float) -> None:
        self._last_alive = time.monotonic()
        self.delays.add(self._last_alive - scheduled_at)

    def _blocking_line(self) -> tuple[str, str, int]:
        """The agent whose code blocks the loop, and the innermost file and line of its author."""
        frame = sys._current_frames().get(self._loop_thread)
        location, agent = ("?", 0), "(none)"
        innermost: FrameType | None = frame
        while frame is not None:
            spec = getattr(frame.f_locals.get("self"), "spec", None)
            if isinstance(spec, AgentSpec):
                agent = spec.id
                break
            if is_author_file(frame.f_code.co_filename):
                location = (frame.f_code.co_filename, frame.f_lineno) if location == ("?", 0) else location
            frame = frame.f_back
        if location == ("?", 0) and innermost is not None:
            location = (innermost.f_code.co_filename, innermost.f_lineno)
        return agent, *location
