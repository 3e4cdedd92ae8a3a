"""Cards by path and version, every field in each version, and the extended card."""

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
from google.protobuf.json_format import MessageToDict, ParseDict

from dragoman import Turn, agent
from dragoman.core.cards.agent_spec import SERVER_EXTENSIONS
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

pytestmark = pytest.mark.long

CARD, LEGACY_CARD = "/.well-known/agent-card.json", "/.well-known/agent.json"
PATHS = (CARD, LEGACY_CARD)
VARY = "A2A-Version, A2A-Extensions"
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
    description="Declares everything",
    provider={"organization": "Acme", "url": "https://acme.example"},
    extensions=[CITE, {"uri": CITE + "/more", "required": False, "params": {"depth": 3, "of": ["a", None]}}],
    security_schemes=SCHEMES,
    security=[{"bearer": []}, {"oauth": ["read"], "tls": []}],
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

    async def card(self, path: str = CARD, **headers: str) -> dict[str, Any]:
        async with self.http.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()}) as a:
            assert a.status == 200
            assert a.content_type == "application/json"
            found: dict[str, Any] = await a.json()
            return found


@asynccontextmanager
async def serving(tmp_path: Path, **options: Any) -> AsyncIterator[Server]:
    any_port = Address("127.0.0.1", 0)
    settings = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/{len(options)}.db", **options)
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
    """A server that requires a token."""
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
    *((CARD, version, V1_KEYS | V03_KEYS) for version in (None, "", "1", "1.1")),
    *((LEGACY_CARD, version, V1_KEYS | V03_KEYS | V01_KEYS) for version in (None, "", "1", "1.1")),
]


@pytest.mark.parametrize(("path", "version", "keys"), SHAPES)
async def test_the_requested_version_decides_the_keys(
    server: Server, path: str, version: str | None, keys: set[str]
) -> None:
    card = await server.card(path, **({} if version is None else {"A2A_Version": version}))
    assert set(card) == keys
    assert card["name"] == "Rich"


async def test_the_version_can_be_in_the_query(server: Server) -> None:
    assert set(await server.card(f"{CARD}?A2A-Version=0.3")) == V03_KEYS
    assert set(await server.card(f"{LEGACY_CARD}?A2A-Version=0.1")) == V01_KEYS


@pytest.mark.parametrize("path", [*PATHS, f"/plain{CARD}", f"/plain{LEGACY_CARD}"])
@pytest.mark.parametrize("version", ["2.0", "0.4", "99", "new", "1.0, 99.0"])
async def test_an_unsupported_version_is_rejected_with_the_supported_ones(
    server: Server, path: str, version: str
) -> None:
    async with server.http.get(path, headers={"A2A-Version": version}) as answer:
        assert answer.status == 400
        (info, *_) = (await answer.json())["error"]["details"]
        assert (info["reason"], info["metadata"]["supported"]) == ("VERSION_NOT_SUPPORTED", "1.0, 0.3, 0.2, 0.1")


async def test_each_version_has_its_own_etag_and_varies_by_version(server: Server) -> None:
    tags = {}
    for path in PATHS:
        for version in ("1.0", "0.3", "0.2", "0.1", ""):
            async with server.http.get(path, headers={"A2A-Version": version}) as answer:
                assert answer.headers["Vary"] == VARY
                assert answer.headers["Cache-Control"] == "public, max-age=300"
                tags[path, version] = answer.headers["ETag"]
    assert len({tags[path, version] for path in PATHS for version in ("1.0", "0.3", "0.1", "")}) == 5
    for version in ("1.0", "0.3", "0.1"):
        assert tags[CARD, version] == tags[LEGACY_CARD, version]
    for (path, version), tag in tags.items():
        headers = {"A2A-Version": version, "If-None-Match": tag}
        async with server.http.get(path, headers=headers) as answer:
            assert (answer.status, answer.headers["ETag"], answer.headers["Vary"]) == (304, tag, VARY)
        # The tag of another version does not match.
        other = "0.1" if version != "0.1" else "1.0"
        async with server.http.get(path, headers={**headers, "A2A-Version": other}) as answer:
            assert answer.status == 200


async def test_with_cors_cards_also_vary_by_origin(tmp_path: Path) -> None:
    async with serving(tmp_path, cors=("https://app.example",)) as server:
        for origin, vary in (
            ("https://app.example", f"{VARY}, Origin"),
            (None, f"{VARY}, Origin"),
            ("https://else.example", "Origin"),  # it is rejected
        ):
            async with server.http.get(CARD, headers={"Origin": origin} if origin else {}) as answer:
                assert answer.headers.getall("Vary") == [vary]


# Every field ------------------------------------------------------------------------------------------------

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
"""The schemes in the shape of 1.0, whose message has one flow: the first."""
OPENAPI = {name: dict(scheme) for name, scheme in SCHEMES.items()}
OPENAPI["oauth"]["flows"] = {
    "authorizationCode": AUTHORIZATION_CODE,
    "clientCredentials": {"tokenUrl": "https://id.example/token", "scopes": {}},
}
OPENAPI["key"]["in_"] = "header"  # as fasta2a 0.4.1 to 0.6 spells it
EXTENSIONS = [{"uri": CITE}, {"uri": CITE + "/more", "params": {"depth": 3, "of": ["a", None]}}]
SECURITY = [{"bearer": []}, {"oauth": ["read"], "tls": []}]
REQUIREMENTS = [
    {"schemes": {"bearer": {"list": []}}},
    {"schemes": {"oauth": {"list": ["read"]}, "tls": {"list": []}}},
]
OURS = [{"uri": extension.uri, "description": extension.description} for extension in SERVER_EXTENSIONS]
PROVIDER = {"organization": "Acme", "url": "https://acme.example"}


CAPABILITIES = {"streaming": True, "pushNotifications": True, "extensions": [*EXTENSIONS, *OURS]}
SINCE_0_3 = {"capabilities": CAPABILITIES, "provider": PROVIDER}

FIELDS: dict[str, dict[str, Any]] = {
    "1.0": {
        "securitySchemes": MEMBERS,
        "securityRequirements": REQUIREMENTS,
        "capabilities": CAPABILITIES,
        "provider": PROVIDER,
    },
    "0.3": {"securitySchemes": OPENAPI, "security": SECURITY, **SINCE_0_3},
    "0.2": {"securitySchemes": OPENAPI, "security": SECURITY, **SINCE_0_3},
    "0.1": {
        "authentication": {"schemes": ["Bearer", "apiKey", "oauth2", "openIdConnect", "mutualTLS"]},
        "capabilities": {"streaming": True, "pushNotifications": True, "stateTransitionHistory": False},
        "provider": PROVIDER,
    },
    "": {  # the shapes of all versions
        "securitySchemes": {name: {**OPENAPI[name], **MEMBERS[name]} for name in SCHEMES},
        "security": SECURITY,
        "securityRequirements": REQUIREMENTS,
        **SINCE_0_3,
    },
}
"""The fields of a card whose agent declares everything, by the requested version."""


@pytest.mark.parametrize("version", FIELDS)
@pytest.mark.parametrize("path", PATHS)
async def test_a_card_has_every_field_of_its_version(server: Server, path: str, version: str) -> None:
    card = await server.card(path, A2A_Version=version)
    if path == LEGACY_CARD and not version:  # has the flags of 0.1 too
        assert card["capabilities"].pop("stateTransitionHistory") is False
    assert {name: card[name] for name in FIELDS[version]} == FIELDS[version]


RESOURCE = "projects/p/locations/l/collections/c/engines/e/assistants/a/agents/rich"


@pytest.mark.parametrize("path", ["/v1/card", "/rich/v1/card", f"/{RESOURCE}/card", f"/v1/{RESOURCE}/a2a/v1/card"])
async def test_0_3_over_rest_is_protojson_of_the_grpc_message(server: Server, locked: Server, path: str) -> None:
    calls: list[tuple[Server, Mapping[str, str], Any]] = [
        (server, {}, ()),
        (locked, {}, ()),
        (locked, BEARER, GRPC_BEARER),
    ]
    for one, headers, metadata in calls:
        message = await one.v03.GetAgentCard(v03_pb.GetAgentCardRequest(), metadata=metadata)
        card = await one.card(path, **headers)
        # Strict: an unknown key or a wrong shape raises.
        parsed = ParseDict(card, v03_pb.AgentCard())
        assert parsed.security_schemes == message.security_schemes
        assert list(parsed.security) == list(message.security)
        assert parsed.security, "the schemes are compared only if there are some"
        assert [skill.name for skill in parsed.skills] == [skill.name for skill in message.skills]


async def test_an_agent_without_schemes_has_none_in_0_1(server: Server) -> None:
    card = await server.card(f"/plain{LEGACY_CARD}", A2A_Version="0.1")
    assert card["authentication"] == {"schemes": []}
    assert card["capabilities"]["stateTransitionHistory"] is False


async def test_grpc_messages_have_the_same_fields(server: Server, locked: Server) -> None:
    old = await server.v03.GetAgentCard(v03_pb.GetAgentCardRequest())
    assert {name: MessageToDict(scheme) for name, scheme in old.security_schemes.items()} == MEMBERS
    assert [dict(one.schemes) for one in old.security] == [
        {"bearer": v03_pb.StringList()},
        {"oauth": v03_pb.StringList(list=["read"]), "tls": v03_pb.StringList()},
    ]
    assert [extension.uri for extension in old.capabilities.extensions][:2] == [CITE, CITE + "/more"]
    assert (old.provider.organization, old.provider.url) == ("Acme", "https://acme.example")
    new = await locked.v1.GetExtendedAgentCard(pb.GetExtendedAgentCardRequest(), metadata=GRPC_BEARER)
    # Of the schemes that the agent declares, only those that this server requires.
    assert {name: MessageToDict(scheme) for name, scheme in new.security_schemes.items()} == {
        "bearer": MEMBERS["bearer"]
    }
    assert [dict(one.schemes) for one in new.security_requirements] == [{"bearer": pb.StringList()}]
    assert [extension.uri for extension in new.capabilities.extensions][:2] == [CITE, CITE + "/more"]


async def test_a_minimal_agent_has_a_minimal_card(server: Server) -> None:
    card = await server.card(f"/plain{LEGACY_CARD}")
    assert not {"securitySchemes", "security", "securityRequirements", "provider"} & set(card)
    assert card["capabilities"]["extensions"] == OURS


# The extended card ------------------------------------------------------------------------------------------

TOKEN = "open sesame"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
GRPC_BEARER = (("authorization", f"Bearer {TOKEN}"),)
WRONG = [{"Authorization": "Bearer wrong"}, {"Authorization": "bearer"}, {"Authorization": f"Bearer {TOKEN}x"}]
CHALLENGE_ERRORS = {"Bearer wrong": "invalid_token", "bearer": "invalid_request", f"Bearer {TOKEN}x": "invalid_token"}
OTHER = {"Authorization": "Basic b3Blbjpz"}
"""An unknown scheme, which is treated as no credentials."""


def challenge_error(answer: aiohttp.ClientResponse) -> str | None:
    """Returns the error of a challenge (RFC 6750 §3.1); None without credentials."""
    challenge = answer.headers["WWW-Authenticate"]
    assert challenge.startswith('Bearer realm="dragoman"')
    match = re.search(r'error="([^"]*)"', challenge)
    return match[1] if match else None


def skills(card: Mapping[str, Any]) -> list[str]:
    return [skill["name"] for skill in card["skills"]]


def declares(card: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the fields that declare an extended card, in 1.0 and in 0.3."""
    return card["capabilities"].get("extendedAgentCard"), card.get("supportsAuthenticatedExtendedCard")


async def test_it_is_declared_with_authentication_and_extended_skills(server: Server, locked: Server) -> None:
    for path in PATHS:
        assert declares(await locked.card(path)) == (True, True)
        assert declares(await locked.card(path, A2A_Version="1.0")) == (True, None)
        assert declares(await locked.card(path, A2A_Version="0.3")) == (None, True)
        assert skills(await locked.card(path)) == ["Talk"]
        for one in (await server.card(path), await server.card("/plain" + path), await locked.card("/plain" + path)):
            assert declares(one) == (None, None)


async def test_the_public_card_is_the_same_with_any_credentials(locked: Server) -> None:
    for headers in (BEARER, OTHER, *WRONG):
        assert skills(await locked.card(CARD, **headers)) == ["Talk"]


async def test_0_3_rest_returns_the_extended_card_to_authenticated_callers(locked: Server) -> None:
    for headers, shown, cached in ((BEARER, ["Talk", "Whisper"], "private"), ({}, ["Talk"], "public")):
        async with locked.http.get("/v1/card", headers=headers) as answer:
            assert answer.status == 200
            assert skills(await answer.json()) == shown
            assert answer.headers["Cache-Control"].startswith(cached), "shared caches must not store the extended card"
            assert answer.headers["Vary"] == "Authorization, X-API-Key"
    async with locked.http.get("/v1/card", headers=OTHER) as answer:
        assert skills(await answer.json()) == ["Talk"]
    async with locked.http.get("/plain/v1/card", headers=BEARER) as answer:
        assert skills(await answer.json()) == ["Plain"]


async def test_1_0_rest_returns_the_extended_card(locked: Server) -> None:
    async with locked.http.get("/extendedAgentCard", headers=BEARER) as answer:
        card = await answer.json()
        assert (answer.status, skills(card), set(card)) == (200, ["Talk", "Whisper"], V1_KEYS)
        assert answer.headers["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize("credentials", [{}, OTHER, *WRONG])
async def test_rest_rejects_other_credentials(locked: Server, credentials: dict[str, str]) -> None:
    async with locked.http.get("/extendedAgentCard", headers=credentials) as answer:
        assert (answer.status, challenge_error(answer)) == (
            401,
            CHALLENGE_ERRORS.get(credentials.get("Authorization", "")),
        )
        assert "Whisper" not in await answer.text()
    if credentials in WRONG:
        async with locked.http.get("/v1/card", headers=credentials) as answer:
            assert (answer.status, challenge_error(answer)) == (401, CHALLENGE_ERRORS[credentials["Authorization"]])


CALLS = {
    "GetExtendedAgentCard": V1_KEYS,
    "agent/getAuthenticatedExtendedCard": V03_KEYS | {"supportsAuthenticatedExtendedCard"},
    "agent/authenticatedExtendedCard": V1_KEYS,
}


def call(method: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method}


@pytest.mark.parametrize("method", CALLS)
async def test_json_rpc_returns_the_extended_card_only_with_the_token(locked: Server, method: str) -> None:
    async with locked.http.post("/", json=call(method), headers=BEARER) as answer:
        assert answer.status == 200
        card = (await answer.json())["result"]
    assert skills(card) == ["Talk", "Whisper"]
    assert set(card) == CALLS[method]
    for credentials in ({}, OTHER, *WRONG):
        async with locked.http.post("/", json=call(method), headers=credentials) as answer:
            assert (answer.status, challenge_error(answer)) == (
                401,
                CHALLENGE_ERRORS.get(credentials.get("Authorization", "")),
            )
            value = await answer.json()
            assert value["jsonrpc"] == "2.0"
            assert value["error"]["message"]
            assert "result" not in value


async def test_websocket_calls_use_the_token_of_the_upgrade_request(locked: Server) -> None:
    async with locked.http.ws_connect("/ws", headers=BEARER) as socket:
        await socket.send_json(call("GetExtendedAgentCard"))
        assert skills((await socket.receive_json())["result"]) == ["Talk", "Whisper"]
    for headers in ({}, OTHER, *WRONG):
        with pytest.raises(aiohttp.WSServerHandshakeError) as rejected:
            await locked.http.ws_connect("/ws", headers=headers)
        assert rejected.value.status == 401


async def test_grpc_returns_the_extended_card_only_with_the_token(locked: Server) -> None:
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
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await locked.v1.GetExtendedAgentCard(pb.GetExtendedAgentCardRequest(), metadata=metadata)
        assert rejected.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.aio.AioRpcError) as rejected:
        await locked.v03.GetAgentCard(v03_pb.GetAgentCardRequest(), metadata=[("authorization", "Bearer wrong")])
    assert rejected.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_an_undeclared_extended_card_is_unsupported(server: Server, locked: Server) -> None:
    for one, tenant, headers in ((server, "", {}), (server, "", BEARER), (locked, "plain", BEARER)):
        path = f"/{tenant}" if tenant else ""
        async with one.http.get(f"{path}/extendedAgentCard", headers=headers) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"
        for method, code in (("GetExtendedAgentCard", -32004), ("agent/getAuthenticatedExtendedCard", -32007)):
            async with one.http.post(path or "/", json=call(method), headers=headers) as answer:
                assert (await answer.json())["error"]["code"] == code
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await one.v1.GetExtendedAgentCard(
                pb.GetExtendedAgentCardRequest(tenant=tenant),
                metadata=[(name.lower(), value) for name, value in headers.items()],
            )
        assert rejected.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_every_call_requires_the_token(locked: Server) -> None:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    async with locked.http.post("/message:send", json=body, headers=BEARER) as answer:
        task = (await answer.json())["task"]["id"]
    for headers, status in ((BEARER, 200), ({}, 401), (WRONG[0], 401)):
        async with locked.http.get(f"/tasks/{task}", headers=headers) as answer:
            assert answer.status == status
    async with locked.http.post("/message:send", json=body, headers=WRONG[0]) as answer:
        assert answer.status == 401


@pytest.mark.parametrize("target", ["grpcs://agents.example:443", "https://agents.example:443"])
async def test_the_public_address_of_grpc_can_have_a_scheme(tmp_path: Path, target: str) -> None:
    async with serving(tmp_path, public_grpc=target, insecure=True) as server:
        card = await server.card()
    urls = {one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"}
    assert urls == {target}
    assert [one["url"] for one in card["additionalInterfaces"] if one["transport"] == "GRPC"] == [target]
