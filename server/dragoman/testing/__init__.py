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
    from dragoman.testing.blocking import BlockingAgent, BlockingRun, LiveServer, run
    from dragoman.testing.clock import Clock
    from dragoman.testing.differing import Different
    from dragoman.testing.ids import Ids
    from dragoman.testing.in_memory import AgentUnderTest
    from dragoman.testing.recording import Recording, record
    from dragoman.testing.replaying import replay, replayed
    from dragoman.testing.story import GivenArtifact, Step, Story
    from dragoman.testing.task_run import TaskRun

_WHERE = {
    "AgentUnderTest": "in_memory",
    "run": "blocking",
    "record": "recording",
    "replay": "replaying",
    "replayed": "replaying",
    "Recording": "recording",
    "Different": "differing",
    "TaskRun": "task_run",
    "Story": "story",
    "Step": "story",
    "GivenArtifact": "story",
    "Clock": "clock",
    "Ids": "ids",
    "BlockingAgent": "blocking",
    "BlockingRun": "blocking",
    "LiveServer": "blocking",
}

__all__ = [
    "AgentUnderTest", "run", "record", "replay", "replayed", "Recording", "Different", "TaskRun", "Story", "Step",
    "GivenArtifact", "Clock", "Ids", "BlockingAgent", "BlockingRun", "LiveServer",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Imported when asked for: who only checks a store needs none of it, nor does who only runs an agent need a server.
    if name in _WHERE:
        from importlib import import_module

        return getattr(import_module(f"dragoman.testing.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
