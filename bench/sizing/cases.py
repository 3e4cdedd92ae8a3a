"""The measured cases of the sizing model: those that give its constants, and those that it predicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

FEW_CALLERS: Final = 1
"""Callers, or streams, of the cases that show the wait for a disk and cold caches."""

SOME_CALLERS: Final = 4
MANY_CALLERS: Final = 64
"""Callers of the two cases from which the cost of a unit and that of a commit are computed."""

SOME_STREAMS: Final = 8
MANY_STREAMS: Final = 40
"""The same for paced streams: more would need most of a core."""

CHUNKS_PER_STREAM: Final = 50
"""Chunks of a paced stream, which lasts a second."""

BURST_STREAMS: Final = 16
"""Streams per server whose agents make all chunks at once."""

PACE_MS: Final = 20.0
"""Mean milliseconds between two chunks of a paced stream. They come at random, as tokens of a model do."""


class Store(StrEnum):
    """The store of a case."""

    SQLITE = "SQLite"
    POSTGRES = "PostgreSQL"


class Kind(StrEnum):
    """The load of a case, and the unit that is counted."""

    IDLE = "idle second"
    SEND = "send"
    BURST = "chunk of a burst"
    PACED = "paced chunk"


class Worker(StrEnum):
    """Where turns run, if not on the server that got the message."""

    NONE = ""
    ON_STORE = "--role worker"
    CONNECTED = "worker that dials in"


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement. `callers`: of all servers together. `constant`: whether it gives a constant."""

    kind: Kind
    callers: int
    servers: int = 1
    store: Store = Store.POSTGRES
    worker: Worker = Worker.NONE
    constant: bool = field(default=False, compare=False)

    @property
    def name(self) -> str:
        """The name in rows and tables."""
        worker = f" and a {self.worker}" if self.worker else ""
        servers = f"{self.servers} server{'s' if self.servers > 1 else ''} on {self.store}{worker}"
        if self.kind is Kind.IDLE:
            return f"{servers}: {self.kind}"
        streaming = self.kind in (Kind.BURST, Kind.PACED)
        noun = "stream" if streaming else "caller"
        return f"{servers}, {self.callers} {noun}{'s' if self.callers > 1 else ''}: {self.kind}"


SQLITE: Final = (
    Case(Kind.IDLE, 0, store=Store.SQLITE, constant=True),
    Case(Kind.SEND, FEW_CALLERS, store=Store.SQLITE, constant=True),
    Case(Kind.SEND, MANY_CALLERS, store=Store.SQLITE, constant=True),
    Case(Kind.SEND, SOME_CALLERS, store=Store.SQLITE, constant=True),
    Case(Kind.SEND, 16, store=Store.SQLITE),
)
GROWING: Final = (
    Case(Kind.IDLE, 0, constant=True),
    Case(Kind.SEND, FEW_CALLERS, constant=True),
    Case(Kind.SEND, MANY_CALLERS, constant=True),
    Case(Kind.BURST, FEW_CALLERS, constant=True),
    Case(Kind.BURST, BURST_STREAMS, constant=True),
    Case(Kind.PACED, FEW_CALLERS, constant=True),
    Case(Kind.PACED, MANY_STREAMS, constant=True),
    Case(Kind.SEND, SOME_CALLERS, constant=True),
    Case(Kind.SEND, 16),
    Case(Kind.PACED, SOME_STREAMS, constant=True),
    Case(Kind.PACED, 20),
    Case(Kind.IDLE, 0, 2, constant=True),
    Case(Kind.BURST, FEW_CALLERS * 2, 2, constant=True),
    Case(Kind.SEND, 32, 2),
    Case(Kind.BURST, 32, 2),
    Case(Kind.IDLE, 0, 3, constant=True),
    Case(Kind.BURST, FEW_CALLERS * 3, 3, constant=True),
    Case(Kind.SEND, 48, 3),
    Case(Kind.IDLE, 0, 4, constant=True),
    Case(Kind.BURST, FEW_CALLERS * 4, 4, constant=True),
    Case(Kind.SEND, 64, 4),
    Case(Kind.BURST, 64, 4),
)
"""A cluster that gets its next server when a case needs it."""

WORKERS: Final = {
    worker: (
        Case(Kind.IDLE, 0, worker=worker, constant=True),
        Case(Kind.SEND, FEW_CALLERS, worker=worker, constant=True),
        Case(Kind.SEND, MANY_CALLERS, worker=worker, constant=True),
        Case(Kind.SEND, SOME_CALLERS, worker=worker, constant=True),
        Case(Kind.SEND, 16, worker=worker),
    )
    for worker in (Worker.ON_STORE, Worker.CONNECTED)
}
ALL: Final = (*SQLITE, *GROWING, *(case for cases in WORKERS.values() for case in cases))


@dataclass(frozen=True, slots=True)
class Memory:
    """Numbers of tasks that wait for their callers, of streams open on them, and of running turns."""

    waiting: int
    streams: int
    running: int = 0

    @property
    def name(self) -> str:
        """The name in rows and tables."""
        running = f", {self.running:,} running turns" if self.running else ""
        return f"memory: {self.waiting:,} waiting tasks, {self.streams:,} open streams{running}"


MEMORY_IDLE: Final = "memory: a server after some load"
MEMORY_FEW: Final = (Memory(1_000, 0), Memory(1_000, 300), Memory(1_000, 300, 300))
"""Steps whose differences are the constants."""

MEMORY_MANY: Final = (Memory(6_000, 0), Memory(6_000, 2_000))
"""Predicted, in a new server."""
