"""Cross-origin policy and CORS headers: pages of this server and the origins in `--cors` may call.

A browser calls for any page it shows, and reaches servers on loopback and private networks. Three headers decide:
`Sec-Fetch-Site` (Fetch Metadata §2.3), else `Origin` (Fetch Standard §3.2), then `Host` against DNS rebinding; see
CrossOriginPolicy. Clients that are not browsers send neither of the first two, and pass. Pages cannot call gRPC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from aiohttp import web
from yarl import URL

from dragoman.bindings.cards import Cards
from dragoman.bindings.http.connections import COMMON_HEADERS, PlainRequest
from dragoman.bindings.options import ServerOptions
from dragoman.core.errors import OriginNotAllowed
from dragoman.core.net.addresses import is_loopback_host
from dragoman.core.net.targets import names_this_machine, parse_host_port

_FETCH_SITE_HEADER: Final = "Sec-Fetch-Site"
_OWN_SITES: Final = ("same-origin", "none")  # `none`: the user navigated there, no page made the request
_MAX_QUOTED_HEADER_CHARS: Final = 100  # maximum characters of a header that an error quotes


class CrossOriginPolicy:
    """Decides which web pages may call the server, in this order:

    - `Sec-Fetch-Site` cannot be forged by a page, and stays valid behind a proxy that terminates TLS or changes `Host`.
      Browsers send it to https and to loopback addresses.
    - `Origin` otherwise, compared with the addresses under which callers see this server.
    - `Host`, because a page's reads from its own address carry neither, and the owner of a domain can resolve it to a
      visitor's machine (DNS rebinding). A server on loopback without authentication therefore accepts only loopback
      addresses, `localhost`, names under it, and its configured names.
    """

    def __init__(self, agent_cards: Cards, options: ServerOptions) -> None:
        self._cards = agent_cards
        self._allowed_origins = frozenset(options.cors)
        self._allows_all = "*" in self._allowed_origins
        # With TLS, a foreign domain has no valid certificate here. Behind a trusted proxy on this machine, the server
        # has public names that only the proxy knows.
        self._checks_host = (
            options.authenticator is None
            and options.certificates is None
            and not agent_cards.trusted_proxies
            and is_loopback_host(options.host)
        )
        self._own_names = frozenset(
            name
            for address in (agent_cards.base_url(None), *self._allowed_origins)
            if (name := _host_name(_authority(address)))
        )

    def check(self, request: web.BaseRequest | PlainRequest) -> None:
        """Raises OriginNotAllowed for a request that a browser sends, or could send, for a page that may not call."""
        headers = request.headers
        if self._allows_all:
            return
        if (
            not isinstance(request, PlainRequest)  # a plain request has neither header
            and (_FETCH_SITE_HEADER in headers or "Origin" in headers)
            and headers.get("Origin") not in self._allowed_origins
        ):
            base_url = self._cards.base_url(self._cards.origin(request))
            if is_cross_site(request, _authority(base_url)):
                raise OriginNotAllowed(f"{_page_of(request)} may not call; add its origin to --cors to allow it")
        if not self._checks_host:
            return
        for host in headers.getall("Host", ()):
            if host and not names_this_machine(host) and _host_name(host) not in self._own_names:
                raise OriginNotAllowed(
                    f'Host: "{host[:_MAX_QUOTED_HEADER_CHARS]}" is not a known name of this server; add http://NAME to '
                    "--public-url or --cors, or call localhost or 127.0.0.1"
                )


def is_cross_site(request: web.BaseRequest, *hosts: str) -> bool:
    """Whether a browser sends the request for a page of another server.

    `hosts`: names of this server besides the request's `Host`. Navigation by the user, such as following a link on
    another site, is allowed: no page can read its response.
    """
    headers = request.headers
    site = headers.get(_FETCH_SITE_HEADER)
    if site is None:
        origin = headers.get("Origin", "")
        return origin != "" and not any(
            _origin_matches_host(origin, host) for host in (headers.get("Host", ""), *hosts)
        )
    is_navigation = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    return site not in _OWN_SITES and not (is_navigation and request.method in ("GET", "HEAD"))


def _origin_matches_host(origin: str, host: str) -> bool:
    # A host without a port gets the default port of the origin's scheme, because a proxy that terminated TLS leaves no
    # other trace of the scheme.
    try:
        url = URL(origin).origin()
        return URL.build(scheme=url.scheme, authority=host).origin() == url
    except ValueError:
        return False


def _authority(address: str) -> str:
    return address.partition("://")[2].partition("/")[0]


@lru_cache(64)
def _host_name(host: str) -> str:
    """The name or address in a `Host`; empty if it is neither."""
    try:
        return parse_host_port(host).host
    except ValueError:
        return ""


def _page_of(request: web.BaseRequest) -> str:
    if origin := request.headers.get("Origin"):
        return f'Origin: a page of "{origin[:_MAX_QUOTED_HEADER_CHARS]}"'
    return f'{_FETCH_SITE_HEADER}: a page that is "{request.headers[_FETCH_SITE_HEADER][:_MAX_QUOTED_HEADER_CHARS]}"'


_REQUEST_ID_PATTERN: Final = re.compile(r"[\x21-\x7e]{1,128}")

_ALLOWED_HEADERS: Final = (
    "Accept, Authorization, X-API-Key, X-Goog-Api-Key, Content-Type, A2A-Version, A2A-Extensions, X-A2A-Extensions, "
    "Idempotency-Key, Last-Event-ID, X-Request-ID"
)
_EXPOSED_HEADERS: Final = "A2A-Extensions, X-A2A-Extensions, ETag, Retry-After, WWW-Authenticate, X-Request-ID"
_RESPONSE_HEADERS: Final = web.RequestKey("_RESPONSE_HEADERS", dict[str, str])


class CorsHeaders:
    """Adds CORS headers for the allowed origins; `*` allows all."""

    def __init__(self, options: ServerOptions) -> None:
        paths = [paths for paths, _ in options.extension_paths]  # which may have headers of their own
        self._allowed_headers = ", ".join((_ALLOWED_HEADERS, *(name for one in paths for name in one.request_headers)))
        self._exposed_headers = ", ".join((_EXPOSED_HEADERS, *(name for one in paths for name in one.response_headers)))
        self.origins = frozenset(options.cors)

    def prepare(self, request: web.BaseRequest) -> bool:
        """Stores the CORS headers and request id of the response on the request. Returns whether there are any."""
        headers: dict[str, str] = {}
        id = request.headers.get("X-Request-ID", "")
        if id and _REQUEST_ID_PATTERN.fullmatch(id):
            headers["X-Request-ID"] = id
        allows_all = "*" in self.origins
        origin = "*" if allows_all else request.headers.get("Origin", "")
        if origin in self.origins:
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = self._exposed_headers
        if self.origins and not allows_all:
            headers["Vary"] = "Origin"  # in every response: caches are shared between origins
        if headers:
            request[_RESPONSE_HEADERS] = headers
        return bool(headers)

    def preflight(self, request: web.BaseRequest) -> web.Response | None:
        """The response to a CORS preflight; None for any other OPTIONS request."""
        if "Access-Control-Request-Method" not in request.headers:
            return None
        if "Access-Control-Allow-Origin" not in response_headers(request):
            return web.Response(status=403, text="this origin may not call; --cors names the allowed origins\n")
        allowed = {
            "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
            "Access-Control-Allow-Headers": self._allowed_headers,
            "Access-Control-Max-Age": "600",
        }
        return web.Response(status=204, headers=allowed)


def add_response_headers(request: web.BaseRequest, response: web.StreamResponse) -> None:
    for name, value in response_headers(request).items():
        own = response.headers.get(name) if name == "Vary" else None
        response.headers[name] = f"{own}, {value}" if own else value


def response_headers(request: web.BaseRequest) -> Mapping[str, str]:
    """The CORS headers and request id for a response, with those that all have."""
    return {**COMMON_HEADERS, **request.get(_RESPONSE_HEADERS, {})}


def request_id(request: web.BaseRequest) -> str:
    """The `X-Request-ID` of a request; empty if absent or invalid."""
    headers: Mapping[str, str] | None = request.get(_RESPONSE_HEADERS)
    return headers.get("X-Request-ID", "") if headers else ""
