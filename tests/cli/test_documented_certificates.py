"""docs/security.md on certificates of callers: its commands, as they stand there, and what they answer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.cli.server import PATIENCE, Lines, clean_environment

from tools.environments import ROOT

PAGE: Final = ROOT / "docs" / "security.md"
SECTION: Final = "## Certificates of callers"
BLOCK: Final = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@dataclass(frozen=True)
class Step:
    """A command, and what has to be in its output."""

    command: str
    expected: str


def steps() -> Iterator[Step]:
    """Those of the section, in order. A command goes on in lines that are indented, or after a backslash."""
    section = PAGE.read_text("utf-8").partition(SECTION)[2].partition("\n## ")[0]
    for block in BLOCK.findall(section):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            said = [lines[0]]
            while len(said) < len(lines) and lines[len(said)].startswith("  "):
                said.append(lines[len(said)])
            yield Step("\n".join(said), "\n".join(lines[len(said) :]))


def test_the_commands_do_what_the_page_says(tmp_path: Path) -> None:
    for program in ("openssl", "curl", "bash"):
        if not shutil.which(program):
            pytest.skip(f"there is no {program} on this machine")
    environment = clean_environment() | {
        "DRAGOMAN_HTTP": "127.0.0.1:0",
        "DRAGOMAN_GRPC": "127.0.0.1:0",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    server: subprocess.Popen[str] | None = None
    http = ""
    refused = set()
    try:
        for step in steps():
            command = step.command.replace("https://127.0.0.1:8080", http)
            if command.endswith("&"):
                server = subprocess.Popen(
                    ["bash", "-c", f"exec {command.removesuffix('&')}"],
                    cwd=tmp_path,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                assert server.stdout is not None
                assert server.stderr is not None
                log = Lines(server.stderr)
                printed = Lines(server.stdout)
                http = printed.until("  HTTP ").split()[-1]
                environment["DRAGOMAN_GRPC"] = printed.until("  gRPC ").split()[-1].removeprefix("grpcs://")
                printed.until("Ctrl-C")
                continue
            if server is not None:
                command = command.replace("%1", str(server.pid))
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
                timeout=PATIENCE,
            )  # fmt: skip
            assert step.expected in done.stdout + done.stderr, (command, done)
            if "-HUP" in command:
                log.until("certificates that are revoked now")
            if re.search(r"it hung up|curl: \(|revoked|required", step.expected):
                refused.add((command.split()[0], next(iter(re.findall(r"--cert (\S+)", command)), "")))
            elif not step.expected.startswith(("hello", "{")):
                assert done.returncode == 0, (command, done)
        assert server is not None
        assert server.wait(PATIENCE) == 0
    finally:
        if server is not None and server.poll() is None:
            server.kill()
            server.wait()
    certificates = ("", "other.pem", "late.pem", "bob.pem")
    assert refused == {(program, cert) for program in ("dragoman", "curl") for cert in certificates}
