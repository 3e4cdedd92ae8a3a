"""What is measured: sections by name, each a kind of load over one binding on the servers that have it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final

from bench.answers import EVENTS, TICKS
from bench.rows import Key
from bench.servers import CONTESTANTS, EVERY


@dataclass(frozen=True, slots=True)
class Section:
    """Rounds of one kind of load. `callers` are its cases; a short run has only `short`."""

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
        """Who takes part, the limit first."""
        return [name for name, one in CONTESTANTS.items() if self.binding in one.bindings]

    @property
    def cases(self) -> list[int]:
        """Those of every kind of run, in order."""
        return sorted({*self.callers, self.short})

    def case(self, callers: int) -> str:
        """What rows and tables call a case."""
        return f"{callers} {self.noun}{'s' if callers > 1 else ''}"

    def of(self, short: bool) -> tuple[int, ...]:
        """The cases of a run."""
        return (self.short,) if short else self.callers


SPELLED: Final = {"grpc": "gRPC", "rest": "REST", "jsonrpc": "JSON-RPC"}

KINDS: Final = (
    ("send", "blocking send", (1, 16, 64), 4, "caller", "req/s"),
    ("stream", f"streaming send of {EVENTS} chunks", (1, 16), 4, "stream", "events/s"),
    ("subscribers", f"one task of {TICKS} events and its subscribers", (100,), 10, "subscriber", "events/s"),
    ("get", "GetTask with 50 messages", (16,), 4, "caller", "req/s"),
)
"""Kind, title, cases, the case of a short run, what a case counts, unit."""

TIMED: Final = tuple(
    Section(f"{binding}-{kind}", f"{SPELLED[binding]}: {title}", kind, binding, callers, short, noun, unit)
    for kind, title, callers, short, noun, unit in KINDS
    for binding in EVERY
)
"""The sections that are measured in rounds, all servers beside each other."""

LIST: Final = "list"
SIZE: Final = "size"
MEMORY: Final = "memory"
HOOKED: Final = "push"
REPLICAS: Final = "replicas"
WATCHED: Final = "telemetry"
START: Final = "start"
DISK: Final = "disk"
ALONE: Final = (LIST, SIZE, MEMORY, HOOKED, REPLICAS, WATCHED)
"""What is measured after the rounds."""


def commit_before(name: str) -> Key:
    """What a commit costs on the disk, measured just before a section."""
    return Key(DISK, f"a small commit, before {name}", "disk")


def chosen(patterns: list[str]) -> tuple[list[Section], list[str]]:
    """The sections that one of these names or means: `grpc-send`, `send`, `grpc`, `*-get`, `memory`; all for none.

    Raises ValueError for one that means nothing.
    """

    def wanted(name: str, pattern: str) -> bool:
        return fnmatch(name, pattern) or pattern in name.split("-")

    names = [section.name for section in TIMED] + list(ALONE)
    for pattern in patterns:
        if not any(wanted(name, pattern) for name in names):
            raise ValueError(f'no section "{pattern}"; there are {", ".join(names)}')
    taken = {name for name in names if not patterns or any(wanted(name, pattern) for pattern in patterns)}
    return [section for section in TIMED if section.name in taken], [name for name in ALONE if name in taken]
