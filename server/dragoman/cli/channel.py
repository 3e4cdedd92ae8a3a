"""What a parent of several servers and its children say to each other: lines of JSON on a socket that children inherit.

The child says `{"ready": true}`. The parent says `{"announce": [PIDS]}` to one of them, which then prints what one
server would print. That the other end closes is a word as well: a child whose parent is gone drains.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import Any


class Channel:
    """One end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @classmethod
    def inherited(cls, number: int) -> Channel:
        """The end of a child, by the number of its file. Raises OSError when there is no such socket."""
        os.set_inheritable(number, False)  # what this child starts shall not keep it open
        return cls(socket.socket(fileno=number))

    async def open(self) -> None:
        """Begins to talk."""
        self._end.setblocking(False)
        self._streams = await asyncio.open_connection(sock=self._end)

    def say(self, **words: Any) -> None:
        """Says something, to whoever is still there."""
        assert self._streams is not None
        self._streams[1].write(json.dumps(words).encode() + b"\n")

    async def hear(self) -> dict[str, Any] | None:
        """What the other end says next; None when it is gone."""
        assert self._streams is not None
        try:
            line = await self._streams[0].readline()
        except OSError:
            return None
        return dict(json.loads(line)) if line.endswith(b"\n") else None

    def close(self) -> None:
        """Ends it."""
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._end.close()
