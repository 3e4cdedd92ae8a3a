"""Commands: options, exit codes, errors, and what the help imports."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import pytest
import typer
from tests.cli.conftest import Run
from tests.cli.server import Server
from typer.testing import CliRunner

from dragoman.cli import COMMANDS, ExitCode, load_command
from dragoman.cli.commands import Command, argument, flag, option

NOT_THERE = "00000000-0000-7000-8000-000000000000"


@pytest.mark.parametrize("command", ["get", "watch", "cancel", "explain", "steps", "logs", "rerun", "send hi --task"])
def test_a_missing_task_is_exit_code_4(dragoman: Run, command: str) -> None:
    result = dragoman(*command.split(), NOT_THERE)
    assert (result.code, result.out) == (4, "")
    assert "(TASK_NOT_FOUND)\npass the complete id, as `dragoman list` shows it; " in result.err
    error = json.loads(dragoman(*command.split(), NOT_THERE, "--json").err)["error"]
    assert (error["code"], error["exitCode"]) == ("TASK_NOT_FOUND", 4)


def test_json_errors_are_one_object_on_stderr(dragoman: Run, unused_tcp_port: int) -> None:
    down = dragoman("list", "--json", "--server", f"127.0.0.1:{unused_tcp_port}")
    assert (down.code, down.out) == (3, "")
    error = json.loads(down.err)["error"]
    assert (error["code"], error["exitCode"]) == ("UNAVAILABLE", 3)
    assert "cannot connect" in error["message"]
    for invalid in (("list", "--json", "--limit", "0"), ("send", "--json"), ("list", "--json", "--nothing")):
        wrong = dragoman(*invalid)
        assert (wrong.code, wrong.out) == (2, "")
        assert json.loads(wrong.err)["error"]["code"] == "USAGE"


def test_a_port_of_another_protocol_is_recognized(dragoman: Run, playground: Server) -> None:
    http_port = dragoman("list", "--server", playground.http.removeprefix("http://"))
    assert (http_port.code, "that is the HTTP port; pass http://HOST:PORT" in http_port.err) == (3, True)
    for command in (("list",), ("send", "x"), ("send", "x", "--binding", "rest")):
        grpc_port = dragoman(*command, "--server", f"http://{playground.grpc}")
        assert (grpc_port.code, "if it is the gRPC port, pass grpc://" in grpc_port.err) == (3, True), grpc_port
        assert "\\x00" not in grpc_port.err


def test_an_unreachable_server_is_exit_code_3_with_advice(dragoman: Run, unused_tcp_port: int) -> None:
    for server in (f"127.0.0.1:{unused_tcp_port}", f"http://127.0.0.1:{unused_tcp_port}"):
        result = dragoman("send", "hi", "--server", server)
        assert (result.code, result.out) == (3, "")
        assert f"error: cannot connect to {server}: Connection refused" in result.err
        assert "dragoman serve" in result.err


@pytest.mark.parametrize("server", ["nobody.invalid", "http://nobody.invalid"])
def test_an_unknown_host_is_named_as_one(dragoman: Run, server: str) -> None:
    result = dragoman("list", "--server", server)
    assert result.code == 3
    assert result.err.startswith(f"error: cannot connect to {server}: the name cannot be resolved\n")


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        (["send"], "the message is empty"),
        (["send", "hi", "--stream", "--no-wait"], "--no-wait"),
        (["send", "hi", "--file", "absent.csv"], "--file absent.csv: No such file"),
        (["send", "hi", "--file", "."], "--file .: "),
        (["list", "--state", "happy"], '"happy" is not a task state; use one of submitted, '),
        (
            ["list", "--state", "complete"],
            "Invalid value for '--state': \"complete\" is not a task state; did you mean",
        ),
        (["cancel", "--state", "complete"], "did you mean completed?"),
        (["purge", "--state", "complete"], "did you mean completed?"),
        (["get"], "TASK"),
        (["juggle"], "juggle"),
    ],
)
def test_invalid_usage_is_exit_code_2_with_the_reason(dragoman: Run, arguments: list[str], response: str) -> None:
    result = dragoman(*arguments)
    assert result.code == 2
    assert response in result.err


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        (["serve", "--port", "9"], " --port (Possible options: --grpc HOST:PORT, --http HOST:PORT)"),
        (["doctor", "--host", "x"], " --host (Possible options: --grpc HOST:PORT, --http HOST:PORT)"),
        (["serve", "--htp", "x"], " --htp (Possible options: --http)"),
        (["serve", "--no-psh"], " --no-psh (Possible options: --no-push)"),
        (["serve", "--verbose"], " --verbose"),
        (["send", "--agnt", "x"], " --agnt (Possible options: --agent)"),
        (["push", "list", "--limt", "3"], " --limt (Possible options: --limit)"),
        (["list", "--port", "3"], " --port"),
    ],
)
def test_an_unknown_option_gets_the_one_that_is_meant_or_none(
    dragoman: Run, arguments: list[str], response: str
) -> None:
    result = dragoman(*arguments)
    assert result.code == 2
    assert " ".join(result.err.replace("│", " ").split()).partition("No such option:")[2].startswith(response)
    assert ("Possible options" in result.err) == ("Possible" in response)


def test_help_has_examples(dragoman: Run) -> None:
    for command in ("send", "get", "watch", "list", "cancel", "serve"):
        assert f"dragoman {command}" in dragoman(command, "--help").out
    top = dragoman("--help").out
    assert "Exit codes" in top
    assert dragoman("--version").out.startswith("dragoman ")


def test_help_imports_no_heavy_modules() -> None:
    code = (
        "import sys; import dragoman.cli;"
        "print([name for name in ('grpc', 'aiohttp', 'pydantic', 'rich', 'sqlite3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from dragoman.cli import cli;"
        "assert 'explain' in CliRunner().invoke(cli, ['--help']).output;"
        "print([name for name in sys.modules if name.startswith('dragoman.cli.') or name in ('grpc', 'aiohttp')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['dragoman.cli.standard_streams']\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_has_the_first_line_of_each_help(name: str) -> None:
    assert load_command(name).help.strip().splitlines()[0] == COMMANDS[name].help


@dataclass(frozen=True)
class Place:
    """A group of options."""

    city: Annotated[str, typer.Option("--city", help="The city.")] = "Oslo"
    zone: Annotated[int, typer.Option("--zone")] = 1


def test_a_dataclass_stands_for_its_options_and_the_result_is_the_exit_code() -> None:
    given = []

    async def go(who: str, *, place: Place) -> ExitCode | None:
        """Go somewhere."""
        given.append((who, place))
        return ExitCode.NOT_FOUND if place.zone > 1 else None

    app = typer.Typer()
    Command(go).add_to(app, "go")
    run = partial(CliRunner().invoke, app)
    assert "--city" in run(["--help"]).output
    assert "Go somewhere." in run(["--help"]).output
    assert run(["ada"]).exit_code == 0
    assert run(["ada", "--city", "Bergen", "--zone", "2"]).exit_code == 4
    assert run(["ada", "--zone", "x"]).exit_code == 2
    assert given == [("ada", Place()), ("ada", Place("Bergen", 2))]


def test_the_help_shows_placeholders_and_one_default() -> None:
    app = typer.Typer(rich_markup_mode="markdown")

    @app.command()
    def go(
        who: Annotated[str, argument("WHO", "A name. [everyone]")] = "all",
        plain: Annotated[int, option("--plain", "N", "A number.")] = 7,
        bracketed: Annotated[int, option("--bracketed", "N", "A number. [eight]")] = 8,
        quick: Annotated[bool, flag("--quick", "Hurry.", "-q")] = False,
    ) -> None:
        typer.echo(f"{who} {plain} {bracketed} {quick}")

    shown = CliRunner().invoke(app, ["--help"]).output
    assert "--plain" in shown
    assert "[default: 7]" in shown
    assert "[eight]" in shown
    assert "[default: 8]" not in shown
    assert "[default: all]" not in shown
    assert CliRunner().invoke(app, ["-q", "--plain", "1"]).output == "all 1 8 True\n"
