"""`--executor`: agents of other people's making, each in a process of its own, for a server or a worker."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from dragoman.agents.executors import ExecutorStartFailed, ExecutorSupervisor
from dragoman.core.agent_sources import DEFAULT_EXECUTOR_TURNS, ExecutorSpec
from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman.loading import LoadError
from dragoman.ports import Agent
from dragoman.stores.sqlite.store import now_ms


@dataclass(frozen=True, slots=True)
class Hosting:
    """Which executors, and how they are run."""

    executors: Sequence[ExecutorSpec] = ()
    python: str = ""
    """The interpreter of their environment; empty: our own."""
    turns: int = DEFAULT_EXECUTOR_TURNS
    """Turns of each at the same time."""
    retries: int = 0
    """How often a turn is begun again whose process was lost."""


class Hosted:
    """The agents of executors whose processes run."""

    def __init__(self, hosts: Sequence[ExecutorSupervisor], agents: Sequence[Agent]) -> None:
        self.agents = agents
        self._hosts = hosts

    def tell(self, changed: Callable[[], None]) -> None:
        """Has `changed` called when one of them takes more turns than before."""
        for host in self._hosts:
            host.on_capacity_change = changed


@asynccontextmanager
async def open_executors(hosting: Hosting, frame_bytes: int = MAX_MESSAGE_BYTES) -> AsyncIterator[Hosted]:
    """Starts them one after the other, and ends them when the block is left. `frame_bytes`: of one event.

    Raises LoadError for the first that is none, when all before it have been ended.
    """
    async with AsyncExitStack() as stack:
        hosts, agents = [], []
        for executor in hosting.executors:
            host = ExecutorSupervisor(
                executor,
                hosting.python or sys.executable,
                clock=now_ms,
                turns=hosting.turns,
                retries=hosting.retries,
                frame_bytes=frame_bytes,
            )
            stack.push_async_callback(host.close)
            try:
                agents.append(await host.open())
            except ExecutorStartFailed as error:
                raise LoadError(f"--executor {executor.target}: {error}") from error
            hosts.append(host)
        yield Hosted(hosts, agents)
