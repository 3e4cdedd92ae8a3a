"""What users get from a package index: `pip`, `uvx` and `pipx run` install our packages, and `twine` accepts the files.

The index is a folder in the form of PEP 503, served on loopback: our packages, and the locked wheels of their
dependencies and of what builds them.
"""

from __future__ import annotations

import fcntl
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
from tests.docs import page
from tests.supply.conftest import RELEASE
from tests.supply.packages import ROOT, UV, VERSION, run

from tools.environments import CACHE, Environment, NotCreated

PACKAGING: Final = Environment("packaging", (Path(__file__).with_name("packaging.txt"),))
"""pipx and twine."""

PROTOS_PROGRAM: Final = """
from importlib.metadata import version
from importlib.resources import files

import grpc
from dragoman_protos.lf.a2a.v1 import a2a_pb2 as a2a
from dragoman_protos.lf.a2a.v1 import a2a_pb2_grpc as rpc

message = a2a.Message(message_id="m-1", role=a2a.ROLE_USER, parts=[{"text": "hello"}])
assert a2a.Message.FromString(message.SerializeToString()) == message
with grpc.insecure_channel("127.0.0.1:1") as channel:
    assert rpc.A2AServiceStub(channel).SendMessage
assert files("dragoman_protos").joinpath("dragoman.binpb").read_bytes()
print("dragoman", version("dragoman-protos"), message.parts[0].text)
"""
"""A caller without a server: builds a message, and finds the stubs and the image of the protos."""

pytestmark = [pytest.mark.longest, pytest.mark.timeout(600)]


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


def locked_wheels() -> Path:
    """A folder with the locked wheels of all dependencies, hatchling and pip, fetched once. Raises AssertionError."""
    locked = run(UV, "export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--no-header", cwd=ROOT)
    every = run(UV, "export", "--quiet", "--frozen", "--no-emit-project", "--no-hashes", "--no-header", cwd=ROOT)
    key = hashlib.sha256((locked + every + sys.version).encode()).hexdigest()[:12]
    folder = CACHE / f"wheels-{key}"
    CACHE.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be fetching them
        if not (folder / ".made").exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "requirements.txt").write_text(locked)
            (folder / "constraints.txt").write_text(every)
            fetch = (UV.with_name("pip"), "download", "-qq", "--disable-pip-version-check", "-d", ".")
            run(*fetch, "--require-hashes", "--no-deps", "-r", "requirements.txt", cwd=folder)
            run(*fetch, "-c", "constraints.txt", "hatchling", cwd=folder)  # builds the sdists
            run(*fetch, "--no-deps", "pip", cwd=folder)  # pipx updates its own one first
            (folder / ".made").touch()
    return folder


@pytest.fixture(scope="module")
def index(built: list[Path], built_protos: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the index."""
    try:
        locked = locked_wheels()
    except AssertionError as failure:
        if RELEASE:
            raise
        pytest.skip(f"the wheels of the dependencies cannot be fetched: {failure}")
    folder = tmp_path_factory.mktemp("index")
    for package in (*locked.glob("*.whl"), *built, *built_protos):
        project = folder / "simple" / package.name.partition("-")[0].replace("_", "-").replace(".", "-").lower()
        project.mkdir(parents=True, exist_ok=True)
        shutil.copy(package, project)
    for project in (folder / "simple").iterdir():
        links = [f'<a href="{package.name}">{package.name}</a>' for package in sorted(project.iterdir())]
        (project / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_QuietHandler, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    thread.join()
    server.server_close()


def installed(index: str, folder: Path, *words: str) -> Path:
    """A new environment, into which pip has installed something from the index."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    pip = (folder / "bin" / "pip", "install", "-qq", "--disable-pip-version-check", "--no-cache-dir")
    variables = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": index}
    run(*pip, *words, cwd=folder.parent, **variables)
    return folder


@pytest.fixture(scope="module")
def packaging() -> Path:
    """The programs of the environment with pipx and twine."""
    try:
        PACKAGING.make()
    except NotCreated as reason:
        if RELEASE:
            raise
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


def test_pip_installs_the_wheel_and_the_quickstart_runs(index: str, tmp_path: Path) -> None:
    environment = installed(index, tmp_path / "new", "--only-binary", ":all:", "dragoman")
    program = environment / "bin" / "dragoman"
    assert run(program, "--version", cwd=tmp_path).strip() == VERSION
    quickstart = ROOT / "docs" / "tutorials" / "quickstart.md"
    if absent := page.missing(quickstart):
        pytest.skip(f"not on this machine: {', '.join(sorted(absent))}")
    assert not "\n".join(page.run(quickstart, tmp_path / "demo", environment))


def test_pip_builds_the_sdist_and_its_server_answers(index: str, tmp_path: Path) -> None:
    environment = installed(index, tmp_path / "new", "--no-binary", "dragoman", "dragoman")
    program = environment / "bin" / "dragoman"
    assert run(program, "--version", cwd=tmp_path).strip() == VERSION
    assert started_server((program,), tmp_path, {}) == "hello\n"


@pytest.mark.parametrize("kind", ["--only-binary", "--no-binary"])
def test_pip_installs_the_protos_for_callers_without_a_server(index: str, tmp_path: Path, kind: str) -> None:
    environment = installed(index, tmp_path / "new", kind, "dragoman-protos", "dragoman-protos")
    python = environment / "bin" / "python"
    assert run(python, "-c", PROTOS_PROGRAM, cwd=tmp_path) == f"{VERSION} hello\n"
    names = run(python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path).split()
    packages = {name.partition("==")[0] for name in names} - {"pip", "setuptools"}
    assert packages == {"dragoman-protos", "googleapis-common-protos", "grpcio", "protobuf", "typing_extensions"}


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


def test_an_index_would_accept_the_packages(built: list[Path], built_protos: list[Path], packaging: Path) -> None:
    output = run(packaging / "twine", "check", "--strict", *built, *built_protos, cwd=ROOT)
    assert output.count("PASSED") == len(built) + len(built_protos) == 4
