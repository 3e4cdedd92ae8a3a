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
    return Settings.model_validate(
        {**here, "card_file": folder / "cards.toml", "public_url": HOME, "insecure": True, **values}
    )


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


async def test_credentials_of_0_1_and_descriptions_of_interfaces_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "cards.toml").write_text(
        '[echo]\ncredentials = "ask ops@agents.example"\n\n[echo.interface_descriptions]\n"HTTP+JSON" = "for curl"\n'
    )
    async with open_app(settings(tmp_path, sign_cards=True), [echo]) as app:
        _, legacy = await fetched(app, "/.well-known/agent.json")
        assert legacy["authentication"] == {"schemes": [], "credentials": "ask ops@agents.example"}
        for path in ("/.well-known/agent-card.json", "/.well-known/agent.json"):
            _, card = await fetched(app, path)
            described = {one["transport"]: one.get("description") for one in card["additionalInterfaces"]}
            assert described == {"JSONRPC": None, "HTTP+JSON": "for curl"}
            assert not [one for one in card.get("supportedInterfaces", ()) if "description" in one]
            _, keys = await fetched(app, "/.well-known/jwks.json")
            without = {key: value for key, value in card.items() if key != "signatures"}
            payload = base64url_encode(rfc8785.dumps(without)).decode()
            assert any(_verifies(one, payload, jwt.PyJWKSet.from_dict(keys).keys[0]) for one in card["signatures"])


def _verifies(signature: dict[str, str], payload: str, key: jwt.PyJWK) -> bool:
    try:
        jwt.PyJWS().decode(f"{signature['protected']}.{payload}.{signature['signature']}", key, algorithms=["ES256"])
    except jwt.InvalidSignatureError:
        return False
    return True


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        ("[echo]\ncredentials = 1", "echo.credentials: must be a string"),
        ("[echo]\ninterface_descriptions = 1", "echo.interface_descriptions: must be a table of JSONRPC, HTTP\\+JSON"),
        ('[echo.interface_descriptions]\nREST = "x"', "echo.interface_descriptions.REST: is not one of JSONRPC"),
        ('[echo.interface_descriptions]\nGRPC = ""', "echo.interface_descriptions.GRPC: must be a string"),
    ],
)
async def test_invalid_fields_of_old_cards_are_named(tmp_path: Path, table: str, rule: str) -> None:
    (tmp_path / "cards.toml").write_text(table + "\n")
    with pytest.raises(SettingsError, match=rule):
        async with open_app(settings(tmp_path), [echo]):
            pass
