"""The verifier of push notifications, against a real server and against forgeries."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec

from dragoman.client import ProtocolError, ServerUnavailable, connect
from dragoman.client.webhooks import Notification, Receiver, VerificationFailed
from dragoman.playground import playground
from dragoman.settings.settings import Settings
from dragoman.wiring.app import open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ISSUER, OURS = "https://agents.example", "https://client.example/hook"
BODY = b'{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}'


@pytest.mark.parametrize("dialect", ["1.0", "0.3"])
async def test_each_event_of_a_task_is_delivered(tmp_path: Path, dialect: str) -> None:
    notifications: list[Notification] = []
    done = asyncio.Event()
    receivers: list[Receiver] = []

    async def hook(request: web.BaseRequest) -> web.Response:
        try:
            notification = await receivers[0].verify(request.headers, await request.read())
        except VerificationFailed as error:
            return web.Response(status=401, text=error.message)
        notifications.append(notification)
        receivers[0].acknowledge(notification)
        state = notification.response.status_update.status.state or notification.response.task.status.state
        if state == pb.TASK_STATE_COMPLETED:
            done.set()
        return web.Response()

    runner = web.ServerRunner(web.Server(hook))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    settings = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{tmp_path}/t.db"}
    try:
        async with open_app(Settings.model_validate(settings), [playground]) as app:
            receivers.append(Receiver(app.public_url, url, token="t0ken"))
            config = pb.TaskPushNotificationConfig(url=url, token="t0ken")
            async with connect(app.public_url, dialect=dialect, binding="jsonrpc") as client:
                begun = await client.start("stream 2 1", webhook=config)
                async with asyncio.timeout(60):
                    await done.wait()
    finally:
        await runner.cleanup()
    assert {one.task_id for one in notifications} == {begun.task_id}
    assert all(one.is_new for one in notifications)
    assert [one.sequence for one in notifications] == sorted({one.sequence for one in notifications})
    assert notifications[-1].cursor.endswith(f".{notifications[-1].sequence}")


class Server:
    """A server that signs notifications."""

    def __init__(self) -> None:
        self.keys = {"k-1": ec.generate_private_key(ec.SECP256R1())}
        self.fetched = 0
        self.is_away = False
        self.now = 0.0

    def shown(self) -> Mapping[str, Any]:
        self.fetched += 1
        if self.is_away:
            raise ConnectionRefusedError("away")
        keys = []
        for id, key in self.keys.items():
            public: dict[str, Any] = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
            keys.append({**public, "kid": id, "alg": "ES256"})
        return {"keys": keys}

    def request(self, body: bytes = BODY, *, kid: str = "k-1", number: int = 1, **changes: Any) -> dict[str, str]:
        now = int(time.time())
        claims = {
            "iss": ISSUER, "aud": OURS, "iat": now, "exp": now + 300, "jti": f"j-{number}-{now}-{len(changes)}",
            "taskId": "t", "configId": "c", "event": f"e.t.{number}", "sequence": number,
            "request_body_sha256": hashlib.sha256(body).hexdigest(), **changes,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        return {"Dragoman-Signature": jwt.encode(claims, self.keys[kid], "ES256", {"kid": kid})}

    def receiver(self, **options: Any) -> Receiver:
        return Receiver(ISSUER, OURS, fetch=self.shown, clock=lambda: self.now, **options)


def test_an_event_is_new_once_and_so_are_those_before_it() -> None:
    server = Server()
    receiver = server.receiver()
    first = receiver.verify_blocking(server.request(number=2), BODY)
    assert (first.is_new, first.sequence, first.cursor) == (True, 2, "e.t.2")
    assert receiver.verify_blocking(server.request(number=2, jti="again"), BODY).is_new  # not acknowledged yet
    receiver.acknowledge(first)
    for number, is_new in ((1, False), (2, False), (3, True)):
        assert receiver.verify_blocking(server.request(number=number, jti=f"x{number}"), BODY).is_new is is_new
    # A restored store counts from 1 again.
    assert receiver.verify_blocking(server.request(event="other.t.1", sequence=1), BODY).is_new
    assert server.fetched == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": "https://evil.example"}, "Invalid issuer"),
        ({"aud": "https://elsewhere.example"}, "Audience"),
        ({"exp": int(time.time()) - 120}, "expired"),
        ({"exp": None}, "exp"),
        ({"jti": None}, "jti"),
        ({"request_body_sha256": "0" * 64}, "not the signed one"),
        ({"request_body_sha256": 5}, "not the signed one"),
    ],
)
def test_a_notification_with_wrong_claims_is_rejected(changes: dict[str, Any], why: str) -> None:
    server = Server()
    with pytest.raises(VerificationFailed, match=why):
        server.receiver().verify_blocking(server.request(**changes), BODY)


def test_a_replayed_changed_or_unsigned_notification_is_rejected() -> None:
    server = Server()
    receiver, request = server.receiver(), server.request()
    receiver.verify_blocking(request, BODY)
    with pytest.raises(VerificationFailed, match="already used"):
        receiver.verify_blocking(request, BODY)
    with pytest.raises(VerificationFailed, match="not the signed one"):
        receiver.verify_blocking(server.request(number=5), BODY + b" ")
    for headers in (
        {},
        {"Dragoman-Signature": "x.y.z"},
        {"Authorization": "Basic abc"},
        {"Authorization": "Bearer \udcff"},
    ):
        with pytest.raises(VerificationFailed, match="signature"):
            receiver.verify_blocking(headers, BODY)
    mine = Server()
    with pytest.raises(VerificationFailed, match="signature"):
        receiver.verify_blocking(mine.request(), BODY)
    unsigned = jwt.encode({"iss": ISSUER, "aud": OURS}, "", "none", {"kid": "k-1"})
    with pytest.raises(VerificationFailed, match="signature"):
        receiver.verify_blocking({"dragoman-signature": unsigned}, BODY)


def test_keys_may_change_and_unknown_ids_do_not_cause_fetches() -> None:
    server = Server()
    receiver = server.receiver()
    receiver.verify_blocking(server.request(), BODY)
    server.keys["k-2"] = ec.generate_private_key(ec.SECP256R1())
    for _ in range(3):
        with pytest.raises(VerificationFailed, match="does not publish"):
            receiver.verify_blocking(server.request(kid="k-2", number=2), BODY)
    assert server.fetched == 1
    server.now += 11
    receiver.verify_blocking(server.request(kid="k-2", number=2), BODY)
    assert server.fetched == 2
    old = server.request(kid="k-1", number=3)
    del server.keys["k-1"]
    server.now += 301
    with pytest.raises(VerificationFailed, match="does not publish"):
        receiver.verify_blocking(old, BODY)
    server.is_away, server.now = True, server.now + 301
    with pytest.raises(ServerUnavailable, match="keys are unavailable"):
        receiver.verify_blocking(server.request(kid="k-2", number=4), BODY)


def test_a_registered_token_is_required() -> None:
    server = Server()
    receiver = server.receiver(token="t0ken")
    for given in ({}, {"X-A2A-Notification-Token": "other"}, {"X-A2A-Notification-Token": "\udcff"}):
        with pytest.raises(VerificationFailed, match="token"):
            receiver.verify_blocking(server.request() | given, BODY)
    for name in ("X-A2A-Notification-Token", "a2a-notification-token"):
        assert receiver.verify_blocking(server.request(jti=name) | {name: "t0ken"}, BODY).is_new


def test_a_signature_may_be_a_bearer_token() -> None:
    server = Server()
    bearer = f"Bearer {server.request()['Dragoman-Signature']}"
    assert server.receiver().verify_blocking({"Authorization": bearer}, BODY).is_new


def test_a_body_in_no_dialect_raises_an_error_when_read() -> None:
    server = Server()
    assert server.receiver().verify_blocking(server.request(), BODY).response.status_update.task_id == "t"
    for body in (b"x", b"[]", b'{"statusUpdate": 5}', b'{"kind": "task", "id": 5}'):
        notifications = server.receiver().verify_blocking(server.request(body), body)
        with pytest.raises(ProtocolError, match="not in any dialect"):
            _ = notifications.response


def test_an_issuer_must_be_an_http_url() -> None:
    with pytest.raises(ValueError, match="issuer"):
        Receiver("file:///etc", OURS)
