"""A run: how it is made, where its rows go, who is told how far it is, and the load process that it uses."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from bench.loader import Loader
from bench.rows import Key, Writer
from bench.sections import Section
from bench.servers import OURS, limit_of

FEW: Final = 3
"""Rounds that are enough for what hardly ranges."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a run is made. `servers`: only these (nobody named: all)."""

    sections: list[Section]
    rounds: int
    seconds: float
    short: bool
    tools: bool
    servers: frozenset[str]

    def takes(self, name: str) -> bool:
        """Whether this server takes part."""
        return not self.servers or name in self.servers

    def servers_of(self, section: Section) -> list[str]:
        """Who takes part in a section. In a short run SQLite's slowest user does so over JSON-RPC alone."""
        found = [name for name in section.servers if self.takes(name)]
        if self.short and section.binding != "jsonrpc":
            return [name for name in found if name in (OURS, limit_of(section.binding), "a2a-sdk memory")]
        return found


class Run:
    """Takes figures and failures from wherever they are measured."""

    def __init__(self, plan: Plan, writer: Writer, loader: Loader) -> None:
        self.plan = plan
        self.loader = loader
        self._writer = writer
        self._began = time.monotonic()

    def figure(self, key: Key, number: int, value: float, unit: str, *, text: str, **more: Any) -> None:
        """One figure of a round, and the words in which it is told."""
        self._writer.add(key, number, value, unit, **more)
        self.say(f"round {number + 1}  {key.section}, {key.case}: {key.server}: {text}")

    def failed(self, key: Key, number: int, why: str) -> None:
        """Something that could not be measured. The run goes on, and ends with an error."""
        self._writer.failed(key, number, why)
        self.say(f"round {number + 1}  {key.section}, {key.case}: {key.server}: FAILED: {why}")

    def say(self, text: str) -> None:
        """A line of progress."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"{minutes:3}:{seconds:02}  {text}", file=sys.stderr, flush=True)
