"""`dragoman doctor`: each check with a defect, and its advice."""

from __future__ import annotations

import shutil
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, write
from tests.runtime.unavailable_store import UnavailableStore
from tests.telemetry.test_metrics import serving
from typer.testing import CliRunner

from dragoman.cli import cli
from dragoman.client.calls import Client, message
from dragoman.core.errors import Unavailable
from dragoman.ports.extension import ServerExtension
from dragoman.settings.extensions import FoundExtension, install_command
from dragoman.settings.settings import Settings
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import artifact, finished
from dragoman.wiring import doctor as checking
from dragoman.wiring.doctor import Finding, check_extension, run_checks
from dragoman.wiring.store_lock import hold_store

pytestmark = pytest.mark.usefixtures("no_settings")


async def found(**overrides: object) -> dict[str, Finding]:
    places = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    settings = Settings.model_validate({**places, **overrides})
    return {finding.what: finding async for finding in run_checks(settings)}


async def test_a_store_with_tasks_passes_all_checks(tmp_path: Path) -> None:
    async with serving(tmp_path) as app, Client(str(app.grpc)) as client:
        await client.send(message("hello"))
        await client.send(message("ask"))
    findings = await found(store=f"sqlite:///{tmp_path}/tasks.db")
    assert {finding.level for finding in findings.values()} <= {"ok", "warn"}
    assert findings["tasks"].found == "2 can be read"
    assert findings["clock"].level == findings["--http"].level == findings["agents"].level == "ok"
    assert "2 tasks" in findings["store"].found


async def test_a_store_that_takes_no_writes_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = UnavailableStore(tmp_path / "tasks.db")
    store.unavailable.add("append")
    store.error = lambda: Unavailable("the store is full")

    async def opened(*_: object, **__: object) -> tuple[None, Any]:
        return None, store

    monkeypatch.setattr(checking, "open_store", opened)
    settings = Settings.model_validate({"store": "postgresql://db.example.com/tasks"})
    findings = await checking.check_store(settings)
    assert ("fail", "takes no writes: the store is full") in [(one.level, one.found) for one in findings]
    assert findings[-1] == Finding("ok", "tasks", "0 can be read")


async def test_a_bus_of_a_store_that_does_not_exist_is_checked_too(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/none.db"
    bus = (await found(store=store, bus="nats://127.0.0.1:1"))["bus"]
    assert (bus.level, bus.found.partition(",")[0]) == ("fail", "--bus: an SQLite store has one server")
    assert (await found(store=store))["bus"].found == "none: an SQLite store has one server"


async def test_large_parts_without_files_are_counted(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    await finished(store, artifact("large", "x" * 2_000_000))
    await store.close()
    contents = (await found(store=f"sqlite:///{tmp_path}/tasks.db"))["contents"]
    assert contents.level == "ok"
    shutil.rmtree(tmp_path / "tasks.db.blobs")
    contents = (await found(store=f"sqlite:///{tmp_path}/tasks.db"))["contents"]
    assert (contents.level, contents.found) == (
        "fail",
        "the files of 1 large parts are missing: their links are dead",
    )
    assert contents.do.endswith(f"to {tmp_path}/tasks.db.blobs")


async def test_unreadable_tasks_are_listed(tmp_path: Path) -> None:
    async with serving(tmp_path) as app, Client(str(app.grpc)) as client:
        good, bad, short = [(await client.send(message("hello"))).task.id for _ in range(3)]
    with sqlite3.connect(tmp_path / "tasks.db") as store:
        store.execute(
            "UPDATE log SET data = x'05ffffffffff' WHERE task = (SELECT task FROM tasks WHERE id = ?)", (bad,)
        )
        store.execute("DELETE FROM log WHERE first > 1 AND task = (SELECT task FROM tasks WHERE id = ?)", (short,))
    store.close()
    tasks = (await found(store=f"sqlite:///{tmp_path}/tasks.db"))["tasks"]
    assert (tasks.level, tasks.found.partition(":")[0]) == ("fail", "2 of 3 cannot be read")
    assert bad in tasks.found
    assert f"{short} (its log ends at 1 of 3)" in tasks.found
    assert good not in tasks.found
    assert "dragoman purge" in tasks.do


async def test_problems_of_a_start_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "CHECK_TIMEOUT", 0.2)  # the process on the port never responds
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (tmp_path / "wrong.py").write_text("import nothing_like_it\n")
        findings = await found(
            app="wrong.py", http=f"127.0.0.1:{port}", store=f"sqlite:///{tmp_path}/none/t.db", otlp="http://127.0.0.1:1"
        )
    assert findings["agents"].level == findings["--http"].level == findings["disk"].level == "fail"
    assert findings["traces"].level == "warn"
    assert all(findings[name].do for name in ("agents", "--http", "disk", "traces"))
    (tmp_path / "broken.db").write_bytes(b"no database at all, and long enough to be read as one" * 100)
    assert (await found(store=f"sqlite:///{tmp_path}/broken.db"))["store"].level == "fail"


async def test_a_store_without_api_keys_fails(tmp_path: Path) -> None:
    async with serving(tmp_path):
        pass
    keys = (await found(store=f"sqlite:///{tmp_path}/tasks.db", api_keys=True))["keys"]
    assert (keys.level, "keys create" in keys.do) == ("fail", True)


async def test_the_certificate_is_checked(tmp_path: Path) -> None:
    pair = write(tmp_path, Authority(tmp_path).issue())
    findings = await found(tls_cert=pair[0], tls_key=pair[1])
    assert findings["certificate"].level in ("ok", "warn")
    (tmp_path / "other.pem").write_text("nothing")
    findings = await found(tls_cert=tmp_path / "other.pem", tls_key=pair[1])
    assert findings["certificate"].level == "fail"


def test_the_store_of_a_running_server_is_not_opened(tmp_path: Path) -> None:
    with hold_store(tmp_path / "tasks.db"):
        done = CliRunner().invoke(
            cli, ["doctor", "--store", "sqlite:///tasks.db", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        )
    assert done.exit_code == 0, done.output
    assert "tasks.db is in use" in done.stdout
    assert "-> stop the server to check every task" in done.stdout


def test_invalid_settings_are_reported() -> None:
    done = CliRunner().invoke(cli, ["doctor", "--store", "memory:", "--tls-cert", "absent.pem"])
    assert done.exit_code == 1
    assert "FAIL  certificate  --tls-cert, --tls-key: one is set without the other" in done.stdout
    done = CliRunner().invoke(cli, ["doctor", "--store", "nowhere"])
    assert done.exit_code == 2
    assert done.stdout.startswith("FAIL  settings")


@pytest.mark.parametrize(
    ("extension", "problem", "finding"),
    [
        (
            ServerExtension(name="one", title="One", requirement="dragoman[one]", libraries=("json",)),
            "",
            Finding("ok", "extension", "one of demo 1.5: One; brings settings"),
        ),
        (
            ServerExtension(name="one", title="One", requirement="dragoman[one]", libraries=("json", "absent_library")),
            "",
            Finding(
                "ok",
                "extension",
                "one of demo 1.5: One; brings settings; without absent_library",
                f"to use it, {install_command('dragoman[one]')}",
            ),
        ),
        (
            None,
            "ImportError: no colors",
            Finding("fail", "extension", "one of demo 1.5: ImportError: no colors", "repair or uninstall demo 1.5"),
        ),
    ],
)
def test_extensions_are_listed_with_what_they_bring_and_lack(
    extension: ServerExtension | None, problem: str, finding: Finding
) -> None:
    assert check_extension(FoundExtension("one", "demo 1.5", extension, problem)) == finding


async def test_doctor_lists_every_installed_extension() -> None:
    places = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": "memory:"}
    findings = [finding async for finding in run_checks(Settings.model_validate(places))]
    listed = [finding.found.partition(" of ")[0] for finding in findings if finding.what == "extension"]
    assert {"mcp", "nats", "postgres"} <= set(listed)


async def test_files_with_secrets_that_everybody_can_read_are_named(tmp_path: Path) -> None:
    config, keys = tmp_path / "dragoman.toml", tmp_path / "secrets.keys"
    config.write_text("slots = 3\n")
    keys.write_text("k" * 44)
    for modes, readable in (((0o600, 0o640), ""), ((0o644, 0o600), str(config)), ((0o606, 0o604), f"{config} {keys}")):
        config.chmod(modes[0])
        keys.chmod(modes[1])
        finding = (await found(store="memory:", secrets_keys=keys))["secrets"]
        assert finding.level == ("warn" if readable else "ok")
        assert not readable or finding.do == f"chmod 600 {readable}".replace(f"{config}", "dragoman.toml")
