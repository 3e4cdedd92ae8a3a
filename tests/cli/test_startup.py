"""`@on_startup` in the processes of `dragoman serve` and `dragoman worker`."""

from __future__ import annotations

import signal
from pathlib import Path
from textwrap import dedent

from tests.agents.workers.worker_process import worker_process
from tests.cli.server import serving

from dragoman.client import connect

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
