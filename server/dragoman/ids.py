"""The ids and the time of this process, for those who get no other source of them.

Random ids come from a pool, so that the system is called once per 256 ids. Each call of os.urandom releases the
interpreter's lock, and a request that needs three ids would wait three times to get it back from other threads.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

RANDOM_BYTES_PER_ID: Final = 16  # size of a UUID
IDS_PER_REFILL: Final = 256
MIN_CLOCK_STEP_MS: Final = 1_000  # smaller steps of the clock are not followed


class IdGenerator:
    """Unique random ids, safe for threads and forks."""

    def __init__(self, source: Callable[[int], bytes] = os.urandom) -> None:
        self._source = source
        self._pool: deque[bytes] = deque()
        os.register_at_fork(after_in_child=self._pool.clear)

    def use(self, source: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """Takes the next ids from another source, such as one that repeats them. Returns the source before."""
        before, self._source = self._source, source
        self._pool.clear()
        return before

    def random_bytes(self) -> bytes:
        while True:
            try:
                return self._pool.popleft()
            except IndexError:
                block = self._source(RANDOM_BYTES_PER_ID * IDS_PER_REFILL)
                self._pool.extend(
                    [block[at : at + RANDOM_BYTES_PER_ID] for at in range(0, len(block), RANDOM_BYTES_PER_ID)]
                )

    def uuid(self) -> str:
        """A random UUID as text (RFC 9562 §5.4)."""
        digits = self.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def hex(self) -> str:
        """A random UUID as 32 hexadecimal digits."""
        uuid = bytearray(self.random_bytes())
        uuid[6] = 0x40 | uuid[6] & 0x0F
        uuid[8] = 0x80 | uuid[8] & 0x3F
        return uuid.hex()


IDS: Final = IdGenerator()  # the generator of this process

elapsed_clock: Final[Callable[[], float]] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Monotonic seconds. On Linux they include the time for which the machine was suspended."""


def now_ms() -> int:
    """Milliseconds since the epoch, by this machine's clock."""
    return time.time_ns() // 1_000_000


class SteadyClock:
    """Milliseconds since the epoch that follow elapsed time, not steps of this machine's clock. Thread-safe."""

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = elapsed_clock) -> None:
        """wall: this machine's clock, in seconds since the epoch. elapsed: monotonic seconds."""
        self._wall, self._elapsed = wall, elapsed
        self._base = wall() - elapsed()

    def __call__(self) -> int:
        return int((self._base + self._elapsed()) * 1000)

    @contextmanager
    def follow(self) -> Iterator[int]:
        """Follows the milliseconds by which this machine's clock was set, which it yields; 0 below a second.

        Move all that is due by as much inside of the block. Nothing is due early meanwhile: the clock goes back before
        the block, and forward after it. If the block raises, nothing has changed.
        """
        step = round((self._wall() - self._elapsed() - self._base) * 1000)
        step = step if abs(step) >= MIN_CLOCK_STEP_MS else 0
        before = self._base
        self._base += min(step, 0) / 1000
        try:
            yield step
        except BaseException:
            self._base = before
            raise
        self._base += max(step, 0) / 1000
