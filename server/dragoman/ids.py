"""The ids and the time of this process, for those who get no other source of them.

Random ids come from a pool, so that the system is called once per 256 ids. Each call of os.urandom releases the
interpreter's lock, and a request that needs three ids would wait three times to get it back from other threads.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final

RANDOM_BYTES_PER_ID: Final = 16  # size of a UUID
IDS_PER_REFILL: Final = 256


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


def now_ms() -> int:
    """Milliseconds since the epoch, by this machine's clock."""
    return time.time_ns() // 1_000_000
