"""What commands import. Imports are most of the time that a command takes, so each imports what it uses only."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from tests.cli.server import Server, clean_environment, serving

pytestmark = pytest.mark.long

REPORT: Final = """
import json, sys
from dragoman.cli import cli
try:
    cli(sys.argv[1:], prog_name="dragoman")
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

SERVER_PARTS: Final = (
    "dragoman.bindings",
    "dragoman.runtime",
    "dragoman.settings",
    "dragoman.stores",
    "dragoman.wiring",
)
CALLS: Final = ("aiohttp", "asyncio", "dragoman.client", "google.protobuf", "grpc")


def imported(arguments: Sequence[str], candidates: Sequence[str], **environment: str) -> set[str]:
    """Runs a command in a process of its own. Returns those of the candidates that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments],
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    modules = json.loads(done.stderr.splitlines()[-1])
    assert done.returncode in (0, 4), done.stderr[:2000]
    return set(candidates).intersection(modules)


def test_help_and_the_names_of_commands_need_no_client() -> None:
    assert imported(["--help"], [*CALLS, *SERVER_PARTS]) == set()
    words = {"_DRAGOMAN_COMPLETE": "complete_bash", "COMP_WORDS": "dragoman li", "COMP_CWORD": "1"}
    assert imported([], [*CALLS, *SERVER_PARTS, "rich"], **words) == set()


@pytest.mark.parametrize("command", [["list"], ["get", "none"], ["explain", "none"], ["steps", "none"]])
def test_commands_import_the_library_of_the_address_only(served: Server, command: list[str]) -> None:
    candidates = ["aiohttp", "grpc", "rich", *SERVER_PARTS]
    assert imported([*command, "--server", served.http], candidates) == {"aiohttp"}
    assert imported([*command, "--server", served.grpc], candidates) == {"grpc"}


@pytest.mark.parametrize("command", [["agents", "list"], ["workers", "list"], ["keys", "list"], ["usage"]])
def test_commands_for_operators_import_no_server(served: Server, command: list[str]) -> None:
    assert imported([*command, "--help"], SERVER_PARTS) == set()


def test_completion_of_ids_imports_the_library_of_the_address_only(served: Server) -> None:
    words = {"_DRAGOMAN_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    candidates = ["aiohttp", "grpc", "rich", *SERVER_PARTS]
    for server, library in ((served.http, "aiohttp"), (served.grpc, "grpc")):
        there = {"COMP_WORDS": "dragoman get ", "DRAGOMAN_SERVER": server}
        assert imported([], candidates, **words, **there) == {library}


AGENT: Final = """
import atexit, sys
from dragoman import Turn, agent

atexit.register(lambda: print("imported", *(name for name, one in sys.modules.items() if one), file=sys.stderr))

@agent
async def echo(turn: Turn) -> str:
    return turn.text
"""


def test_an_idle_server_imports_nothing_that_waits_for_its_first_use(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    with serving("agents.py", "--store", "sqlite:///tasks.db", cwd=tmp_path) as server:
        server.signal(signal.SIGTERM)
        imported = set(server.err.until("imported ").split())
    assert "dragoman.bindings.http.server" in imported
    libraries = {"a2a", "cryptography", "fasta2a", "jwt", "mcp", "nats", "opentelemetry", "psycopg", "rich"}
    parts = {"dragoman.agents.upstream.turn", "dragoman.client", "dragoman.extensions.mcp.endpoint"}
    assert imported & (libraries | parts) == set()
