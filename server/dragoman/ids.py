"""Random bytes for ids, asked of the system for many at once.

Each call into the system gives up the interpreter's lock, and whoever asks three times in a request waits three times
for the threads that took it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Final

RANDOM_BYTES_PER_ID: Final = 16
"""Bytes at a time: as many as a UUID has."""

IDS_PER_REFILL: Final = 256
"""How many of them are kept at hand."""


class IdGenerator:
    """Gives SIZE random bytes that nobody else is given, in any thread, and in a process that was forked off."""

    def __init__(self, source: Callable[[int], bytes] = os.urandom) -> None:
        self._source = source
        self._pool: deque[bytes] = deque()
        os.register_at_fork(after_in_child=self._pool.clear)

    def random_bytes(self) -> bytes:
        """SIZE bytes."""
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
        text = self.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def hex(self) -> str:
        """The same without its dashes."""
        body = bytearray(self.random_bytes())
        body[6] = 0x40 | body[6] & 0x0F
        body[8] = 0x80 | body[8] & 0x3F
        return body.hex()


IDS: Final = IdGenerator()
"""This process's own."""
