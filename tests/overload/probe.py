"""Requests health until its input ends: `python -m tests.overload.probe HOST:PORT [PRINCIPAL]`.

With a principal, it also sends messages to the agent `quick` and waits for each answer. Runs in its own process,
because a busy client would measure itself. Prints `probing` after the first responses, and at the end the milliseconds
of every response as one line of JSON.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from typing import Final

from tests.callers import named

ROUNDS_PER_SEND: Final = 10
"""Rounds of health requests for each message, so that the rate limit of a caller is not reached."""
MESSAGE: Final = json.dumps({"message": {"messageId": "probe", "role": "ROLE_USER", "parts": [{"text": "probe"}]}})


def main(address: str, principal: str = "") -> None:
    connection = http.client.HTTPConnection(address)
    stop = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    times: list[float] = []

    def request(method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None) -> bytes:
        started = time.perf_counter()
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        content = response.read()
        times.append((time.perf_counter() - started) * 1000)
        if response.status != 200:
            raise SystemExit(f"{path} returned {response.status}: {content[:500].decode()}")
        return content

    headers = {"Content-Type": "application/json", "A2A-Version": "1.0", **named(principal)}
    rounds = 0
    while not stop.is_set():
        for path in ("/healthz", "/readyz"):
            request("GET", path)
        if principal and rounds % ROUNDS_PER_SEND == 0:
            task = json.loads(request("POST", "/quick/message:send", MESSAGE, headers))["task"]
            if task["status"]["state"] != "TASK_STATE_COMPLETED":
                raise SystemExit(f"the task of a send is in {task['status']['state']}")
        if not rounds:
            print("probing", flush=True)
        rounds += 1
    print(json.dumps(times))


if __name__ == "__main__":
    main(*sys.argv[1:])
