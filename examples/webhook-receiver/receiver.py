"""A receiver of Dragoman's push notifications: it takes each event once, from the server that it expects, and from
nobody else. Needs PyJWT with cryptography (`pip install 'pyjwt[crypto]'`), and nothing of Dragoman.

    python receiver.py --issuer https://agents.example.com --audience https://client.example.com/hook

`Receiver` is the part to paste. What is below it is a small web server that prints events, one a line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import threading
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt

SKEW = 60
"""Seconds by which the server's clock and ours may differ."""

REMEMBERED = 100_000
"""Tasks that are remembered."""

LARGEST = 32 * 1024 * 1024
"""Bytes of a notification."""


class Rejected(Exception):
    """A notification that is not to be believed."""


class Keys:
    """The server's public keys. They are fetched again when they are old, since a key may have been withdrawn, and when
    a signature names one that is not among them, since a new one may have begun to sign; but not at every stranger's
    word."""

    def __init__(self, url: str, *, old: float = 300.0, pause: float = 10.0) -> None:
        self._url = url
        self._old = old
        self._pause = pause
        self._fetched = float("-inf")
        self._keys: dict[str, jwt.PyJWK] = {}
        self._lock = threading.Lock()

    def find(self, id: str) -> jwt.PyJWK:
        """The key of this name. Raises Refused for one that is not the server's, OSError when the server is away."""
        with self._lock:
            age = time.monotonic() - self._fetched
            if age > self._old or (id not in self._keys and age > self._pause):
                with urllib.request.urlopen(self._url, timeout=10) as answer:
                    found = jwt.PyJWKSet.from_dict(json.load(answer))
                self._keys = {key.key_id: key for key in found.keys if key.key_id}
                self._fetched = time.monotonic()
            if id not in self._keys:
                raise Rejected("it is signed with a key that the server does not show")
            return self._keys[id]


class Receiver:
    """Knows what is genuine, and what is new."""

    def __init__(self, issuer: str, audience: str, keys: Keys) -> None:
        """issuer: the server's public address. audience: our own, as it was registered."""
        self._issuer = issuer
        self._audience = audience
        self._keys = keys
        self._used: OrderedDict[str, float] = OrderedDict()
        self._done: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        """What a genuine notification's signature says. Raises Refused, and OSError when that cannot be found out now:
        answer 503 then, and it comes again."""
        signature = headers.get("Dragoman-Signature", "")
        try:
            key = self._keys.find(str(jwt.get_unverified_header(signature).get("kid")))
            response: dict[str, Any] = jwt.decode(
                signature,
                key,
                algorithms=["ES256", "EdDSA"],
                issuer=self._issuer,
                audience=self._audience,
                leeway=SKEW,
                options={"require": ["iss", "aud", "iat", "exp", "jti"]},
            )
        except jwt.PyJWTError as error:
            raise Rejected(f"its signature is not good: {error}") from error
        if response["request_body_sha256"] != hashlib.sha256(body).hexdigest():
            raise Rejected("its body is not the one that was signed")
        with self._lock:
            # Every try is signed anew, so the same signature twice is somebody who has listened.
            if response["jti"] in self._used:
                raise Rejected("this very signature was here already")
            self._used[response["jti"]] = response["exp"]
            while self._used and next(iter(self._used.values())) < time.time() - 2 * SKEW:
                self._used.popitem(last=False)  # refused for its age from now on
        return response

    def is_new(self, response_value: Mapping[str, Any]) -> bool:
        """Whether this event was not taken yet. Events of a task come in order, so the last number is enough."""
        with self._lock:
            return response_value["sequence"] > self._done.get(_task(response_value), 0)

    def done(self, response_value: Mapping[str, Any]) -> None:
        """Notes that an event was taken. In earnest: in the database, in the transaction that keeps what it said."""
        with self._lock:
            self._done[_task(response_value)] = response_value["sequence"]
            self._done.move_to_end(_task(response_value))
            if len(self._done) > REMEMBERED:
                self._done.popitem(last=False)


def _task(response_value: Mapping[str, Any]) -> tuple[str, str]:
    """Which numbers belong together. `event` is STORE.TASK.NUMBER: a store that was restored counts anew."""
    return response_value["configId"], response_value["event"].rpartition(".")[0]


# A web server around it ---------------------------------------------------------------------------------------------


class Hook(BaseHTTPRequestHandler):
    """Takes notifications."""

    receiver: Receiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """200 for what is genuine, also for a repeat; 401 for what is not; 503 when that cannot be told now."""
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= LARGEST:
            self.close_connection = True
            self.answer(413, f"a notification has 1 to {LARGEST} bytes")
            return
        body = self.rfile.read(length)
        try:
            response = self.receiver.check(self.headers, body)
        except Rejected as error:
            self.answer(401, str(error))
            return
        except OSError as error:
            self.answer(503, f"the server's keys cannot be had: {error}")
            return
        if not self.receiver.is_new(response):
            self.answer(200, "a repeat")
            return
        line = {"task": response["taskId"], "sequence": response["sequence"], "body": json.loads(body)}
        print(json.dumps(line), flush=True)  # here goes what is to be done with it; if that fails, answer 500
        self.receiver.done(response)
        self.answer(200, "taken")

    def answer(self, status: int, text: str) -> None:
        """A status and a line of text."""
        data = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: stdout is for events."""


def main() -> None:
    """Serves until it is stopped."""
    options = argparse.ArgumentParser(description="Takes push notifications, and prints them.")
    options.add_argument("--issuer", required=True, help="the server's public address")
    options.add_argument("--audience", help="our own address, as it was registered [http://127.0.0.1:PORT/hook]")
    options.add_argument("--port", type=int, default=9000)
    options.add_argument("--keys-old", type=float, default=300.0, help="seconds for which keys are remembered [300]")
    options.add_argument("--keys-pause", type=float, default=10.0, help="seconds between two looks at them [10]")
    response = options.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", response.port), Hook)
    at = f"http://127.0.0.1:{server.server_port}/hook"
    keys = Keys(
        f"{response.issuer.rstrip('/')}/.well-known/jwks.json", old=response.keys_old, pause=response.keys_pause
    )
    Hook.receiver = Receiver(response.issuer, response.audience or at, keys)
    print(f"listening at {at}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
