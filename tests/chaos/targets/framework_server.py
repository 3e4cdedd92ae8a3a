"""Chaos target with one server that has an agent of a framework beside its own agents.

The agent runs in the framework's own environment (tests/frameworks), with a model that follows a script.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.chaos.targets.agents import RETRIES
from tests.chaos.targets.readback import AGENTS
from tests.chaos.targets.server import ServerTarget, running
from tests.frameworks.suite import framework

HERE: Final = Path(__file__).parent
FRAMEWORK_AGENT: Final = "framed-again"
"""The id of the framework's agent. It contains `again`, as the ids of all agents whose turns a crash repeats."""


class FrameworkTarget(ServerTarget):
    """Implements `Target`. Half of all requests go to the framework's agent, which clients name twice."""

    agents: Sequence[str] = ("", "again", FRAMEWORK_AGENT, FRAMEWORK_AGENT)
    stored_agents: Sequence[str] = (*AGENTS, FRAMEWORK_AGENT)


@asynccontextmanager
async def framework_running(folder: Path, name: str, *arguments: str) -> AsyncIterator[FrameworkTarget]:
    """Runs a server inside the block, with the agent of this framework. Creates the environment if it is missing."""
    environment = framework(name).environment
    await asyncio.to_thread(environment.make)
    agent = HERE / "framework_agents" / f"{name}_agents.py"
    options = ("--executor", f"{FRAMEWORK_AGENT}={agent}:framed", "--executor-python", str(environment.python))
    retries = ("--executor-retries", str(RETRIES))
    async with running(folder, *options, *retries, *arguments, target=FrameworkTarget) as target:
        assert isinstance(target, FrameworkTarget)
        yield target
