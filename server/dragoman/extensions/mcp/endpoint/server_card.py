"""MCP server cards (a draft, SEP-2127, July 2026): the endpoint of one agent in the AI catalog."""

from __future__ import annotations

from typing import Any, Final

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.extensions.mcp.wire.envelope import SUPPORTED_VERSIONS

MEDIA_TYPE: Final = "application/mcp-server-card+json"
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"

MAX_TEXT_CHARS: Final = 100
"""Characters of the title and the description."""
MAX_VERSION_CHARS: Final = 255


def server_card(spec: AgentSpec, url: str, domain: str) -> dict[str, Any]:
    """The card of an agent's endpoint. `domain`: of the server; empty if it has none."""
    namespace = ".".join(reversed(domain.split("."))) or "dragoman"
    return {
        "$schema": SCHEMA,
        "name": f"{namespace}/{spec.id}",
        "title": _truncated(spec.name),
        "description": _truncated(spec.description or spec.name),
        "version": spec.version[:MAX_VERSION_CHARS],
        **({"websiteUrl": spec.documentation_url} if spec.documentation_url else {}),
        "remotes": [{"type": "streamable-http", "url": url, "supportedProtocolVersions": list(SUPPORTED_VERSIONS)}],
    }


def _truncated(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[: MAX_TEXT_CHARS - 1]}…"
