"""`make fuzz`: requests generated from the OpenAPI document, then the property tests with more examples.

FUZZ_SECONDS (60) is the time for both; the server gets two thirds of it. FUZZ_SEED (random) chooses what both generate;
a run in CI has a fixed one, so that a change is judged by what it changes. FUZZ_DOCUMENT=1 also checks the document
itself. Prints the counts, and exits with 1 after a failure.
"""

from __future__ import annotations

import json
import os
import random
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
DOCUMENT_CHECKS: Final = ("valid_requests_are_accepted", "invalid_requests_are_rejected")
"""Compare what the document and the server take for valid. With FUZZ_DOCUMENT=1, as in CI with its fixed seed: their
exceptions are texts of errors (`schemathesis_hooks`), so a seed that nobody has tried may find one more."""
OURS: Final = '"logger": "dragoman.bindings'
"""Marks an unexpected error of a binding, in an error line of the server's log."""


def say(text: str) -> None:
    print(f"fuzz: {text}", flush=True)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """Starts the playground in a process. Yields the process, its URL and its log file."""
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
    raise SystemExit(f"fuzz: the server did not start; its log:\n{log.read_text()}")


def make_tasks(url: str) -> dict[str, list[str]]:
    """Creates tasks in every lasting state, in the default scope and under a resource name. Returns their ids."""
    names = "/".join(f"{name}s/{value}" for name, value in RESOURCE.items())
    ids: dict[str, list[str]] = {}
    for scope, base in (("default", ""), ("resource", f"/{names}")):
        ids[scope] = []
        for text in ENDED + OPEN:
            message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
            body = {"message": message, "configuration": {"returnImmediately": text.startswith("sleep")}}
            request = Request(url + base + "/message:send", json.dumps(body).encode())
            request.add_header("Content-Type", "application/json")
            request.add_header("A2A-Version", "1.0")
            with urlopen(request, timeout=START_TIMEOUT) as response:
                ids[scope].append(json.load(response)["task"]["id"])
    return ids


def run(words: list[str], folder: Path, log: Path, progress: Callable[[], str], **variables: str) -> int:
    """Runs a command with its output in a file, printing its progress periodically. Returns the exit code."""
    began = last_report = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, cwd=folder, env={**os.environ, "NO_COLOR": "1", **variables}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            while process.poll() is None:
                time.sleep(0.2)
                if time.monotonic() - last_report >= PROGRESS:
                    last_report = time.monotonic()
                    say(f"{last_report - began:3.0f} s, {progress()}")
        finally:
            process.kill()
            process.wait()
    return process.returncode


def fuzz_server(folder: Path, seconds: int, seed: int) -> tuple[str, bool]:
    """Fuzzes the server. Returns the number of requests as text, and whether all checks passed."""
    checks = CHECKS + (DOCUMENT_CHECKS if os.environ.get("FUZZ_DOCUMENT") else ())
    with serving(folder) as (server, url, server_log):
        log = folder / "schemathesis.log"
        code = run(
            [
                *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json"),
                *("--checks", ",".join(checks), "--max-time", str(seconds), "--seed", str(seed)),
                *("--request-timeout", "6", "--workers", "1"),  # ends the streams of open tasks
                *("--continue-on-failure", "--generation-database", "none", "--warnings", "off", "--no-color"),
                *("--suppress-health-check", "all"),
            ],
            folder,  # for the files that schemathesis writes
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
        if found := re.search(r"^=+ (?:ERRORS|FAILURES) =+$(.*?)^=+ SUMMARY =+$", report, re.MULTILINE | re.DOTALL):
            print(*(f"E   {line}" for line in found[1].splitlines() if line.strip()), sep="\n")  # .ci/run repeats these
        print("\n".join(broken[:20]))
        if died:
            print("the server died; the end of its log:\n" + text[-4000:])
    requests = text.count('"dragoman.access"')
    cases = re.search(r"(\d+) generated", report)
    return f"{requests} requests ({cases[1] if cases else 0} cases)", not (code or died or broken)


def fuzz_properties(folder: Path, seconds: float, seed: int) -> tuple[str, bool]:
    """Runs the property tests. Returns the number of examples as text, and whether all passed."""
    log = folder / "pytest.log"
    # Collecting all tests would take as long as some of these run.
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "hypothesis" in path.read_text()]
    code = run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "hypothesis",
            "--hypothesis-show-statistics",
            f"--hypothesis-seed={seed}",
            "-pno:cacheprovider",
            *files,
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
    """Runs both parts, the second also after a failure of the first."""
    seconds = max(3, int(os.environ.get("FUZZ_SECONDS", "60")))
    seed = int(os.environ.get("FUZZ_SEED") or random.getrandbits(32))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        say(f"{seconds} s, FUZZ_SEED={seed}: the server for two thirds, then the property tests")
        requests, server_passed = fuzz_server(Path(name), seconds * 2 // 3, seed)
        left = seconds - (time.monotonic() - began)  # starting and stopping the server takes time
        examples, passed = fuzz_properties(Path(name), max(left, seconds / 3), seed)
    say(f"{requests}, {examples} in {time.monotonic() - began:.1f}s: {'ok' if server_passed and passed else 'FAILED'}")
    return 0 if server_passed and passed else 1


if __name__ == "__main__":
    sys.exit(main())
