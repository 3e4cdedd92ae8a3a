"""What users get from a package index: `uvx` and `pipx run` start the server of our wheel, `twine` accepts the files.

The index is a folder in the form of PEP 503, served on loopback: our wheel, and the locked wheels of its dependencies.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.server import Lines, clean_environment
from tests.supply.packages import ROOT, UV, VERSION, run

from tools.environments import CACHE, Environment, NotCreated

PACKAGING: Final = Environment("packaging", (Path(__file__).with_name("packaging.txt"),))
"""pipx and twine."""

pytestmark = pytest.mark.timeout(600)


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


def locked_wheels() -> Path:
    """A folder with the locked wheels of all dependencies, and pip, fetched once. Raises AssertionError."""
    locked = run(UV, "export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--no-header", cwd=ROOT)
    key = hashlib.sha256(locked.encode() + sys.version.encode()).hexdigest()[:12]
    folder = CACHE / f"wheels-{key}"
    if not (folder / ".made").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "requirements.txt").write_text(locked)
        pip = UV.with_name("pip")
        run(pip, "download", "-qq", "--require-hashes", "--no-deps", "-r", "requirements.txt", "-d", ".", cwd=folder)
        run(pip, "download", "-qq", "--no-deps", "pip", "-d", ".", cwd=folder)  # pipx updates its own one first
        (folder / ".made").touch()
    return folder


@pytest.fixture(scope="module")
def index(built: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the index."""
    try:
        locked = locked_wheels()
    except AssertionError as failure:
        pytest.skip(f"the wheels of the dependencies cannot be fetched: {failure}")
    folder = tmp_path_factory.mktemp("index")
    for wheel in (*locked.glob("*.whl"), *(path for path in built if path.suffix == ".whl")):
        project = folder / "simple" / wheel.name.partition("-")[0].replace("_", "-").replace(".", "-").lower()
        project.mkdir(parents=True, exist_ok=True)
        shutil.copy(wheel, project)
    for project in (folder / "simple").iterdir():
        links = [f'<a href="{wheel.name}">{wheel.name}</a>' for wheel in project.glob("*.whl")]
        (project / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_QuietHandler, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def packaging() -> Path:
    """The programs of the environment with pipx and twine."""
    try:
        PACKAGING.make()
    except NotCreated as reason:
        pytest.skip(str(reason))
    return PACKAGING.python.parent


def started_server(command: Sequence[object], folder: Path, variables: dict[str, str]) -> str:
    """Serves the playground by a command, sends to it by the same command, and stops it. Returns the answer."""
    program = [str(word) for word in command]
    environment = clean_environment() | variables
    addresses = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    server = subprocess.Popen(
        [*program, "serve", *addresses], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        lines = Lines(server.stdout)
        http = lines.until("  HTTP").split()[1]
        lines.until("Ctrl-C")
        return run(*program, "send", "echo hello", "--server", http, cwd=folder, **variables)
    finally:
        server.terminate()
        assert server.wait(60) == 0


def test_uvx_runs_the_server_from_an_index(index: str, tmp_path: Path) -> None:
    uvx = (UV.with_name("uvx"), "--quiet", "--no-config", "--default-index", index, "--python", sys.executable)
    variables = {"UV_CACHE_DIR": str(tmp_path / "cache")}  # so that nothing comes from earlier installations
    assert run(*uvx, "dragoman", "--version", cwd=tmp_path, **variables).strip() == VERSION
    assert started_server((*uvx, "dragoman"), tmp_path, variables) == "hello\n"


def test_pipx_runs_the_server_from_an_index(index: str, packaging: Path, tmp_path: Path) -> None:
    variables = {
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_FIND_LINKS": "",
        "PIP_INDEX_URL": index,
    }
    pipx = (packaging / "pipx", "run", "--quiet", "--python", sys.executable)
    assert run(*pipx, "dragoman", "--version", cwd=tmp_path, **variables).strip() == VERSION
    assert started_server((*pipx, "dragoman"), tmp_path, variables) == "hello\n"


def test_an_index_would_accept_the_packages(built: list[Path], packaging: Path) -> None:
    output = run(packaging / "twine", "check", "--strict", *built, cwd=ROOT)
    assert output.count("PASSED") == len(built) == 2
