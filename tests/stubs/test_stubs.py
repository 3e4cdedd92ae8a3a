"""examples/stubs: in five languages, code generated from the committed image, and a client that talks to a real server.

As in a project without a clone: the image lies in the folder, and is named on the command line (proto/README.md).

Python's packages are from PyPI, Node's from npm, the others' from the registries of Go, Rust and Maven. What they
download and compile is kept in `.foreign/`, and a program in Go, Java or Rust is built again only when its files or the
image change. Without a toolchain, or packages for it, a language is skipped, and the summary says why; with
STUBS=required, as in .ci/run, packages that cannot be had are a failure.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from tests.cli.server import Server, serving

from tools.environments import CACHE, ROOT, Environment, NotCreated, go_variables, maven, rust_variables
from tools.pages import blocks

STUBS: Final = ROOT / "examples" / "stubs"
IMAGE: Final = "dragoman.binpb"
GENERATE: Final = ("generate", IMAGE, "--path", "lf/a2a/v1")
LIMIT: Final = 500
"""Seconds for one command. With an empty cache Cargo compiles a hundred crates."""
GENERATED: Final = ("gen", "dist", "target", "node_modules", "__pycache__", IMAGE)

RUST: Final = {
    **rust_variables(),
    "CARGO_TARGET_DIR": str(CACHE / "cargo" / "stubs_rust"),
    "CARGO_PROFILE_DEV_DEBUG": "false",
}
MAVEN: Final = maven()

pytestmark = [pytest.mark.longest, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(cwd=tmp_path_factory.mktemp("server")) as server:
        yield server


def copied(language: str, folder: Path) -> Path:
    """The example in a folder of its own, with the image."""
    example = folder / language
    shutil.copytree(STUBS / language, example, ignore=shutil.ignore_patterns(*GENERATED))
    shutil.copy(ROOT / "gen" / IMAGE, example)
    return example


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """The output of a command, which must succeed. buf and python3 are those of the environment."""
    here = Path(sys.executable).parent
    environment = {**os.environ, **more}
    environment["PATH"] = f"{more.get('PATH', '')}:{here}:{os.environ['PATH']}".removeprefix(":")
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=LIMIT,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}"
    return done.stdout


def addresses(server: Server) -> tuple[str, str]:
    """Of gRPC and of HTTP."""
    return server.grpc, server.http


def not_run(reason: str) -> NoReturn:
    (pytest.fail if os.environ.get("STUBS") == "required" else pytest.skip)(reason)


def built(language: str, fetch: Sequence[str], *commands: Sequence[str], **variables: str) -> Path:
    """A folder of `.foreign/` with the example of a compiled language, which `commands` build there unless it is built.

    `fetch` downloads its packages.
    """
    if not shutil.which(fetch[0]):
        pytest.skip(f"there is no {fetch[0]} on this machine")
    files = (path for path in sorted((STUBS / language).rglob("*")) if path.is_file())
    own = (path for path in files if not set(GENERATED) & set(path.relative_to(STUBS).parts))
    content = b"".join(path.read_bytes() for path in (*own, ROOT / "gen" / IMAGE))
    content += bytes(CACHE)  # Java's classpath names it
    folder = CACHE / f"stubs_{language}-{hashlib.sha256(content).hexdigest()[:12]}"
    CACHE.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be building it
        if not (folder / ".made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            example = copied(language, folder)
            done = subprocess.run(
                fetch, cwd=example, env={**os.environ, **variables}, capture_output=True, text=True, check=False
            )
            if done.returncode:
                not_run(f"the packages cannot be had: {done.stdout}{done.stderr}")
            for command in commands:
                run(*command, cwd=example, **variables)
            (folder / ".made").touch()
    return folder / language


def shown(language: str) -> list[str]:
    """What a client prints, by its README.md; of the first one, by that of all."""
    page = STUBS / ("" if language == "python" else language) / "README.md"
    (last,) = (
        block.text
        for block in blocks(page.read_text("utf-8"))
        if re.search(r"update$", block.text, re.MULTILINE | re.IGNORECASE)
    )
    return [line for line in last.splitlines() if line[0] != "$"]


def test_the_readme_shows_the_command_that_is_run_here() -> None:
    page = (ROOT / "proto" / "README.md").read_text("utf-8")
    assert f"buf {' '.join(GENERATE)}\n" in [block.text for block in blocks(page)]


def test_python(server: Server, tmp_path: Path) -> None:
    folder = copied("python", tmp_path)
    environment = Environment("stubs_python", (STUBS / "python" / "requirements.txt",))
    try:
        environment.make()
    except NotCreated as error:
        not_run(f"the packages cannot be had: {error}")
    run(environment.folder / "bin" / "buf", *GENERATE, cwd=folder, PATH=str(environment.folder / "bin"))
    text = run(environment.python, "client.py", *addresses(server), "hello", "there", cwd=folder)
    assert text.split() == " ".join(shown("python")).split()


def test_dragoman_protos_runs_on_its_oldest_runtimes(server: Server, tmp_path: Path) -> None:
    """The wheel, in an environment with the lowest versions that it requires, runs the program of its README."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=ROOT / "gen")
    (wheel,) = tmp_path.glob("*.whl")
    required = tomllib.loads((ROOT / "gen" / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("\n".join(one.replace(">=", "==").split(",")[0] for one in required))
    environment = Environment("protos_oldest", (requirements,))
    try:
        environment.make()
    except NotCreated as error:
        not_run(f"the packages cannot be had: {error}")
    (block,) = (
        block for block in blocks((ROOT / "gen" / "README.md").read_text("utf-8")) if block.language == "python"
    )
    program = block.text.replace("127.0.0.1:50051", server.grpc)
    text = run(environment.python, "-W", "error", "-c", program, cwd=tmp_path, PYTHONPATH=str(wheel))
    assert text.split() == ["task", "artifact_update", "status_update"]


def test_typescript(server: Server, tmp_path: Path) -> None:
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("there is no Node on this machine")
    folder = copied("typescript", tmp_path)
    sources = STUBS / "typescript" / "package.json", STUBS / "typescript" / "package-lock.json"
    environment = Environment("stubs_typescript", sources)
    try:
        environment.make()
    except NotCreated as error:
        not_run(f"the packages cannot be had: {error}")
    (folder / "node_modules").symlink_to(environment.folder / "node_modules")
    run(folder / "node_modules" / ".bin" / "buf", *GENERATE, cwd=folder)
    run(folder / "node_modules" / ".bin" / "tsc", cwd=folder)
    text = run("npm", "start", "--silent", "--", f"http://{server.grpc}", server.http, "hello", "there", cwd=folder)
    assert text.split() == " ".join(shown("typescript")).split()


def test_java(server: Server) -> None:
    folder = built(
        "java",
        [*MAVEN, "dependency:resolve", "dependency:resolve-plugins"],
        [*MAVEN, "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath"],
    )
    classes = f"target/classes:{(folder / 'classpath').read_text('utf-8')}"
    text = run("java", "-cp", classes, "Client", *addresses(server), "hello", "there", cwd=folder)
    assert text.split() == " ".join(shown("java")).split()


def test_go(server: Server) -> None:
    folder = built(
        "go", ["go", "mod", "download"], ["buf", *GENERATE], ["go", "build", "-o", "hello", "."], **go_variables()
    )
    text = run(folder / "hello", *addresses(server), "hello", "there", cwd=folder)
    assert text.split() == " ".join(shown("go")).split()


def test_rust(server: Server) -> None:
    install = ["cargo", "install", "--locked", "--quiet", "--path", ".", "--debug", "--root", "target"]
    folder = built("rust", ["cargo", "fetch", "--locked"], install, **RUST)
    grpc, http = addresses(server)
    text = run(folder / "target" / "bin" / "hello", f"http://{grpc}", http, "hello", "there", cwd=folder)
    assert text.split() == " ".join(shown("rust")).split()


def test_the_repository_as_git_input_gives_the_same_files(tmp_path: Path) -> None:
    """`buf build 'https://.../dragoman.git'` writes an image that is as good as the committed one."""
    repository = tmp_path / "dragoman.git"
    run("git", "clone", "--quiet", "--bare", "--depth", "1", f"file://{ROOT}", repository, cwd=tmp_path)
    run("buf", "build", repository, "-o", IMAGE, cwd=tmp_path)
    committed = subprocess.check_output(["git", "show", f"HEAD:gen/{IMAGE}"], cwd=ROOT)
    assert described((tmp_path / IMAGE).read_bytes()) == described(committed)


def described(image: bytes) -> dict[str, DescriptorProto]:
    """Every message of the protos of A2A in an image, by its name."""
    files = FileDescriptorSet.FromString(image).file
    return {f"{file.package}.{one.name}": one for file in files if "a2a" in file.package for one in file.message_type}
