"""Frames to and from the server over a pair of pipes, carried by threads of their own.

An executor that blocks the event loop must not look like a dead process, so frames are read and written, and signs of
life given, where it has no part.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

Frame = dict[str, Any]
"""A ConnectRequest or ConnectResponse of dragoman.worker.v1, as ProtoJSON."""


class Line:
    """One stream. `read` begins to give what the server says."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self.heartbeat = 1.0
        """Seconds of silence after which a sign of life is due."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="dragoman-guest-writer", daemon=True)
        self._writer.start()

    def say(self, **frame: Any) -> int:
        """Sends a frame; gives its size in bytes. Raises ValueError for what JSON cannot say. From any thread."""
        data = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        self._queue.put(data + b"\n")
        return len(data)

    def read(self, hear: Callable[[Frame], None], ended: Callable[[], None]) -> None:
        """Gives each frame to `hear`, in a thread; `ended` is called once there are no more."""

        def loop() -> None:
            for line in self._incoming:
                hear(json.loads(line))
            ended()

        threading.Thread(target=loop, name="dragoman-guest-reader", daemon=True).start()

    def finish(self, patience: float) -> None:
        """Says no more, once what was said is on its way, or these seconds have passed."""
        self._queue.put(None)
        self._writer.join(patience)

    def _write(self) -> None:
        alive = b'{"heartbeat":{}}\n'
        silence = None  # until it has said what it is, for which it may have to import for long
        try:
            while True:
                try:
                    data = self._queue.get(timeout=silence)
                except queue.Empty:
                    data = alive
                silence = self.heartbeat
                if data is None:
                    return
                self._outgoing.write(data)
                self._outgoing.flush()
        except OSError:  # nobody reads any more; the reader notices too
            return


def of_this_process() -> Line:
    """The stream on stdin and stdout. What the executor prints goes to stderr from now on, and it reads nothing."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return Line(incoming, outgoing)
