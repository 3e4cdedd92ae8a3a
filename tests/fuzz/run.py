"""`make fuzz`: requests made up from the description against a real server, then our property tests with more examples.

FUZZ_SECONDS (60) is the time for both: two thirds of it for the server. Ends with how much was tried, and with exit
code 1 when something did not hold.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from tests.cli.server import clean_environment
from tests.fuzz.schemathesis_hooks import ENDED, OPEN, RESOURCE

ROOT: Final = Path(__file__).parents[2]
START_TIMEOUT: Final = 60.0
PROGRESS: Final = 10.0
"""Seconds between lines of progress."""

CHECKS: Final = (
    "no_server_error",
    "no_trace",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
OURS: Final = '"logger": "dragoman.bindings'
"""In a line of the server's log that is an error: a binding met what it did not expect."""


def say(text: str) -> None:
    print(f"fuzz: {text}", flush=True)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """The playground as a process, its address, and the file with its log."""
    path = folder / "server.log"
    words = [sys.executable, "-m", "dragoman", "serve", "--log-format", "json", "--blocking-wait", "2"]
    with path.open("wb") as log:
        process = subprocess.Popen(
            [*words, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"],
            cwd=folder,
            env=clean_environment(),
            stdout=log,
            stderr=log,
        )
    try:
        yield process, _address(process, path), path
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + START_TIMEOUT
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text().splitlines():
            if '"serving"' in line:
                return str(json.loads(line)["http"])
        time.sleep(0.05)
    raise SystemExit(f"fuzz: the server did not start; it said:\n{log.read_text()}")


def make_tasks(url: str) -> dict[str, list[str]]:
    """Tasks in every state that lasts, for callers without a scope and under a resource name."""
    names = "/".join(f"{name}s/{value}" for name, value in RESOURCE.items())
    values: dict[str, list[str]] = {}
    for scope, base in (("default", ""), ("resource", f"/{names}")):
        values[scope] = []
        for text in ENDED + OPEN:
            message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
            body = {"message": message, "configuration": {"returnImmediately": text.startswith("sleep")}}
            request = Request(url + base + "/message:send", json.dumps(body).encode())
            request.add_header("Content-Type", "application/json")
            request.add_header("A2A-Version", "1.0")
            with urlopen(request, timeout=START_TIMEOUT) as answer:
                values[scope].append(json.load(answer)["task"]["id"])
    return values


def run(words: list[str], folder: Path, log: Path, progress: Callable[[], str], **variables: str) -> int:
    """Runs a command in a folder with its output in a file, and says now and then how far it is."""
    began = response = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, cwd=folder, env={**os.environ, "NO_COLOR": "1", **variables}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            while process.poll() is None:
                time.sleep(0.2)
                if time.monotonic() - response >= PROGRESS:
                    response = time.monotonic()
                    say(f"{response - began:3.0f} s, {progress()}")
        finally:
            process.kill()
            process.wait()
    return process.returncode


def fuzz_server(folder: Path, seconds: int) -> tuple[str, bool]:
    """How many requests were made, and whether every answer was as it has to be."""
    with serving(folder) as (server, url, server_log):
        log = folder / "schemathesis.log"
        code = run(
            [
                *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json"),
                *("--checks", ",".join(CHECKS), "--max-time", str(seconds)),
                *("--request-timeout", "6", "--workers", "1"),  # streams of tasks that go on are left after that
                *("--continue-on-failure", "--generation-database", "none", "--warnings", "off", "--no-color"),
                *("--suppress-health-check", "all"),
            ],
            folder,  # where it leaves its notes
            log,
            lambda: f"{server_log.read_bytes().count(b'dragoman.access')} requests",
            SCHEMATHESIS_HOOKS="tests.fuzz.schemathesis_hooks",
            FUZZ_TASKS=json.dumps(make_tasks(url)),
            PYTHONPATH=str(ROOT),
        )
        died = server.poll() is not None
        text = server_log.read_text(errors="replace")
    broken = [line for line in text.splitlines() if '"level": "ERROR"' in line and OURS in line]
    report = log.read_text(errors="replace")
    if code or died or broken:
        print(report)
        print("\n".join(broken[:20]))
        if died:
            print("the server died; it said last:\n" + text[-4000:])
    requests = text.count('"dragoman.access"')
    cases = re.search(r"(\d+) generated", report)
    return f"{requests} requests ({cases[1] if cases else 0} cases)", not (code or died or broken)


def fuzz_properties(folder: Path, seconds: float) -> tuple[str, bool]:
    """How many examples the property tests were given, and whether all of them passed."""
    log = folder / "pytest.log"
    # To look through all of our tests for properties would take as long as some of these do.
    having = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "hypothesis" in path.read_text()]
    code = run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "hypothesis",
            "--hypothesis-show-statistics",
            "-pno:cacheprovider",
            *having,
        ],
        ROOT,
        log,
        lambda: "property tests",
        HYPOTHESIS_PROFILE="fuzz",
        FUZZ_FOR=str(seconds),
    )
    report = log.read_text(errors="replace")
    if code:
        print(report)
    examples = sum(int(number) for number in re.findall(r"(\d+) passing, ", report))
    tests = re.search(r"(\d+) passed", report)
    return f"{examples} examples of {tests[1] if tests else 0} properties", not code


def main() -> int:
    """Runs both parts, also when the first one fails."""
    seconds = max(3, int(os.environ.get("FUZZ_SECONDS", "60")))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        say(f"{seconds} s: the server for two thirds, then the property tests")
        requests, held = fuzz_server(Path(name), seconds * 2 // 3)
        left = seconds - (time.monotonic() - began)  # what tries the server takes its time to begin and to end
        examples, passed = fuzz_properties(Path(name), max(left, seconds / 3))
    say(f"{requests}, {examples} in {time.monotonic() - began:.1f}s: {'ok' if held and passed else 'FAILED'}")
    return 0 if held and passed else 1


if __name__ == "__main__":
    sys.exit(main())
