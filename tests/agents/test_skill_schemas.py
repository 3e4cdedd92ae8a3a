"""Schemas of skills on real servers: on cards of every version, of workers and of upstream agents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from tests.agents.workers.fake_worker import connected_worker

from dragoman import Skill, Turn, agent
from dragoman.core.cards.agent_spec import SERVER_EXTENSIONS
from dragoman.core.cards.skill_schemas import SCHEMAS_URI, schemas_of
from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, open_app
from dragoman.worker.frames import encode_registration
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc


@dataclass
class Order:
    item: str
    quantity: int


@agent(skills=[Skill(id="buy", name="Buy", description="Buys", input=Order, annotations={"title": "Buy"})])
async def shop(turn: Turn) -> dict[str, Any]:
    order: Order = turn.input
    return {"skill": turn.skill, "bought": order.item}


BUY = {
    "input": {
        "title": "Order",
        "type": "object",
        "properties": {
            "item": {"title": "Item", "type": "string"},
            "quantity": {"title": "Quantity", "type": "integer"},
        },
        "required": ["item", "quantity"],
    },
    "annotations": {"title": "Buy"},
}


@asynccontextmanager
async def serving(folder: Path, *agents: Any, **settings: Any) -> AsyncIterator[App]:
    name = f"{len(list(folder.iterdir()))}.db"
    values = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{folder}/{name}", **settings}
    async with open_app(Settings.model_validate(values), list(agents) or None) as app:
        yield app


async def card_of(app: App, agent: str, version: str = "1.0") -> dict[str, Any]:
    url = f"{app.http.url}/{agent}/.well-known/agent-card.json"
    async with aiohttp.ClientSession() as session, session.get(url, headers={"A2A-Version": version}) as answer:
        assert answer.status == 200
        card: dict[str, Any] = await answer.json()
        return card


def params_of(card: Any) -> Any:
    (extension,) = [one for one in card["capabilities"]["extensions"] if one["uri"] == SCHEMAS_URI]
    assert not extension.get("required")
    return extension["params"]


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_schemas_are_on_the_cards_that_have_extensions(tmp_path: Path, version: str) -> None:
    async with serving(tmp_path, shop, card_versions=version) as app:
        assert params_of(await card_of(app, "shop", version)) == {"buy": BUY}


async def test_schemas_are_on_the_cards_of_grpc(tmp_path: Path) -> None:
    async with serving(tmp_path, shop) as app, grpc.aio.insecure_channel(str(app.grpc)) as channel:
        old = await v03_rpc.A2AServiceStub(channel).GetAgentCard(v03_pb.GetAgentCardRequest())
        assert SCHEMAS_URI in [extension.uri for extension in old.capabilities.extensions]


async def send(app: App, **fields: Any) -> pb.Task:
    async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
        message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text='{"item": "tea", "quantity": 1}')])
        message.metadata.update({"skill": "buy"})
        request = pb.SendMessageRequest(message=message, **fields)
        return (await rpc.A2AServiceStub(channel).SendMessage(request)).task


async def test_a_caller_needs_not_activate_the_extension(tmp_path: Path) -> None:
    async with serving(tmp_path, shop) as app:
        task = await send(app)
        assert task.status.state == pb.TASK_STATE_COMPLETED
        assert dict(task.artifacts[0].parts[0].data.struct_value) == {"skill": "buy", "bought": "tea"}


async def test_a_worker_registers_its_schemas(tmp_path: Path) -> None:
    async with serving(tmp_path) as app, connected_worker(str(app.grpc)) as worker:
        await worker.register(encode_registration(shop.spec, 1))
        assert app.agents["shop"].extensions == shop.spec.extensions
        assert params_of(await card_of(app, "shop")) == {"buy": BUY}


async def test_an_upstream_agent_has_the_schemas_of_its_card_and_gets_the_skill(tmp_path: Path) -> None:
    async with serving(tmp_path, shop) as behind, serving(tmp_path, upstream=[behind.http.url]) as front:
        assert schemas_of(front.agents["shop"]) == schemas_of(shop.spec)
        assert params_of(await card_of(front, "shop")) == {"buy": BUY}
        assert dict((await send(front, tenant="shop")).artifacts[0].parts[0].data.struct_value)["skill"] == "buy"


async def test_a_card_override_keeps_the_schemas(tmp_path: Path) -> None:
    overrides = tmp_path / "cards.toml"
    overrides.write_text('[shop]\nname = "The shop"\n')
    async with serving(tmp_path, shop, card_file=overrides) as app:
        card = await card_of(app, "shop")
        assert (card["name"], params_of(card)) == ("The shop", {"buy": BUY})
        assert len(card["capabilities"]["extensions"]) == 1 + len(SERVER_EXTENSIONS)
