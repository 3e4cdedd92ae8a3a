"""Webhooks of a server: signatures with its published key, links, and encrypted secrets."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web

from dragoman import Turn, agent
from dragoman.client.operations import Operator
from dragoman.playground import playground
from dragoman.settings.settings import Settings, SettingsError
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import push_pb2 as push

LARGE = 300_000
"""Size of a part that is stored as a blob."""


class Hook:
    """A receiver that returns configured responses and keeps the requests."""

    def __init__(self) -> None:
        self.status = 200
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.url = ""
        self._news = asyncio.Condition()

    async def take(self, request: web.BaseRequest) -> web.Response:
        async with self._news:
            self.got.append((dict(request.headers), await request.read()))
            self._news.notify_all()
        return web.Response(status=self.status)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(lambda: len(self.got) >= count)


@asynccontextmanager
async def hooked() -> AsyncIterator[Hook]:
    hook = Hook()
    runner = web.ServerRunner(web.Server(hook.take))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        hook.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook?for=me"
        yield hook
    finally:
        await runner.cleanup()


def settings(folder: Path, **values: Any) -> Settings:
    return Settings.model_validate(
        {
            "http": "127.0.0.1:0",
            "grpc": "127.0.0.1:0",
            "store": f"sqlite:///{folder}/tasks.db",
            "outbound_allow": "127.0.0.1",
            **values,
        }
    )


async def send(app: App, text: str, url: str) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    values = {"message": message, "configuration": {"taskPushNotificationConfig": {"url": url}}}
    headers = {"A2A-Version": "1.0"}
    async with (
        aiohttp.ClientSession() as web_client,
        web_client.post(f"{app.public_url}/message:send", json=values, headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.text()


async def keys(app: App) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as web_client,
        web_client.get(f"{app.public_url}/.well-known/jwks.json") as answer,
    ):
        return answer.status, await answer.json()


async def test_a_webhook_is_signed_with_the_key_that_its_server_publishes(tmp_path: Path) -> None:
    async with hooked() as hook:
        # Receivers have no credentials, so this page is always public.
        values = {"token": "secret-token-of-the-server", "public_agents": "*", "private_pages": True}
        async with open_app(settings(tmp_path, **values), [playground]) as app:
            await send(app, "echo hello", hook.url)
            await hook.until(3)
            status, shown = await keys(app)
            assert status == 200
            for headers, body in hook.got:
                text = headers["Dragoman-Signature"]
                key = jwt.PyJWKSet.from_dict(shown)[jwt.get_unverified_header(text)["kid"]]
                reported_values = jwt.decode(
                    text, key, algorithms=["ES256"], audience=hook.url, issuer=app.public_url, leeway=60
                )
                assert reported_values["request_body_sha256"] == sha256(body).hexdigest()
                assert reported_values["taskId"] in body.decode()
        async with open_app(settings(tmp_path), [playground]) as app:
            assert await keys(app) == (200, shown)


async def test_a_server_without_push_publishes_no_keys(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path, push=False), [playground]) as app:
        status, _ = await keys(app)
        assert status == 404


async def test_pending_webhooks_of_a_new_process_have_its_own_address(tmp_path: Path) -> None:
    @agent(default=True)
    async def large(turn: Turn) -> bytes:
        return b"x" * LARGE

    async with hooked() as hook:
        hook.status = 503
        async with open_app(settings(tmp_path, inline_bytes=1000, push_first_wait=0.001), [large]) as app:
            await send(app, "go", hook.url)
            await hook.until(1)
        hook.status, hook.got = 200, []
        async with open_app(settings(tmp_path, inline_bytes=1000), [large]) as app:
            await hook.until(3)
            (link,) = [
                part["url"]
                for _, body in hook.got
                if (update := json.loads(body).get("artifactUpdate"))
                for part in update["artifact"]["parts"]
            ]
            assert link.startswith(f"{app.public_url}/blobs/")
            async with aiohttp.ClientSession() as web_client, web_client.get(link) as answer:
                assert await answer.read() == b"x" * LARGE


# Secrets -----------------------------------------------------------------------------------------------------------


async def register(app: App, task: str, config: dict[str, Any]) -> None:
    url = f"{app.public_url}/tasks/{task}/pushNotificationConfigs"
    async with (
        aiohttp.ClientSession() as web_client,
        web_client.post(url, json=config, headers={"A2A-Version": "1.0"}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        assert "s3cret" not in await answer.text()


def secrets_of(hook: Hook) -> list[tuple[str, str]]:
    return [(headers["X-A2A-Notification-Token"], headers["Authorization"]) for headers, _ in hook.got]


async def test_secrets_are_encrypted_in_the_store_and_sent_in_plain_text(tmp_path: Path) -> None:
    old, new = "bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4=", "b29vb29vb29vb29vb29vb29vb29vb29vb29vb29vb28="
    file = tmp_path / "secrets.key"
    file.write_text(f"{old}\n")
    gate = asyncio.Event()

    @agent(default=True)
    async def gated(turn: Turn) -> str:
        await gate.wait()
        return "done"

    async with hooked() as hook:
        config = {
            "url": hook.url,
            "token": "t0ken-s3cret",
            "authentication": {"scheme": "Basic", "credentials": "c-s3cret"},
        }
        sent = [("t0ken-s3cret", "Basic c-s3cret")]
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
        inline = {"taskPushNotificationConfig": {**config, "id": "inline"}, "returnImmediately": True}
        async with open_app(settings(tmp_path, secrets_keys=file, push_first_wait=0.001), [gated]) as app:
            async with (
                aiohttp.ClientSession() as web_client,
                web_client.post(
                    f"{app.public_url}/message:send",
                    json={"message": message, "configuration": inline},
                    headers={"A2A-Version": "1.0"},
                ) as answer,
            ):
                task = (await answer.json())["task"]["id"]
            await register(app, task, {**config, "id": "later"})
            await hook.until(2)
            assert secrets_of(hook) == sent * 2
            kept = b"".join(path.read_bytes() for path in tmp_path.glob("tasks.db*") if path.is_file())
            assert b"inline" in kept
            assert b"s3cret" not in kept
            hook.status = 503  # so the next server has something to deliver
            gate.set()
        hook.status = 200
        hook.got.clear()
        file.write_text(f"{new}\n{old}\n")  # another key encrypts from now on
        async with open_app(settings(tmp_path, secrets_keys=file), [gated]):
            await hook.until(1)
            assert set(secrets_of(hook)) == set(sent)


async def test_a_webhook_whose_secrets_cannot_be_decrypted_is_a_failed_attempt(tmp_path: Path) -> None:
    file = tmp_path / "secrets.key"
    file.write_text("bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4=\n")
    async with hooked() as hook:
        hook.status = 503
        async with open_app(settings(tmp_path, secrets_keys=file, push_first_wait=0.001), [playground]) as app:
            values = {
                "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo hello"}]},
                "configuration": {"taskPushNotificationConfig": {"url": hook.url, "token": "t0ken"}},
            }
            headers = {"A2A-Version": "1.0"}
            async with (
                aiohttp.ClientSession() as web_client,
                web_client.post(f"{app.public_url}/message:send", json=values, headers=headers) as answer,
            ):
                task = (await answer.json())["task"]["id"]
            await hook.until(1)
        hook.status, hook.got = 200, []
        async with open_app(settings(tmp_path), [playground]) as app, Operator(str(app.grpc)) as operator:
            await operator.redeliver(push.RedeliverRequest(task_id=task))
            config = push.PushConfig()
            async with asyncio.timeout(60):
                while "not in --secrets-keys" not in config.reason:
                    (config,) = (await operator.list_push_configs(push.ListPushConfigsRequest(task_id=task))).configs
            assert hook.got == []
        async with open_app(settings(tmp_path, secrets_keys=file), [playground]) as app:
            async with Operator(str(app.grpc)) as operator:
                await operator.redeliver(push.RedeliverRequest(task_id=task))
            await hook.until(3)


async def test_invalid_secret_keys_are_rejected_at_startup(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--secrets-keys: .*absent: No such file"):
        async with open_app(settings(tmp_path, secrets_keys=tmp_path / "absent"), [playground]):
            pass


async def start(app: App, inline: dict[str, Any]) -> str:
    """Sends a task with a webhook; returns the task."""
    values = {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo hello"}]},
        "configuration": {"taskPushNotificationConfig": inline},
    }
    async with (
        aiohttp.ClientSession() as web_client,
        web_client.post(f"{app.public_url}/message:send", json=values, headers={"A2A-Version": "1.0"}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["task"]["id"])


async def test_secrets_stored_before_the_first_key_are_sent_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "secrets.key"
    file.write_text("bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4=\n")
    async with hooked() as hook:
        hook.status = 503
        async with open_app(settings(tmp_path), [playground]) as app:
            task = await start(app, {"url": hook.url, "token": "t0ken"})
            await hook.until(1)
        hook.status, hook.got = 200, []
        async with open_app(settings(tmp_path, secrets_keys=file), [playground]) as app:
            async with Operator(str(app.grpc)) as operator:
                await operator.redeliver(push.RedeliverRequest(task_id=task))
            await hook.until(3)
        assert {headers["X-A2A-Notification-Token"] for headers, _ in hook.got} == {"t0ken"}


async def test_a_secret_moved_within_the_store_is_not_sent(tmp_path: Path) -> None:
    file = tmp_path / "secrets.key"
    file.write_text("bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4=\n")
    async with hooked() as hook, hooked() as thief:
        hook.status = 503
        async with open_app(settings(tmp_path, secrets_keys=file), [playground]) as app:
            task = await start(app, {"url": hook.url, "token": "t0ken"})
            await hook.until(1)
        host = thief.url.removeprefix("http://").partition("/")[0]
        with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as store:
            assert store.execute("UPDATE pushes SET url = ?, host = ?", (thief.url, host)).rowcount == 1
        request = push.ListPushConfigsRequest(task_id=task)
        async with (
            open_app(settings(tmp_path, secrets_keys=file), [playground]) as app,
            Operator(str(app.grpc)) as operator,
        ):
            await operator.redeliver(push.RedeliverRequest(task_id=task))
            config = push.PushConfig()
            async with asyncio.timeout(60):
                while "encrypted for another context" not in config.reason:
                    (config,) = (await operator.list_push_configs(request)).configs
        assert thief.got == []
