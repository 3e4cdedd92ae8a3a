"""The AI catalog by the rules of its draft, with its readers and caching, and the metadata of RFC 9728."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.bindings.fake_service import AGENTS, RESOURCE, FakeService, make_cards, over_http
from tests.callers import ByHeader, named

from dragoman.bindings import well_known
from dragoman.bindings.cards import Origin
from dragoman.bindings.options import ServerOptions
from dragoman.core.access.identity import AccessPolicy
from dragoman.core.access.jwt_claims import Issuer
from dragoman.ports.extension import HttpPaths

A2A_CARD = "application/a2a-agent-card+json"
CATALOG = "/.well-known/ai-catalog.json"
PRIVATE: Any = {
    "authenticator": ByHeader(),
    "private_pages": True,
    "access_policy": AccessPolicy(credentials_required=True, hides_agents=True),
}


def no_endpoint(*_: object) -> Any:
    """Serves nothing."""


OTHER = HttpPaths(
    name="other",
    methods=("POST",),
    is_on=lambda _: True,
    open=no_endpoint,
    catalog=lambda spec, url, domain: {"type": "application/other", "data": [spec.id, url, domain]},
)


def check_catalog(catalog: Any) -> None:
    """Checks the rules of the draft for a Discoverable Catalog (level 2), and of the JSON Schema of ARD v0.9."""
    assert catalog.keys() <= {"specVersion", "host", "entries"}
    assert re.fullmatch(r"[0-9]+\.[0-9]+", catalog["specVersion"])
    assert catalog["host"].keys() == {"displayName"}
    assert catalog["host"]["displayName"]
    identifiers = [entry["identifier"] for entry in catalog["entries"]]
    assert len(set(identifiers)) == len(identifiers)
    for entry in catalog["entries"]:
        assert entry.keys() - {"url", "data"} == {"identifier", "displayName", "type"}
        assert all(isinstance(entry[key], str) and entry[key] for key in ("identifier", "displayName", "type"))
        assert ("url" in entry) != ("data" in entry)
        if entry["identifier"].startswith("urn:"):
            assert re.fullmatch(r"urn:air:[a-zA-Z0-9.-]+(:[a-zA-Z0-9._-]+)+", entry["identifier"])
        if entry["type"] == A2A_CARD:
            assert urlsplit(entry["url"]).scheme in ("http", "https")


async def read(headers: dict[str, str] | None = None, **options: Any) -> Any:
    async with over_http(FakeService(), **options) as client, client.get(CATALOG, headers=headers) as response:
        assert response.status == 200
        catalog = await response.json(content_type="application/ai-catalog+json")
        check_catalog(catalog)
        return catalog


async def test_each_agent_is_listed_with_its_a2a_card() -> None:
    catalog = await read({"Host": "agents.localhost:8080"})
    assert catalog == {
        "specVersion": "1.0",
        "host": {"displayName": "agents.localhost"},
        "entries": [
            {
                "identifier": "urn:air:agents.localhost:a2a:echo",
                "displayName": "Echo",
                "type": A2A_CARD,
                "url": "http://agents.localhost:8080/.well-known/agent-card.json",
            },
            {
                "identifier": "urn:air:agents.localhost:a2a:other",
                "displayName": "Other",
                "type": A2A_CARD,
                "url": "http://agents.localhost:8080/other/.well-known/agent-card.json",
            },
        ],
    }


async def test_each_agent_is_listed_with_the_paths_of_extensions() -> None:
    cards = make_cards(public_url="https://agents.example.com/a2a")
    async with (
        over_http(FakeService(), cards, extension_paths=[(OTHER, None)]) as client,
        client.get(CATALOG) as response,
    ):
        catalog = await response.json(content_type=None)
    check_catalog(catalog)
    assert [entry["identifier"] for entry in catalog["entries"]] == [
        "urn:air:agents.example.com:a2a:echo",
        "urn:air:agents.example.com:other:echo",
        "urn:air:agents.example.com:a2a:other",
        "urn:air:agents.example.com:other:other",
    ]
    assert catalog["entries"][1] == {
        "identifier": "urn:air:agents.example.com:other:echo",
        "displayName": "Echo",
        "type": "application/other",
        "data": ["echo", "https://agents.example.com/a2a/echo/other", "agents.example.com"],
    }


async def test_the_card_that_an_entry_names_is_served() -> None:
    async with over_http(FakeService()) as client:
        async with client.get(CATALOG) as response:
            entries = (await response.json(content_type=None))["entries"]
        for entry, name in zip(entries, ("Echo", "Other"), strict=True):
            async with client.get(urlsplit(entry["url"]).path) as response:
                assert (await response.json())["name"] == name


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "[::1]:8080"])
def test_without_a_domain_the_address_is_the_identifier(host: str) -> None:
    catalog = well_known.catalog_of(
        AGENTS.values(), make_cards(), Origin(f"http://{host}", host.rpartition(":")[0]), [OTHER]
    )
    check_catalog(catalog)
    assert [entry["identifier"] for entry in catalog["entries"][:2]] == [
        f"http://{host}/.well-known/agent-card.json",
        f"http://{host}/echo/other",
    ]
    assert catalog["entries"][1]["data"] == ["echo", f"http://{host}/echo/other", ""]


# Readers -----------------------------------------------------------------------------------------------------------


def listed(catalog: Any) -> list[str]:
    return [entry["displayName"] for entry in catalog["entries"]]


async def test_with_private_pages_a_caller_needs_credentials() -> None:
    async with over_http(FakeService(), **PRIVATE) as client:
        async with client.get(CATALOG) as response:
            assert (response.status, response.headers["WWW-Authenticate"]) == (401, 'Bearer realm="dragoman"')
        async with client.get(CATALOG, headers=named("alice")) as response:
            assert listed(await response.json(content_type=None)) == ["Echo", "Other"]
            assert response.headers["Cache-Control"] == "private, no-cache"
            assert response.headers["Vary"] == "Authorization, X-API-Key"


async def test_with_private_pages_others_see_the_public_agents() -> None:
    policy = AccessPolicy(credentials_required=True, public_agents=frozenset(["other"]), hides_agents=True)
    assert listed(await read(**{**PRIVATE, "access_policy": policy})) == ["Other"]
    assert listed(await read(named("alice"), **{**PRIVATE, "access_policy": policy})) == ["Echo", "Other"]


async def test_with_private_pages_a_caller_sees_the_agents_of_its_grants() -> None:
    assert listed(await read(named("alice", "agent:other"), **PRIVATE)) == ["Other"]


async def test_without_private_pages_agents_are_listed_although_calls_need_credentials() -> None:
    policy = AccessPolicy(credentials_required=True)
    assert listed(await read(authenticator=ByHeader(), access_policy=policy)) == ["Echo", "Other"]


# Caching -----------------------------------------------------------------------------------------------------------


async def test_the_catalog_may_be_cached_and_revalidated() -> None:
    async with over_http(FakeService()) as client:
        async with client.get(CATALOG) as response:
            etag = response.headers["ETag"]
            assert response.headers["Cache-Control"] == "public, max-age=300"
        async with client.get(CATALOG, headers={"If-None-Match": etag}) as response:
            assert (response.status, response.headers["ETag"], await response.read()) == (304, etag, b"")
        async with client.head(CATALOG) as response:
            assert (response.status, response.headers["ETag"], await response.read()) == (200, etag, b"")


# Protected resource metadata ---------------------------------------------------------------------------------------

METADATA = "/.well-known/oauth-protected-resource"
CORP = Issuer(url="https://login.corp.example/realms/a2a", audience=("dragoman",), required_scopes=("a2a", "corp"))
SHOP = Issuer(url="https://login.shop.example", audience=("dragoman",), alias="shop", required_scopes=("shop", "a2a"))


async def read_metadata(path: str, headers: dict[str, str] | None = None, public_url: str = "", **options: Any) -> Any:
    cards = make_cards(public_url=public_url)
    async with over_http(FakeService(), cards, extension_paths=[(OTHER, None)], **options) as client:
        response = await client.get(path, headers=headers)
        assert (response.status, response.content_type) == (200, "application/json")
        return await response.json()


async def test_metadata_names_the_issuers_of_tokens() -> None:
    metadata = await read_metadata(f"{METADATA}/other", public_url="https://agents.example.com", issuers=(CORP,))
    assert metadata == {
        "resource": "https://agents.example.com/other",
        "authorization_servers": ["https://login.corp.example/realms/a2a"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["a2a", "corp"],
        "resource_name": "Dragoman at agents.example.com",
    }


@pytest.mark.parametrize("endpoint", ["", "/other", "/echo/other", f"/{RESOURCE}/other", f"/v1/{RESOURCE}/other"])
async def test_the_resource_is_the_endpoint_as_its_caller_names_it(endpoint: str) -> None:
    metadata = await read_metadata(METADATA + endpoint, {"Host": "agents.localhost:8080"}, issuers=(SHOP,))
    assert metadata["resource"] == f"http://agents.localhost:8080{endpoint}"


def test_scopes_of_several_issuers_are_those_that_all_require() -> None:
    metadata = well_known.resource_metadata("https://x.example", (CORP, SHOP))
    assert metadata["authorization_servers"] == [CORP.url, SHOP.url]
    assert metadata["scopes_supported"] == ["a2a"]
    without = Issuer(url="https://login.example", audience=("dragoman",), alias="other")
    assert "scopes_supported" not in well_known.resource_metadata("https://x.example", (CORP, SHOP, without))


async def test_metadata_needs_no_credentials_and_may_be_cached() -> None:
    async with over_http(FakeService(), issuers=(CORP,), **PRIVATE) as client:
        async with client.get(METADATA) as response:
            assert (response.status, response.headers["Cache-Control"]) == (200, "public, max-age=300")
            etag = response.headers["ETag"]
        async with client.get(METADATA, headers={"If-None-Match": etag}) as response:
            assert response.status == 304


@pytest.mark.parametrize("path", ["", "/other", "/echo/other"])
async def test_a_server_without_token_issuers_has_no_metadata(path: str) -> None:
    async with over_http(FakeService()) as client, client.get(METADATA + path) as response:
        assert response.status == 404


async def test_other_paths_have_no_metadata() -> None:
    async with over_http(FakeService(), issuers=(CORP,)) as client, client.get(f"{METADATA}/tasks") as response:
        assert response.status == 404


def test_the_url_of_metadata_is_that_under_which_it_is_served() -> None:
    origin = Origin("https://pub.example/prefix", "pub.example")
    url = well_known.resource_metadata_url("/echo/other", origin, make_cards(), ServerOptions(issuers=(CORP,)))
    assert url == f"https://pub.example/prefix{METADATA}/echo/other"
    assert well_known.resource_metadata_url("/other", origin, make_cards(), ServerOptions()) == ""
