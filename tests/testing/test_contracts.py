"""What third parties do: test agents with our fixtures, and hold a store and a bus of theirs against the contracts.

Each in a pytest of its own, outside of our tree and with nothing of our configuration.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

SETTINGS: Final = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

THEIR_STORE: Final = '''
"""A store of somebody else's making: SQLite's, with every append counted."""

import asyncio
from pathlib import Path

from dragoman.core.log import Append, Appended
from dragoman.stores.sqlite import open_store


class CountingStore:
    def __init__(self, path: Path, clock) -> None:
        self._kept = open_store(path, clock=clock)
        self.appends = 0

    def append(self, change: Append) -> asyncio.Future[Appended]:
        self.appends += 1
        return self._kept.append(change)

    def __getattr__(self, name: str):
        return getattr(self._kept, name)


class ForgetfulStore(CountingStore):
    """The same with a mistake: it never says that a task is there."""

    async def find(self, *_, **__):
        return None
'''

THEIR_TESTS: Final = """
import pytest

from dragoman.bus.local import LocalBus
from dragoman.testing.bus_contract import BusContract
from dragoman.testing.store_contract import StoreContract
from their_store import CountingStore, ForgetfulStore


class TestCountingStore(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path, clock):
        store = CountingStore(tmp_path / "tasks.db", clock)
        yield store
        await store.close()


class TestTheirBus(BusContract):
    @pytest.fixture
    def bus(self):
        return LocalBus()


class TestForgetfulStore(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path, clock):
        store = ForgetfulStore(tmp_path / "tasks.db", clock)
        yield store
        await store.close()
"""

AGENTS: Final = """
from dragoman import agent

@agent
async def desk(turn):
    if turn.asked is None:
        turn.ask("When?")
    return turn.text

@agent
async def broken(turn):
    raise ValueError("no such table")
"""

AGENT_TESTS: Final = """
import asyncio
import sys
import urllib.request

import pytest

loaded = set(sys.modules)

def test_nothing_is_loaded_before_it_is_asked_for():
    assert not {name for name in loaded if name.partition(".")[0] in ("dragoman", "dragoman_pb", "grpc")}

def test_in_memory(agent_under_test):
    from agents import broken, desk
    a = agent_under_test(desk, broken)
    run = a.send("a table")
    assert run.asked == "When?"
    assert run.answer("Friday").text == "Friday"
    assert run.states == ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]
    waiting = a.send("a table", wait=False).until("INPUT_REQUIRED").over()
    a.crash()
    assert waiting.crash().cancel().state == "CANCELED"
    failed = a.send("x", agent="broken")
    assert failed.send is not None
    assert repr(failed).endswith("ValueError: no such table>")

def test_on_a_server(dragoman_server):
    from agents import desk
    from dragoman.client import Client, message
    server, other = dragoman_server(desk), dragoman_server(desk, token="secret-of-sixteen")
    assert b'"desk"' in urllib.request.urlopen(server.card_url).read()
    assert server.url != other.url

    async def ask():
        async with Client(server.grpc) as client:
            return await client.send(message("a table"))

    assert asyncio.run(ask()).task.status.message.parts[0].text == "When?"

def test_that_fails(agent_under_test):
    from agents import broken
    run = agent_under_test(broken).send("x")
    assert run.state == "COMPLETED"
"""


def pytest_in(folder: Path, *arguments: str) -> str:
    """What a pytest says that was run in this folder."""
    (folder / "pytest.ini").write_text(SETTINGS)
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-q", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return told.stdout + told.stderr


@pytest.mark.timeout(300)
def test_a_store_and_a_bus_of_somebody_else_are_held_against_the_contracts(tmp_path: Path) -> None:
    (tmp_path / "their_store.py").write_text(THEIR_STORE)
    (tmp_path / "test_theirs.py").write_text(THEIR_TESTS)
    told = pytest_in(tmp_path, "-k", "CountingStore or TheirBus")
    assert "failed" not in told, told
    assert "error" not in told, told
    assert " passed" in told, told
    told = pytest_in(tmp_path, "-k", "ForgetfulStore and (client_gets or alias_is_its_owner)")
    assert " failed" in told, told
    assert "passed" not in told, told


@pytest.mark.timeout(300)
def test_the_fixtures_are_there_and_cost_nothing_until_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "test_agents.py").write_text(AGENT_TESTS)
    told = pytest_in(tmp_path)
    assert "3 passed" in told, told
    assert "1 failed" in told, told
    # What failed is told with the agent's own line.
    assert "assert 'FAILED' == 'COMPLETED'" in told, told
    assert f"{tmp_path / 'agents.py'}, line 12: agent broken failed: ValueError: no such table" in told, told
