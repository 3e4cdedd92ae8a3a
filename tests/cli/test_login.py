"""`dragoman login` and `logout`, and the commands that use a profile."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import CommandResult, Run
from tests.cli.server import Server, clean_environment, serving
from typer.testing import CliRunner

from dragoman.cli import cli

pytestmark = pytest.mark.long


def call(folder: Path, *arguments: str, stdin: str = "", **environment: str) -> CommandResult:
    values = clean_environment() | {"XDG_CONFIG_HOME": str(folder)} | environment
    result = CliRunner().invoke(cli, arguments, input=stdin, env=values)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return CommandResult(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a new store, and a viewer's key of that store."""
    folder = tmp_path_factory.mktemp("secured")
    store = f"sqlite:///{folder}/dragoman.db"
    result = call(folder, "keys", "create", "first", "--principal", "alice", "--grant", "operator", "--store", store)
    assert result.code == 0, result
    return folder, result.out.strip()


@pytest.fixture(scope="module")
def secured(key: tuple[Path, str]) -> Iterator[Server]:
    """The playground with API keys required."""
    with serving("--api-keys", cwd=key[0]) as server:
        yield server


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*arguments: str, stdin: str = "", **environment: str) -> CommandResult:
        return call(tmp_path, *arguments, stdin=stdin, **environment)

    return run


def test_a_key_that_no_header_can_carry_is_one_line_before_any_connection(run: Run, tmp_path: Path) -> None:
    rule = "must be printable ASCII on one line, without leading or trailing spaces, to fit into a header\n"
    (file := tmp_path / "key").write_text("a b\nc\n")
    for address in ("http://127.0.0.1:1", "127.0.0.1:1"):
        there = ("list", "--server", address)
        assert run(*there, "--key", "a\nb").err == f"error: --key: {rule}"
        assert run(*there, DRAGOMAN_KEY="\u00e9").err == f"error: DRAGOMAN_KEY (environment): {rule}"
        in_file = run(*there, DRAGOMAN_KEY_FILE=str(file))
        assert (in_file.code, in_file.err) == (2, f"error: DRAGOMAN_KEY_FILE (environment): {rule}")
        twice = run(*there, DRAGOMAN_KEY="a", DRAGOMAN_KEY_FILE=str(file))
        assert twice.err == "error: DRAGOMAN_KEY_FILE (environment): DRAGOMAN_KEY is set, too; remove one\n"
        assert run("login", address, stdin="\u00e9\n").err == f"error: the key: {rule}"
    folder = tmp_path / "dragoman"
    folder.mkdir()
    (folder / "profiles.json").write_text(json.dumps({"default": {"server": "127.0.0.1:1", "key": "\u00e9"}}))
    assert run("list").err == f"error: the key of profile default: {rule}"


def test_commands_use_the_server_and_the_key_of_the_profile(run: Run, secured: Server, key: tuple[Path, str]) -> None:
    result = run("login", secured.http, stdin=f"{key[1]}\n")
    assert (result.code, result.err) == (0, "")
    assert result.out == f"logged in to {secured.http} as alice, grants: operator\nprofile default; key: file\n"
    assert run("agents", "list").code == 0
    assert run("list", "--json").code == 0
    listed = run("login", "--list")
    assert f"commands use {secured.http}, from profile default" in listed.out
    assert key[1] not in listed.out


def test_a_key_may_be_on_the_command_line(run: Run, secured: Server, key: tuple[Path, str]) -> None:
    assert "as alice" in run("login", secured.http, "--key", key[1]).out
    refused = run("login", secured.http, "--key", "drg_wrong")
    assert (refused.code, "nothing was stored" in refused.err) == (3, True)


def test_over_grpc_a_key_is_checked_too(run: Run, secured: Server, key: tuple[Path, str]) -> None:
    result = run("login", f"grpc://{secured.grpc}", "--profile", "staging", "--json", stdin=key[1])
    assert json.loads(result.out) == {"profile": "staging", "server": f"grpc://{secured.grpc}", "key": "file"}
    assert run("login", "--list").out.endswith(", the default\n")  # there is no default profile
    assert run("--profile", "staging", "list").code == 0
    assert run("list", DRAGOMAN_PROFILE="staging").code == 0


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_key_that_the_server_rejects_is_not_stored(run: Run, secured: Server, tmp_path: Path, scheme: str) -> None:
    server = secured.http if scheme == "http" else f"grpc://{secured.grpc}"
    result = run("login", server, stdin="dgm_wrong\n")
    assert result.code == 3
    assert f"error: {server} rejects this key, so nothing was stored: " in result.err
    assert "rejects callers without a key" in run("login", server, stdin="\n").err
    assert "dgm_wrong" not in result.out + result.err
    assert list(tmp_path.iterdir()) == []


def test_the_key_of_a_profile_is_for_its_server_only(
    run: Run, secured: Server, key: tuple[Path, str], playground: Server
) -> None:
    assert run("login", secured.http, stdin=key[1]).code == 0
    assert run("list", "--server", playground.http).code == 0
    # The same server by another name: the profile does not say that they are one.
    other = secured.http.replace("127.0.0.1", "localhost")
    assert run("list", "--server", other).code == 3
    assert run("list", DRAGOMAN_SERVER=other).code == 3
    assert run("list", "--server", other, "--key", key[1]).code == 0
    assert run("list", "--server", f"{secured.http}/").code == 0


def test_the_command_line_and_the_environment_precede_the_profile(
    run: Run, secured: Server, key: tuple[Path, str], playground: Server
) -> None:
    assert run("login", secured.http, stdin=key[1]).code == 0
    assert run("list", "--key", "dgm_wrong").code == 3
    assert run("list", DRAGOMAN_KEY="dgm_wrong").code == 3
    sent = run("send", "echo hello", "--no-wait", DRAGOMAN_SERVER=playground.http).out.strip()
    assert sent in run("list", "--server", playground.http).out
    assert sent not in run("list").out
    assert (
        f"commands use {playground.http}, from DRAGOMAN_SERVER"
        in run("login", "--list", DRAGOMAN_SERVER=playground.http).out
    )


def test_a_profile_that_is_not_there_is_a_usage_error(run: Run, playground: Server) -> None:
    result = run("--profile", "none", "list")
    assert result.code == 2
    assert 'no profile "none"; there are none; run: dragoman login --profile none' in " ".join(result.err.split())
    assert run("logout").code == 4
    assert run("login", playground.http, "--profile", "a b").code == 2
    assert run("login", "ftp://there").code == 2


def test_after_a_logout_the_default_address_is_used(run: Run, playground: Server) -> None:
    assert run("login", playground.http).code == 0  # a server without authentication needs no key
    assert run("list").code == 0
    assert run("logout").out == "profile default deleted\n"
    assert "commands use 127.0.0.1:50051, the default" in run("login", "--list").out


def test_on_a_terminal_the_key_is_read_without_echo(secured: Server, key: tuple[Path, str], tmp_path: Path) -> None:
    main, secondary = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "login", secured.http],
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
        env=clean_environment() | {"XDG_CONFIG_HOME": str(tmp_path)},
        start_new_session=True,
    )
    os.close(secondary)
    shown = b""
    while b"API key for" not in shown:
        shown += os.read(main, 4096)
    os.write(main, f"{key[1]}\n".encode())
    try:
        while chunk := os.read(main, 4096):
            shown += chunk
    except OSError:  # the terminal is closed with the process
        pass
    os.close(main)
    assert process.wait(60) == 0, shown
    assert b"as alice" in shown
    assert key[1].encode() not in shown
