"""`dragoman worker`: keys, certificates, rejections, and the list of workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.workers.worker_process import worker_process
from tests.certificates import Authority, write
from tests.cli.conftest import CommandResult, Run
from tests.cli.server import Server, clean_environment, serving
from typer.testing import CliRunner

from dragoman.cli import cli

pytestmark = pytest.mark.longest


def response(*arguments: str, **environment: str) -> CommandResult:
    done = CliRunner().invoke(cli, arguments, env=clean_environment() | environment)
    return CommandResult(done.exit_code, done.stdout, done.stderr)


def key(store: Path, name: str, *arguments: str) -> Path:
    """A file with a new key."""
    result = response("keys", "create", name, "--store", f"sqlite:///{store}", *arguments)
    assert result.code == 0, result
    file = store.with_name(f"{name}.key")
    file.write_text(result.out)
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def keys(folder: Path) -> dict[str, Path]:
    store = folder / "t.db"
    grants = {
        "box1": ("--principal", "boxes", "--grant", "worker"),
        "box2": ("--principal", "boxes", "--grant", "worker:echo"),
        "other": ("--grant", "worker"),
        "caller": (),
        "operator": ("--grant", "operator"),
    }
    return {name: key(store, name, *arguments) for name, arguments in grants.items()}


@pytest.fixture(scope="module")
def app(folder: Path) -> Path:
    file = folder / "ten.py"
    file.write_text(
        "from dragoman import agent, Turn\n\n@agent\nasync def echo(turn: Turn) -> str:\n    return turn.text\n"
    )
    return file


@pytest.fixture(scope="module")
def secured(folder: Path, keys: dict[str, Path]) -> Iterator[Server]:
    """A server with API keys required."""
    with serving("--api-keys", "--store", f"sqlite:///{folder}/t.db", cwd=folder) as server:
        yield server


def test_other_commands_read_the_file_with_their_key(
    secured: Server, keys: dict[str, Path], dragoman: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "UNAUTHENTICATED" in dragoman("agents", "list", "--server", secured.grpc).err
    monkeypatch.setenv("DRAGOMAN_KEY_FILE", str(keys["operator"]))
    assert dragoman("agents", "list", "--server", secured.grpc).code == 0
    assert dragoman("agents", "list", "--server", secured.grpc, "--key", "dgm_other").code != 0  # the option goes first
    monkeypatch.setenv("DRAGOMAN_KEY_FILE", "absent.key")
    absent = dragoman("agents", "list", "--server", secured.grpc)
    assert (absent.code, "DRAGOMAN_KEY_FILE (environment): absent.key cannot be read" in absent.err) == (2, True)


def test_a_worker_with_a_key_serves_callers_with_others(secured: Server, keys: dict[str, Path], app: Path) -> None:
    text = keys["caller"].read_text().strip()
    operator = ("--server", secured.grpc, "--key", keys["operator"].read_text().strip())
    with (
        worker_process(
            "--key-file", str(keys["box1"]), "--name", "box one", server=secured.grpc, cwd=app.parent, app=app
        ),
        worker_process("--key-file", str(keys["box2"]), server=secured.http, cwd=app.parent, app=app),
    ):
        sent = response("send", "hello", "--agent", "echo", "--server", secured.grpc, DRAGOMAN_KEY=text)
        assert (sent.code, sent.out) == (0, "hello\n")
        listed = response("workers", "list", *operator)
        assert listed.out.startswith("echo  (boxes)\n  box one (ipv4:127.0.0.1:")
        assert "0 running, 100 free" in listed.out
        assert "has connected workers" in response("workers", "forget", "echo", *operator).err
    (value,) = [json.loads(line) for line in response("workers", "list", "--json", *operator).out.splitlines()]
    assert (value["agent"], value["principal"], value.get("workers", [])) == ("echo", "boxes", [])
    # The id stays with the workers' principal while they are disconnected, until an operator frees it.
    with worker_process(
        "--key-file", str(keys["other"]), server=secured.grpc, cwd=app.parent, app=app, ready=False
    ) as other:
        assert "AGENT_TAKEN" in other.err.until("error: ")
        assert other.ends() == 3
    forgotten = response("workers", "forget", "echo", *operator)
    assert forgotten.out == "forgotten: echo; waiting tasks that ended as FAILED: 0\n"
    with worker_process("--key-file", str(keys["other"]), server=secured.grpc, cwd=app.parent, app=app):
        assert response("workers", "list", *operator).out.startswith("echo  (other)\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("caller", 'PERMISSION_DENIED: hello.agents: these credentials may not serve agent "echo"'),
        (None, 'UNAUTHENTICATED: workers need credentials with the grant "worker"'),
        ("wrong", "UNAUTHENTICATED: "),
    ],
)
def test_a_rejected_worker_prints_the_reason_and_exits(
    secured: Server, keys: dict[str, Path], app: Path, name: str | None, text: str
) -> None:
    wrong = app.with_name("wrong.key")
    wrong.write_text("dgm_wrong")
    options = () if name is None else ("--key-file", str(keys.get(name, wrong)))
    with worker_process(*options, server=secured.grpc, cwd=app.parent, app=app, ready=False) as worker:
        assert text in worker.err.until("error: ")
        assert worker.ends() == 3
    secured.err.until("request rejected")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "absent.key cannot be read: No such file or directory"),
        ("", "bad.key is empty; write the value into it"),
        ("one\ntwo", "bad.key: must be printable ASCII on one line"),
    ],
)
def test_an_invalid_key_file_is_reported(app: Path, content: str | None, text: str) -> None:
    file = app.with_name("absent.key" if content is None else "bad.key")
    if content is not None:
        file.write_text(content)
    with worker_process("--key-file", str(file), server="127.0.0.1:1", cwd=app.parent, app=app, ready=False) as worker:
        assert worker.ends() == 2
        output = worker.err.rest()
    assert output.startswith("error: --key-file: ")
    assert text in output


def test_an_app_without_agents_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    with worker_process(server="127.0.0.1:1", cwd=tmp_path, app=tmp_path / "empty.py", ready=False) as worker:
        assert worker.ends() == 2
        assert "declares no agent" in worker.err.rest()


def test_a_worker_connects_with_tls(tmp_path: Path, app: Path, dragoman: Run) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    certificate, private = write(tmp_path, authority.issue())
    with serving("--tls-cert", str(certificate), "--tls-key", str(private), cwd=tmp_path) as server:
        address = f"grpcs://{server.grpc}"
        with worker_process("--tls-ca", str(authority.ca), server=address, cwd=tmp_path, app=app):
            sent = dragoman("send", "hello", "--agent", "echo", "--server", address, "--ca", str(authority.ca))
            assert (sent.code, sent.out) == (0, "hello\n")
        with worker_process("--tls-ca", str(other.ca), server=address, cwd=tmp_path, app=app, ready=False) as stranger:
            assert "not signed by a trusted authority" in stranger.err.until("is broken")


def test_the_worker_list_is_empty_without_workers(dragoman: Run) -> None:
    assert dragoman("workers", "list").out == "no worker has ever connected\n"


def test_a_worker_at_one_server_runs_tasks_of_another(
    tmp_path: Path, app: Path, dragoman: Run, postgres_database: str
) -> None:
    with (
        serving("--store", postgres_database, cwd=tmp_path) as one,
        serving("--store", postgres_database, cwd=tmp_path) as other,
        worker_process(server=other.grpc, cwd=tmp_path, app=app),
    ):
        # The other server learns of the agent within five seconds, and its task is found within two.
        while dragoman("send", "hello", "--agent", "echo", "--no-wait", "--server", one.grpc).code:
            pass
        sent = dragoman("send", "hello there", "--agent", "echo", "--server", one.grpc)
        assert (sent.code, sent.out) == (0, "hello there\n")
