"""Receiver of Dragoman's push notifications: accepts each event once, and only from the expected server.

Needs PyJWT with cryptography (`pip install 'pyjwt[crypto]'`), and no Dragoman package.

    python receiver.py --issuer https://agents.example.com --audience https://client.example.com/hook

Copy `Receiver`. The rest is a small web server that prints events, one per line.
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

CLOCK_SKEW = 60
"""Permitted difference of the server's clock and ours, in seconds."""

MAX_TASKS = 100_000
"""Number of tasks whose last event is remembered."""

MAX_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a notification."""


class Rejected(Exception):
    """The notification is not genuine."""


class Keys:
    """The server's public keys.

    They are fetched again when they are old, since a key may have been withdrawn, and for an unknown key id, since a
    new key may be in use. The latter is rate-limited, since anyone can send key ids.
    """

    def __init__(self, url: str, *, old: float = 300.0, pause: float = 10.0) -> None:
        self._url = url
        self._old = old
        self._pause = pause
        self._fetched = float("-inf")
        self._keys: dict[str, jwt.PyJWK] = {}
        self._lock = threading.Lock()

    def find(self, id: str) -> jwt.PyJWK:
        """Returns the key with this id. Raises Rejected for an unknown id, OSError if the server is unavailable."""
        with self._lock:
            age = time.monotonic() - self._fetched
            if age > self._old or (id not in self._keys and age > self._pause):
                with urllib.request.urlopen(self._url, timeout=10) as response:
                    key_set = jwt.PyJWKSet.from_dict(json.load(response))
                self._keys = {key.key_id: key for key in key_set.keys if key.key_id}
                self._fetched = time.monotonic()
            if id not in self._keys:
                raise Rejected("it is signed with a key that the server does not publish")
            return self._keys[id]


class Receiver:
    """Verifies notifications, and detects repeats."""

    def __init__(self, issuer: str, audience: str, keys: Keys) -> None:
        """issuer: the server's public address. audience: our own URL, as registered with the server."""
        self._issuer = issuer
        self._audience = audience
        self._keys = keys
        self._used: OrderedDict[str, float] = OrderedDict()
        self._done: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        """Returns the claims of a genuine notification. Raises Rejected, and OSError if the keys are unavailable:
        respond with 503 then, and the server retries."""
        signature = headers.get("Dragoman-Signature", "")
        if not signature:
            raise Rejected("it has no signature")
        try:
            key = self._keys.find(str(jwt.get_unverified_header(signature).get("kid")))
            claims: dict[str, Any] = jwt.decode(
                signature,
                key,
                algorithms=["ES256", "EdDSA"],
                issuer=self._issuer,
                audience=self._audience,
                leeway=CLOCK_SKEW,
                options={"require": ["iss", "aud", "iat", "exp", "jti"]},
            )
        except jwt.PyJWTError as error:
            raise Rejected(f"its signature is invalid: {error}") from error
        if claims["request_body_sha256"] != hashlib.sha256(body).hexdigest():
            raise Rejected("its body is not the signed one")
        with self._lock:
            # Each attempt has a new signature, so a second use is a replay.
            if claims["jti"] in self._used:
                raise Rejected("this signature was already used")
            self._used[claims["jti"]] = claims["exp"]
            while self._used and next(iter(self._used.values())) < time.time() - 2 * CLOCK_SKEW:
                self._used.popitem(last=False)  # expired by now, and rejected for that
        return claims

    def is_new(self, claims: Mapping[str, Any]) -> bool:
        """Whether this event was not accepted yet. Events of a task arrive in order, so the last number is enough."""
        with self._lock:
            return claims["sequence"] > self._done.get(_task(claims), 0)

    def done(self, claims: Mapping[str, Any]) -> None:
        """Records an accepted event. In production: in the database, in the transaction that stores the event."""
        with self._lock:
            self._done[_task(claims)] = claims["sequence"]
            self._done.move_to_end(_task(claims))
            if len(self._done) > MAX_TASKS:
                self._done.popitem(last=False)


def _task(claims: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the series of event numbers. `event` is STORE.TASK.NUMBER: a restored store starts a new series."""
    return claims["configId"], claims["event"].rpartition(".")[0]


# Web server ---------------------------------------------------------------------------------------------------------


class Hook(BaseHTTPRequestHandler):
    """Receives notifications."""

    receiver: Receiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Responds with 200 to genuine notifications and repeats, 401 to others, 503 while the keys are unavailable."""
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= MAX_BYTES:
            self.close_connection = True
            self.respond(413, f"a notification has 1 to {MAX_BYTES} bytes")
            return
        body = self.rfile.read(length)
        try:
            claims = self.receiver.check(self.headers, body)
        except Rejected as error:
            self.respond(401, str(error))
            return
        except OSError as error:
            self.respond(503, f"the server's keys are unavailable: {error}")
            return
        if not self.receiver.is_new(claims):
            self.respond(200, "a repeat")
            return
        line = {"task": claims["taskId"], "sequence": claims["sequence"], "body": json.loads(body)}
        print(json.dumps(line), flush=True)  # process the event here; if that fails, respond with 500
        self.receiver.done(claims)
        self.respond(200, "accepted")

    def respond(self, status: int, text: str) -> None:
        """Responds with a status and a line of text."""
        data = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: stdout is for events."""


def main() -> None:
    """Serves until stopped."""
    parser = argparse.ArgumentParser(description="Receives push notifications and prints them.")
    parser.add_argument("--issuer", required=True, help="the server's public address")
    parser.add_argument("--audience", help="our own URL, as registered [http://127.0.0.1:PORT/hook]")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--keys-old", type=float, default=300.0, help="seconds until keys are fetched again [300]")
    parser.add_argument("--keys-pause", type=float, default=10.0, help="minimum seconds between two fetches [10]")
    arguments = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Hook)
    url = f"http://127.0.0.1:{server.server_port}/hook"
    keys = Keys(
        f"{arguments.issuer.rstrip('/')}/.well-known/jwks.json", old=arguments.keys_old, pause=arguments.keys_pause
    )
    Hook.receiver = Receiver(arguments.issuer, arguments.audience or url, keys)
    print(f"listening at {url}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
