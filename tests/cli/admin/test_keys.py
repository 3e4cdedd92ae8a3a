"""`dragoman keys`, and credentials of the other commands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import CommandResult, Run
from tests.cli.server import Server, clean_environment, serving
from typer.testing import CliRunner

from dragoman.cli import cli

pytestmark = pytest.mark.long

KEY = re.compile(r"dgm_[a-z2-7]{12}_[a-z2-7]{59}")


def response(*arguments: str, cwd: Path | None = None) -> CommandResult:
    result = CliRunner().invoke(cli, arguments, env=clean_environment())
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return CommandResult(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a new store, and an operator's key of that store."""
    folder = tmp_path_factory.mktemp("secured")
    result = response("keys", "create", "first", "--grant", "operator", "--store", f"sqlite:///{folder}/dragoman.db")
    assert result.code == 0, result
    return folder, result.out.strip()


@pytest.fixture(scope="module")
def secured(first: tuple[Path, str]) -> Iterator[Server]:
    """The playground with API keys required."""
    with serving("--api-keys", cwd=first[0]) as server:
        yield server


@pytest.fixture
def run(secured: Server, first: tuple[Path, str]) -> Run:
    """Runs `dragoman ARGUMENTS` as the operator, unless they have another token."""

    def run(*arguments: str, token: str | None = None) -> CommandResult:
        token = first[1] if token is None else token
        environment = clean_environment() | {"DRAGOMAN_SERVER": secured.grpc}
        if token:
            environment["DRAGOMAN_KEY"] = token
        result = CliRunner().invoke(cli, arguments, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return CommandResult(result.exit_code, result.stdout, result.stderr)

    return run


def test_the_first_key_is_created_in_a_store_without_a_server(first: tuple[Path, str], secured: Server) -> None:
    folder, key = first
    assert KEY.fullmatch(key)
    held = response("keys", "create", "second", "--store", f"sqlite:///{folder}/dragoman.db")
    assert held.code == 1
    assert "has held it" in held.err


def test_create_prints_the_key_on_stdout_and_its_properties_on_stderr(run: Run) -> None:
    result = run("keys", "create", "nightly", "--principal", "alice", "--grant", "agent:playground", "--expires", "90d")
    assert KEY.fullmatch(result.out.strip())
    for text in ("nightly", "alice", "agent:playground", "shown only once"):
        assert text in result.err
    listed = run("keys", "list")
    (line,) = [line for line in listed.out.splitlines() if "nightly" in line]
    assert result.out.strip().rpartition("_")[2] not in listed.out
    assert line.split()[0] == result.out.split("_")[1]
    assert "expires" in line


def test_keys_are_rotated_and_revoked_by_id_or_complete_key(run: Run) -> None:
    key = run("keys", "create", "short-lived").out.strip()
    assert run("send", "echo hi", token=key).out.strip() == "hi"
    rotated = run("keys", "rotate", key, "--grace", "0")
    assert rotated.code == 0, rotated
    new = rotated.out.strip()
    assert new.split("_")[1] == key.split("_")[1]
    assert run("send", "echo hi", token=key).code == 3
    assert run("send", "echo hi", token=new).code == 0
    revoked = run("keys", "revoke", new)
    assert "revoked" in revoked.out
    assert run("send", "echo hi", token=new).code == 3
    assert key.split("_")[1] not in run("keys", "list").out
    assert key.split("_")[1] in run("keys", "list", "--all").out


def test_json_output_of_keys(run: Run) -> None:
    created = json.loads(run("keys", "create", "machine", "--json").out)
    assert KEY.fullmatch(created["text"])
    assert created["key"]["name"] == "machine"
    rotated = json.loads(run("keys", "rotate", created["key"]["id"], "--expires", "1d", "--json").out)
    assert rotated["key"]["formerUntil"]
    assert json.loads(run("keys", "revoke", created["key"]["id"], "--json").out)["revoked"]
    lines = [json.loads(line) for line in run("keys", "list", "--all", "--json").out.splitlines()]
    assert created["key"]["id"] in {line["id"] for line in lines}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ("create", "x", "--grant", "root"),
            2,
            '"root" is not a grant; use operator, viewer, auditor, agent:ID, scope:NAME, worker, worker:ID',
        ),
        (("create", "x", "--expires", "soon"), 2, "not an age"),
        (("rotate", "aaaaaaaaaaaa"), 4, "there is no key"),
        (("rotate", "aaaaaaaaaaaa", "--grace", "soon"), 2, "not an age"),
        (("revoke", "dgm_aaaaaaaaaaaa_secret"), 4, 'there is no key "aaaaaaaaaaaa"'),
    ],
)
def test_failed_commands_report_the_reason(run: Run, arguments: tuple[str, ...], code: int, text: str) -> None:
    answer = run("keys", *arguments)
    assert answer.code == code, answer
    assert text in " ".join(answer.err.split())
    assert "secret" not in answer.err


@pytest.mark.parametrize("binding", ["grpc", "rest", "jsonrpc", "ws"])
@pytest.mark.parametrize("dialect", ["1.0", "0.3"])
def test_every_binding_sends_the_credentials(run: Run, secured: Server, binding: str, dialect: str) -> None:
    server = secured.grpc if binding == "grpc" else secured.http
    arguments = ("send", "echo hi", "--binding", binding, "--dialect", dialect, "--server", server)
    answer = run(*arguments, "--show-wire")
    assert answer.out.strip() == "hi"
    assert "dgm_" not in answer.err, "what goes over the wire is shown without who it is from"
    for token in ("", "wrong"):
        refused = run(*arguments, token=token)
        assert refused.code == 3
        assert "UNAUTHENTICATED" in refused.err
        assert "--key KEY (DRAGOMAN_KEY)" in refused.err


@pytest.mark.parametrize("binding", ["grpc", "http"])
def test_every_command_sends_the_credentials(run: Run, secured: Server, binding: str) -> None:
    server = ("--server", getattr(secured, binding))
    task = run("send", "sleep 60", "--no-wait", *server).out.strip()
    commands = (
        ("get", task),
        ("list",),
        ("explain", task),
        ("export", task),
        ("cancel", task),
        ("watch", task),
        ("purge", "--task", task, "--dry-run"),
    )
    for command in commands:
        assert run(*command, *server, token="").code == 3, command
        assert run(*command, *server).code in (0, 1), command
        assert run(*command, *server, "--key", "wrong").code == 3, command
    assert run("get", task).out.splitlines()[0].split()[1] == task


def test_the_banner_shows_the_authentication(secured: Server) -> None:
    assert secured.startup_info["callers"] == "API keys"


def test_a_store_is_opened_despite_client_variables(tmp_path: Path) -> None:
    """A client's address and key are no settings of a server."""
    environment = clean_environment() | {"DRAGOMAN_KEY": "dgm_of_a_client", "DRAGOMAN_SERVER": "grpcs://there:443"}
    result = CliRunner().invoke(cli, ("keys", "create", "x", "--store", f"sqlite:///{tmp_path}/t.db"), env=environment)
    assert result.exit_code == 0, result.stderr
    assert KEY.fullmatch(result.stdout.strip())


def test_operators_get_and_list_tasks_of_others(run: Run) -> None:
    bob = run("keys", "create", "of-bob", "--principal", "bob").out.strip()
    task = run("send", "echo of bob", "--no-wait", "--key", bob).out.strip()
    assert run("watch", task, "--key", bob).code == 0
    shown = run("get", task)
    assert shown.code == 0, shown
    assert f"\nof       bob; its messages are in: dragoman export {task}\n" in shown.out
    assert shown.out.endswith("\nof bob\n")
    assert run("get", task, "--agent", "other").code == 4
    for words in (("--principal", "bob"), ("--text", "of bob"), ("--state", "completed", "--state", "failed")):
        assert task in run("list", *words).out, words
    assert run("list", "--principal", "bob", "--older-than", "1h").err == "no tasks\n"
    refused = run("list", "--principal", "bob", "--key", bob)
    assert (refused.code, "is for operators and viewers" in refused.err) == (3, True)
    mine = run("send", "echo mine", "--no-wait").out.strip()
    assert run("get", mine, "--key", bob).code == 4
    running = run("send", "sleep 60", "--no-wait", "--key", bob).out.strip()
    assert run("cancel", running).out == f"CANCELED  {running}\n"
    mine = run("send", "sleep 60", "--no-wait").out.strip()
    assert run("cancel", mine, "--key", bob).code == 4


def test_keys_of_a_store_without_a_server_are_listed_rotated_and_revoked(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/own.db")
    created = json.loads(response("keys", "create", "laptop", "--json", *store).out)["key"]["id"]
    assert created in response("keys", "list", *store).out
    assert created in response("keys", *store).out
    assert KEY.fullmatch(response("keys", "rotate", created, *store).out.strip())
    assert "revoked" in response("keys", "revoke", created, *store).out
    assert response("keys", "list", *store).err == "no keys\n"


def test_a_list_of_all_tells_callers_that_are_no_operators_that_it_is_their_own(run: Run) -> None:
    token = run("keys", "create", "caller").out.strip()
    run("send", "echo mine", "--context", "of-caller", token=token)
    run("send", "echo other", "--context", "of-caller")
    result = run("list", "--all", token=token)
    assert (result.code, result.err) == (0, "these are your own tasks: --all is for operators and viewers\n")
    assert [line.split()[-1] for line in result.out.splitlines()] == ["mine"]
    assert "--all" not in run("list", "--all").err
