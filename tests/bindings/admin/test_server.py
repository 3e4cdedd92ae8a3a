"""Operator calls for API keys and signing keys: authorization, responses and validation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr

from dragoman import Turn, agent
from dragoman.bindings.admin import handlers
from dragoman.client import ClientError
from dragoman.client.operations import Operator
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as signing_pb


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


@pytest.fixture
async def operator(app: App) -> AsyncIterator[Operator]:
    async with Operator(str(app.grpc)) as operator:
        yield operator


def create_request(**fields: Any) -> ops.CreateKeyRequest:
    lifetime = fields.pop("lifetime", 0)
    request = ops.CreateKeyRequest(**{"name": "nightly", **fields})
    if lifetime:
        request.lifetime.FromSeconds(lifetime)
    return request


async def test_the_text_of_an_api_key_is_returned_once(operator: Operator) -> None:
    response = await operator.create_key(
        create_request(principal="alice", grants=["agent:echo", "operator"], lifetime=3600)
    )
    assert response.text.startswith(f"dgm_{response.key.id}_")
    assert (response.key.name, response.key.principal, list(response.key.grants)) == (
        "nightly",
        "alice",
        ["agent:echo", "operator"],
    )
    assert response.key.expires.ToSeconds() - response.key.created.ToSeconds() == 3600
    assert not response.key.HasField("last_used")
    (listed,) = (await operator.list_keys(ops.ListKeysRequest())).keys
    assert listed == response.key
    assert response.text.rpartition("_")[2] not in str(listed)


async def test_api_keys_are_created_rotated_and_revoked(operator: Operator) -> None:
    response = await operator.create_key(create_request())
    assert not response.key.HasField("expires")
    request = ops.RotateKeyRequest(id=response.key.id)
    request.grace.FromSeconds(60)
    request.lifetime.FromSeconds(3600)
    rotated = await operator.rotate_key(request)
    assert rotated.text != response.text
    assert rotated.key.former_until.ToSeconds() - rotated.key.rotated.ToSeconds() == 60
    assert rotated.key.HasField("expires")
    revoked = (await operator.revoke_key(ops.RevokeKeyRequest(id=response.key.id))).key
    assert revoked.HasField("revoked")
    assert list((await operator.list_keys(ops.ListKeysRequest())).keys) == []
    assert list((await operator.list_keys(ops.ListKeysRequest(all=True))).keys) == [revoked]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (create_request(name=""), "name"),
        (create_request(grants=["root"]), "grants"),
        (create_request(principal="anonymous"), "principal"),
        (create_request(lifetime=-5), "lifetime"),
        (create_request(lifetime=10**11), "lifetime"),
    ],
)
async def test_invalid_requests_are_rejected_and_create_no_key(
    operator: Operator, request_: ops.CreateKeyRequest, field: str
) -> None:
    with pytest.raises(ClientError) as caught:
        await operator.create_key(request_)
    assert (caught.value.code, [violation.field for violation in caught.value.violations]) == (
        "INVALID_ARGUMENT",
        [field],
    )
    assert list((await operator.list_keys(ops.ListKeysRequest(all=True))).keys) == []


async def test_unknown_api_keys_are_not_found(operator: Operator) -> None:
    for call in (
        operator.rotate_key(ops.RotateKeyRequest(id="aaaaaaaaaaaa")),
        operator.revoke_key(ops.RevokeKeyRequest(id="aaaaaaaaaaaa")),
    ):
        with pytest.raises(ClientError) as caught:
            await call
        assert (caught.value.code, caught.value.reason) == ("NOT_FOUND", "KEY_NOT_FOUND")


async def test_only_operators_manage_api_keys(tmp_path: Path) -> None:
    with_keys = settings(tmp_path, "secret").replaced(api_keys=True)
    async with open_app(with_keys, [echo]) as app:
        async with Operator(str(app.grpc), token="secret") as operator:
            operator_key = (await operator.create_key(create_request(grants=["operator"]))).text
            agent_key = (await operator.create_key(create_request())).text
        for token, code in (("", "UNAUTHENTICATED"), ("wrong", "UNAUTHENTICATED"), (agent_key, "PERMISSION_DENIED")):
            async with Operator(str(app.grpc), token=token) as unauthorized:
                for call in (
                    unauthorized.create_key(create_request()),
                    unauthorized.list_keys(ops.ListKeysRequest()),
                    unauthorized.rotate_key(ops.RotateKeyRequest(id="x")),
                    unauthorized.revoke_key(ops.RevokeKeyRequest(id="x")),
                ):
                    with pytest.raises(ClientError, match=code):
                        await call
        async with Operator(str(app.grpc), token=operator_key) as operator:
            assert len((await operator.list_keys(ops.ListKeysRequest())).keys) == 2


async def test_without_authentication_keys_are_managed_on_this_machine_only(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--insecure` lets other machines call the agents; an operator key would outlive it."""
    monkeypatch.setattr(handlers, "is_local", lambda *_: False)
    with pytest.raises(ClientError, match="on this machine only"):
        await operator.create_key(create_request())


async def published_key_ids(app: App) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(f"{app.public_url}/.well-known/jwks.json") as response:
        assert response.headers["Cache-Control"] == "public, max-age=300"
        return [key["kid"] for key in (await response.json())["keys"]]


async def test_signing_keys_are_rotated_and_withdrawn(app: App) -> None:
    async with Operator(str(app.grpc)) as operator:
        (first,) = (await operator.list_signing_keys(signing_pb.ListSigningKeysRequest())).keys
        assert (first.algorithm, first.state) == ("ES256", signing_pb.SIGNING_KEY_STATE_SIGNING)
        assert not first.HasField("created")
        rotated = (await operator.rotate_signing_key(signing_pb.RotateSigningKeyRequest(algorithm="EdDSA"))).key
        assert (rotated.algorithm, rotated.state) == ("EdDSA", signing_pb.SIGNING_KEY_STATE_NEXT)
        assert rotated.signs.ToSeconds() - rotated.created.ToSeconds() == 3600
        listed = (await operator.list_signing_keys(signing_pb.ListSigningKeysRequest())).keys
        assert [key.id for key in listed] == [rotated.id, first.id] == await published_key_ids(app)
        assert listed[1].until.ToSeconds() - rotated.signs.ToSeconds() == 7 * 86_400
        await operator.withdraw_signing_key(signing_pb.WithdrawSigningKeyRequest(id=rotated.id))
        assert await published_key_ids(app) == [first.id]


async def test_invalid_signing_key_requests_are_rejected_with_the_reason(app: App) -> None:
    async with Operator(str(app.grpc)) as operator:
        (first,) = (await operator.list_signing_keys(signing_pb.ListSigningKeysRequest())).keys
        with pytest.raises(ClientError, match="algorithm: must be one of ES256, EdDSA"):
            await operator.rotate_signing_key(signing_pb.RotateSigningKeyRequest(algorithm="none"))
        for key_id, message in (("", "id: is required"), (first.id, "this key signs"), ("x", "no signing key")):
            with pytest.raises(ClientError, match=message):
                await operator.withdraw_signing_key(signing_pb.WithdrawSigningKeyRequest(id=key_id))
        assert await published_key_ids(app) == [first.id]


async def test_only_operators_manage_signing_keys(tmp_path: Path) -> None:
    async with open_app(settings(tmp_path, "operator-token"), [echo]) as app:
        before = await published_key_ids(app)
        async with Operator(str(app.grpc)) as unauthorized:
            with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                await unauthorized.rotate_signing_key(signing_pb.RotateSigningKeyRequest())
            with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                await unauthorized.withdraw_signing_key(signing_pb.WithdrawSigningKeyRequest(id=before[0]))
        assert await published_key_ids(app) == before
