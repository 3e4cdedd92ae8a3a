"""What whoever installs us gets: the wheel in an environment with nothing else, and the sdist, from a folder without
git."""

from __future__ import annotations

import email
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path

import pytest
from tests.cli.server import Lines, clean_environment
from tests.supply.packages import ROOT, UV, VERSION, build, contents, run

pytestmark = [pytest.mark.longest, pytest.mark.timeout(600)]

AGENTS = """
from collections.abc import AsyncIterator

from dragoman import Turn, agent


@agent(description="Says it back")
async def echo(turn: Turn) -> str:
    return turn.text


@agent
async def counter(turn: Turn) -> AsyncIterator[int]:
    yield 1
"""


@pytest.fixture(scope="module")
def environment(tree: Path, built: list[Path]) -> Path:
    """An environment that has the wheel, what it needs, and no more."""
    run("sh", "tools/tool_env.sh", sys.executable, UV, "installed", "--no-dev", cwd=tree)
    path = tree / ".tools/installed"
    (wheel,) = (one for one in built if one.suffix == ".whl")
    run(UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", path, wheel, cwd=tree)
    return path


def test_the_sdist_has_what_the_wheel_is_built_from(built: list[Path], tmp_path: Path) -> None:
    sdist, wheel = sorted(built, key=lambda one: one.suffix == ".whl")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    assert contents(build(folder, "wheel")[-1]) == contents(wheel)
    for name in (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "SECURITY.md",
        "docs/explanation/guarantees.md",
        "uv.lock",
    ):
        assert (folder / name).is_file(), name
    assert (folder / "console/src/app/main.tsx").is_file()
    assert not [name for name in ("tests", ".venv", ".tools", "node_modules") if (folder / name).exists()]


def test_the_wheel_has_types_protos_and_the_console(built: list[Path]) -> None:
    names = set(contents(built[-1] if built[-1].suffix == ".whl" else built[0]))
    for name in (
        "dragoman/py.typed",
        "dragoman_pb/py.typed",
        "dragoman/console/console.js",
        "dragoman_pb/dragoman.binpb",
        "dragoman_pb/proto/lf/a2a/v1/a2a.proto",
        "dragoman/extensions/postgres/migrations/0001_baseline.sql",
    ):
        assert name in names
    info = VERSION.replace(" ", "-") + ".dist-info"
    assert {name.partition("/")[0] for name in names} == {"dragoman", "dragoman_pb", "dragoman_pytest.py", info}
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".map", ".ts", ".tsx"))]
    protos = {f"dragoman_pb/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "proto").rglob("*.proto")}
    assert {name for name in names if name.startswith("dragoman_pb/proto/")} == protos


def test_the_metadata_says_what_it_is_for_which_python_and_how_the_text_is_written(built: list[Path]) -> None:
    wheel = contents(next(path for path in built if path.suffix == ".whl"))
    text = next(wheel[name] for name in wheel if name.endswith(".dist-info/METADATA")).decode()
    metadata = email.message_from_string(text)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).lstrip().startswith("# Dragoman\n")
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Summary"].startswith("A durable task server for the A2A")
    pythons = {one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier", []) if ":: 3." in one}
    assert {"3.11", "3.12", "3.13"} <= pythons
    assert set(metadata.get_all("Provides-Extra", [])) == {"mcp", "nats", "postgres", "telemetry"}


def test_both_packages_say_their_license_and_carry_its_text(built: list[Path], built_protos: list[Path]) -> None:
    text = (ROOT / "LICENSE").read_bytes()
    assert b"Apache License" in text
    assert (ROOT / "gen/LICENSE").read_bytes() == text
    for archive in (*built, *built_protos):
        if archive.suffix == ".whl":
            files = contents(archive)
            assert [files[name] for name in files if name.endswith(".dist-info/licenses/LICENSE")] == [text]
            metadata = next(files[name] for name in files if name.endswith(".dist-info/METADATA")).decode()
        else:
            with tarfile.open(archive) as sdist:
                folder = archive.name.removesuffix(".tar.gz")
                license_file, package_info = (sdist.extractfile(f"{folder}/{name}") for name in ("LICENSE", "PKG-INFO"))
                assert license_file is not None
                assert license_file.read() == text
                assert package_info is not None
                metadata = package_info.read().decode()
        header = metadata.partition("\n\n")[0].splitlines()
        assert "License-Expression: Apache-2.0" in header, archive.name
        assert "License-File: LICENSE" in header, archive.name
        assert "Author: The Dragoman authors" in header, archive.name
        assert "Project-URL: A2A protocol, https://a2a-protocol.org" in header, archive.name


def test_the_installed_wheel_serves_agents_of_an_empty_folder(environment: Path, tmp_path: Path) -> None:
    program, python = environment / "bin/dragoman", environment / "bin/python"
    assert run(program, "--version", cwd=tmp_path).strip() == VERSION
    assert run(python, "-m", "dragoman", "--version", cwd=tmp_path).strip() == VERSION
    (tmp_path / "agents.py").write_text(AGENTS)
    words = (program, "serve", "agents.py", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    server = subprocess.Popen(
        words, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        lines = Lines(server.stdout)
        http = lines.until("  HTTP").split()[1]
        grpc = lines.until("  gRPC").split()[1]
        lines.until("Ctrl-C")
        assert run(program, "send", "hello", "--server", grpc, cwd=tmp_path) == "hello\n"
        assert run(program, "send", "--agent", "counter", "x", "--server", grpc, cwd=tmp_path).strip() == "1"
        for page in ("/console", "/docs", "/openapi.json", "/.well-known/agent-card.json"):
            with urllib.request.urlopen(http + page) as answer:
                assert answer.status == 200, page
    finally:
        server.terminate()
        server.wait()


def test_a_new_project_installs_the_wheel_that_made_it(environment: Path, built: list[Path], tmp_path: Path) -> None:
    (wheel,) = (one for one in built if one.suffix == ".whl")
    run(environment / "bin/dragoman", "new", "travel", cwd=tmp_path)
    project = tmp_path / "travel"
    assert (project / "requirements.txt").read_text() == f"dragoman @ {wheel.as_uri()}\n"
    assert f"pip wheel --no-deps --wheel-dir . {wheel.as_uri()}\n" in (project / "README.md").read_text()
    assert "COPY requirements.txt dragoman-*.whl /agents/" in (project / "Dockerfile").read_text()
    run(UV, "venv", "--quiet", "--python", sys.executable, "new", cwd=tmp_path)
    words = ("--quiet", "--offline", "--no-deps", "--python", "new", "--requirement", project / "requirements.txt")
    run(UV, "pip", "install", *words, cwd=tmp_path)
    assert (tmp_path / "new" / "bin" / "dragoman").exists()


def test_types_reach_whoever_writes_agents(environment: Path, tmp_path: Path) -> None:
    asks = (
        AGENTS
        + """

reveal_type(echo)
reveal_type(counter)


async def tried(turn: Turn) -> None:
    reveal_type(await echo(turn))
    reveal_type(turn.text)
    await echo("no turn")
    turn.statu("x")
"""
    )
    (tmp_path / "agents.py").write_text(asks)
    words = (sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--cache-dir", tmp_path / "cache")
    text = subprocess.run(
        [*map(str, words), "--python-executable", str(environment / "bin/python"), "agents.py"],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert (
        'Revealed type is "dragoman.agents.functions.runner.DeclaredAgent['
        "[turn: dragoman.agents.functions.turn.Turn], " in text
    )
    assert "Coroutine[Any, Any, " in text
    assert "AsyncIterator[" in text
    assert text.count('Revealed type is "') == 4
    assert 'Argument 1 to "__call__" of "DeclaredAgent" has incompatible type "str"; expected "Turn"' in text
    assert '"Turn" has no attribute "statu"; maybe "status"' in text
    assert "Found 2 errors in 1 file" in text
