"""Public agents and pages, access by key, and revocation."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from tests.security.endpoints import ENDPOINTS, MESSAGE, Endpoint, Headers, Response, over_http, rpc_call

from dragoman import Turn, agent
from dragoman.client import ClientError, ServerUnavailable
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.client.options import CallOptions
from dragoman.core.task import states
from dragoman.settings.settings import Address, Settings, SettingsError
from dragoman.wiring.app import App, AppTimings, open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

Open = Callable[..., AbstractAsyncContextManager[App]]
STATIC = "operators' own"
OPERATOR: Headers = [("Authorization", f"Bearer {STATIC}")]
CARD = "/.well-known/agent-card.json"


@agent(default=True, extended_skills=["Whisper"])
async def echo(turn: Turn) -> str:
    return turn.principal


@agent(extended_skills=["Whisper"])
async def guarded(turn: Turn) -> str:
    return turn.principal


@agent
async def slow(turn: Turn) -> None:
    turn.status("at it")
    await asyncio.Event().wait()


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    @asynccontextmanager
    async def open_it(check_interval: float = 60.0, **more: Any) -> AsyncIterator[App]:
        settings = Settings(
            http=Address("127.0.0.1", 0),
            grpc=Address("127.0.0.1", 0),
            store=f"sqlite:///{tmp_path}/tasks.db",
            **{"token": STATIC, "api_keys": True, **more},
        )
        timings = AppTimings(credential_check_interval=check_interval)
        async with open_app(settings, [echo, guarded, slow], timings=timings) as app:
            yield app

    return open_it


async def make_key(app: App, **wish: Any) -> ops.CreateKeyResponse:
    async with Operator(str(app.grpc), token=STATIC) as operator:
        return await operator.create_key(ops.CreateKeyRequest(**{"name": "k", **wish}))


def send(agent: str) -> Any:
    return over_http("POST", f"/{agent}/message:send", {"message": MESSAGE})


# Operators ---------------------------------------------------------------------------------------------------


async def test_a_server_without_operator_key_warns_how_to_create_one(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    def response() -> bool:
        return "keys create NAME --grant operator" in caplog.text

    async with opened(token=""):
        assert response()
    caplog.clear()
    async with opened() as app:
        assert not response()
        await make_key(app, grants=["operator"])
    async with opened(token=""):
        assert not response()


async def test_the_request_log_names_the_principal(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with opened(public_agents=("echo",)) as app:
        key = (await make_key(app, principal="alice")).text
        for endpoint in ENDPOINTS.values():
            for headers in ([], [("X-API-Key", key)]):
                assert (await endpoint(app, headers)).status == 200
    lines = [line.__dict__ for line in caplog.records if line.name == "dragoman.access" and "agent" in line.__dict__]
    assert Counter(line.get("principal") for line in lines) == {None: len(ENDPOINTS), "alice": len(ENDPOINTS)}


# Public agents -------------------------------------------------------------------------------------------------


async def test_a_public_agent_needs_no_credentials_and_others_do(opened: Open) -> None:
    async with opened(public_agents=("echo",)) as app:
        for endpoint in ENDPOINTS.values():
            assert (await endpoint(app, [])).status == 200
        value = await send("echo")(app, [])
        assert value.body["task"]["artifacts"][0]["parts"][0]["text"] == "anonymous"
        value = await send("echo")(app, OPERATOR)
        assert value.body["task"]["artifacts"][0]["parts"][0]["text"] == "token"
        value = await send("guarded")(app, [])
        assert (value.status, value.challenge) == (401, 'Bearer realm="dragoman"')
        assert (await send("guarded")(app, OPERATOR)).status == 200
        assert (await send("echo")(app, [("Authorization", "Bearer wrong")])).status == 401
        for body in (rpc_call("SendMessage", {"tenant": "guarded", "message": MESSAGE}), rpc_call("GetTask", {})):
            assert (await over_http("POST", "/guarded", body)(app, [])).status == 401
        async with Client(str(app.grpc), agent="guarded") as client:
            with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                await client.send(message("hi"))


async def test_all_agents_can_be_public(opened: Open) -> None:
    async with opened(public_agents=("*",)) as app:
        assert (await send("guarded")(app, [])).status == 200
        async with Operator(str(app.grpc)) as operator:
            with pytest.raises(ClientError, match="UNAUTHENTICATED"):
                await operator.list_keys(ops.ListKeysRequest())


async def test_an_unknown_public_agent_is_rejected(opened: Open) -> None:
    with pytest.raises(SettingsError, match=r"^--public-agents: agent nobody is not served$"):
        async with opened(public_agents=("echo", "nobody")):
            pass


async def test_the_card_of_a_public_agent_requires_nothing(opened: Open) -> None:
    async with opened(public_agents=("echo",)) as app:
        public, other = [(await over_http("GET", path)(app, [])).body for path in (CARD, f"/guarded{CARD}")]
        assert set(public["securitySchemes"]) == set(other["securitySchemes"]) == {"bearer", "apiKey"}
        assert not {"security", "securityRequirements"} & set(public)
        assert other["security"] == [{"bearer": []}, {"apiKey": []}]
        assert other["securityRequirements"] == [{"schemes": {name: {"list": []}}} for name in ("bearer", "apiKey")]
        async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
            card = await v03_rpc.A2AServiceStub(channel).GetAgentCard(v03.GetAgentCardRequest(tenant="guarded"))
        assert [dict(one.schemes) for one in card.security] == [
            {"bearer": v03.StringList()},
            {"apiKey": v03.StringList()},
        ]
        assert card.security_schemes["apiKey"].api_key_security_scheme.name == "X-API-Key"


# Cards and pages -----------------------------------------------------------------------------------------------


async def test_callers_without_access_see_the_public_card(opened: Open) -> None:
    async with opened() as app:
        key = (await make_key(app, grants=["agent:guarded"])).text
        mine: Headers = [("X-API-Key", key)]
        for path, headers, extended in (
            ("/v1/card", mine, False),
            ("/guarded/v1/card", mine, True),
            ("/v1/card", OPERATOR, True),
            ("/v1/card", [], False),
        ):
            card = (await over_http("GET", path)(app, headers)).body
            assert ("Whisper" in [skill["name"] for skill in card["skills"]]) is extended
        assert (await over_http("GET", "/extendedAgentCard")(app, mine)).status == 403
        assert (await over_http("GET", "/guarded/extendedAgentCard")(app, mine)).status == 200


async def test_pages_can_be_private(opened: Open) -> None:
    pages = ("/", "/agents", "/docs", "/openapi.json", "/openapi/", CARD, "/.well-known/agent.json", "/v1/card")
    async with opened(private_pages=True) as app:
        for path in pages:
            response = await over_http("GET", path)(app, [])
            assert (response.status, response.challenge) == (401, 'Bearer realm="dragoman"'), path
            assert (await over_http("GET", path)(app, OPERATOR)).status == 200, path
        for path in ("/healthz", "/readyz"):
            assert (await over_http("GET", path)(app, [])).status == 200
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{app.http}{CARD}", headers=dict(OPERATOR)) as answer,
        ):
            assert answer.headers["Cache-Control"] == "private, no-cache"
            assert "Authorization" in answer.headers["Vary"]
        async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await v03_rpc.A2AServiceStub(channel).GetAgentCard(v03.GetAgentCardRequest())
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_private_cards_are_listed_for_callers_with_access(opened: Open) -> None:
    async with opened(private_pages=True, public_agents=("echo",)) as app:
        key = (await make_key(app, grants=["agent:guarded"])).text
        mine: Headers = [("X-API-Key", key)]
        for path, headers, status in (
            (CARD, [], 200),
            (f"/guarded{CARD}", [], 401),
            (f"/guarded{CARD}", mine, 200),
            (f"/slow{CARD}", mine, 404),
            (f"/nobody{CARD}", mine, 404),
            (f"/nobody{CARD}", [], 401),
            ("/agents", [], 401),
            ("/agents", mine, 200),
        ):
            assert (await over_http("GET", path)(app, headers)).status == status, path
        for path in ("/agents", "/"):
            assert [spec["id"] for spec in (await over_http("GET", path)(app, mine)).body["agents"]] == ["guarded"]


def endpoints_of(agent: str) -> dict[str, Endpoint]:
    """All forms of an agent's name."""

    async def by_grpc(app: App, headers: Headers) -> Response:
        metadata = tuple((name.lower(), value) for name, value in headers)
        async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await rpc.A2AServiceStub(channel).GetTask(pb.GetTaskRequest(id="x", tenant=agent), metadata=metadata)
        found = {grpc.StatusCode.UNAUTHENTICATED: 401, grpc.StatusCode.NOT_FOUND: 404}[refused.value.code()]
        return Response(found, str(refused.value.details()))

    return {
        "gRPC": by_grpc,
        "REST 1.0": over_http("GET", f"/{agent}/tasks/x"),
        "REST 0.3": over_http("GET", f"/{agent}/v1/tasks/x"),
        "JSON-RPC by path": over_http("POST", f"/{agent}", rpc_call("GetTask", {"id": "x"})),
        "JSON-RPC by tenant": over_http("POST", "/", rpc_call("GetTask", {"id": "x", "tenant": agent})),
        "card": over_http("GET", f"/{agent}{CARD}"),
        "card of 0.1": over_http("GET", f"/{agent}/.well-known/agent.json"),
        "card of 0.3": over_http("GET", f"/{agent}/v1/card"),
    }


async def test_with_private_pages_inaccessible_agents_look_unknown(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(private_pages=True, public_agents=("echo",)) as app:
        key = (await make_key(app, grants=["agent:guarded"])).text
        mine: Headers = [("X-API-Key", key)]
        for headers, status in (([], 401), (mine, 404)):
            for name, hidden in endpoints_of("slow").items():
                response, of_none = await hidden(app, headers), await endpoints_of("gone")[name](app, headers)
                assert (response.status, response.text) == (of_none.status, of_none.text.replace("gone", "slow")), name
                assert response.status == (200 if headers and name.startswith("JSON-RPC") else status), name
                assert "echo" not in response.text, name
                assert ("guarded" in response.text) == (bool(headers) and name not in ("card", "card of 0.1")), name
        # the key has no access to the root agent either, so its name is not revealed
        for path, status in (("/tasks", 404), (CARD, 404)):
            root = await over_http("GET", path)(app, mine)
            assert (root.status, "echo" in root.text) == (status, False)
    assert 'these credentials do not reach agent "slow"' in caplog.text


# Revocation --------------------------------------------------------------------------------------------------


async def revoke(app: App, id: str) -> None:
    async with Operator(str(app.grpc), token=STATIC) as operator:
        await operator.revoke_key(ops.RevokeKeyRequest(id=id))


async def test_revoked_and_rotated_keys_are_rejected_at_once(opened: Open) -> None:
    async with opened() as app, Operator(str(app.grpc), token=STATIC) as operator:
        response = await make_key(app)
        for endpoint in ENDPOINTS.values():
            assert (await endpoint(app, [("X-API-Key", response.text)])).status == 200
        request = ops.RotateKeyRequest(id=response.key.id)
        request.grace.FromSeconds(3600)
        rotated = await operator.rotate_key(request)
        for text in (response.text, rotated.text):
            assert (await ENDPOINTS["REST 1.0"](app, [("X-API-Key", text)])).status == 200
        last = await operator.rotate_key(ops.RotateKeyRequest(id=response.key.id))
        for text, status in ((response.text, 401), (rotated.text, 401), (last.text, 200)):
            assert (await ENDPOINTS["gRPC 1.0"](app, [("X-API-Key", text)])).status == status
        await revoke(app, response.key.id)
        for endpoint in ENDPOINTS.values():
            assert (await endpoint(app, [("X-API-Key", last.text)])).status == 401


@pytest.mark.parametrize("binding", ["grpc", "rest", "jsonrpc", "ws"])
async def test_streams_of_a_revoked_key_end_with_the_reason(opened: Open, binding: str) -> None:
    async with opened(check_interval=0.01) as app:
        response, other = await make_key(app), await make_key(app)
        address = str(app.grpc) if binding == "grpc" else f"http://{app.http}"
        async with (
            Client(
                address, agent="slow", binding=binding, options=CallOptions(token=response.text), retry_timeout=0
            ) as client,
            Client(
                address, agent="slow", binding=binding, options=CallOptions(token=other.text), retry_timeout=0
            ) as neighbour,
        ):
            mine, theirs = client.stream(message("go")), neighbour.stream(message("go"))
            task = (await anext(theirs)).task.id
            await anext(mine)
            await revoke(app, response.key.id)
            if binding == "ws":  # the connection is closed, and another one needs a valid key
                with pytest.raises(ServerUnavailable, match="ended the stream"):
                    await read(mine)
                ending: Awaitable[object] = client.get(task)
            else:
                ending = read(mine)
            with pytest.raises(ClientError) as caught:
                await ending
            assert "UNAUTHENTICATED" in (caught.value.code, caught.value.reason)
            await neighbour.cancel(task)
            assert (await read(theirs))[-1].status_update.status.state == states.CANCELED


async def read(events: AsyncIterator[pb.StreamResponse]) -> list[pb.StreamResponse]:
    """Reads a stream to its end."""
    async with asyncio.timeout(60):
        return [event async for event in events]


async def test_every_call_on_a_websocket_is_authenticated(opened: Open) -> None:
    async with opened() as app, aiohttp.ClientSession() as session:
        response = await make_key(app)
        async with session.ws_connect(f"http://{app.http}/ws", headers={"X-API-Key": response.text}) as socket:
            await socket.send_json(rpc_call("SendMessage", {"message": MESSAGE}))
            assert "result" in await socket.receive_json()
            await revoke(app, response.key.id)
            await socket.send_json(rpc_call("SendMessage", {"message": MESSAGE}))
            value = await socket.receive_json()
        assert value["error"]["data"][0]["reason"] == "UNAUTHENTICATED"


async def test_credentials_are_ignored_without_authentication(opened: Open) -> None:
    async with opened(token="", api_keys=False) as app:
        for headers in ([], OPERATOR, OPERATOR + OPERATOR, [("X-API-Key", "x")]):
            assert (await ENDPOINTS["REST 1.0"](app, headers)).status == 200
        card = (await over_http("GET", CARD)(app, [])).body
        assert not {"security", "securitySchemes", "securityRequirements"} & set(card)
