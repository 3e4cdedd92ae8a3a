"""Cards by path and version, everything an agent may say of itself in each shape, and the card behind the token."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from dragoman import Turn, agent
from dragoman.core.cards.agent_spec import SERVER_EXTENSIONS
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

NEW, OLD = "/.well-known/agent-card.json", "/.well-known/agent.json"
PATHS = (NEW, OLD)
CITE = "https://ext.example/cite/v1"
AUTHORIZATION_CODE = {
    "authorizationUrl": "https://id.example/authorize",
    "tokenUrl": "https://id.example/token",
    "scopes": {"read": "May read"},
}
SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Key", "description": "Ask us for one"},
    "oauth": {
        "type": "oauth2",
        "flows": {
            "authorizationCode": AUTHORIZATION_CODE,
            "clientCredentials": {"tokenUrl": "https://id.example/token"},
        },
        "oauth2MetadataUrl": "https://id.example/.well-known/oauth-authorization-server",
    },
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example/.well-known/openid-configuration"},
    "tls": {"type": "mutualTLS"},
}


@agent(
    id="rich",
    default=True,
    description="Says everything of itself",
    provider={"organization": "Acme", "url": "https://acme.example"},
    extensions=[CITE, {"uri": CITE + "/more", "required": False, "params": {"depth": 3, "of": ["a", None]}}],
    security_schemes=SCHEMES,
    security=[{"bearer": []}, {"oauth": ["read"], "tls": []}],
    state_transition_history=True,
    skills=["Talk"],
    extended_skills=["Whisper"],
)
async def rich(turn: Turn) -> str:
    return turn.text


@agent(id="plain")
async def plain(turn: Turn) -> str:
    return turn.text


@dataclass
class Server:
    http: aiohttp.ClientSession
    v1: Any
    v03: Any

    async def card(self, path: str = NEW, **headers: str) -> dict[str, Any]:
        async with self.http.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()}) as a:
            assert a.status == 200
            assert a.content_type == "application/json"
            found: dict[str, Any] = await a.json()
            return found


@asynccontextmanager
async def serving(tmp_path: Path, **more: Any) -> AsyncIterator[Server]:
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/{len(more)}.db", **more)
    async with (
        open_app(settings, [rich, plain]) as app,
        aiohttp.ClientSession(f"http://{app.http}") as session,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        yield Server(session, rpc.A2AServiceStub(channel), v03_rpc.A2AServiceStub(channel))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path) as found:
        yield found


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncIterator[Server]:
    """A server that asks for a token."""
    async with serving(tmp_path, token=TOKEN) as found:
        yield found


# By path and version ---------------------------------------------------------------------------------------

V1_KEYS = {
    "name", "description", "supportedInterfaces", "provider", "version", "capabilities", "securitySchemes",
    "securityRequirements", "defaultInputModes", "defaultOutputModes", "skills",
}  # fmt: skip
V03_KEYS = {
    "protocolVersion", "name", "description", "url", "preferredTransport", "additionalInterfaces", "provider",
    "version", "capabilities", "securitySchemes", "security", "defaultInputModes", "defaultOutputModes", "skills",
}  # fmt: skip
V01_KEYS = {
    "name", "description", "url", "provider", "version", "capabilities", "authentication", "defaultInputModes",
    "defaultOutputModes", "skills",
}  # fmt: skip

SHAPES: list[tuple[str, str | None, set[str]]] = [
    *((path, version, V1_KEYS) for path in PATHS for version in ("1.0", "1.0.1", "1.0, 0.3")),
    *((path, version, V03_KEYS) for path in PATHS for version in ("0.3", "0.3.0", "0.2", "0.2.6")),
    *((path, version, V01_KEYS) for path in PATHS for version in ("0.1", "0.1.0")),
    *((NEW, version, V1_KEYS | V03_KEYS) for version in (None, "", "1", "1.1")),
    *((OLD, version, V1_KEYS | V03_KEYS | V01_KEYS) for version in (None, "", "1", "1.1")),
]


@pytest.mark.parametrize(("path", "version", "keys"), SHAPES)
async def test_the_version_a_reader_names_says_which_keys_it_gets(
    server: Server, path: str, version: str | None, keys: set[str]
) -> None:
    card = await server.card(path, **({} if version is None else {"A2A_Version": version}))
    assert set(card) == keys
    assert card["name"] == "Rich"


async def test_the_version_may_stand_in_the_query(server: Server) -> None:
    assert set(await server.card(f"{NEW}?A2A-Version=0.3")) == V03_KEYS
    assert set(await server.card(f"{OLD}?A2A-Version=0.1")) == V01_KEYS


@pytest.mark.parametrize("path", [*PATHS, f"/plain{NEW}", f"/plain{OLD}"])
@pytest.mark.parametrize("version", ["2.0", "0.4", "99", "new", "1.0, 99.0"])
async def test_a_version_nobody_knows_is_refused_and_the_known_ones_are_named(
    server: Server, path: str, version: str
) -> None:
    async with server.http.get(path, headers={"A2A-Version": version}) as answer:
        assert answer.status == 400
        (info, *_) = (await answer.json())["error"]["details"]
        assert (info["reason"], info["metadata"]["supported"]) == ("VERSION_NOT_SUPPORTED", "1.0, 0.3, 0.2, 0.1")


async def test_each_shape_has_a_tag_of_its_own_and_says_what_it_varies_by(server: Server) -> None:
    tags = {}
    for path in PATHS:
        for version in ("1.0", "0.3", "0.2", "0.1", ""):
            async with server.http.get(path, headers={"A2A-Version": version}) as answer:
                assert answer.headers["Vary"] == "A2A-Version"
                assert answer.headers["Cache-Control"] == "public, max-age=300"
                tags[path, version] = answer.headers["ETag"]
    assert len({tags[path, version] for path in PATHS for version in ("1.0", "0.3", "0.1", "")}) == 5
    for version in ("1.0", "0.3", "0.1"):
        assert tags[NEW, version] == tags[OLD, version]
    for (path, version), tag in tags.items():
        headers = {"A2A-Version": version, "If-None-Match": tag}
        async with server.http.get(path, headers=headers) as answer:
            assert (answer.status, answer.headers["ETag"], answer.headers["Vary"]) == (304, tag, "A2A-Version")
        # The card of another version is not what its reader has.
        other = "0.1" if version != "0.1" else "1.0"
        async with server.http.get(path, headers={**headers, "A2A-Version": other}) as answer:
            assert answer.status == 200


async def test_origins_that_may_call_are_one_more_thing_it_varies_by(tmp_path: Path) -> None:
    async with serving(tmp_path, cors=("https://app.example",)) as server:
        for origin, vary in (
            ("https://app.example", "A2A-Version, Origin"),
            (None, "A2A-Version, Origin"),
            ("https://else.example", "Origin"),  # it is refused
        ):
            async with server.http.get(NEW, headers={"Origin": origin} if origin else {}) as answer:
                assert answer.headers.getall("Vary") == [vary]


# Everything an agent says of itself ------------------------------------------------------------------------

MEMBERS: dict[str, dict[str, Any]] = {
    "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"}},
    "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": "Ask us for one"}},
    "oauth": {
        "oauth2SecurityScheme": {
            "flows": {"authorizationCode": AUTHORIZATION_CODE},
            "oauth2MetadataUrl": "https://id.example/.well-known/oauth-authorization-server",
        }
    },
    "oidc": {
        "openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example/.well-known/openid-configuration"}
    },
    "tls": {"mtlsSecurityScheme": {}},
}
"""The schemes in the shape of 1.0, whose message holds one flow: the first."""
OPENAPI = {name: dict(scheme) for name, scheme in SCHEMES.items()}
OPENAPI["oauth"]["flows"] = {
    "authorizationCode": AUTHORIZATION_CODE,
    "clientCredentials": {"tokenUrl": "https://id.example/token", "scopes": {}},
}
EXTENSIONS = [{"uri": CITE}, {"uri": CITE + "/more", "params": {"depth": 3, "of": ["a", None]}}]
SECURITY = [{"bearer": []}, {"oauth": ["read"], "tls": []}]
REQUIREMENTS = [
    {"schemes": {"bearer": {"list": []}}},
    {"schemes": {"oauth": {"list": ["read"]}, "tls": {"list": []}}},
]
OURS = [{"uri": extension.uri, "description": extension.description} for extension in SERVER_EXTENSIONS]
PROVIDER = {"organization": "Acme", "url": "https://acme.example"}


async def test_1_0_shows_everything(server: Server) -> None:
    card = await server.card(A2A_Version="1.0")
    assert card["securitySchemes"] == MEMBERS
    assert card["securityRequirements"] == REQUIREMENTS
    assert card["capabilities"].pop("extensions") == [*EXTENSIONS, *OURS]
    assert card["capabilities"] == {"streaming": True, "pushNotifications": True}
    assert card["provider"] == PROVIDER


@pytest.mark.parametrize("version", ["0.3", "0.2"])
async def test_0_3_shows_everything(server: Server, version: str) -> None:
    card = await server.card(A2A_Version=version)
    assert card["securitySchemes"] == OPENAPI
    assert card["security"] == SECURITY
    assert card["capabilities"]["extensions"] == [*EXTENSIONS, *OURS]
    assert card["capabilities"]["stateTransitionHistory"] is True
    assert card["provider"] == PROVIDER
    async with server.http.get("/v1/card") as answer:
        assert await answer.json() == card


async def test_0_1_shows_what_it_has_a_place_for(server: Server) -> None:
    card = await server.card(A2A_Version="0.1")
    assert card["authentication"] == {"schemes": ["Bearer", "apiKey", "oauth2", "openIdConnect", "mutualTLS"]}
    assert card["capabilities"] == {"streaming": True, "pushNotifications": True, "stateTransitionHistory": True}
    assert card["provider"] == PROVIDER
    card = await server.card(f"/plain{OLD}", A2A_Version="0.1")
    assert card["authentication"] == {"schemes": []}
    assert card["capabilities"]["stateTransitionHistory"] is False


@pytest.mark.parametrize("path", PATHS)
async def test_the_card_for_everyone_shows_each_in_the_shapes_of_all(server: Server, path: str) -> None:
    card = await server.card(path)
    assert card["securitySchemes"] == {name: {**OPENAPI[name], **MEMBERS[name]} for name in SCHEMES}
    assert (card["security"], card["securityRequirements"]) == (SECURITY, REQUIREMENTS)
    assert card["capabilities"]["extensions"] == [*EXTENSIONS, *OURS]
    assert card["capabilities"]["stateTransitionHistory"] is True
    assert card["provider"] == PROVIDER


async def test_over_grpc_the_messages_show_the_same(server: Server, locked: Server) -> None:
    old = await server.v03.GetAgentCard(v03_pb.GetAgentCardRequest())
    assert {name: MessageToDict(scheme) for name, scheme in old.security_schemes.items()} == MEMBERS
    assert [dict(one.schemes) for one in old.security] == [
        {"bearer": v03_pb.StringList()},
        {"oauth": v03_pb.StringList(list=["read"]), "tls": v03_pb.StringList()},
    ]
    assert old.capabilities.state_transition_history
    assert [extension.uri for extension in old.capabilities.extensions][:2] == [CITE, CITE + "/more"]
    assert (old.provider.organization, old.provider.url) == ("Acme", "https://acme.example")
    new = await locked.v1.GetExtendedAgentCard(pb.GetExtendedAgentCardRequest(), metadata=GRPC_BEARER)
    # Of what the agent declares, what this server asks for.
    assert {name: MessageToDict(scheme) for name, scheme in new.security_schemes.items()} == {
        "bearer": MEMBERS["bearer"]
    }
    assert [dict(one.schemes) for one in new.security_requirements] == [{"bearer": pb.StringList()}]
    assert [extension.uri for extension in new.capabilities.extensions][:2] == [CITE, CITE + "/more"]


async def test_who_says_little_is_shown_with_little(server: Server) -> None:
    card = await server.card(f"/plain{OLD}")
    assert not {"securitySchemes", "security", "securityRequirements", "provider"} & set(card)
    assert card["capabilities"]["extensions"] == OURS


# Behind the token ------------------------------------------------------------------------------------------

TOKEN = "open sesame"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
GRPC_BEARER = (("authorization", f"Bearer {TOKEN}"),)
WRONG = [{"Authorization": "Bearer wrong"}, {"Authorization": "bearer"}, {"Authorization": f"Bearer {TOKEN}x"}]
WORDS = {"Bearer wrong": "invalid_token", "bearer": "invalid_request", f"Bearer {TOKEN}x": "invalid_token"}
OTHER = {"Authorization": "Basic b3Blbjpz"}
"""A scheme that we know nothing of: as if it had not been said."""


def word(answer: aiohttp.ClientResponse) -> str | None:
    """What a challenge says is wrong with the credentials (RFC 6750 §3.1); None when there were none."""
    challenge = answer.headers["WWW-Authenticate"]
    assert challenge.startswith('Bearer realm="dragoman"')
    found = re.search(r'error="([^"]*)"', challenge)
    return found[1] if found else None


def skills(card: Mapping[str, Any]) -> list[str]:
    return [skill["name"] for skill in card["skills"]]


def declares(card: Mapping[str, Any]) -> tuple[Any, Any]:
    """What a card says of an extended one, in the words of 1.0 and of 0.3."""
    return card["capabilities"].get("extendedAgentCard"), card.get("supportsAuthenticatedExtendedCard")


async def test_it_is_declared_where_there_is_a_token_and_more_to_show(server: Server, locked: Server) -> None:
    for path in PATHS:
        assert declares(await locked.card(path)) == (True, True)
        assert declares(await locked.card(path, A2A_Version="1.0")) == (True, None)
        assert declares(await locked.card(path, A2A_Version="0.3")) == (None, True)
        assert skills(await locked.card(path)) == ["Talk"]
        for one in (await server.card(path), await server.card("/plain" + path), await locked.card("/plain" + path)):
            assert declares(one) == (None, None)


async def test_the_public_card_is_public_whoever_asks(locked: Server) -> None:
    for headers in (BEARER, OTHER, *WRONG):
        assert skills(await locked.card(NEW, **headers)) == ["Talk"]


async def test_0_3_over_rest_shows_the_extended_card_to_who_may_see_it(locked: Server) -> None:
    for headers, shown, cached in ((BEARER, ["Talk", "Whisper"], "private"), ({}, ["Talk"], "public")):
        async with locked.http.get("/v1/card", headers=headers) as answer:
            assert answer.status == 200
            assert skills(await answer.json()) == shown
            assert answer.headers["Cache-Control"].startswith(cached), "no cache may hand it to others"
            assert answer.headers["Vary"] == "Authorization, X-API-Key"
    async with locked.http.get("/v1/card", headers=OTHER) as answer:
        assert skills(await answer.json()) == ["Talk"]
    async with locked.http.get("/plain/v1/card", headers=BEARER) as answer:
        assert skills(await answer.json()) == ["Plain"]


async def test_1_0_over_rest(locked: Server) -> None:
    async with locked.http.get("/extendedAgentCard", headers=BEARER) as answer:
        card = await answer.json()
        assert (answer.status, skills(card), set(card)) == (200, ["Talk", "Whisper"], V1_KEYS)
        assert answer.headers["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize("credentials", [{}, OTHER, *WRONG])
async def test_over_rest_nobody_else_gets_it(locked: Server, credentials: dict[str, str]) -> None:
    async with locked.http.get("/extendedAgentCard", headers=credentials) as answer:
        assert (answer.status, word(answer)) == (401, WORDS.get(credentials.get("Authorization", "")))
        assert "Whisper" not in await answer.text()
    if credentials in WRONG:
        async with locked.http.get("/v1/card", headers=credentials) as answer:
            assert (answer.status, word(answer)) == (401, WORDS[credentials["Authorization"]])


CALLS = {
    "GetExtendedAgentCard": V1_KEYS,
    "agent/getAuthenticatedExtendedCard": V03_KEYS | {"supportsAuthenticatedExtendedCard"},
    "agent/authenticatedExtendedCard": V1_KEYS,
}


def call(method: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method}


@pytest.mark.parametrize("method", CALLS)
async def test_over_json_rpc(locked: Server, method: str) -> None:
    async with locked.http.post("/", json=call(method), headers=BEARER) as answer:
        assert answer.status == 200
        card = (await answer.json())["result"]
    assert skills(card) == ["Talk", "Whisper"]
    assert set(card) == CALLS[method]
    for credentials in ({}, OTHER, *WRONG):
        async with locked.http.post("/", json=call(method), headers=credentials) as answer:
            assert (answer.status, word(answer)) == (401, WORDS.get(credentials.get("Authorization", "")))
            value = await answer.json()
            assert value["jsonrpc"] == "2.0"
            assert value["error"]["message"]
            assert "result" not in value


async def test_over_websocket_the_request_that_opens_it_shows_the_token(locked: Server) -> None:
    async with locked.http.ws_connect("/ws", headers=BEARER) as socket:
        await socket.send_json(call("GetExtendedAgentCard"))
        assert skills((await socket.receive_json())["result"]) == ["Talk", "Whisper"]
    for headers in ({}, OTHER, *WRONG):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await locked.http.ws_connect("/ws", headers=headers)
        assert refused.value.status == 401


async def test_over_grpc(locked: Server) -> None:
    card = await locked.v1.GetExtendedAgentCard(pb.GetExtendedAgentCardRequest(), metadata=GRPC_BEARER)
    assert [skill.name for skill in card.skills] == ["Talk", "Whisper"]
    assert card.capabilities.extended_agent_card
    old = await locked.v03.GetAgentCard(v03_pb.GetAgentCardRequest(), metadata=GRPC_BEARER)
    assert [skill.name for skill in old.skills] == ["Talk", "Whisper"]
    assert old.supports_authenticated_extended_card
    old = await locked.v03.GetAgentCard(v03_pb.GetAgentCardRequest())
    assert [skill.name for skill in old.skills] == ["Talk"]
    for credentials in ({}, OTHER, *WRONG):
        metadata = [(name.lower(), value) for name, value in credentials.items()]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await locked.v1.GetExtendedAgentCard(pb.GetExtendedAgentCardRequest(), metadata=metadata)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await locked.v03.GetAgentCard(v03_pb.GetAgentCardRequest(), metadata=[("authorization", "Bearer wrong")])
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_where_none_is_declared_there_is_none(server: Server, locked: Server) -> None:
    for one, tenant, headers in ((server, "", {}), (server, "", BEARER), (locked, "plain", BEARER)):
        path = f"/{tenant}" if tenant else ""
        async with one.http.get(f"{path}/extendedAgentCard", headers=headers) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"
        for method, code in (("GetExtendedAgentCard", -32004), ("agent/getAuthenticatedExtendedCard", -32007)):
            async with one.http.post(path or "/", json=call(method), headers=headers) as answer:
                assert (await answer.json())["error"]["code"] == code
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await one.v1.GetExtendedAgentCard(
                pb.GetExtendedAgentCardRequest(tenant=tenant),
                metadata=[(name.lower(), value) for name, value in headers.items()],
            )
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_the_token_goes_with_every_call_and_a_wrong_one_with_none(locked: Server) -> None:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    async with locked.http.post("/message:send", json=body, headers=BEARER) as answer:
        task = (await answer.json())["task"]["id"]
    for headers, status in ((BEARER, 200), ({}, 401), (WRONG[0], 401)):
        async with locked.http.get(f"/tasks/{task}", headers=headers) as answer:
            assert answer.status == status
    async with locked.http.post("/message:send", json=body, headers=WRONG[0]) as answer:
        assert answer.status == 401
