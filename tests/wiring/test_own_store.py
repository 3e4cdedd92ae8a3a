"""`--store memory:`, `--store MODULE:FUNCTION` and `--bus MODULE:FUNCTION`."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cli.server import clean_environment
from typer.testing import CliRunner

from dragoman import Turn, agent
from dragoman.cli import cli
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.ports.extension import StartError
from dragoman.settings.settings import Settings, SettingsError, load_settings
from dragoman.wiring.app import App, open_app


@agent
async def echo(turn: Turn) -> str:
    return turn.text


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()


@asynccontextmanager
async def opened(store: str, bus: str = "") -> AsyncIterator[App]:
    values = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": store, "bus": bus}
    async with open_app(Settings.model_validate(values), [echo]) as app:
        yield app


async def test_memory_keeps_nothing_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened("memory:") as app, Client(str(app.grpc)) as client:
        task = (await client.send(message("hello"))).task
        assert (await client.get(task.id)).artifacts == task.artifacts
        assert app.settings.store.name == "memory: (deleted at the end)"
        async with opened("memory:") as other, Client(str(other.grpc)) as elsewhere:
            with pytest.raises(ClientError, match="not found"):
                await elsewhere.get(task.id)
    assert "--store memory: keeps nothing; all tasks are deleted when this process ends" in caplog.messages
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]


MODULE = """
import asyncio
from pathlib import Path

from dragoman.bus.local import LocalBus
from dragoman.stores.sqlite import open_store

async def later():
    await asyncio.sleep(0)
    return open_store(Path("own.db"))

def broken():
    raise ConnectionError("no database at db:5432")

def thing():
    return {}

class OwnBus(LocalBus):
    # FastA2A(storage=, broker=) takes a broker of one's own

    def publish(self, task, events):
        Path("published").write_text("x")
        super().publish(task, events)

    async def close(self):
        await super().close()
        Path("closed").write_text("x")

async def bus():
    return OwnBus()

class Stores:
    @staticmethod
    def inside():
        return open_store(Path("inside.db"))
"""


async def test_a_function_may_be_async_or_a_member(tmp_path: Path) -> None:
    Path("mine.py").write_text(MODULE)
    for function, file in (("later", "own.db"), ("Stores.inside", "inside.db")):
        for _ in range(2):  # the second start finds a store with an earlier session
            async with opened(f"mine.py:{function}") as app, Client(str(app.grpc)) as client:
                await client.send(message("hello"))
                assert app.settings.store.name == f"mine.py:{function}"
        assert (tmp_path / file).is_file()


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        ("absent.py:f", r"^--store absent\.py:f: absent\.py: this file does not exist"),
        ("mine.py:nothing", r"^--store mine\.py:nothing: mine\.py has no function nothing$"),
        ("mine.py:broken", r"^--store .*: broken\(\) failed: ConnectionError: no database at db:5432$"),
        ("mine.py:thing", r"^--store .*: the dict that thing\(\) returned is not a store: it lacks blobs, .*append"),
    ],
)
async def test_what_is_no_store_stops_the_start(function: str, rule: str) -> None:
    Path("mine.py").write_text(MODULE)
    with pytest.raises(StartError, match=rule):
        async with opened(function):
            pass


async def test_a_bus_of_ones_own_carries_the_events_and_is_closed(tmp_path: Path) -> None:
    Path("mine.py").write_text(MODULE)
    async with opened("mine.py:later", "mine.py:bus") as app, Client(str(app.grpc)) as client:
        await client.send(message("hello"))
        assert (tmp_path / "published").is_file()
        assert not (tmp_path / "closed").exists()
    assert (tmp_path / "closed").is_file()


@pytest.mark.parametrize(
    ("bus", "rule"),
    [
        ("mine.py:nothing", r"^--bus mine\.py:nothing: mine\.py has no function nothing$"),
        ("mine.py:thing", r"^--bus .*: the dict that thing\(\) returned is not a bus: it lacks .*publish.*ports\.Bus"),
        *(
            (url, r"^--bus: no extension has buses .* or MODULE:FUNCTION \(a bus of your own\)$")
            for url in ("redis://user:secret", "nats:local", "NATS:local", "tls:local", "sqlite:tasks", "mine.py:")
        ),
    ],
)
async def test_what_is_no_bus_stops_the_start(bus: str, rule: str) -> None:
    Path("mine.py").write_text(MODULE)
    with pytest.raises((StartError, SettingsError), match=rule):
        async with opened("mine.py:later", bus):
            pass


@pytest.mark.parametrize(
    "url",
    [
        "memory",
        "memory:x",
        "sqlite:tasks",
        "postgres:tasks",
        "Postgresql:tasks",
        "nats:x",
        "redis://x",
        "redis://user:secret",
        "mine:",
        ":f",
    ],
)
def test_a_mistyped_url_is_not_taken_for_a_module(url: str) -> None:
    with pytest.raises(SettingsError, match=r"memory: \(keeps nothing\) or MODULE:FUNCTION \(a store of your own\)$"):
        load_settings({"store": url})


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        (
            ("purge", "--older-than", "1d"),
            "has no tasks outside its server; use --server with the address of the server",
        ),
        (("keys", "create", "laptop"), "has no tasks outside its server"),
        (("backup", "copy"), "has no tasks outside its server"),
    ],
)
def test_commands_without_a_server_reject_memory(arguments: tuple[str, ...], response: str) -> None:
    done = CliRunner().invoke(cli, [*arguments, "--store", "memory:"], env=clean_environment())
    assert (done.exit_code, response in done.stderr) == (1, True), done.stderr


def test_doctor_warns_of_memory() -> None:
    done = CliRunner().invoke(cli, ["doctor", "--store", "memory:", "--json"], env=clean_environment())
    assert "memory: keeps nothing" in done.stdout
