"""Builds and runs the image with a container engine, docker or podman, through the same interface as `rootfs`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.deploy.dockerfile import Config, parse_stages

ROOT: Final = Path(__file__).parents[2]
TAG: Final = "dragoman-test"


def find_engine() -> str:
    """The program of an engine that answers, or empty."""
    for program in ("docker", "podman"):
        if shutil.which(program) and not subprocess.run([program, "info"], capture_output=True, check=False).returncode:
            return program
    return ""


@dataclass(frozen=True, slots=True)
class EngineImage:
    """A built image, and its configuration as the Dockerfile has it."""

    engine: str
    config: Config

    @contextmanager
    def run(
        self, *words: str, data: Path, agents: Path, env: Mapping[str, str], log: Path
    ) -> Iterator[EngineContainer]:
        """Runs the image as `rootfs.RootImage.run` does. data: its name becomes that of the volume."""
        volume = f"{TAG}-{data.name}"
        options = [f"--env={name}={value}" for name, value in env.items()]
        options += [f"--volume={volume}:/data", f"--volume={agents}:/agents:ro", "--read-only", "--tmpfs=/tmp"]
        options += ["--cap-drop=ALL", "--security-opt=no-new-privileges"]
        id = _output(self.engine, "run", "--detach", *options, TAG, *words).strip()
        try:
            yield EngineContainer(self.engine, id)
        finally:
            log.write_text(EngineContainer(self.engine, id).logs)
            _output(self.engine, "rm", "--force", id)


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """A running container."""

    engine: str
    id: str

    @property
    def logs(self) -> str:
        """What it has written so far."""
        done = subprocess.run([self.engine, "logs", self.id], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def exec(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the container, as its user."""
        command = [self.engine, "exec", self.id, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def terminate(self) -> None:
        """Sends SIGTERM to its first process."""
        _output(self.engine, "kill", "--signal=TERM", self.id)

    def wait(self) -> int:
        """Waits for its end. Returns the exit code."""
        return int(_output(self.engine, "wait", self.id))

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return _output(self.engine, "inspect", "--format={{.State.Running}}", self.id).strip() == "true"


def build(engine: str, dockerfile: Path) -> EngineImage:
    """Builds the image of this project."""
    options = ["--format=docker"] if engine == "podman" else []  # OCI's own format has no HEALTHCHECK
    _output(engine, "build", *options, f"--file={dockerfile}", f"--tag={TAG}", str(ROOT))
    config = Config()
    for instruction in parse_stages(dockerfile.read_text("utf-8"))[-1].instructions:
        config.apply(instruction)
    return EngineImage(engine, config)


def remove(engine: str) -> None:
    """Removes the image and the volumes of the tests."""
    volumes = _output(engine, "volume", "ls", "--quiet", f"--filter=name={TAG}").split()
    if volumes:
        _output(engine, "volume", "rm", *volumes)
    _output(engine, "image", "rm", TAG)


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
