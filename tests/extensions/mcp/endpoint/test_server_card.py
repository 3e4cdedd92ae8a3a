"""MCP server cards by the rules of their schema."""

from __future__ import annotations

import re
from typing import Any

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.extensions.mcp.endpoint.server_card import server_card


def check_server_card(card: Any) -> None:
    """Checks the rules of the schema of MCP server cards, version 1."""
    assert card["$schema"] == "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
    assert {"$schema", "name", "version", "description"} <= card.keys()
    assert card.keys() <= {"$schema", "name", "version", "description", "title", "websiteUrl", "remotes"}
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", card["name"])
    assert 3 <= len(card["name"]) <= 200
    assert 1 <= len(card["description"]) <= 100
    assert 1 <= len(card["title"]) <= 100
    assert len(card["version"]) <= 255
    for remote in card["remotes"]:
        assert remote.keys() == {"type", "url", "supportedProtocolVersions"}
        assert remote["type"] in ("streamable-http", "sse")
        assert re.fullmatch(r"https?://[^\s]+", remote["url"])
        assert all(isinstance(version, str) for version in remote["supportedProtocolVersions"])


def test_long_texts_of_a_server_card_are_truncated() -> None:
    spec = AgentSpec(
        id="a", name="n" * 101, description="d" * 4000, version="v" * 300, documentation_url="https://x.example/docs"
    )
    card = server_card(spec, "https://x.example/a/mcp", "x.example")
    check_server_card(card)
    assert card["title"] == "n" * 99 + "…"
    assert card["websiteUrl"] == "https://x.example/docs"
