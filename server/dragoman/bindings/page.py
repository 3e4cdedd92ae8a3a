"""What pages have in common: for whom they are, and what holds them to this server (CSP Level 3 §2.3).

And what stands at `/` for everyone but browsers: the addresses of the cards.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from aiohttp import web

from dragoman.bindings.cards import Cards
from dragoman.bindings.origins import Origin
from dragoman.core.cards.agent_spec import AgentSpec

_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def is_for(request: web.BaseRequest) -> bool:
    """Whether a browser asks."""
    return "text/html" in request.headers.get("Accept", "")


def headers(policy: str) -> dict[str, str]:
    """The headers of a page under a policy."""
    return {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cache-Control": "no-cache",
    }


def index(shown: Iterable[AgentSpec], cards: Cards, origin: Origin | None) -> web.Response:
    """Agents, in the order that is given, and where their cards are."""
    base = cards.url(origin)
    agents = [
        {
            "id": spec.id,
            "name": spec.name,
            "description": spec.description,
            "root": spec.id == cards.root,
            "card": cards.card_url(spec.id, origin),
        }
        for spec in shown
    ]
    answer = {"server": "dragoman", "agents": agents, "openapi": f"{base}/openapi.json"}
    return web.json_response(answer, headers={"Vary": "Accept", "Cache-Control": "no-cache"})


def policy(text: str, *, scripts: str = "", styles: str = "", images: str = "data:") -> str:
    """The policy of a page: what it has inline by hash, what is named here besides, requests to this server only."""
    sources = {"script": [scripts] if scripts else [], "style": [styles] if styles else []}
    for kind, content in _INLINE.findall(text):
        digest = b64encode(sha256(content.encode()).digest()).decode()
        sources[kind].append(f"'sha256-{digest}'")
    return (
        f"default-src 'none'; script-src {' '.join(sources['script'])}; style-src {' '.join(sources['style'])}; "
        f"connect-src 'self'; img-src {images}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
