"""Signed cards: each client's canonical form of a card has a valid signature."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
import rfc8785
from google.protobuf.json_format import MessageToDict
from jwt.utils import base64url_encode
from tests.foreign.signed_agents import echo, plain

from dragoman.client.operations import Operator
from dragoman.settings.settings import Settings
from dragoman.wire.cards.card_security import without_empty
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HOME = "https://agents.example"
TOKEN = "token-of-the-operator"
V1 = {"A2A-Version": "1.0"}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    base = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{tmp_path}/t.db"}
    settings = Settings.model_validate({**base, "sign_cards": True, "public_url": HOME, "token": TOKEN})
    async with open_app(settings, [echo, plain]) as app:
        yield app


async def fetch(app: App, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{app.http.url}{path}", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        result: dict[str, Any] = await answer.json()
        return result


async def keys(app: App) -> jwt.PyJWKSet:
    return jwt.PyJWKSet.from_dict(await fetch(app, "/.well-known/jwks.json"))


def valid_signatures(card: dict[str, Any], keys: jwt.PyJWKSet, payload: bytes) -> list[dict[str, Any]]:
    """Returns the headers of the signatures that are valid for a payload (RFC 7515 appendix F)."""
    headers = []
    for signature in card["signatures"]:
        token = f"{signature['protected']}.{base64url_encode(payload).decode()}.{signature['signature']}"
        header = jwt.get_unverified_header(token)
        try:
            jwt.PyJWS().decode(token, keys[header["kid"]], algorithms=["ES256", "EdDSA"])
        except jwt.InvalidSignatureError:
            continue
        headers.append(header)
    return headers


def as_fetched(card: dict[str, Any]) -> bytes:
    """The canonical JSON of a card of any version, without knowledge of A2A."""
    return rfc8785.dumps({key: value for key, value in card.items() if key != "signatures"})


def as_specified(card: dict[str, Any]) -> bytes:
    """1.0 §8.4.1: REQUIRED fields stay, even if empty; other defaults are removed."""
    message = protojson.compile(pb.AgentCard, json_proto.PROTOJSON_V1).decode(card)
    del message.signatures[:]
    content = MessageToDict(message)
    for scheme in content["securitySchemes"].values():
        for flow in scheme.get("oauth2SecurityScheme", {}).get("flows", {}).values():
            flow.setdefault("scopes", {})
    return rfc8785.dumps(content)


def by_sdk(card: dict[str, Any]) -> bytes:
    """a2a-sdk 1.x: all empty fields are removed."""
    message = protojson.compile(pb.AgentCard, json_proto.PROTOJSON_V1).decode(card)
    del message.signatures[:]
    return rfc8785.dumps(without_empty(MessageToDict(message)))


@pytest.mark.parametrize("read", [as_fetched, as_specified, by_sdk])
@pytest.mark.parametrize("headers", [{}, V1])
async def test_every_canonical_form_has_a_valid_signature(
    app: App, read: Callable[[dict[str, Any]], bytes], headers: dict[str, str]
) -> None:
    for path in ("", "/plain"):
        card = await fetch(app, f"{path}/.well-known/agent-card.json", headers)
        (header,) = valid_signatures(card, await keys(app), read(card))
        assert header["typ"] == "JOSE"
        assert header["alg"] == "ES256"
        assert header["jku"] == f"{HOME}/.well-known/jwks.json"
        assert valid_signatures(card, await keys(app), read({**card, "name": "Mallory"})) == []
        assert all(signature.keys() == {"protected", "signature"} for signature in card["signatures"])


async def test_0_3_and_extended_cards_are_signed_and_0_1_cards_are_not(app: App) -> None:
    published = await keys(app)
    for path in ("/v1/card", "/.well-known/agent.json"):
        card = await fetch(app, path, {"Authorization": f"Bearer {TOKEN}"})
        assert valid_signatures(card, published, as_fetched(card))
    extended = await fetch(app, "/extendedAgentCard", {**V1, "Authorization": f"Bearer {TOKEN}"})
    assert [skill["id"] for skill in extended["skills"]] == ["s", "hidden"]
    assert valid_signatures(extended, published, as_specified(extended))
    assert "signatures" not in await fetch(app, "/.well-known/agent.json", {"A2A-Version": "0.1"})


async def test_the_grpc_message_has_the_same_signatures(app: App) -> None:
    import grpc

    for method, request, form in (
        ("/lf.a2a.v1.A2AService/GetExtendedAgentCard", pb.GetExtendedAgentCardRequest(), pb.AgentCard),
    ):
        async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
            call = channel.unary_unary(method, type(request).SerializeToString, form.FromString)
            message = await call(request, metadata=(("authorization", f"Bearer {TOKEN}"),))
        card = MessageToDict(message)
        assert valid_signatures(card, await keys(app), as_specified(card))


async def test_signed_cards_have_the_public_url_and_not_the_host_of_the_request(app: App) -> None:
    plain_card = await fetch(app, "/.well-known/agent-card.json")
    spoofed_card = await fetch(app, "/.well-known/agent-card.json", {"Host": "mallory.example"})
    assert as_fetched(spoofed_card) == as_fetched(plain_card)
    with pytest.raises(ValueError, match="needs --public-url"):
        Settings(sign_cards=True)


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256"])
async def test_a_rotated_key_signs_the_cards(app: App, algorithm: str) -> None:
    before = await fetch(app, "/.well-known/agent-card.json")
    async with Operator(str(app.grpc), token=TOKEN) as operator:
        rotation = ops.RotateSigningKeyRequest(algorithm=algorithm, lead=timedelta(0))
        new_key = (await operator.rotate_signing_key(rotation)).key
    after = await fetch(app, "/.well-known/agent-card.json")
    (header,) = valid_signatures(after, await keys(app), as_specified(after))
    assert (header["alg"], header["kid"]) == (algorithm, new_key.id)
    assert valid_signatures(before, await keys(app), as_specified(before)), (
        "a card fetched earlier can still be verified"
    )
    async with Operator(str(app.grpc), token=TOKEN) as operator:
        listed = (await operator.list_signing_keys(ops.ListSigningKeysRequest())).keys
        await operator.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=listed[1].id))
    with pytest.raises(KeyError):
        valid_signatures(before, await keys(app), as_specified(before))


async def test_cards_are_signed_only_if_configured(tmp_path: Path) -> None:
    base = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{tmp_path}/t.db"}
    async with open_app(Settings.model_validate({**base, "push": False}), [plain]) as app:
        assert "signatures" not in await fetch(app, "/.well-known/agent-card.json")
    async with open_app(
        Settings.model_validate({**base, "push": False, "sign_cards": True, "public_url": HOME, "insecure": True}),
        [plain],
    ) as app:
        card = await fetch(app, "/.well-known/agent-card.json")
        assert len(card["signatures"]) == len(json.loads(json.dumps(card["signatures"])))
        assert valid_signatures(card, await keys(app), as_fetched(card))
