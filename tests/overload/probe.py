"""Requests health until its input ends: `python -m tests.overload.probe HOST:PORT`.

Runs in its own process, because a busy client would measure itself. Prints `probing` after the first responses, and at
the end the milliseconds of every response as one line of JSON.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time


def main(address: str) -> None:
    connection = http.client.HTTPConnection(address)
    stop = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    times: list[float] = []
    while not stop.is_set():
        for path in ("/healthz", "/readyz"):
            started = time.perf_counter()
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            times.append((time.perf_counter() - started) * 1000)
            if response.status != 200:
                raise SystemExit(f"{path} returned {response.status}")
        if len(times) == 2:
            print("probing", flush=True)
    print(json.dumps(times))


if __name__ == "__main__":
    main(sys.argv[1])
