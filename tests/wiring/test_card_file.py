"""Card overrides that change while a server runs: reloaded from their file, published and signed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
import rfc8785
from jwt.utils import base64url_encode

from dragoman import Turn, agent
from dragoman.settings.settings import Settings, SettingsError
from dragoman.wiring.agents import CardFile
from dragoman.wiring.app import App, open_app

HOME = "https://agents.example"


@agent(default=True, description="Says it back")
async def echo(turn: Turn) -> str:
    return turn.text


def settings(folder: Path, **values: Any) -> Settings:
    here = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{folder}/t.db"}
    return Settings.model_validate({**here, "card_file": folder / "cards.toml", "public_url": HOME, **values})


async def fetched(app: App, path: str) -> tuple[str, dict[str, Any]]:
    async with aiohttp.ClientSession() as session, session.get(f"{app.http.url}{path}") as answer:
        assert answer.status == 200
        return answer.headers.get("ETag", ""), await answer.json()


async def test_a_changed_card_file_is_applied_and_signed_and_an_invalid_one_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "cards.toml"
    file.write_text('[echo]\nname = "First"\n\n[absent]\nname = "Nobody yet"\n')
    card = "/.well-known/agent-card.json"
    async with open_app(settings(tmp_path, sign_cards=True), [echo]) as app:
        assert app.card_file is not None
        etag, before = await fetched(app, card)
        assert (before["name"], before["description"]) == ("First", "Says it back")
        assert app.agents["echo"].name == "Echo"  # the agent itself keeps its name
        file.write_text('[echo]\nname = "Second"\ndescription = "Ünïcode"\n')
        assert app.card_file.refresh()
        newer, after = await fetched(app, card)
        assert (after["name"], after["description"]) == ("Second", "Ünïcode")
        assert newer != etag
        _, keys = await fetched(app, "/.well-known/jwks.json")
        text = rfc8785.dumps({key: value for key, value in after.items() if key != "signatures"})
        key = jwt.PyJWKSet.from_dict(keys).keys[0]
        good = 0
        for one in after["signatures"]:
            token = f"{one['protected']}.{base64url_encode(text).decode()}.{one['signature']}"
            try:
                jwt.PyJWS().decode(token, key, algorithms=["ES256"])
            except jwt.InvalidSignatureError:
                continue
            good += 1
        assert good == 1
        for bad in ("[echo", "[echo]\nstreaming = true\n", "\x00"):
            file.write_text(bad)
            assert not app.card_file.refresh()
        assert caplog.text.count("cards stay unchanged") == 3
        assert (await fetched(app, card))[1] == after
        file.write_text("")
        assert app.card_file.refresh()
        assert (await fetched(app, card))[1]["name"] == "Echo"


async def test_an_invalid_card_file_is_rejected_at_startup(tmp_path: Path) -> None:
    for text, why in ((None, "cards.toml: No such file"), ('[echo]\nname = ""\n', "echo.name: must be a string")):
        if text is not None:
            (tmp_path / "cards.toml").write_text(text)
        with pytest.raises(SettingsError, match=f"--card-file: .*{why}"):
            async with open_app(settings(tmp_path), [echo]):
                pass


async def test_a_change_is_noticed_by_polling(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.cards")
    file, changed = tmp_path / "cards.toml", asyncio.Event()
    file.touch()
    shown: list[Any] = []

    def show(value: Any) -> None:
        shown.append(value)
        changed.set()

    cards = CardFile(file, show)
    changed.clear()
    watching = asyncio.create_task(cards.watch(0.001))
    file.write_text('[echo]\nname = "New"\n')
    await changed.wait()
    watching.cancel()
    assert shown[-1] == {"echo": {"name": "New"}}
