"""What MCP attaches: its settings, its endpoint in the catalog and the banner, and its headers for web pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.bindings.fake_service import AGENTS, FakeService, make_cards, over_http
from tests.extensions.mcp.endpoint.test_server_card import check_server_card

from dragoman.bindings import well_known
from dragoman.bindings.cards import Origin
from dragoman.extensions.mcp import EXTENSION, McpSettings
from dragoman.settings.settings import Settings, load_settings

CATALOG = "/.well-known/ai-catalog.json"


def servers_of(settings: Settings) -> Any:
    return settings.extensions["mcp"].servers


def test_mcp_servers_come_from_options_variables_and_tables_and_replace_the_playground(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings({"mcp": ["http://a/mcp", "b=npx -y c,d"]})
    assert [(server.url, server.command, server.id) for server in servers_of(settings)] == [
        ("http://a/mcp", (), ""),
        ("", ("npx", "-y", "c,d"), "b"),
    ]
    assert settings.own_app == ""
    assert load_settings({"mcp": ["http://a/mcp"], "app": "a.py"}).own_app == "a.py"
    monkeypatch.setenv("DRAGOMAN_MCP", "http://a/mcp\nb=npx -y c,d")
    assert servers_of(load_settings({})) == servers_of(settings)
    monkeypatch.delenv("DRAGOMAN_MCP")
    file = tmp_path / "dragoman.toml"
    file.write_text('mcp = ["http://a/mcp", { command = ["npx", "-y", "c,d"], id = "b" }]')
    assert servers_of(load_settings({"config": file})) == servers_of(settings)


async def test_each_agent_is_listed_with_its_mcp_endpoint_if_there_is_one() -> None:
    cards = make_cards(public_url="https://agents.example.com/a2a")
    async with (
        over_http(FakeService(), cards, extension_paths=[(EXTENSION.http, McpSettings())]) as client,
        client.get(CATALOG) as response,
    ):
        catalog = await response.json(content_type=None)
    check_server_card(catalog["entries"][1]["data"])
    assert [entry["identifier"] for entry in catalog["entries"]] == [
        "urn:air:agents.example.com:a2a:echo",
        "urn:air:agents.example.com:mcp:echo",
        "urn:air:agents.example.com:a2a:other",
        "urn:air:agents.example.com:mcp:other",
    ]
    assert catalog["entries"][1]["data"] == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
        "name": "com.example.agents/echo",
        "title": "Echo",
        "description": "Returns the text",
        "version": "1.0.0",
        "remotes": [
            {
                "type": "streamable-http",
                "url": "https://agents.example.com/a2a/echo/mcp",
                "supportedProtocolVersions": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"],
            }
        ],
    }


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "[::1]:8080"])
def test_a_server_without_a_domain_has_cards_in_our_namespace(host: str) -> None:
    assert EXTENSION.http is not None
    origin = Origin(f"http://{host}", host.rpartition(":")[0])
    catalog = well_known.catalog_of(AGENTS.values(), make_cards(), origin, [EXTENSION.http])
    assert catalog["entries"][1]["identifier"] == f"http://{host}/echo/mcp"
    assert catalog["entries"][1]["data"]["name"] == "dragoman/echo"


async def test_web_pages_may_use_the_headers_of_the_endpoint_where_it_is_served() -> None:
    preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    for paths, is_allowed in ([(EXTENSION.http, McpSettings())], True), ([], False):
        options: Any = {"cors": ("https://app.example",), "extension_paths": paths}
        async with over_http(FakeService(), **options) as client:
            async with client.options("/mcp", headers=preflight) as response:
                allowed = response.headers["Access-Control-Allow-Headers"].split(", ")
                assert (
                    {"MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id"} <= set(allowed)
                ) is is_allowed
            async with client.get("/agents", headers={"Origin": "https://app.example"}) as response:
                exposed = response.headers["Access-Control-Expose-Headers"].split(", ")
                assert ("Mcp-Session-Id" in exposed) is is_allowed


def test_the_banner_names_the_endpoint_unless_it_is_off() -> None:
    assert EXTENSION.banner is not None
    assert EXTENSION.banner(McpSettings(), "http://here") == {"MCP": "http://here/mcp"}
    assert EXTENSION.banner(McpSettings(endpoint=False), "http://here") == {}
