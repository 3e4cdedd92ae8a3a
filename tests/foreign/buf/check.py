"""`buf curl`: calls from the shell, with reflection instead of protos."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import Checks, arguments, finish

check = Checks()
BUF = Path(sys.executable).with_name("buf")


class Curl:
    def __init__(self, grpc: str) -> None:
        self._url = f"http://{grpc}"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", *words],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def methods(self) -> list[str]:
        return self.run("--list-methods", self._url).stdout.split()

    def call(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the responses; several for a streaming method."""
        done = self.run("-d", json.dumps(body), f"{self._url}/{path}")
        assert done.returncode == 0, done.stderr
        decoder, found, rest = json.JSONDecoder(), [], done.stdout.strip()
        while rest:
            answer, end = decoder.raw_decode(rest)
            found.append(answer)
            rest = rest[end:].lstrip()
        return found


@check
def it_lists_the_methods_of_both_packages_and_health(curl: Curl) -> None:
    expected = ("lf.a2a.v1.A2AService/SendMessage", "a2a.v1.A2AService/TaskSubscription", "grpc.health.v1.Health/Check")
    assert set(expected) <= set(curl.methods())


@check
def it_sends_and_gets(curl: Curl) -> None:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo hello"}]}}
    (answer,) = curl.call("lf.a2a.v1.A2AService/SendMessage", body)
    assert curl.call("lf.a2a.v1.A2AService/GetTask", {"id": answer["task"]["id"]}) == [answer["task"]]


@check
def it_streams_in_0_3(curl: Curl) -> None:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "stream 3"}]}}
    events = curl.call("a2a.v1.A2AService/SendStreamingMessage", body)
    assert "task" in events[0]
    assert events[-1]["statusUpdate"]["final"] is True


@check
def it_shows_what_was_wrong(curl: Curl) -> None:
    done = curl.run("-d", '{"id": "no-such-task"}', f"{curl._url}/lf.a2a.v1.A2AService/GetTask")
    assert done.returncode == 5 * 8, "buf ends with eight times the gRPC code"
    assert "Task not found" in done.stdout + done.stderr, done.stdout + done.stderr


finish(asyncio.run(check.run("buf curl", Curl(arguments().grpc))))
