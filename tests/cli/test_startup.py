"""`@on_startup` in the processes of `dragoman serve` and `dragoman worker`."""

from __future__ import annotations

import signal
from pathlib import Path
from textwrap import dedent

import pytest
from tests.agents.workers.worker_process import worker_process
from tests.cli.server import serving

from dragoman.client import connect

pytestmark = pytest.mark.long

APP = """
    from pathlib import Path

    from dragoman import Turn, agent, on_startup

    words = []
    calls = Path("calls")

    @on_startup
    async def read_words():
        words.extend(Path("words").read_text().split())
        calls.write_text("started ")
        yield
        calls.write_text(calls.read_text() + "cleaned up")

    @agent
    async def count(turn: Turn) -> str:
        return str(len(words))
"""


def write_app(folder: Path) -> Path:
    (folder / "app.py").write_text(dedent(APP))
    return folder / "app.py"


def failure(app: Path) -> str:
    return (
        f"{app}, line 11: @on_startup read_words failed: "
        "FileNotFoundError: [Errno 2] No such file or directory: 'words'"
    )


async def test_it_runs_before_the_first_turn_of_a_server_and_cleans_up_at_its_end(tmp_path: Path) -> None:
    app = write_app(tmp_path)
    (tmp_path / "words").write_text("one two three")
    with serving("app.py", cwd=tmp_path) as server:
        async with connect(server.http) as client:
            assert (await client.ask("go")).text == "3"
        server.signal(signal.SIGTERM)
        assert server.ends() == 0
    assert (tmp_path / "calls").read_text() == "started cleaned up"
    assert app.exists()


def test_a_failure_stops_the_start_of_a_server(tmp_path: Path) -> None:
    app = write_app(tmp_path)
    with serving("app.py", cwd=tmp_path, ready=False) as server:
        assert server.ends() == 1
        assert failure(app) in server.err.rest()


async def test_it_runs_in_workers_too(tmp_path: Path) -> None:
    app = write_app(tmp_path)
    with serving("--workers-only", cwd=tmp_path) as server:
        with worker_process(server=server.grpc, cwd=tmp_path, app=app, ready=False) as worker:
            assert worker.ends() == 1
            assert failure(app) in worker.err.rest()
        (tmp_path / "words").write_text("one two")
        with worker_process(server=server.grpc, cwd=tmp_path, app=app) as worker:
            async with connect(server.http) as client:
                assert (await client.ask("go", agent="count")).text == "2"
            worker.signal(signal.SIGTERM)
            assert worker.ends() == 0
    assert (tmp_path / "calls").read_text() == "started cleaned up"


async def test_a_server_that_runs_no_turns_does_not_need_it(tmp_path: Path) -> None:
    write_app(tmp_path)
    (tmp_path / "shared.py").write_text(
        "from pathlib import Path\n\nfrom dragoman.stores.sqlite import open_store\n\n"
        "def open_it():\n    return open_store(Path('tasks.db'))\n"
    )
    with serving("app.py", "--role", "server", "--store", "shared.py:open_it", cwd=tmp_path) as server:
        assert server.startup_info["agents"] == ["count"]
    assert not (tmp_path / "calls").exists()


SLOW = """
    import asyncio
    import sys
    from pathlib import Path

    from dragoman import agent, on_startup

    @on_startup
    async def first():
        yield
        Path("calls").write_text("cleaned up")

    @on_startup
    async def load_model():
        print("loading", file=sys.stderr, flush=True)
        await asyncio.Event().wait()

    @agent
    async def guess(turn): ...
"""


def test_a_signal_ends_a_long_start(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(dedent(SLOW))
    with serving("app.py", cwd=tmp_path, ready=False) as server:
        server.err.until("loading")
        server.signal(signal.SIGINT)
        assert server.ends() == 0
        assert "stopped during the start" in server.err.rest()
    assert (tmp_path / "calls").read_text() == "cleaned up"
    (tmp_path / "calls").unlink()
    with worker_process(server="127.0.0.1:1", cwd=tmp_path, app=tmp_path / "app.py", ready=False) as worker:
        worker.err.until("loading")
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
    assert (tmp_path / "calls").read_text() == "cleaned up"
