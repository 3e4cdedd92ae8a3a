"""Use by third parties: tests of agents with our fixtures, and of their own store and bus with the contracts.

Each in a pytest of its own, outside of our tree and with nothing of our configuration.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.longest

PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "testing.md"

SETTINGS: Final = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

FORGETFUL: Final = """
import pytest
from my_store import CountingStore

from dragoman.testing.contracts import StoreContract


class ForgetfulStore(CountingStore):
    async def find(self, *_, **__):
        return None


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
async def office(turn):
    if turn.question is None:
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

def test_unused_modules_are_not_imported():
    assert not {name for name in loaded if name.partition(".")[0] in ("dragoman", "dragoman_pb", "grpc")}

def test_in_memory(agent_under_test):
    from agents import broken, office
    a = agent_under_test(office, broken)
    run = a.send("a table")
    assert run.question == "When?"
    assert run.answer("Friday").text == "Friday"
    assert run.states == ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]
    waiting = a.send("a table", wait=False).until("INPUT_REQUIRED").wait()
    a.crash()
    assert waiting.crash().cancel().state == "CANCELED"
    failed = a.send("x", agent="broken")
    assert failed.send is not None
    assert repr(failed).endswith("ValueError: no such table>")

def test_on_a_server(dragoman_server):
    from agents import office
    from dragoman.client.calls import Client, message
    server, other = dragoman_server(office), dragoman_server(office, token="secret-of-sixteen")
    assert b'"office"' in urllib.request.urlopen(server.card_url).read()
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
    """Runs pytest in a folder and returns its output."""
    (folder / "pytest.ini").write_text(SETTINGS)
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-q", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return process.stdout + process.stderr


def documented(folder: Path) -> list[str]:
    """Writes the Python blocks of docs/how-to/testing.md to the files that they name, and returns the names."""
    names = []
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        name = block.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(block, "utf-8")
        names.append(name)
    return names


@pytest.mark.timeout(300)
def test_the_examples_of_the_manual_run(tmp_path: Path) -> None:
    names = documented(tmp_path)
    assert {"agents.py", "test_desk.py", "my_store.py", "test_my_store.py", "test_my_bus.py"} <= set(names)
    text = pytest_in(tmp_path)
    assert "failed" not in text, text
    assert "error" not in text, text
    (passed,) = re.findall(r"^(\d+) passed", text, re.MULTILINE)
    assert int(passed) > 190


@pytest.mark.timeout(300)
def test_unused_fixtures_import_nothing_and_failures_are_explained(tmp_path: Path) -> None:
    documented(tmp_path)
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "test_agents.py").write_text(AGENT_TESTS)
    (tmp_path / "test_forgetful.py").write_text(FORGETFUL)
    text = pytest_in(
        tmp_path, "test_agents.py", "test_forgetful.py", "-k", "not Forgetful or response_to_get_equals or alias_is"
    )
    assert "3 passed" in text, text
    assert "5 failed" in text, text
    # Failures name the agent's own line, and contracts show the difference.
    assert "assert 'FAILED' == 'COMPLETED'" in text, text
    assert f"{tmp_path / 'agents.py'}, line 12: agent broken failed: ValueError: no such table" in text, text
    assert "assert None is not None" in text, text
