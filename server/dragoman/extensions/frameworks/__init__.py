"""Agents of frameworks, and executors of a2a-sdk and fasta2a, each in a child process (docs/how-to/executors.md).

To the runtime such an agent is a `WorkerAgent` and its process a `WorkerConnection`: the frames are those of
dragoman.worker.v1. The transport differs, a pair of pipes with one line of ProtoJSON per frame, because the executor's
environment need not have gRPC or protobuf. `process` is the child process, `supervisor` restarts it, and
`dragoman/extensions/frameworks/child` runs in it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from dragoman.extensions.frameworks.sources import FrameworkSettings, is_object_name
from dragoman.ports import Agent, UpstreamStatus
from dragoman.ports.extension import AgentHost, AgentSource, AgentSources, ServerExtension

log = logging.getLogger("dragoman.executor")


@dataclass(frozen=True, slots=True)
class Executors:
    """Implements `dragoman.ports.extension.AgentSource`: executors that run."""

    agents: Sequence[Agent]

    def start(self) -> None:
        """Does nothing: their supervision began when they were opened."""

    def status(self) -> Sequence[UpstreamStatus]:
        """Lists no servers: none is behind them."""
        return ()


@asynccontextmanager
async def open_executors(settings: FrameworkSettings, host: AgentHost) -> AsyncIterator[AgentSource]:
    """Starts executors in order, and stops them when the block ends.

    Raises ValueError for the first that cannot start, after stopping the ones before it.
    """
    from dragoman.extensions.frameworks.supervisor import ExecutorStartFailed, ExecutorSupervisor

    specs = settings.started(host.app)
    ids = [*host.reserved_ids, *(spec.id for spec in specs)]
    if len(set(ids)) < len(ids):
        raise ValueError("--executor: has the id of an agent of APP; pass ID=MODULE:NAME")
    for name in settings.env:
        if not any(fnmatchcase(variable, name) for variable in os.environ):
            log.warning("--executor-env: %s is not set in the server's environment, so no executor gets it", name)
    async with AsyncExitStack() as stack:
        agents: list[Agent] = []
        for spec in specs:
            supervisor = ExecutorSupervisor(spec, settings, host)
            stack.push_async_callback(supervisor.close)
            try:
                agents.append(await supervisor.open())
            except ExecutorStartFailed as error:
                raise ValueError(f"{spec.target}: {error}") from error
        yield Executors(agents)


def watched_module(settings: FrameworkSettings, app: str) -> str:
    """The module or file of the first executor; empty without any."""
    targets = [app] if is_object_name(app) else [spec.target for spec in settings.executors]
    return targets[0].rpartition(":")[0] if targets else ""


EXTENSION: Final = ServerExtension(
    name="frameworks",
    title="Frameworks",
    settings=FrameworkSettings,
    agents=AgentSources(
        option="--executor",
        is_used=lambda settings: bool(settings.executors),
        open=open_executors,
        recognizes=is_object_name,
        module=watched_module,
        examples=(
            ("assistant.py:agent --executor-python venv/bin/python", "an agent of a framework, unchanged"),
            ("--executor mycompany.agent:HelloWorldAgentExecutor --executor-python venv/bin/python", ""),
        ),
    ),
)
