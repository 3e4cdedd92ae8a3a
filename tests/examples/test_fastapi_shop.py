"""The FastAPI application with an agent inside: its own routes and login, a stream, and a kill."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from tests.cli.server import Lines, clean_environment

from dragoman.client import Event, Finished, Text, connect

pytestmark = pytest.mark.long

FOLDER: Final = Path(__file__).parents[2] / "examples"
SERVE: Final = """
import socket, sys, uvicorn
import fastapi_shop
uvicorn.Server(uvicorn.Config(fastapi_shop.app)).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""


@contextmanager
def shop(port: socket.socket, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The application in a process of its own, on a port that outlives it; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(port.fileno())],
        cwd=folder,
        env=clean_environment() | {"PYTHONPATH": os.fspath(FOLDER)},
        pass_fds=(port.fileno(),),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        Lines(process.stderr).until("startup complete")
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def port() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def url(port: socket.socket) -> str:
    return f"http://127.0.0.1:{port.getsockname()[1]}"


async def token(url: str, name: str, password: str) -> str:
    query = {"name": name, "password": password}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/login", params=query) as response:
        assert response.status == 200
        return str(await response.json())


async def test_its_own_routes_and_its_login_work(tmp_path: Path, port: socket.socket, url: str) -> None:
    with shop(port, tmp_path):
        async with aiohttp.ClientSession(url) as http:
            async with http.get("/stock") as response:
                assert await response.json() == {"apples": 3, "pears": 5}
            async with http.post("/login", params={"name": "ann", "password": "wrong"}) as response:
                assert response.status == 401
            for header in ({}, {"Authorization": "Bearer ann.guessed"}):
                async with http.get("/agents/tasks", headers=header) as response:
                    assert response.status == 401
        async with connect(f"{url}/agents", token=await token(url, "ann", "apple")) as ann:
            task = (await ann.ask("apples")).task_id
        async with connect(f"{url}/agents", token=await token(url, "bob", "pear")) as bob:
            assert [one.task_id async for one in bob.list()] == []
        async with connect(f"{url}/agents", token=await token(url, "ann", "apple")) as ann:
            assert [one.task_id async for one in ann.list()] == [task]


async def test_a_stream_goes_on_after_its_server_was_killed(tmp_path: Path, port: socket.socket, url: str) -> None:
    events: AsyncIterator[Event]
    parcels = [f"parcel{number}" for number in range(8)]
    shown = []
    with shop(port, tmp_path) as first:
        ann = connect(f"{url}/agents", token=await token(url, "ann", "apple"))
        async with ann:
            events = ann.run(" ".join(parcels))
            async for event in events:
                if isinstance(event, Text):
                    shown.append(event.text)
                    break
            first.kill()
            first.wait()
            with shop(port, tmp_path):
                async for event in events:
                    if isinstance(event, Text):
                        shown.append(event.text)
                    finished = event
    assert isinstance(finished, Finished)
    assert "".join(shown) == "".join(f"{name} delivered to ann\n" for name in parcels)
