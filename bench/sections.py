"""Sections of a run: each is a kind of load over one binding, on all servers with that binding."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final

from bench.responses import EVENTS, TICKS
from bench.rows import Key
from bench.servers.contestants import ALL_BINDINGS, CONTESTANTS


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of load over one binding. `callers`: its cases; a short run has only the case `short`."""

    name: str
    title: str
    kind: str
    binding: str
    callers: tuple[int, ...]
    short: int
    noun: str
    unit: str

    @property
    def servers(self) -> list[str]:
        """The servers with this binding and kind of load, the bare one first."""
        return [
            name
            for name, one in CONTESTANTS.items()
            if self.binding in one.bindings and (one.kinds is None or self.kind in one.kinds)
        ]

    @property
    def cases(self) -> list[int]:
        """The cases of all kinds of runs, in order."""
        return sorted({*self.callers, self.short})

    def case(self, callers: int) -> str:
        """Returns the name of a case in rows and tables."""
        return f"{callers} {self.noun}{'s' if callers > 1 else ''}"

    def run_cases(self, short: bool) -> tuple[int, ...]:
        """Returns the cases of a full or short run."""
        return (self.short,) if short else self.callers


BINDING_NAMES: Final = {"grpc": "gRPC", "rest": "REST", "jsonrpc": "JSON-RPC"}

KINDS: Final = (
    ("send", "blocking send", (1, 16, 64), 4, "caller", "req/s"),
    ("stream", f"streaming send of {EVENTS} chunks", (1, 16), 4, "stream", "events/s"),
    ("subscribers", f"one task of {TICKS} events and its subscribers", (100,), 10, "subscriber", "events/s"),
    ("get", "GetTask with 50 messages", (16,), 4, "caller", "req/s"),
)
"""Kind, title, cases, the case of a short run, what a case counts, unit."""

TIMED: Final = tuple(
    Section(f"{binding}-{kind}", f"{BINDING_NAMES[binding]}: {title}", kind, binding, callers, short, noun, unit)
    for kind, title, callers, short, noun, unit in KINDS
    for binding in ALL_BINDINGS
)
"""Sections measured in interleaved rounds, on all servers."""

LIST: Final = "list"
SIZE: Final = "size"
STEPS: Final = "steps"
MEMORY: Final = "memory"
WEBHOOKS: Final = "push"
REPLICAS: Final = "replicas"
SIZING: Final = "sizing"
TELEMETRY: Final = "telemetry"
START: Final = "start"
DISK: Final = "disk"
STANDALONE: Final = (LIST, SIZE, STEPS, MEMORY, WEBHOOKS, REPLICAS, TELEMETRY, SIZING)
"""Sections measured after the rounds."""


def disk_key(name: str) -> Key:
    """Returns the key of the disk latency measured before a section."""
    return Key(DISK, f"a small commit, before {name}", "disk")


def select_sections(patterns: list[str]) -> tuple[list[Section], list[str]]:
    """Returns the sections that match a pattern: `grpc-send`, `send`, `grpc`, `*-get`, `memory`; all by default.

    Raises ValueError for a pattern without a match.
    """

    def matches(name: str, pattern: str) -> bool:
        return fnmatch(name, pattern) or pattern in name.split("-")

    names = [section.name for section in TIMED] + list(STANDALONE)
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            raise ValueError(f'no section "{pattern}"; there are {", ".join(names)}')
    taken = {name for name in names if not patterns or any(matches(name, pattern) for pattern in patterns)}
    return [section for section in TIMED if section.name in taken], [name for name in STANDALONE if name in taken]
