"""The files that trigger a reload, and the orders that a process gets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.cli.serve.reload import (
    ReloadedServer,
    Reloader,
    Standby,
    StandbyEnded,
    app_argument,
    modification_times,
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRAGOMAN_APP", raising=False)


def test_python_files_of_the_app_are_watched_except_installed_and_hidden_ones(tmp_path: Path) -> None:
    for name in ("app.py", "deep/er/part.py", ".venv/x.py", "a/site-packages/y.py", "a/__pycache__/z.py", "notes.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert {path.relative_to(tmp_path).as_posix() for path in modification_times(tmp_path)} == {
        "app.py",
        "deep/er/part.py",
    }


def test_the_app_is_found_in_every_source_of_settings(tmp_path: Path) -> None:
    assert app_argument({"app": None}) == "dragoman.playground"
    (tmp_path / "dragoman.toml").write_text('app = "agents.py"')
    assert app_argument({"app": None}) == "agents.py"
    assert app_argument({"app": "other.py"}) == "other.py"
    assert app_argument({"app": None, "slots": "x"}) == ""


def test_the_settings_file_is_watched(tmp_path: Path) -> None:
    assert modification_times(None) == {}
    Path("dragoman.toml").touch()
    assert list(modification_times(None)) == [Path("dragoman.toml")]


def test_modified_and_deleted_files_are_changes(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.touch()
    before = modification_times(tmp_path)
    os.utime(app, ns=(1, 1))
    after = modification_times(tmp_path)
    assert before != after
    app.unlink()
    assert modification_times(tmp_path) == {}


def test_a_process_loads_and_serves_when_it_is_told_to() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        standby = Standby(theirs.detach())
        ours.sendall(b'{"order": "load"}\n{"order": "serve", "changed_at": 3.5}\n{"order": "restart"}\n')
        assert standby.await_order("load") == {"order": "load"}
        assert standby.report_loaded() == 3.5
        assert json.loads(ours.recv(100)) == {"report": "loaded"}

        async def serve() -> bool:
            await standby.channel.open()
            standby.channel.send(report="ready")
            with closing(standby.channel):
                return await standby.restarts_before(asyncio.Event().wait())

        assert asyncio.run(serve())
        assert json.loads(ours.recv(100)) == {"report": "ready"}


def test_a_waiting_process_ends_with_the_one_that_started_it() -> None:
    ours, theirs = socket.socketpair()
    standby = Standby(theirs.detach())
    waiting = threading.Thread(target=ours.close)
    waiting.start()
    with pytest.raises(StandbyEnded), closing(standby.channel):
        standby.await_order("load")
    waiting.join()


@pytest.mark.parametrize("stopped", [True, False], ids=["signal", "the other end is gone"])
async def test_a_serving_process_stops_without_a_restart(stopped: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        standby = Standby(theirs.detach())
        await standby.channel.open()
        stop = asyncio.Event()
        if stopped:
            stop.set()
        else:
            ours.close()
        with closing(standby.channel):
            assert not await standby.restarts_before(stop.wait())


@pytest.mark.parametrize(("serves", "number", "sent"), [
    (True, signal.SIGINT, []), (False, signal.SIGINT, [signal.SIGINT]), (True, signal.SIGTERM, [signal.SIGTERM]),
])  # fmt: skip
async def test_a_signal_reaches_a_server_once(serves: bool, number: signal.Signals, sent: list[signal.Signals]) -> None:
    received: list[signal.Signals] = []
    process: Any = SimpleNamespace(send_signal=received.append)
    channel: Any = None
    reloader = Reloader([], None)
    reloader._server = ReloadedServer(process, channel)
    reloader._server.serves = serves
    reloader._stop(number)
    assert received == sent
