"""Signing keys over the operators' service and on the command line: who may, and what is shown to everybody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from pydantic import SecretStr

from dragoman import Turn, agent
from dragoman.client import ClientError
from dragoman.client.operations import Operator
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as ops


@agent
async def echo(turn: Turn) -> str:
    return turn.text


def settings(tmp_path: Path, token: str = "") -> Settings:
    anywhere = Address("127.0.0.1", 0)
    return Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/t.db", token=SecretStr(token))


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with open_app(settings(tmp_path), [echo]) as app:
        yield app


async def published(app: App) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(f"{app.public_url}/.well-known/jwks.json") as answer:
        assert answer.headers["Cache-Control"] == "public, max-age=300"
        return [key["kid"] for key in (await answer.json())["keys"]]


async def test_a_key_goes_through_its_life(app: App) -> None:
    async with Operator(str(app.grpc)) as operator:
        (first,) = (await operator.list_signing_keys(ops.ListSigningKeysRequest())).keys
        assert (first.algorithm, first.state) == ("ES256", ops.SIGNING_KEY_STATE_SIGNING)
        assert not first.HasField("created")
        fresh = (await operator.rotate_signing_key(ops.RotateSigningKeyRequest(algorithm="EdDSA"))).key
        assert (fresh.algorithm, fresh.state) == ("EdDSA", ops.SIGNING_KEY_STATE_NEXT)
        assert fresh.signs.ToSeconds() - fresh.created.ToSeconds() == 3600
        listed = (await operator.list_signing_keys(ops.ListSigningKeysRequest())).keys
        assert [key.id for key in listed] == [fresh.id, first.id] == await published(app)
        assert listed[1].until.ToSeconds() - fresh.signs.ToSeconds() == 7 * 86_400
        await operator.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=fresh.id))
        assert await published(app) == [first.id]


async def test_a_wrong_wish_is_told_why(app: App) -> None:
    async with Operator(str(app.grpc)) as operator:
        (first,) = (await operator.list_signing_keys(ops.ListSigningKeysRequest())).keys
        with pytest.raises(ClientError, match="algorithm: must be one of ES256, EdDSA"):
            await operator.rotate_signing_key(ops.RotateSigningKeyRequest(algorithm="none"))
        for id, why in (("", "id: is required"), (first.id, "this key signs"), ("x", "no signing key")):
            with pytest.raises(ClientError, match=why):
                await operator.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=id))
        assert await published(app) == [first.id]


async def test_only_operators_may(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path, "a-token-of-the-operator"), [echo]) as app:
        before = await published(app)
        async with Operator(str(app.grpc)) as stranger:
            with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                await stranger.rotate_signing_key(ops.RotateSigningKeyRequest())
            with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                await stranger.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=before[0]))
        assert await published(app) == before
