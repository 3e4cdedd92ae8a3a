"""Operator calls for signing keys: authorization, rotation, and the published key set."""

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


async def published_key_ids(app: App) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(f"{app.public_url}/.well-known/jwks.json") as response:
        assert response.headers["Cache-Control"] == "public, max-age=300"
        return [key["kid"] for key in (await response.json())["keys"]]


async def test_rotate_and_withdraw(app: App) -> None:
    async with Operator(str(app.grpc)) as operator:
        (first,) = (await operator.list_signing_keys(ops.ListSigningKeysRequest())).keys
        assert (first.algorithm, first.state) == ("ES256", ops.SIGNING_KEY_STATE_SIGNING)
        assert not first.HasField("created")
        rotated = (await operator.rotate_signing_key(ops.RotateSigningKeyRequest(algorithm="EdDSA"))).key
        assert (rotated.algorithm, rotated.state) == ("EdDSA", ops.SIGNING_KEY_STATE_NEXT)
        assert rotated.signs.ToSeconds() - rotated.created.ToSeconds() == 3600
        listed = (await operator.list_signing_keys(ops.ListSigningKeysRequest())).keys
        assert [key.id for key in listed] == [rotated.id, first.id] == await published_key_ids(app)
        assert listed[1].until.ToSeconds() - rotated.signs.ToSeconds() == 7 * 86_400
        await operator.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=rotated.id))
        assert await published_key_ids(app) == [first.id]


async def test_invalid_requests_are_rejected_with_the_reason(app: App) -> None:
    async with Operator(str(app.grpc)) as operator:
        (first,) = (await operator.list_signing_keys(ops.ListSigningKeysRequest())).keys
        with pytest.raises(ClientError, match="algorithm: must be one of ES256, EdDSA"):
            await operator.rotate_signing_key(ops.RotateSigningKeyRequest(algorithm="none"))
        for key_id, message in (("", "id: is required"), (first.id, "this key signs"), ("x", "no signing key")):
            with pytest.raises(ClientError, match=message):
                await operator.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=key_id))
        assert await published_key_ids(app) == [first.id]


async def test_only_operators_manage_signing_keys(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path, "operator-token"), [echo]) as app:
        before = await published_key_ids(app)
        async with Operator(str(app.grpc)) as unauthorized:
            with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                await unauthorized.rotate_signing_key(ops.RotateSigningKeyRequest())
            with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                await unauthorized.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=before[0]))
        assert await published_key_ids(app) == before
