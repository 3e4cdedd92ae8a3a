"""MCP servers as agents of a worker."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from tests.agents.workers.worker_process import worker_process
from tests.cli.server import serving
from tests.extensions.mcp.servers.conftest import TOOL_SERVER, ask, status_text, texts
from typer.testing import CliRunner

from dragoman.cli import cli
from dragoman.client.calls import Client
from dragoman.core.task import states


async def test_a_worker_serves_the_tools_of_an_mcp_server(tmp_path: Path) -> None:
    command = f"tools={sys.executable} {TOOL_SERVER} stdio modern {tmp_path / 'log'}"
    with (
        serving("--workers-only", cwd=tmp_path) as server,
        worker_process("--mcp", command, server=server.grpc, cwd=tmp_path, app=None) as worker,
    ):
        async with Client(server.grpc) as client:
            task = await ask(client, "echo hi")
            assert (task.status.state, texts(task)) == (states.COMPLETED, "hi")
            task = await ask(client, "no such tool")
            assert task.status.state == states.FAILED
            assert status_text(task).startswith("MCP_INVALID_CALL: ")
            task = await ask(client, "order")
            assert (task.status.state, status_text(task)) == (states.INPUT_REQUIRED, "Which size?")
            task = await ask(client, "decline", task.id)
            assert states.is_terminal(task.status.state)
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0


def test_a_worker_without_agents_names_the_options_that_bring_some() -> None:
    result = CliRunner().invoke(cli, ["worker"])
    assert result.exit_code == 2
    assert "no agents; pass APP or --executor or --mcp" in " ".join(result.output.replace("│", " ").split())


def test_a_server_that_is_not_there_is_named_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["worker", "--mcp", "no-such-program"])
    assert result.exit_code == 1
    assert "--mcp: no-such-program: cannot be started" in result.stderr
