"""Signed cards, read as their readers read them: each finds a signature that is good for what it makes of the card."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from google.protobuf.json_format import MessageToDict
from jwt.utils import base64url_encode
from tests.foreign.signed_agents import echo, plain

from dragoman.client.operations import Operator
from dragoman.settings.settings import Settings
from dragoman.wire.cards.card_security import canonical_json, without_empty
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
    values = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{tmp_path}/t.db"}
    settings = Settings.model_validate({**values, "sign_cards": True, "public_url": HOME, "token": TOKEN})
    async with open_app(settings, [echo, plain]) as app:
        yield app


async def fetched(app: App, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{app.http.url}{path}", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


async def keys(app: App) -> jwt.PyJWKSet:
    return jwt.PyJWKSet.from_dict(await fetched(app, "/.well-known/jwks.json"))


def good(card: dict[str, Any], keys: jwt.PyJWKSet, text: bytes) -> list[dict[str, Any]]:
    """The headers of the signatures that are good for a text (RFC 7515 appendix F)."""
    found = []
    for one in card["signatures"]:
        token = f"{one['protected']}.{base64url_encode(text).decode()}.{one['signature']}"
        header = jwt.get_unverified_header(token)
        try:
            jwt.PyJWS().decode(token, keys[header["kid"]], algorithms=["ES256", "EdDSA"])
        except jwt.InvalidSignatureError:
            continue
        found.append(header)
    return found


def as_fetched(card: dict[str, Any]) -> bytes:
    """Any card, by who knows JSON and nothing of A2A."""
    return canonical_json({key: value for key, value in card.items() if key != "signatures"})


def as_specified(card: dict[str, Any]) -> bytes:
    """1.0 §8.4.1: what is REQUIRED stays, also if it is empty; other defaults go."""
    message = protojson.compile(pb.AgentCard, json_proto.PROTOJSON_V1).decode(card)
    del message.signatures[:]
    value = MessageToDict(message)
    for scheme in value["securitySchemes"].values():
        for flow in scheme.get("oauth2SecurityScheme", {}).get("flows", {}).values():
            flow.setdefault("scopes", {})
    return canonical_json(value)


def by_sdk(card: dict[str, Any]) -> bytes:
    """a2a-sdk 1.x: nothing empty stays."""
    message = protojson.compile(pb.AgentCard, json_proto.PROTOJSON_V1).decode(card)
    del message.signatures[:]
    return canonical_json(without_empty(MessageToDict(message)))


@pytest.mark.parametrize("read", [as_fetched, as_specified, by_sdk])
@pytest.mark.parametrize("headers", [{}, V1])
async def test_every_reader_finds_a_good_signature(
    app: App, read: Callable[[dict[str, Any]], bytes], headers: dict[str, str]
) -> None:
    for path in ("", "/plain"):
        card = await fetched(app, f"{path}/.well-known/agent-card.json", headers)
        (header,) = good(card, await keys(app), read(card))
        assert header["typ"] == "JOSE"
        assert header["alg"] == "ES256"
        assert header["jku"] == f"{HOME}/.well-known/jwks.json"
        assert good(card, await keys(app), read({**card, "name": "Mallory"})) == []
        assert all(one.keys() == {"protected", "signature"} for one in card["signatures"])


async def test_the_card_of_0_3_and_the_extended_one_are_signed_and_that_of_0_1_is_not(app: App) -> None:
    known = await keys(app)
    for path in ("/v1/card", "/.well-known/agent.json"):
        card = await fetched(app, path, {"Authorization": f"Bearer {TOKEN}"})
        assert good(card, known, as_fetched(card))
    extended = await fetched(app, "/extendedAgentCard", {**V1, "Authorization": f"Bearer {TOKEN}"})
    assert [skill["id"] for skill in extended["skills"]] == ["s", "hidden"]
    assert good(extended, known, as_specified(extended))
    assert "signatures" not in await fetched(app, "/.well-known/agent.json", {"A2A-Version": "0.1"})


async def test_the_message_over_grpc_has_the_same_signatures(app: App) -> None:
    import grpc

    for method, request, form in (
        ("/lf.a2a.v1.A2AService/GetExtendedAgentCard", pb.GetExtendedAgentCardRequest(), pb.AgentCard),
    ):
        async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
            call = channel.unary_unary(method, type(request).SerializeToString, form.FromString)
            message = await call(request, metadata=(("authorization", f"Bearer {TOKEN}"),))
        card = MessageToDict(message)
        assert good(card, await keys(app), as_specified(card))


async def test_what_is_signed_leads_where_the_operator_says_and_not_where_its_caller_does(app: App) -> None:
    ours = await fetched(app, "/.well-known/agent-card.json")
    theirs = await fetched(app, "/.well-known/agent-card.json", {"Host": "mallory.example"})
    assert as_fetched(theirs) == as_fetched(ours)
    with pytest.raises(ValueError, match="needs --public-url"):
        Settings(sign_cards=True)


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256"])
async def test_another_key_signs_the_cards_anew(app: App, algorithm: str) -> None:
    before = await fetched(app, "/.well-known/agent-card.json")
    async with Operator(str(app.grpc), token=TOKEN) as operator:
        rotation = ops.RotateSigningKeyRequest(algorithm=algorithm, lead=timedelta(0))
        fresh = (await operator.rotate_signing_key(rotation)).key
    after = await fetched(app, "/.well-known/agent-card.json")
    (header,) = good(after, await keys(app), as_specified(after))
    assert (header["alg"], header["kid"]) == (algorithm, fresh.id)
    assert good(before, await keys(app), as_specified(before)), "who has fetched it an hour ago can still check it"
    async with Operator(str(app.grpc), token=TOKEN) as operator:
        listed = (await operator.list_signing_keys(ops.ListSigningKeysRequest())).keys
        await operator.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=listed[1].id))
    with pytest.raises(KeyError):
        good(before, await keys(app), as_specified(before))


async def test_cards_are_not_signed_unless_somebody_says_so(tmp_path: Path) -> None:
    values = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{tmp_path}/t.db"}
    async with open_app(Settings.model_validate({**values, "push": False}), [plain]) as app:
        assert "signatures" not in await fetched(app, "/.well-known/agent-card.json")
    async with open_app(
        Settings.model_validate({**values, "push": False, "sign_cards": True, "public_url": HOME}), [plain]
    ) as app:
        card = await fetched(app, "/.well-known/agent-card.json")
        assert len(card["signatures"]) == len(json.loads(json.dumps(card["signatures"])))
        assert good(card, await keys(app), as_fetched(card))
