"""examples/stubs: in four languages, code generated from the committed image, and a client that talks to a real server.

As in a project without a clone: the image lies in the folder, and is named on the command line (proto/README.md).

Python's packages are from PyPI and Node's from npm; Go, its libraries and Java's jars are Debian's, unpacked for the
tests alone (tests/debian.py). Without a toolchain, or packages for it, a language is skipped, and the summary says why;
with STUBS=required, as in .ci/run, packages that cannot be had are a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NoReturn

import pytest
from tests.cli.server import Server, serving
from tests.debian import unpacked

from tools.environments import ROOT, Environment, NotCreated
from tools.pages import blocks

STUBS: Final = ROOT / "examples" / "stubs"
JARS: Final = ("grpc-", "protobuf", "proto-google", "perfmark-api", "netty", "opencensus-api", "gson", "guava")
ANNOTATIONS: Final = ("geronimo-annotation", "javax.annotation-api")
IMAGE: Final = "dragoman.binpb"
GENERATE: Final = ("generate", IMAGE, "--path", "lf/a2a/v1")
LIMIT: Final = 240

pytestmark = [pytest.mark.longest, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(cwd=tmp_path_factory.mktemp("server")) as server:
        yield server


def copied(language: str, folder: Path) -> Path:
    """The example in a folder of its own, with the image."""
    example = folder / language
    shutil.copytree(
        STUBS / language,
        example,
        ignore=shutil.ignore_patterns("gen", "dist", "classes", "node_modules", "__pycache__"),
    )
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


def not_run(reason: str) -> NoReturn:
    (pytest.fail if os.environ.get("STUBS") == "required" else pytest.skip)(reason)


def debian(*packages: str) -> Path:
    if not shutil.which("apt-get"):
        pytest.skip(f"{packages[0]} comes from Debian's packages, and there is no apt-get on this machine")
    try:
        return unpacked(*packages)
    except NotCreated as error:
        not_run(f"{packages[0]} cannot be had: {error}")


def of_debian(root: Path) -> Mapping[str, str]:
    return {"LD_LIBRARY_PATH": ":".join(str(path) for path in root.glob("usr/lib/*-linux-gnu"))}


def shown(language: str) -> list[str]:
    """What a client prints, by its README.md; of the first one, by that of all."""
    page = STUBS / ("" if language == "python" else language) / "README.md"
    (last,) = (
        block.text for block in blocks(page.read_text("utf-8")) if block.text.rstrip().lower().endswith("update")
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
    text = run(environment.python, "client.py", server.grpc, "hello", "there", cwd=folder)
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
    text = run("npm", "start", "--silent", "--", f"http://{server.grpc}", "hello", "there", cwd=folder)
    assert text.split() == " ".join(shown("typescript")).split()


def test_java(server: Server, tmp_path: Path) -> None:
    if not (shutil.which("javac") and shutil.which("java")):
        pytest.skip("there is no JDK on this machine")
    folder = copied("java", tmp_path)
    root = debian(
        "libgrpc-java", "protobuf-compiler", "protobuf-compiler-grpc-java-plugin", "libprotobuf-java",
        "libgoogle-common-protos-java", "libnetty-java", "libperfmark-java", "libgoogle-gson-java", "libguava-java",
        "libgeronimo-annotation-1.3-spec-java",
    )  # fmt: skip
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, program in (("protoc", "protoc"), ("protoc-gen-grpc-java", "grpc_java_plugin")):
        ours = root / "usr" / "bin" / program
        (tools / name).symlink_to(ours if ours.exists() else f"/usr/bin/{program}")
    run("buf", *GENERATE, cwd=folder, PATH=str(tools), **of_debian(root))
    jars = [
        str(jar)
        for place in (root / "usr" / "share" / "java", Path("/usr/share/java"))
        for jar in sorted(place.glob("*.jar"))
        if jar.name.startswith((*JARS, *ANNOTATIONS))
    ]
    sources = [path.relative_to(folder) for path in (folder / "gen").rglob("*.java")]
    run("javac", "-nowarn", "-cp", ":".join(jars), "-d", "classes", *sources, "Client.java", cwd=folder)
    text = run("java", "-cp", ":".join(["classes", *jars]), "Client", server.grpc, "hello", "there", cwd=folder)
    assert text.split() == " ".join(shown("java")).split()


def test_go(server: Server, tmp_path: Path) -> None:
    folder = copied("go", tmp_path)
    # Debian's gRPC names the library of before 2020, which knows no messages of today: the newer one goes before it.
    newer = debian("golang-github-golang-protobuf-1-5-dev", "golang-google-protobuf-dev")
    root = debian("golang-google-grpc-dev", "golang-google-genproto-dev", "protoc-gen-go", "protoc-gen-go-grpc")
    compiler = debian("golang-go")
    goroot = next(compiler.glob("usr/lib/go-*"), None) or next(Path("/usr/lib").glob("go-*"))
    run("buf", *GENERATE, cwd=folder, PATH=f"{root}/usr/bin")
    place = tmp_path / "src" / "example.com" / "hello"
    shutil.copytree(folder, place)
    libraries = [f"{base}/usr/share/gocode" for base in (newer, root, "")]
    settings = {
        "GOROOT": str(goroot),
        "GOPATH": ":".join([str(tmp_path), *libraries]),
        "GO111MODULE": "off",
        "GOFLAGS": "",
        "GOCACHE": str(tmp_path / "cache"),
    }
    run(goroot / "bin" / "go", "build", "-o", "hello", ".", cwd=place, **settings)
    text = run(place / "hello", server.grpc, "hello", "there", cwd=place)
    assert text.split() == " ".join(shown("go")).split()
