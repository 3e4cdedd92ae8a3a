"""A benchmark run: its plan, rows, progress messages, and load process."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from bench.load.jobs import LoadProcess
from bench.rows import Key, Writer
from bench.sections import Section
from bench.servers.contestants import CEILING, DRAGOMAN, bare_server_of

FEW: Final = 3
"""Rounds of measurements with little variance."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of a run. `servers`: names of the servers to measure; empty for all."""

    sections: list[Section]
    rounds: int
    seconds: float
    short: bool
    tools: bool
    servers: frozenset[str]

    def takes(self, name: str) -> bool:
        """Whether this server is measured."""
        return not self.servers or name in self.servers

    def servers_of(self, section: Section) -> list[str]:
        """Returns the servers of a section. A short run measures the slow a2a-sdk SQLite over JSON-RPC only."""
        names = [name for name in section.servers if self.takes(name)]
        if self.short and section.binding != "jsonrpc":
            return [
                name for name in names if name in (CEILING, DRAGOMAN, bare_server_of(section.binding), "a2a-sdk memory")
            ]
        return names


class Run:
    """Records values and failures, and prints progress."""

    def __init__(self, plan: Plan, writer: Writer, load_process: LoadProcess) -> None:
        self.plan = plan
        self.load_process = load_process
        self._writer = writer
        self._began = time.monotonic()

    def record(self, key: Key, number: int, value: float, unit: str, *, text: str, **more: Any) -> None:
        """Records a value of a round; `text` describes it in the progress message."""
        self._writer.add(key, number, value, unit, **more)
        self.log(f"round {number + 1}  {key.section}, {key.case}: {key.server}: {text}")

    def record_failure(self, key: Key, number: int, reason: str) -> None:
        """Records a failed measurement. The run continues, and ends with an error."""
        self._writer.add_failure(key, number, reason)
        self.log(f"round {number + 1}  {key.section}, {key.case}: {key.server}: FAILED: {reason}")

    def log(self, text: str) -> None:
        """Prints a progress message."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"{minutes:3}:{seconds:02}  {text}", file=sys.stderr, flush=True)
