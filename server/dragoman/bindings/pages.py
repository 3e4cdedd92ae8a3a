"""What every HTTP answer carries besides: the permissions of CORS, and the request's own id.

CORS (Fetch Standard §3.2) lets a page of another origin call, if the operator named that origin. `X-Request-ID` is
given back as it came, so that a caller finds its request in our log.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from aiohttp import web

_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")

_ALLOWED: Final = (
    "Accept, Authorization, X-API-Key, Content-Type, A2A-Version, A2A-Extensions, X-A2A-Extensions, Idempotency-Key, "
    "Last-Event-ID, X-Request-ID"
)
_EXPOSED: Final = "A2A-Extensions, X-A2A-Extensions, ETag, Retry-After, WWW-Authenticate, X-Request-ID"
_METHODS: Final = "GET, POST, DELETE, OPTIONS"
_TOLD: Final = web.RequestKey("_TOLD", dict[str, str])


class Pages:
    """The pages that may call: the origins an operator named, `*` for all."""

    def __init__(self, origins: Collection[str]) -> None:
        self._all = "*" in origins
        self._origins = frozenset(origins)

    def open(self, request: web.BaseRequest) -> None:
        """Notes what the answer to this request will carry."""
        headers: dict[str, str] = {}
        given = request.headers.get("X-Request-ID", "")
        if given and _ID.fullmatch(given):
            headers["X-Request-ID"] = given
        origin = "*" if self._all else request.headers.get("Origin", "")
        if origin in self._origins:
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = _EXPOSED
        if self._origins and not self._all:
            headers["Vary"] = "Origin"  # said to everyone: a cache may keep what another asked for
        if headers:
            request[_TOLD] = headers

    def preflight(self, request: web.BaseRequest) -> web.Response | None:
        """The answer to a browser that asks what it may do; None for any other request."""
        headers: Any = request.headers
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in headers:
            return None
        if "Access-Control-Allow-Origin" not in told(request):
            return web.Response(status=403, text="this origin may not call; the server's --cors names those that may\n")
        allowed = {
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Allow-Headers": _ALLOWED,
            "Access-Control-Max-Age": "600",
        }
        return web.Response(status=204, headers=allowed)


def tell(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Adds to an answer what it carries besides its own headers."""
    for name, value in told(request).items():
        own = response.headers.get(name) if name == "Vary" else None
        response.headers[name] = f"{own}, {value}" if own else value


def told(request: web.BaseRequest) -> Mapping[str, str]:
    """The headers that the answer to this request carries besides its own."""
    headers: Mapping[str, str] = request.get(_TOLD, {})
    return headers


def request_id(request: web.BaseRequest) -> str:
    """The id that the caller gave its request; empty when it gave none that can be repeated."""
    return told(request).get("X-Request-ID", "")
