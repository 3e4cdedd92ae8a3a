"""Routes of a chain run: which servers and links a message passes, and which agent does the work.

front ── A2A, or MCP with task handles ──> middle ── A2A ──> last
front ── MCP without tasks ──> tools
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

FRONT: Final = "front"
MIDDLE: Final = "middle"
LAST: Final = "last"
TOOLS: Final = "tools"
PROCESSES: Final = (FRONT, MIDDLE, LAST, TOOLS)
LEVELS: Final = (FRONT, MIDDLE, LAST)
"""The processes with a store, from the caller on."""

RETRIES: Final = 3
"""Repetitions of a turn after a crash, of agents and tools with `again` in their names."""

TICK: Final = 0.1
"""Seconds between two actions of an agent."""


class Protocol(StrEnum):
    """How one server calls the next."""

    A2A = "A2A"
    MCP_TASK = "MCP with task handles"
    MCP_CALL = "MCP without tasks"


@dataclass(frozen=True, slots=True)
class Hop:
    """One server that calls the next one."""

    caller: str
    callee: str
    protocol: Protocol

    @property
    def link(self) -> str:
        """The name of the connection in between."""
        return f"{self.caller}-{self.callee}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of a message from the front to the agent that does the work."""

    agent: str
    """The agent of the front."""
    hops: Sequence[Hop]
    message: str = "{}"
    """The text that the front receives, with a place for the command."""
    repeats: bool = False
    """Whether the work is repeated after a crash."""

    @property
    def parts(self) -> frozenset[str]:
        """The processes and links that it needs."""
        return frozenset(part for hop in self.hops for part in (hop.caller, hop.link, hop.callee))

    @property
    def levels(self) -> Sequence[str]:
        """Its processes with a store, from the caller on."""
        return [name for name in (FRONT, *(hop.callee for hop in self.hops)) if name in LEVELS]


_NEAR: Final = Hop(FRONT, MIDDLE, Protocol.A2A)
_FAR: Final = Hop(MIDDLE, LAST, Protocol.A2A)
_JOB: Final = Hop(FRONT, MIDDLE, Protocol.MCP_TASK)
_TOOL: Final = Hop(FRONT, TOOLS, Protocol.MCP_CALL)
LINKS: Final = tuple(dict.fromkeys(hop.link for hop in (_NEAR, _FAR, _TOOL)))

ROUTES: Final[Mapping[str, Route]] = {
    "near": Route(agent="near", hops=(_NEAR,)),
    "near-again": Route(agent="near-again", hops=(_NEAR,), repeats=True),
    "deep": Route(agent="deep", hops=(_NEAR, _FAR)),
    "deep-again": Route(agent="deep-again", hops=(_NEAR, _FAR), repeats=True),
    "job": Route(agent="jobs", hops=(_JOB,), message='once {{"message": "{}"}}'),
    "job-again": Route(agent="jobs", hops=(_JOB,), message='again {{"message": "{}"}}', repeats=True),
    "deep-job": Route(agent="jobs", hops=(_JOB, _FAR), message='far_far {{"message": "{}"}}'),
    "tool": Route(agent="tools", hops=(_TOOL,), message='work {{"command": "{}"}}'),
    "tool-again": Route(agent="tools", hops=(_TOOL,), message='work_again {{"command": "{}"}}', repeats=True),
}

FRONT_AGENTS: Final = tuple(dict.fromkeys(route.agent for route in ROUTES.values()))
LAST_AGENTS: Final = ("far", "far-again")
MIDDLE_AGENTS: Final = ("once", "again", *LAST_AGENTS)
AGENTS: Final[Mapping[str, Sequence[str]]] = {FRONT: FRONT_AGENTS, MIDDLE: MIDDLE_AGENTS, LAST: LAST_AGENTS}
"""The agents of each process with a store."""

_COMMAND: Final = re.compile(r"work (\d+) via ([a-z-]+) #(\d+)")


@dataclass(frozen=True, slots=True)
class Command:
    """What an agent shall do: so many ticks of work. `number`: unique in a run."""

    ticks: int
    route: str
    number: int

    @property
    def text(self) -> str:
        """The command as an agent reads it."""
        return f"work {self.ticks} via {self.route} #{self.number}"

    @property
    def output(self) -> str:
        """The result of the work."""
        return "".join(map(chunk_text, range(self.ticks)))

    @classmethod
    def find(cls, text: str) -> Command | None:
        """The command in a text."""
        found = _COMMAND.search(text)
        return cls(int(found[1]), found[2], int(found[3])) if found else None


def chunk_text(number: int) -> str:
    """The text of one tick of work."""
    return f"{number} "
