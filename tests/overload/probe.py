"""Asks for health until its input ends: `python -m tests.overload.probe HOST:PORT`.

In a process of its own, because a client that is busy measures itself. Prints what each answer took, in milliseconds,
as one line of JSON; a line of its own before that once the first was there.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time


def main(address: str) -> None:
    connection = http.client.HTTPConnection(address)
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    took: list[float] = []
    while not over.is_set():
        for path in ("/healthz", "/readyz"):
            begin = time.perf_counter()
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            took.append((time.perf_counter() - begin) * 1000)
            if answer.status != 200:
                raise SystemExit(f"{path} answered {answer.status}")
        if len(took) == 2:
            print("probing", flush=True)
    print(json.dumps(took))


if __name__ == "__main__":
    main(sys.argv[1])
