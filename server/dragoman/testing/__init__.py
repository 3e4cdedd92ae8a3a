"""Test kit for authors of agents, stores and buses.

    async with AgentUnderTest(desk) as a:
        run = await a.send("A table for two")
        assert run.question == "On which day?"

`run(echo, "hello")` does the same in a plain function. `record` writes the history of a task to a file, and `replay`
compares new code with it. The contract suites in `contracts/` test any store and any bus; they need pytest and
pytest-asyncio. See docs/how-to/testing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.testing.fixtures import Clock, Ids
    from dragoman.testing.kit.agent_under_test import AgentUnderTest, TaskRun
    from dragoman.testing.kit.blocking import BlockingAgent, BlockingRun, LiveServer, run
    from dragoman.testing.kit.recording import Recording, record
    from dragoman.testing.kit.replay import Different, replay, replayed
    from dragoman.testing.kit.story import GivenArtifact, Step, Story

_MODULES = {
    "fixtures": ("Clock", "Ids"),
    "kit.agent_under_test": ("AgentUnderTest", "TaskRun"),
    "kit.blocking": ("BlockingAgent", "BlockingRun", "LiveServer", "run"),
    "kit.recording": ("Recording", "record"),
    "kit.replay": ("Different", "replay", "replayed"),
    "kit.story": ("GivenArtifact", "Step", "Story"),
}

__all__ = [
    "AgentUnderTest", "run", "record", "replay", "replayed", "Recording", "Different", "TaskRun", "Story", "Step",
    "GivenArtifact", "Clock", "Ids", "BlockingAgent", "BlockingRun", "LiveServer",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Imported on first use: tests of a store need none of it, and tests of an agent need no server.
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"dragoman.testing.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
