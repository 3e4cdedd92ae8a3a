"""A server per module, and a runner of commands against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.server import Server, clean_environment, serving
from typer.testing import CliRunner

from dragoman.cli import cli


class CommandResult:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"exit code {self.code}\nstdout: {self.out}\nstderr: {self.err}"


Run = Callable[..., CommandResult]


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The playground."""
    with serving(cwd=tmp_path_factory.mktemp("playground")) as server:
        yield server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The agents of served_agents.py."""
    with serving(str(Path(__file__).with_name("served_agents.py")), cwd=tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture
def dragoman(playground: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `dragoman ARGUMENTS` in this process, against the playground unless they name another server."""
    monkeypatch.chdir(tmp_path)
    environment = clean_environment() | {"DRAGOMAN_SERVER": playground.grpc}

    def run(*arguments: str, stdin: str = "") -> CommandResult:
        result = CliRunner().invoke(cli, arguments, input=stdin, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return CommandResult(result.exit_code, result.stdout, result.stderr)

    return run
