"""Letters as they arrive from a whole server: signed by a key that it shows, with links that lead to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import jwt
from aiohttp import web

from dragoman import Turn, agent
from dragoman.app import App, open_app
from dragoman.playground import playground
from dragoman.settings import Settings

LARGE = 300_000
"""Bytes of a part that lies beside the database."""


class Hook:
    """A receiver that answers as it is told, and keeps letters as they came."""

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
        async with asyncio.timeout(20), self._news:
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


def settings(folder: Path, **said: Any) -> Settings:
    return Settings.model_validate(
        {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{folder}/tasks.db", **said}
    )


async def send(app: App, text: str, url: str) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    asked = {"message": message, "configuration": {"taskPushNotificationConfig": {"url": url}}}
    headers = {"A2A-Version": "1.0"}
    async with (
        aiohttp.ClientSession() as web_client,
        web_client.post(f"{app.public_url}/message:send", json=asked, headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.text()


async def keys(app: App) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as web_client,
        web_client.get(f"{app.public_url}/.well-known/jwks.json") as answer,
    ):
        return answer.status, await answer.json()


async def test_a_letter_is_signed_by_the_key_that_its_server_shows(tmp_path: Path) -> None:
    async with hooked() as hook:
        # Receivers have no credentials, so this page is open where others are not.
        said = {"token": "secret-token-of-the-server", "public_agents": "*", "private_pages": True}
        async with open_app(settings(tmp_path, **said), [playground]) as app:
            await send(app, "echo hello", hook.url)
            await hook.until(3)
            status, shown = await keys(app)
            assert status == 200
            for headers, body in hook.got:
                text = headers["Dragoman-Signature"]
                key = jwt.PyJWKSet.from_dict(shown)[jwt.get_unverified_header(text)["kid"]]
                told = jwt.decode(text, key, algorithms=["ES256"], audience=hook.url, issuer=app.public_url, leeway=60)
                assert told["request_body_sha256"] == sha256(body).hexdigest()
                assert told["taskId"] in body.decode()
        async with open_app(settings(tmp_path), [playground]) as app:
            assert await keys(app) == (200, shown)


async def test_a_server_that_does_not_push_shows_no_keys(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path, push=False), [playground]) as app:
        status, _ = await keys(app)
        assert status == 404


async def test_what_a_new_process_still_has_to_tell_leads_to_its_own_address(tmp_path: Path) -> None:
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
