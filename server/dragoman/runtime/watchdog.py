"""A loop that is blocked serves nobody: this thread notices, and says which agent's line it was.

Async agents share the event loop. One that computes, sleeps or reads a file without `await` stops everybody else; the
session stays alive all the same, because its renewal has a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Final

from dragoman.core.counting import Histogram
from dragoman.runtime.run import Run

log = logging.getLogger("dragoman.runtime")

BLOCKED: Final = 1.0
"""Seconds without a turn of the loop after which it counts as blocked."""

LOOK: Final = 0.25

_OURS: Final = str(Path(__file__).resolve().parents[1])


class Watchdog:
    """Watches the loop it is made on, until it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, blocked: float = BLOCKED, look: float = LOOK) -> None:
        self._loop = loop
        self._blocked = blocked
        self._look = look
        self._home = threading.get_ident()
        self.delays = Histogram()
        """Seconds that the loop took to come to something new, looked at several times a second."""
        self._seen = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dragoman-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        told = False
        before = time.monotonic()
        while not self._stop.wait(self._look):
            try:
                self._loop.call_soon_threadsafe(self._alive, time.monotonic())
            except RuntimeError:  # the loop is closed
                return
            now = time.monotonic()
            paused = now - before > self._blocked  # this thread stood still too: the process was stopped
            before = now
            late = now - self._seen
            if late < self._blocked or paused:
                told = False
            elif not told:
                told = True
                agent, file, line = self._who()
                text = "the event loop has been blocked for %.1f s by agent %s: %s, line %d"
                log.warning(text, late, agent, file, line, extra={"agent": agent})

    def _alive(self, asked: float) -> None:
        self._seen = time.monotonic()
        self.delays.add(self._seen - asked)

    def _who(self) -> tuple[str, str, int]:
        """The agent whose code the loop is in, and the innermost line that is its author's."""
        frame = sys._current_frames().get(self._home)
        place, agent = ("?", 0), "(none)"
        inner: FrameType | None = frame
        while frame is not None:
            file = frame.f_code.co_filename
            run = frame.f_locals.get("self")
            if isinstance(run, Run):
                agent = run.head.agent
                break
            if not file.startswith(_OURS) and "site-packages" not in file and not file.startswith(sys.base_prefix):
                place = (file, frame.f_lineno) if place == ("?", 0) else place
            frame = frame.f_back
        if place == ("?", 0) and inner is not None:
            place = (inner.f_code.co_filename, inner.f_lineno)
        return agent, *place
