"""What the console reads besides the API: where people sign in, and who the caller is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr

from dragoman import Turn, agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

ANYWHERE = Address("127.0.0.1", 0)


@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text


async def ask(folder: Path, method: str, path: str, key: str = "", body: Any = None, **more: Any) -> tuple[int, Any]:
    settings = Settings(http=ANYWHERE, grpc=ANYWHERE, store=f"sqlite:///{folder}/t.db", **more)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        open_app(settings, [echo]) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        http.request(method, path, headers=headers, json=body) as response,
    ):
        assert response.status != 200 or response.headers["Cache-Control"] == "no-store"
        return response.status, await response.json()


async def test_callers_learn_who_they_are(tmp_path: Path) -> None:
    with_token: dict[str, Any] = {"token": SecretStr("boss"), "api_keys": True}
    assert await ask(tmp_path, "GET", "/console/caller", "boss", **with_token) == (
        200,
        {"principal": "token", "grants": ["operator", "worker"]},
    )
    assert (await ask(tmp_path, "GET", "/console/caller", "wrong", **with_token))[0] == 401
    assert (await ask(tmp_path, "GET", "/console/caller", **with_token))[0] == 401


async def test_without_authentication_everybody_is_anonymous(tmp_path: Path) -> None:
    assert await ask(tmp_path, "GET", "/console/caller") == (200, {"principal": "anonymous", "grants": []})


async def test_without_issuers_there_is_nothing_to_sign_in_at(tmp_path: Path) -> None:
    assert await ask(tmp_path, "GET", "/console/sign-in") == (200, {"providers": [], "authentication": False})


@pytest.mark.parametrize("body", [None, [], {"issuer": "x", "code": 1}])
async def test_an_exchange_names_the_invalid_field(tmp_path: Path, body: Any) -> None:
    status, answer = await ask(tmp_path, "POST", "/console/token", body=body)
    assert status == 400
    assert "must be a string" in answer["error"]["message"]


@pytest.mark.parametrize(
    "uri", ["https://evil.example/console", "http://127.0.0.1.evil.example/console", "", "/console"]
)
async def test_an_exchange_is_for_the_page_that_asks(tmp_path: Path, uri: str) -> None:
    body = {"issuer": "x", "code": "c", "codeVerifier": "v", "redirectUri": uri}
    status, answer = await ask(tmp_path, "POST", "/console/token", body=body)
    assert status == 400
    assert "redirectUri: must be the page" in answer["error"]["message"]
