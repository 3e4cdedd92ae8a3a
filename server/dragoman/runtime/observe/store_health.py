"""Whether the store takes appends, for `/readyz` and gRPC health.

The event log notes every append here. The store is a problem when none has succeeded for a while although some wait or
fail, or when the last ones failed, whatever the cause. While they fail, a probe writes what an append writes, so that
the server is ready again without traffic.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

from dragoman.core.errors import Unavailable
from dragoman.core.names import Owner
from dragoman.core.task.log import Append, AppendRejected, Exists, TaskRef
from dragoman.ports import Store

MAX_FAILED_APPENDS: Final = 3
"""Failures in a row after which the store is a problem at once."""

PROBE_TASK: Final = TaskRef(Owner("", ""), bytes(16))
"""No task has this id."""

PROBE_NAME: Final = "probe"
PROBE_BYTES: Final = 16 * 1024
"""Bytes of a probe: needs free pages, unlike the renewal of a session."""


class StoreHealth:
    """Notes of the appends of one process, on its event loop."""

    def __init__(self, *, max_wait: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        """max_wait: seconds without a successful append after which the store is a problem."""
        self._max_wait = max_wait
        self.clock = clock
        self.waiting = 0
        """Appends that the store has not answered."""
        self.since = 0.0
        """Since when, by the clock, no append has succeeded although one waits or the last one failed."""
        self.failures = 0
        """Failed appends and probes since the last success."""
        self._failed_appends = 0
        self._reason = ""
        self._failing = asyncio.Event()

    @property
    def problem(self) -> str:
        """Why the store is not usable; empty if it is."""
        if self.failures >= MAX_FAILED_APPENDS:
            return f"the last writes failed: {self._reason}"
        seconds = self.clock() - self.since
        if (self.waiting or self.failures) and seconds >= self._max_wait:
            return f"no write has succeeded for {seconds:.0f} s: {self._reason or 'the store does not respond'}"
        return ""

    def note_failure(self, error: BaseException) -> None:
        """Notes an append that failed for another reason than its guard."""
        self._failed_appends += 1
        self._note(error)

    def _note(self, error: BaseException) -> None:
        self.failures += 1
        self._reason = str(error) if isinstance(error, Unavailable) else "see the log"
        self._failing.set()

    async def probe_forever(self, store: Store, interval: float) -> None:
        """Probes the store every `interval` seconds while appends fail, until canceled."""
        failed_before = self._failed_appends
        while True:
            await self._failing.wait()
            await asyncio.sleep(interval)
            if self.failures:
                try:
                    await _probe(store)
                except Exception as error:
                    self._note(error)
                else:
                    if self._failed_appends == failed_before:  # else real appends fail where the probe does not
                        self.failures = 0
                failed_before = self._failed_appends
            if not self.failures:
                self.since, self._reason = self.clock(), ""
                self._failing.clear()


async def _probe(store: Store) -> None:
    """Locks what an append locks, and writes and removes PROBE_BYTES. Raises the store's error."""
    try:
        await store.append(Append(task=PROBE_TASK, guard=Exists()))
    except AppendRejected:
        pass
    before = await store.key_values.get(PROBE_NAME)
    text = secrets.token_hex(PROBE_BYTES // 2)
    if await store.key_values.compare_and_set(PROBE_NAME, text, expected=before):  # else another server probes
        await store.key_values.compare_and_set(PROBE_NAME, "", expected=text)
