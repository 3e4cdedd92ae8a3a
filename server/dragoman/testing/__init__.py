"""The test kit: for authors of agents, and for authors of stores and buses.

    async with AgentUnderTest(desk) as a:
        run = await a.send("A table for two")
        assert run.asked == "On which day?"

`run(echo, "hello")` does the same in a plain function. `record` keeps what a task did in a file, `replay` holds
new code against it. The contract suites (`store_contract`, `bus_contract`) say what every store and every bus has to
do, whoever wrote it; pytest and pytest-asyncio are yours to install for those. docs/how-to/testing.md has it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.testing.fixtures import Clock, Ids
    from dragoman.testing.kit.agent_under_test import AgentUnderTest
    from dragoman.testing.kit.blocking import BlockingAgent, BlockingRun, LiveServer, run
    from dragoman.testing.kit.recording import Recording, record
    from dragoman.testing.kit.replay import Different, replay, replayed
    from dragoman.testing.kit.story import GivenArtifact, Step, Story
    from dragoman.testing.kit.task_run import TaskRun

_MODULES = {
    "AgentUnderTest": "kit.agent_under_test",
    "run": "kit.blocking",
    "record": "kit.recording",
    "replay": "kit.replay",
    "replayed": "kit.replay",
    "Recording": "kit.recording",
    "Different": "kit.replay",
    "TaskRun": "kit.task_run",
    "Story": "kit.story",
    "Step": "kit.story",
    "GivenArtifact": "kit.story",
    "Clock": "fixtures",
    "Ids": "fixtures",
    "BlockingAgent": "kit.blocking",
    "BlockingRun": "kit.blocking",
    "LiveServer": "kit.blocking",
}

__all__ = [
    "AgentUnderTest", "run", "record", "replay", "replayed", "Recording", "Different", "TaskRun", "Story", "Step",
    "GivenArtifact", "Clock", "Ids", "BlockingAgent", "BlockingRun", "LiveServer",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Imported when asked for: who only checks a store needs none of it, nor does who only runs an agent need a server.
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"dragoman.testing.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
