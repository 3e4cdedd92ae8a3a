"""What a load process is told, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Job:
    """One load on one server."""

    kind: str
    binding: str
    whose: str
    target: str
    pid: int
    """The server's process, whose CPU time is read."""
    callers: int = 1
    seconds: float = 1.0
    tools: bool = True
    """Whether wrk and h2load may be used."""
    go: str = ""
    """The file that lets the events for many subscribers begin."""
    state: str = ""
    """The filter of ListTasks."""
    pages: tuple[int, ...] = ()
    """The pages of ListTasks that are timed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it. `count` is answers or events, `p50` and `p99` are milliseconds, CPU is in seconds."""

    kind: str
    count: int
    seconds: float
    p50: float
    p99: float
    server_cpu: float
    load_cpu: float
    tool: str
    size: float = 0.0
    """Bytes of an answer, on average."""
    heads: int = 0
    """Bytes of its headers, over gRPC."""
    threads: dict[str, float] = field(default_factory=dict)
    """Seconds of CPU of each of the server's threads, by number and name."""
