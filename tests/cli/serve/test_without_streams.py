"""A server whose standard streams are closed or full, as under some supervisors: it serves, and ends as any other."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.cli.server import PROCESS_TIMEOUT, Lines, clean_environment
from tests.eventually import eventually_blocking
from tests.postgres import free_port

pytestmark = pytest.mark.long


def start(folder: Path, redirections: str, *words: str) -> subprocess.Popen[str]:
    server = [sys.executable, "-m", "dragoman", "serve", "--store", "memory:", "--grpc", "127.0.0.1:0", *words]
    return subprocess.Popen(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *server],
        cwd=folder,
        env=clean_environment(),
        stderr=subprocess.PIPE,
        text=True,
    )


def is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:  # it does not listen yet
        return False


@pytest.mark.parametrize("redirections", ["<&-", "<&- >&-"])
def test_a_server_serves_without_standard_streams(tmp_path: Path, redirections: str) -> None:
    process = start(tmp_path, redirections, "--http", "127.0.0.1:0", "--log-format", "json")
    assert process.stderr is not None
    errors = Lines(process.stderr)
    try:
        assert is_healthy(json.loads(errors.until('"serving"'))["http"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PROCESS_TIMEOUT) == 0
        assert "Traceback" not in errors.rest()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("redirections", [">&-", "> /dev/full"])
def test_a_banner_that_cannot_be_written_stops_nothing(tmp_path: Path, redirections: str) -> None:
    port = free_port()
    process = start(tmp_path, redirections, "--http", f"127.0.0.1:{port}", "--log-format", "text")
    assert process.stderr is not None
    errors = Lines(process.stderr)
    try:
        eventually_blocking(lambda: is_healthy(f"http://127.0.0.1:{port}"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PROCESS_TIMEOUT) == 0
        assert "Traceback" not in errors.rest()
    finally:
        process.kill()
        process.wait()
