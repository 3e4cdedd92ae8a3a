"""The example receivers in Python and TypeScript, with notifications of a real server.

Between the two stands a listener who hears everything, may answer in the receiver's place, and plays things back. Node,
npm and its registry are needed the first time; what is made of them stays in `.foreign/`.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from tests.cli.server import Lines, clean_environment
from tests.security.key_values import InMemoryKeyValues

from dragoman.client.operations import Operator
from dragoman.playground import playground
from dragoman.security.secret_box import AesGcmSecretBox
from dragoman.security.signing import StoredSigningKeys, WebhookSigner
from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as ops
from tools.environments import ROOT, Environment, NotCreated

SOURCE: Final = ROOT / "examples" / "webhook-receiver"

pytestmark = [pytest.mark.longest, pytest.mark.timeout(240)]


def _built() -> list[str]:
    """The receiver in TypeScript, compiled."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("there is no Node on this machine")
    environment = Environment("webhook_receiver", (SOURCE / "package.json", SOURCE / "package-lock.json"))
    try:
        environment.make()
    except NotCreated as error:
        pytest.skip(f"the packages of the receiver are unavailable: {error}")
    shutil.copy(SOURCE / "tsconfig.json", environment.folder)
    shutil.copytree(SOURCE / "src", environment.folder / "src", dirs_exist_ok=True)
    built = subprocess.run(
        ["npm", "run", "--silent", "build"], cwd=environment.folder, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return ["node", str(environment.folder / "dist" / "receiver.js")]


@pytest.fixture(scope="module", params=["python", "node"])
def program(request: pytest.FixtureRequest) -> list[str]:
    """The command of the receiver."""
    return [sys.executable, str(SOURCE / "receiver.py")] if request.param == "python" else _built()


@dataclass
class Running:
    """A listening receiver."""

    url: str
    out: Lines

    def taken(self, count: int) -> list[tuple[str, int]]:
        """Returns the next accepted events as task and number."""
        lines = [json.loads(self.out.until('"task"')) for _ in range(count)]
        return [(line["task"], line["sequence"]) for line in lines]


@contextmanager
def receiving(program: list[str], issuer: str, audience: str, *arguments: str) -> Iterator[Running]:
    """Runs a receiver inside the block."""
    command = [*program, "--issuer", issuer, "--audience", audience, "--port", "0", *arguments]
    process = subprocess.Popen(
        command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        out, err = Lines(process.stdout), Lines(process.stderr)
        yield Running(err.until("listening at ").rpartition(" ")[2], out)
    finally:
        process.kill()
        process.wait()


@dataclass
class ReceivedNotification:
    """A notification and its response."""

    headers: dict[str, str]
    body: bytes
    answer: tuple[int, str] = (0, "")

    @property
    def kid(self) -> str:
        return str(jwt.get_unverified_header(self.headers["Dragoman-Signature"])["kid"])


@dataclass
class Listener:
    """Forwards requests to a receiver."""

    url: str = ""
    receiver: str = ""
    deaf: int = 0
    """Number of responses of the receiver that are dropped."""
    heard: list[ReceivedNotification] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: web.BaseRequest) -> web.Response:
        kept = ("Dragoman-Signature", "Dragoman-Event", "Content-Type")
        received = ReceivedNotification({name: request.headers[name] for name in kept}, await request.read())
        received.answer = await self.post(received.headers, received.body)
        status = received.answer[0]
        if self.deaf:
            self.deaf, status = self.deaf - 1, 502
        async with self.news:
            self.heard.append(received)
            self.news.notify_all()
        return web.Response(status=status)

    async def post(self, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        """Returns the response of the receiver."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.receiver, data=body, headers=headers) as answer,
        ):
            return answer.status, (await answer.text()).strip()

    async def until(self, count: int) -> list[ReceivedNotification]:
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: len(self.heard) >= count)
        return self.heard


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    listener = Listener()
    runner = web.ServerRunner(web.Server(listener.take))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        listener.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        yield listener
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[App]:
    anywhere = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{folder}/t.db"}
    async with open_app(Settings.model_validate({**anywhere, "push_first_wait": 0.001}), [playground]) as app:
        yield app


async def send(app: App, text: str, hook: str) -> str:
    """Sends a message with a webhook, and returns the task."""
    values = {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]},
        "configuration": {"taskPushNotificationConfig": {"url": hook}},
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{app.public_url}/message:send", json=values, headers={"A2A-Version": "1.0"}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["task"]["id"])


def first_key(folder: Path) -> StoredSigningKeys:
    """Returns the first signing key of the store."""
    with closing(sqlite3.connect(folder / "t.db")) as connection:
        (secret,) = connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()
    seed = hmac.digest(bytes.fromhex(secret), b"purpose webhooks", "sha256")
    return StoredSigningKeys(InMemoryKeyValues(), seed, AesGcmSecretBox(), clock=lambda: int(time.time() * 1000))


async def test_events_are_accepted_once_and_in_order(program: list[str], tmp_path: Path) -> None:
    async with listening() as listener, serving(tmp_path) as app:
        with receiving(program, app.public_url, listener.url) as receiver:
            listener.receiver = receiver.url
            listener.deaf = 1
            task = await send(app, "stream 3", listener.url)
            # The Task, WORKING, three chunks and COMPLETED; the first one twice, since its response was lost.
            heards = await listener.until(7)
            assert [one.answer for one in heards] == [(200, "accepted"), (200, "a repeat")] + [(200, "accepted")] * 5
            assert await asyncio.to_thread(receiver.taken, 6) == [(task, number) for number in range(1, 7)]


async def test_forged_repeated_and_misaddressed_notifications_are_rejected(program: list[str], tmp_path: Path) -> None:
    async with listening() as listener, serving(tmp_path) as app:
        with receiving(program, app.public_url, listener.url) as receiver:
            listener.receiver = receiver.url
            await send(app, "echo hello", listener.url)
            webhook = (await listener.until(1))[0]
            signature = webhook.headers["Dragoman-Signature"]

            async def answer(signature: str = signature, body: bytes = webhook.body) -> tuple[int, str]:
                return await listener.post({**webhook.headers, "Dragoman-Signature": signature}, body)

            async def signed(
                *,
                issuer: str = app.public_url,
                audience: str = listener.url,
                age: float = 0.0,
                body: bytes = webhook.body,
            ) -> str:
                then = time.time() - age
                signer = WebhookSigner(first_key(tmp_path), lambda: issuer, clock=lambda: then)
                return await signer.sign(audience, "t", "c", "e.t.1", body)

            # replayed
            status, why = await answer()
            assert (status, why) == (401, "this signature was already used")
            # tampered: the body, the claims, the signature
            assert (await answer(await signed(), webhook.body.replace(b"hello", b"HELLO") + b" "))[0] == 401
            head, response_text, proof = (await signed()).split(".")
            other = jwt.utils.base64url_decode(response_text).replace(b'"sequence":1', b'"sequence":9')
            assert (await answer(f"{head}.{urlsafe_b64encode(other).decode().rstrip('=')}.{proof}"))[0] == 401
            assert (await answer(f"{head}.{response_text}.{proof[:-4]}AAAA"))[0] == 401
            # stale, and from the future
            status, why = await answer(await signed(age=400))
            assert status == 401
            assert "expired" in why
            assert (await answer(await signed(age=-400)))[0] == 401
            assert (await answer(await signed(age=200)))[0] == 200
            # signed by another server, addressed to another receiver
            assert (await answer(await signed(issuer="https://other.example")))[0] == 401
            assert (await answer(await signed(audience="https://other.example/hook")))[0] == 401
            # signed with another key: with its own id, with the server's id, and unsigned
            stranger = ec.generate_private_key(ec.SECP256R1())
            claims = jwt.decode(await signed(), options={"verify_signature": False})
            for kid in ("mine", webhook.kid):
                assert (await answer(jwt.encode(claims, stranger, "ES256", {"kid": kid})))[0] == 401
            assert (await answer(jwt.encode(claims, "", "none", {"kid": webhook.kid})))[0] == 401
            assert (await answer(jwt.encode(claims, "k" * 32, "HS256", {"kid": webhook.kid})))[0] == 401
            assert await answer("") == (401, "it has no signature")
            for text in ("x", "a.b.c", "e30.e30.e30", "W10.W10.W10"):
                assert (await answer(text))[0] == 401
            # genuine notifications are still accepted
            assert (await answer(await signed()))[0] == 200


async def test_a_key_rotation_interrupts_no_deliveries(program: list[str], tmp_path: Path) -> None:
    async with listening() as listener, serving(tmp_path) as app, Operator(str(app.grpc)) as operator:
        with receiving(program, app.public_url, listener.url, "--keys-pause", "0") as receiver:
            listener.receiver = receiver.url
            kids: list[str] = []
            for number, algorithm in enumerate(("ES256", "EdDSA", "ES256")):
                if number:
                    rotation = ops.RotateSigningKeyRequest(algorithm=algorithm, lead=timedelta(0))
                    await operator.rotate_signing_key(rotation)
                before = len(listener.heard)
                await send(app, "echo hello", listener.url)
                heards = (await listener.until(before + 3))[before:]
                assert {one.answer for one in heards} == {(200, "accepted")}
                kids += {one.kid for one in heards}
            assert len(set(kids)) == 3


async def test_signatures_of_a_withdrawn_key_are_rejected(program: list[str], tmp_path: Path) -> None:
    async with listening() as listener, serving(tmp_path) as app, Operator(str(app.grpc)) as operator:
        with receiving(program, app.public_url, listener.url, "--keys-old", "0") as receiver:
            listener.receiver = receiver.url
            stolen = WebhookSigner(first_key(tmp_path), lambda: app.public_url)
            body = b"{}"

            async def posted() -> tuple[int, str]:
                signature = await stolen.sign(listener.url, "t", "c", "e.t.1", body)
                return await listener.post({"Dragoman-Signature": signature}, body)

            assert (await posted())[0] == 200
            await operator.rotate_signing_key(ops.RotateSigningKeyRequest(lead=timedelta(0), keep=timedelta(0)))
            assert await posted() == (401, "it is signed with a key that the server does not publish")
            await send(app, "echo hello", listener.url)
            heards = await listener.until(3)
            assert {one.answer for one in heards} == {(200, "accepted")}


async def test_an_unavailable_server_is_retried_later(program: list[str], tmp_path: Path) -> None:
    body = b"{}"
    async with listening() as listener:
        async with serving(tmp_path) as app:
            pass
        with receiving(program, app.public_url, listener.url) as receiver:
            listener.receiver = receiver.url
            signer = WebhookSigner(first_key(tmp_path), lambda: app.public_url)
            signature = await signer.sign(listener.url, "t", "c", "e.t.1", body)
            status, why = await listener.post({"Dragoman-Signature": signature}, body)
            assert status == 503
            assert "keys are unavailable" in why
