"""Cards under a resource path: every address on them stays in the scope, with a fake service."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from tests.bindings.fake_service import RESOURCE, TASK, FakeService, make_cards, over_http
from yarl import URL

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SENT = pb.SendMessageResponse(task=TASK)
SCOPE = RESOURCE.removesuffix("/agents/echo")
OTHER = f"{SCOPE}/agents/other"
WELL_KNOWN = [
    f"{base}/.well-known/agent-card.json" for base in (f"/{RESOURCE}", f"/v1/{RESOURCE}/a2a", f"/v1/{RESOURCE}")
]
CARDS = [*WELL_KNOWN, f"/{RESOURCE}/card", f"/v1/{RESOURCE}/a2a/v1/card", f"/v1/{RESOURCE}/card"]


async def fetched(client: aiohttp.ClientSession, path: str) -> Any:
    async with client.get(path) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


@pytest.mark.parametrize("path", CARDS)
async def test_a_call_at_an_address_of_the_card_is_in_its_scope(path: str) -> None:
    """Follows every HTTP address of the card as clients of its version do."""
    service = FakeService(SENT)
    cards = make_cards()
    async with over_http(service, cards) as client:
        card = await fetched(client, path)
        text = {"text": "hello"}
        v03 = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [text]}}
        rpc_message = {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", **text}]}
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": rpc_message}}
        called = 0
        for interface in [*card.get("supportedInterfaces", ()), *card["additionalInterfaces"]]:
            url, binding = interface["url"], interface.get("protocolBinding") or interface["transport"]
            if binding == "JSONRPC":
                body: Any = rpc
            elif interface.get("protocolVersion") == "1.0":
                assert interface["tenant"] == RESOURCE
                url, body = (
                    f"{url}/{interface['tenant']}/message:send",
                    {"message": {**v03["message"], "parts": [text]}},
                )
                del body["message"]["content"]
            else:
                url, body = f"{url}/v1/message:send", v03
            async with client.post(
                url, json=body, headers={"A2A-Version": interface.get("protocolVersion", "")}
            ) as answer:
                assert answer.status == 200, (url, await answer.text())
            called += 1
    assert called >= 2
    assert [(call.caller.owner.scope, call.caller.agent) for _, call, _ in service.received] == [
        (SCOPE, "echo")
    ] * called


@pytest.mark.parametrize("path", WELL_KNOWN)
async def test_interfaces_of_1_0_name_the_resource_as_tenant(path: str) -> None:
    async with over_http(FakeService(), make_cards(public_grpc="127.0.0.1:1")) as client:
        card = await fetched(client, path)
    v1 = [each for each in card["supportedInterfaces"] if each["protocolVersion"] == "1.0"]
    assert [(each["protocolBinding"], each["tenant"]) for each in v1] == [
        ("JSONRPC", RESOURCE),
        ("HTTP+JSON", RESOURCE),
        ("GRPC", RESOURCE),
    ]
    # Nothing in gRPC of 0.3 would name the scope.
    assert "GRPC" not in [each["transport"] for each in card["additionalInterfaces"]]


async def test_an_agent_that_is_not_the_root_has_its_own_resource() -> None:
    async with over_http(FakeService()) as client:
        card = await fetched(client, f"/{OTHER}/.well-known/agent-card.json")
        assert (card["name"], card["url"].endswith(f"/{OTHER}")) == ("Other", True)
        async with client.get(f"/{SCOPE}/agents/none/.well-known/agent-card.json") as answer:
            assert answer.status == 404


async def test_the_card_of_0_1_and_cards_outside_of_scopes() -> None:
    async with over_http(FakeService()) as client:
        card = await fetched(client, f"/{RESOURCE}/.well-known/agent.json")
        assert card["url"].endswith(f"/{RESOURCE}")
        outside = await fetched(client, "/.well-known/agent-card.json")
        assert "projects" not in str(outside)


async def test_characters_of_a_scope_are_encoded_in_its_addresses() -> None:
    resource = RESOURCE.replace("projects/p/", "projects/p%20%C3%BC/")
    service = FakeService(SENT)
    async with over_http(service) as client:
        assert client._base_url is not None
        base = str(client._base_url.origin())
        async with client.get(URL(f"{base}/{resource}/.well-known/agent-card.json", encoded=True)) as answer:
            card = await answer.json()
        rest = next(each["url"] for each in card["additionalInterfaces"] if each["transport"] == "HTTP+JSON")
        assert rest.isascii()
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "x"}]}}
        async with client.post(URL(f"{rest}/v1/message:send", encoded=True), json=body) as answer:
            assert answer.status == 200
    assert service.received[0][1].caller.owner.scope == SCOPE.replace("projects/p/", "projects/p ü/")
