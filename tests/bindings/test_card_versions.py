"""`--card-versions`: cards of one version alone, for readers that reject unknown fields."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from google.protobuf.json_format import ParseDict, ParseError
from tests.bindings.fake_service import RESOURCE
from tests.bindings.test_signed_cards import as_fetched, as_specified, by_sdk, keys, valid_signatures
from tests.foreign.signed_agents import echo, plain

from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

pytestmark = pytest.mark.long

TOKEN = "token-of-the-operator"
CREDENTIALS = {"Authorization": f"Bearer {TOKEN}"}
PATHS = [
    f"{base}/.well-known/{name}"
    for base in ("", "/plain", f"/{RESOURCE}", f"/v1/{RESOURCE}", f"/v1/{RESOURCE}/a2a")
    for name in ("agent-card.json", "agent.json")
]
VERSIONS = ["", "1.0", "0.3", "0.1"]


@pytest.fixture(params=["1.0"])
async def app(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[App]:
    """A server with security schemes, whose cards are signed; the parameter is `card_versions`."""
    settings = Settings.model_validate(
        {
            "http": "127.0.0.1:0",
            "grpc": "127.0.0.1:0",
            "store": f"sqlite:///{tmp_path}/tasks.db",
            "public_url": "https://agents.example",
            "sign_cards": True,
            "token": TOKEN,
            "card_versions": request.param,
        }
    )
    async with open_app(settings, [echo, plain]) as app:
        yield app


async def fetch(app: App, path: str, **headers: str) -> Any:
    async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{app.http.url}{path}") as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


def check_v1(card: dict[str, Any]) -> None:
    """Reads a card as a strict reader of 1.0 does: unknown fields are errors, and every interface is one of 1.0."""
    read = ParseDict(card, pb.AgentCard())
    assert read.supported_interfaces
    assert {interface.protocol_version for interface in read.supported_interfaces} == {"1.0"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("version", VERSIONS)
async def test_every_well_known_card_is_of_1_0_alone_and_signed(app: App, path: str, version: str) -> None:
    card = await fetch(app, path, **({"A2A-Version": version} if version else {}))
    check_v1(card)
    found = await keys(app)
    for payload in (as_fetched, as_specified, by_sdk):
        assert valid_signatures(card, found, payload(card)), payload.__name__


async def test_the_extended_card_is_of_1_0_alone(app: App) -> None:
    check_v1(await fetch(app, "/extendedAgentCard", **CREDENTIALS))
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}
    headers = {**CREDENTIALS, "A2A-Version": "1.0"}
    async with aiohttp.ClientSession(headers=headers) as session, session.post(app.http.url, json=call) as answer:
        check_v1((await answer.json())["result"])
    async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
        metadata = [("authorization", CREDENTIALS["Authorization"])]
        card = await rpc.A2AServiceStub(channel).GetExtendedAgentCard(
            pb.GetExtendedAgentCardRequest(), metadata=metadata
        )
    assert {interface.protocol_version for interface in card.supported_interfaces} == {"1.0"}


async def test_a_call_of_0_3_for_the_card_is_answered_in_0_3(app: App) -> None:
    card = await fetch(app, "/v1/card")
    assert "supportedInterfaces" not in card
    async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
        message = await v03_rpc.A2AServiceStub(channel).GetAgentCard(v03_pb.GetAgentCardRequest())
    assert card["protocolVersion"] == message.protocol_version == "0.3.0"


@pytest.mark.parametrize("app", ["all"], indirect=True)
async def test_by_default_a_strict_reader_rejects_the_card_for_all_versions(app: App) -> None:
    card = await fetch(app, PATHS[0])
    assert {interface["protocolVersion"] for interface in card["supportedInterfaces"]} == {"1.0", "0.3"}
    with pytest.raises(ParseError, match="no field named"):
        check_v1(card)


@pytest.mark.parametrize("app", ["0.3"], indirect=True)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_card_can_be_of_0_3_alone(app: App, path: str, version: str) -> None:
    card = await fetch(app, path, **({"A2A-Version": version} if version else {}))
    for json_rpc_only in ("securitySchemes", "security"):  # their JSON is not ProtoJSON (0.3 §5.5)
        card.pop(json_rpc_only)
    assert ParseDict(card, v03_pb.AgentCard()).protocol_version == "0.3.0"
