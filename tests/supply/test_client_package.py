"""dragoman-client: programs that call agents, and workers, in an environment without the libraries of a server."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.server import Lines, clean_environment, serving
from tests.supply.packages import ROOT, UV, VERSION, build, run

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

LEFT_OUT: Final = (
    "cryptography",
    "grpc_health",
    "grpc_reflection",
    "httptools",
    "jwt",
    "offapi",
    "prometheus_client",
    "uvloop",
)
"""Modules of a server alone."""

AGENTS: Final = """
from dragoman import Turn, agent

@agent
async def echo(turn: Turn) -> str:
    return turn.text
"""

CALLS: Final = """
import importlib.util, sys
from dragoman.client.sync import connect

http, *left_out = sys.argv[1:]
for binding in ("grpc", "rest", "jsonrpc"):
    with connect(http, binding=binding) as client:
        print(client.ask(binding, agent="echo").text)
print([name for name in left_out if importlib.util.find_spec(name)])
"""


def project(file: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / file).read_text("utf-8"))["project"]
    return found


def test_it_needs_a_part_of_what_a_server_needs_in_the_same_versions() -> None:
    server, client = project("pyproject.toml"), project("client/pyproject.toml")
    assert set(client["dependencies"]) < set(server["dependencies"])
    (webhooks,) = client["optional-dependencies"]["webhooks"]
    assert webhooks in server["dependencies"]
    assert (client["version"], client["scripts"]) == (server["version"], server["scripts"])


@pytest.fixture(scope="module")
def environment(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and what it asks for in the versions of the lock."""
    (wheel,) = build(tree / "client", "wheel")
    folder = tmp_path_factory.mktemp("client")
    path, locked = folder / "env", folder / "locked.txt"
    run(UV, "export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "-o", locked, cwd=tree)
    run(UV, "venv", "--quiet", "--python", sys.executable, path, cwd=tree)
    run(UV, "pip", "install", "--quiet", "--python", path, "--constraint", locked, wheel, cwd=folder)
    return path


def test_it_calls_a_server_and_runs_a_worker_without_a_servers_libraries(environment: Path, tmp_path: Path) -> None:
    program, python = environment / "bin/dragoman", environment / "bin/python"
    assert run(program, "--version", cwd=tmp_path).strip() == VERSION
    (tmp_path / "agents.py").write_text(AGENTS)
    with serving("--workers-only", cwd=tmp_path) as server:
        worker = subprocess.Popen(
            [program, "worker", "agents.py", "--server", server.grpc, "--log-format", "json"],
            cwd=tmp_path, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert worker.stderr is not None
            Lines(worker.stderr).until('"serving ')
            called = run(python, "-c", CALLS, server.http, *LEFT_OUT, cwd=tmp_path)
            assert called.splitlines() == ["grpc", "rest", "jsonrpc", "[]"]
            assert run(program, "send", "hello", "--agent", "echo", "--server", server.grpc, cwd=tmp_path) == "hello\n"
        finally:
            worker.terminate()
            worker.wait()


def test_a_command_of_the_server_says_what_to_install(environment: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [environment / "bin/dragoman", "serve"],
        cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "error: serve needs the libraries of a server (No module named 'grpc_health'): "
        "pip install dragoman in place of dragoman-client\n"
    )
