"""The receiver behind docs/how-to/push.md: stores deliveries in `letters`. A number as argument is its first status."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

HOST, PORT = sys.argv[1].split(":")
REFUSALS: Final = [int(status) for status in sys.argv[2:]]


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with open("letters", "a", encoding="utf-8") as webhooks:
            webhooks.write(f"{self.requestline}\n{self.headers}{body}\n\n")
        self.send_response(REFUSALS.pop(0) if REFUSALS else 204)
        self.send_header("Retry-After", "600")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Says nothing of requests."""


server = HTTPServer((HOST, int(PORT)), Receiver)
print("listening", flush=True)
server.serve_forever()
