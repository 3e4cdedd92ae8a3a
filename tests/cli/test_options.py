"""Shell completion through the protocol of each shell, and in a real bash if installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.server import Server, clean_environment

from dragoman.cli.serve.options import MOST_USED, serve_options

pytestmark = pytest.mark.longest

BINARY = Path(sys.executable).with_name("dragoman")


def requested(shell: str, line: str, **environment: str) -> str:
    """Returns the command's completions for the last word of a line."""
    words = line.split(" ")
    values = {"_DRAGOMAN_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    if shell == "bash":
        values |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        values |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [BINARY], env=clean_environment() | values | environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


def given(word: str, shell: str, line: str, **environment: str) -> bool:
    """Whether a word is completed. Retries, because completion gives up after two seconds on a slow machine."""
    return any(word in requested(shell, line, **environment) for _ in range(10))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_options_are_completed(shell: str) -> None:
    commands = requested(shell, "dragoman wor")
    assert "worker" in commands
    assert "workers" in commands
    assert "doctor" not in commands


def test_flags_have_no_type_in_the_help(dragoman: Run) -> None:
    for arguments in ((), ("list",), ("keys",), ("keys", "list"), ("serve",)):
        shown = dragoman(*arguments, "--help").out
        assert "--help" in shown
        assert "<bool>" not in shown


def test_the_help_of_serve_shows_the_most_used_settings_and_all_on_request(
    dragoman: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = {"--" + one.name.replace("_", "-") for options in serve_options().values() for one in options}
    short, every = dragoman("serve", "--help").out, dragoman("serve", "--help-all").out
    shown = {"--" + name.replace("_", "-") for name in MOST_USED}
    assert {name for name in names if f"\u2502 {name} " in short} == shown
    spellings = {
        (one.kind is bool and one.value) or "--" + one.name.replace("_", "-")
        for options in serve_options().values()
        for one in options
    }
    assert [name for name in spellings if f"  {name}" not in every] == []
    assert max(map(len, every.splitlines())) <= 80
    assert "\nStore:\n" in every


def test_agents_and_tasks_of_the_server_are_completed(served: Server, dragoman: Run) -> None:
    there = {"DRAGOMAN_SERVER": served.grpc}
    assert "--upstream-silence" in requested("bash", "dragoman serve --upstream-s")
    assert given("report", "fish", "dragoman send --agent rep", **there)
    assert given("report", "bash", f"dragoman get --server {served.grpc} --agent rep")
    task = dragoman("send", "x", "--agent", "quote", "--no-wait", "--server", served.grpc).out.strip()
    assert given(task, "zsh", f"dragoman watch --agent quote {task[:30]}", **there)
    assert task not in requested("bash", "dragoman get --agent report ", **there)


def test_without_a_server_completion_is_empty_and_silent() -> None:
    assert "01" not in requested("bash", "dragoman get 01", DRAGOMAN_SERVER="127.0.0.1:1")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_each_shell_accepts_its_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    environment = clean_environment() | {"_DRAGOMAN_COMPLETE": f"source_{shell}"}
    script = subprocess.run([BINARY], env=environment, capture_output=True, text=True, check=True).stdout
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    environment = clean_environment() | {"PATH": f"{BINARY.parent}:{os.environ['PATH']}"}
    script = (
        "source <(_DRAGOMAN_COMPLETE=source_bash dragoman); COMP_WORDS=(dragoman sig); COMP_CWORD=1; "
        '$(complete -p dragoman | sed "s/.*-F \\([^ ]*\\).*/\\1/") dragoman; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["signing"]
