"""Which web pages may call: pages of this server, and the origins in `--cors`.

A browser calls from its user's machine for whatever page it shows, and reaches servers that nobody else reaches. What
it says of the page decides, in this order:

- `Sec-Fetch-Site` (Fetch Metadata §2.3), which no page can make up, and which stays true behind a proxy that ends TLS
  or changes `Host`. Browsers send it to https, and to this machine under its own names.
- `Origin` (Fetch Standard §3.2) otherwise, beside the addresses under which callers see this server.
- `Host`, because neither comes with what a page only reads from its own address, and whoever owns a name may let it
  lead to the machine of who visits it (DNS rebinding). So a server that only this machine reaches, and that asks nobody
  who they are, is not called by a name that a stranger could own.

Callers that are no browsers say nothing of the first two, and pass. gRPC is out of reach for pages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

from aiohttp import web
from yarl import URL

from dragoman.bindings import cards
from dragoman.bindings.cards import Cards
from dragoman.bindings.options import HttpOptions
from dragoman.core.errors import OriginNotAllowed

_FETCH_SITE_HEADER: Final = "Sec-Fetch-Site"
_OWN_SITES: Final = ("same-origin", "none")
"""`none`: the user navigated there, no page made the request."""

_RESERVED_DOMAINS: Final = frozenset(("localhost", "test", "internal"))
"""Top-level names without public registration (RFC 6761 §6.2 and §6.3; `internal`: ICANN, 2024)."""

_MAX_QUOTED_HEADER_CHARS: Final = 100
"""Maximum characters of a header that an error quotes."""


class CrossOriginPolicy:
    """Decides which web pages may call the server."""

    def __init__(self, agent_cards: Cards, options: HttpOptions) -> None:
        self._cards = agent_cards
        self._allowed_origins = frozenset(options.cors)
        self._allows_all = "*" in self._allowed_origins
        # Where the port is encrypted, no stranger's page has a certificate for its name here. Behind a proxy on this
        # machine that is trusted, the server is there for others, under names that only the proxy knows.
        self._checks_host = (
            options.authenticator is None
            and options.certificates is None
            and not agent_cards.trusted_proxies
            and is_loopback_host(options.host)
        )
        self._own_names = {
            _registrable_name(_authority(address)) for address in (agent_cards.base_url(None), *self._allowed_origins)
        }

    def check(self, request: web.BaseRequest) -> None:
        """Raises OriginNotAllowed for requests that a browser sends, or could send, for a page that may not call."""
        headers = request.headers
        if self._allows_all:
            return
        if (_FETCH_SITE_HEADER in headers or "Origin" in headers) and headers.get(
            "Origin"
        ) not in self._allowed_origins:
            seen_at = self._cards.base_url(cards.caller_origin(request, self._cards))
            if is_cross_site(request, _authority(seen_at)):
                raise OriginNotAllowed(
                    f"{_describe_origin(request)} may not call; --cors names the origins whose pages may"
                )
        if self._checks_host and (name := _registrable_name(headers.get("Host", ""))) and name not in self._own_names:
            raise OriginNotAllowed(
                f'Host: "{name[:_MAX_QUOTED_HEADER_CHARS]}" is a name that a stranger could own; say http://NAME in '
                "--public-url or --cors, or call localhost or an address"
            )


def is_cross_site(request: web.BaseRequest, *hosts: str) -> bool:
    """Whether a browser sends the request for a page of another server.

    `hosts`: as whom callers see this one, besides what the request's `Host` says. What a browser opens for its user,
    from a link elsewhere for one, is for no page: none can read it.
    """
    headers = request.headers
    site = headers.get(_FETCH_SITE_HEADER)
    if site is None:
        origin = headers.get("Origin", "")
        return origin != "" and not any(
            _origin_matches_host(origin, host) for host in (headers.get("Host", ""), *hosts)
        )
    opens = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    return site not in _OWN_SITES and not (opens and request.method in ("GET", "HEAD"))


def is_loopback_host(host: str) -> bool:
    """Whether a host is loopback, without a name lookup."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def _origin_matches_host(origin: str, host: str) -> bool:
    # A host without a port is at that of the origin's scheme: a proxy that ended TLS has left no other trace of it.
    try:
        url = URL(origin).origin()
        return URL.build(scheme=url.scheme, authority=host).origin() == url
    except ValueError:
        return False


def _authority(address: str) -> str:
    return address.partition("://")[2].partition("/")[0]


@lru_cache(64)
def _registrable_name(host: str) -> str:
    """The publicly registrable name in a `Host`; empty for addresses, single labels and reserved names."""
    name, colon, port = host.lower().rpartition(":")
    name = (name if colon and port.isdigit() else host.lower()).rstrip(".")
    last = name.rpartition(".")
    is_name = bool(last[0]) and not name.startswith("[") and not last[2].isdigit()
    return name if is_name and last[2] not in _RESERVED_DOMAINS else ""


def _describe_origin(request: web.BaseRequest) -> str:
    if origin := request.headers.get("Origin"):
        return f'Origin: a page of "{origin[:_MAX_QUOTED_HEADER_CHARS]}"'
    return f'{_FETCH_SITE_HEADER}: a page that is "{request.headers[_FETCH_SITE_HEADER][:_MAX_QUOTED_HEADER_CHARS]}"'


_REQUEST_ID_PATTERN: Final = re.compile(r"[\x21-\x7e]{1,128}")

_ALLOWED_HEADERS: Final = (
    "Accept, Authorization, X-API-Key, Content-Type, A2A-Version, A2A-Extensions, X-A2A-Extensions, Idempotency-Key, "
    "Last-Event-ID, X-Request-ID"
)
_EXPOSED_HEADERS: Final = "A2A-Extensions, X-A2A-Extensions, ETag, Retry-After, WWW-Authenticate, X-Request-ID"
_ALLOWED_METHODS: Final = "GET, POST, DELETE, OPTIONS"
_RESPONSE_HEADERS: Final = web.RequestKey("_TOLD", dict[str, str])


class CorsHeaders:
    """The CORS headers, for the allowed origins; `*` for all."""

    def __init__(self, origins: Collection[str]) -> None:
        self._allows_all = "*" in origins
        self._origins = frozenset(origins)

    def prepare(self, request: web.BaseRequest) -> None:
        """Prepares the CORS headers of the response."""
        headers: dict[str, str] = {}
        given = request.headers.get("X-Request-ID", "")
        if given and _REQUEST_ID_PATTERN.fullmatch(given):
            headers["X-Request-ID"] = given
        origin = "*" if self._allows_all else request.headers.get("Origin", "")
        if origin in self._origins:
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = _EXPOSED_HEADERS
        if self._origins and not self._allows_all:
            headers["Vary"] = "Origin"  # said to everyone: a cache may keep what another asked for
        if headers:
            request[_RESPONSE_HEADERS] = headers

    def preflight(self, request: web.BaseRequest) -> web.Response | None:
        """The response to a CORS preflight; None for any other request."""
        headers: Any = request.headers
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in headers:
            return None
        if "Access-Control-Allow-Origin" not in response_headers(request):
            return web.Response(status=403, text="this origin may not call; the server's --cors names those that may\n")
        allowed = {
            "Access-Control-Allow-Methods": _ALLOWED_METHODS,
            "Access-Control-Allow-Headers": _ALLOWED_HEADERS,
            "Access-Control-Max-Age": "600",
        }
        return web.Response(status=204, headers=allowed)


def add_response_headers(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Adds CORS headers and the request id to a response."""
    for name, value in response_headers(request).items():
        own = response.headers.get(name) if name == "Vary" else None
        response.headers[name] = f"{own}, {value}" if own else value


def response_headers(request: web.BaseRequest) -> Mapping[str, str]:
    """The CORS headers and request id for a response."""
    headers: Mapping[str, str] = request.get(_RESPONSE_HEADERS, {})
    return headers


def request_id(request: web.BaseRequest) -> str:
    """The `X-Request-ID` of a request; empty if absent or invalid."""
    return response_headers(request).get("X-Request-ID", "")
