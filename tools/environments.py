"""Environments of third-party packages, cached in `.foreign/` under a hash of their requirement files.

A changed pin creates a new environment; an unfinished one is created again. Programs in Go, Rust and Java are
environments, too: their sources belong to the hash, and the folder has their binaries. What their toolchains download
and compile is kept in `.foreign/go`, `.foreign/cargo` and `.foreign/maven`, so that only the first build needs the
network.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CACHE: Final = (ROOT / ".foreign").resolve()  # a link in a clone; what is created there has absolute paths
UV: Final = ROOT / ".tools" / "uv" / "bin" / "uv"


TOOLCHAINS: Final = {"go.mod": "go", "Cargo.toml": "cargo", "pom.xml": "mvn"}
"""The command that builds a program, by its manifest."""


class NotCreated(Exception):
    """Creating an environment failed. The text has the command and its output."""


@dataclass(frozen=True)
class Environment:
    """One environment: a name and its requirement files (requirements.txt, or package.json and a lock).

    Of a program: its manifest (go.mod, Cargo.toml or pom.xml), then its lock file and its sources.
    """

    name: str
    sources: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        created_from = b"".join(path.read_bytes() for path in self.sources) + sys.version.encode()
        if self.sources[0].name == "pom.xml":
            created_from += bytes(CACHE)  # a classpath names it
        return CACHE / f"{self.name}-{hashlib.sha256(created_from).hexdigest()[:12]}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def make(self) -> None:
        """Creates the environment unless it exists. Raises NotCreated."""
        done = self.folder / ".made"
        if done.exists():
            return
        CACHE.mkdir(exist_ok=True)
        with self.folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be creating it
            if done.exists():
                return
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            match self.sources[0].name:
                case "package.json":
                    self._make_node()
                case "go.mod":
                    self._make_go(self.sources[0].parent)
                case "Cargo.toml":
                    self._make_rust(self.sources[0])
                case "pom.xml":
                    self._make_java(self.sources[0])
                case _:
                    self._make_python(self.sources[0])
            done.touch()

    def _make_node(self) -> None:
        for path in self.sources:
            shutil.copy(path, self.folder)
        # Not `ci`: it requires a lock with the optional packages of every platform, which no single platform can write.
        _run(["npm", "install", "--no-audit", "--no-fund", "--silent"], self.folder)

    def _make_python(self, requirements: Path) -> None:
        create: list[str | Path] = ["venv", "--quiet", "--allow-existing", "--python", sys.executable, self.folder]
        install: list[str | Path] = ["pip", "install", "--quiet", "--python", self.python, "-r", requirements]
        if UV.exists() and not subprocess.call([UV, *create]) and not subprocess.call([UV, *install]):
            return
        _run([sys.executable, "-m", "venv", self.folder], ROOT)
        _run([self.python, "-m", "pip", "install", "--quiet", "-r", requirements], ROOT)

    def _make_go(self, module: Path) -> None:
        """Builds every `main` package of a module; a binary has the name of its folder."""
        # A slash at the end: `go build` takes it for a folder then.
        _run(["go", "build", "-o", f"{self.folder}/", "./..."], module, go_variables())

    def _make_rust(self, manifest: Path) -> None:
        """Builds every binary of a crate."""
        target = CACHE / "cargo" / self.name
        build: list[str | Path] = ["cargo", "build", "--quiet", "--locked"]
        build += ["--manifest-path", manifest, "--target-dir", target]
        _run(build, manifest.parent, rust_variables())
        for path in (target / "debug").iterdir():
            if path.is_file() and os.access(path, os.X_OK):
                shutil.copy(path, self.folder)

    def _make_java(self, manifest: Path) -> None:
        """Compiles the sources. A class in the manifest's folder becomes a script, with its name in lower case.

        A folder below with a manifest of its own is a server on Quarkus, and becomes a script with the folder's name.
        """
        servers = [path.parent for path in self.sources if path.name == "pom.xml" and path != manifest]
        for server in servers:
            self._make_quarkus(server)
        jars = self.folder / "classpath"
        _run([*maven(), "--file", manifest, CLASSPATH, f"-Dmdep.outputFile={jars}"], self.folder)
        classpath = f"{self.folder / 'classes'}:{jars.read_text('utf-8')}"
        sources = [path for path in self.sources if path.suffix == ".java" and path.parent not in servers]
        _run(["javac", "-nowarn", "-cp", classpath, "-d", self.folder / "classes", *sources], self.folder)
        for path in sources:
            if path.parent == manifest.parent:  # not what clients share
                self._write_script(path.stem.lower(), f'java -cp "{classpath}" {path.stem}')

    def _make_quarkus(self, source: Path) -> None:
        """Packages a server in a copy of its folder: Maven writes beside the manifest."""
        copied = self.folder / "packages" / source.name
        shutil.copytree(source, copied)
        _run([*maven(), "-Dmaven.test.skip=true", "package"], copied)
        self._write_script(source.name, f'java -jar "{copied}/target/quarkus-app/quarkus-run.jar"')

    def _write_script(self, name: str, command: str) -> None:
        script = self.folder / name
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
        script.chmod(0o755)


CLASSPATH: Final = "org.apache.maven.plugins:maven-dependency-plugin:2.8:build-classpath"
"""The goal that writes the paths of all jars; the version that Maven 3.8 has by itself."""


def maven() -> list[str]:
    """Maven, with what it downloads in `.foreign/maven`."""
    return ["mvn", "--batch-mode", "--quiet", f"-Dmaven.repo.local={CACHE / 'maven'}"]


def go_variables() -> dict[str, str]:
    """Environment variables that keep what Go downloads and compiles in `.foreign/go`."""
    folder, flags = CACHE / "go", "-modcacherw -buildvcs=false"  # without the first `make clean` cannot delete modules
    return {"GOMODCACHE": str(folder / "mod"), "GOCACHE": str(folder / "build"), "GOFLAGS": flags}


def rust_variables() -> dict[str, str]:
    """Environment variables that keep what Cargo downloads in `.foreign/cargo`, and name a protoc."""
    folder = CACHE / "cargo"
    folder.mkdir(parents=True, exist_ok=True)
    protoc = folder / "protoc"  # build scripts of crates take a path only
    content = f'#!/bin/sh\nexec {sys.executable} -m grpc_tools.protoc "$@"\n'
    if not protoc.exists() or protoc.read_text("utf-8") != content:
        new = folder / f"protoc-{os.getpid()}"  # another process may be running the old one
        new.write_text(content, "utf-8")
        new.chmod(0o755)
        new.rename(protoc)
    return {"CARGO_HOME": str(folder / "home"), "PROTOC": str(protoc)}


def _run(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str] | None = None) -> None:
    environment = {**os.environ, **(variables or {})}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        raise NotCreated(f"{command[0]} is not on this machine") from missing
    if done.returncode:
        raise NotCreated(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
