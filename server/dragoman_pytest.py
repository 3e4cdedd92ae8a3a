"""Pytest fixtures of Dragoman, and the tasks of agents in reports of failed tests.

Registered by the entry point `dragoman`, which imports Dragoman only when a test requests a fixture. The returned
classes are in `dragoman.testing`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dragoman.testing.kit.blocking import BlockingAgent, LiveServer

pytest.register_assert_rewrite("dragoman.testing")  # for detailed assertion messages of the contract suites


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Adds the agents' tasks to the report: `assert run(echo, "x").data == [1]` alone shows `[] == [1]`."""
    report = yield
    story: Any = sys.modules.get("dragoman.testing.kit.story")
    if story is not None:  # else the test has used no kit
        if report.failed and call.when == "call" and (text := story.describe_recent()):
            report.sections.append(("tasks of agents", text))
        if call.when == "teardown":
            story.RECENT.clear()
    return report


@pytest.fixture
def agent_under_test() -> Iterator[Callable[..., BlockingAgent]]:
    """`agent_under_test(echo)` runs agents in the test process, for tests without asyncio: `a.send("hello").text`.

    Arguments are those of `dragoman.testing.AgentUnderTest`, which async tests use directly.
    """
    from dragoman.client.sync import LoopThread
    from dragoman.testing.kit.agent_under_test import AgentUnderTest
    from dragoman.testing.kit.blocking import BlockingAgent

    loop = LoopThread("dragoman-testing")
    try:
        yield lambda *agents, **options: BlockingAgent(loop, AgentUnderTest(*agents, **options))
    finally:
        loop.close()


@pytest.fixture
def dragoman_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LiveServer]]:
    """`dragoman_server(echo)` serves agents on free loopback ports until the test has ended: `server.url` and
    `server.grpc`. Keyword arguments are settings of `dragoman serve`, such as `token="..."`."""
    from dragoman.client.sync import LoopThread
    from dragoman.testing.kit.blocking import serving

    loop, folder = LoopThread("dragoman-testing"), tmp_path_factory.mktemp

    def serve(*agents: Any, **settings: Any) -> LiveServer:
        store_folder: Path = folder("dragoman")
        return loop.open(serving(agents, str(store_folder), **settings))

    try:
        yield serve
    finally:
        loop.close()
