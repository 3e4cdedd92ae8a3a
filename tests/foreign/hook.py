"""Webhook receiver for the checks: accepts every request, in its own thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CHECK_TIMEOUT = 60.0


class Hook(ThreadingHTTPServer):
    """`deliveries` are the received headers and parsed bodies, in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.deliveries: list[tuple[dict[str, str], Any]] = []
        self._news = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def take(self, headers: dict[str, str], body: Any) -> None:
        with self._news:
            self.deliveries.append((headers, body))
            self._news.notify_all()

    def wait(self, last: Callable[[Any], bool]) -> list[tuple[dict[str, str], Any]]:
        """Waits for a delivery whose body matches, and returns all deliveries."""
        with self._news:
            there = self._news.wait_for(lambda: any(last(body) for _, body in self.deliveries), CHECK_TIMEOUT)
            assert there, f"no such delivery came, but {self.deliveries}"
            return list(self.deliveries)

    async def until(self, last: Callable[[Any], bool]) -> list[tuple[dict[str, str], Any]]:
        """`wait` without blocking the event loop."""
        return await asyncio.to_thread(self.wait, last)


class _Take(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.take({name.lower(): value for name, value in self.headers.items()}, json.loads(body))

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


@contextmanager
def hook() -> Iterator[Hook]:
    """Runs a receiver inside the block."""
    server = Hook()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
