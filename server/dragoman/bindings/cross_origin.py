"""Which web pages may call: those of this server, and those whose origins an operator named (`--cors`).

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

from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from aiohttp import web
from yarl import URL

from dragoman.bindings import cards
from dragoman.bindings.cards import Cards
from dragoman.bindings.serving import HttpOptions
from dragoman.core.errors import OriginNotAllowed

_SITE: Final = "Sec-Fetch-Site"
_OWN: Final = ("same-origin", "none")
"""`none`: its user asked the browser for it, and no page did."""

_NOBODYS: Final = frozenset(("localhost", "test", "internal"))
"""Under these nobody can own a name that others look up (RFC 6761 §6.2 and §6.3; `internal`: ICANN, 2024)."""

_SHOWN: Final = 100
"""Characters of a header that its refusal repeats."""


class CrossOrigin:
    """The pages that may call one server."""

    def __init__(self, known: Cards, options: HttpOptions) -> None:
        self._cards = known
        self._named = frozenset(options.cors)
        self._all = "*" in self._named
        # Where the port is encrypted, no stranger's page has a certificate for its name here. Behind a proxy on this
        # machine that is trusted, the server is there for others, under names that only the proxy knows.
        self._looks_at_host = (
            options.authenticator is None
            and options.certificates is None
            and not known.trusted_proxies
            and is_loopback(options.host)
        )
        self._names = {_strangers(_authority(address)) for address in (known.url(None), *self._named)}

    def check(self, request: web.BaseRequest) -> None:
        """Raises ForeignPage for what a browser asks, or could ask, for a page that may not call."""
        headers = request.headers
        if self._all:
            return
        if (_SITE in headers or "Origin" in headers) and headers.get("Origin") not in self._named:
            seen_at = self._cards.url(cards.origin(request, self._cards))
            if is_foreign(request, _authority(seen_at)):
                raise OriginNotAllowed(f"{_who(request)} may not call; --cors names the origins whose pages may")
        if self._looks_at_host and (name := _strangers(headers.get("Host", ""))) and name not in self._names:
            raise OriginNotAllowed(
                f'Host: "{name[:_SHOWN]}" is a name that a stranger could own; say http://NAME in --public-url or '
                "--cors, or call localhost or an address"
            )


def is_foreign(request: web.BaseRequest, *hosts: str) -> bool:
    """Whether a browser asks this for a page of another server.

    `hosts`: as whom callers see this one, besides what the request's `Host` says. What a browser opens for its user,
    from a link elsewhere for one, is for no page: none can read it.
    """
    headers = request.headers
    site = headers.get(_SITE)
    if site is None:
        origin = headers.get("Origin", "")
        return origin != "" and not any(_is_at(origin, host) for host in (headers.get("Host", ""), *hosts))
    opens = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    return site not in _OWN and not (opens and request.method in ("GET", "HEAD"))


def is_loopback(host: str) -> bool:
    """Whether an address, or a name without a lookup, is that of this machine."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def _is_at(origin: str, host: str) -> bool:
    # A host without a port is at that of the origin's scheme: a proxy that ended TLS has left no other trace of it.
    try:
        url = URL(origin).origin()
        return URL.build(scheme=url.scheme, authority=host).origin() == url
    except ValueError:
        return False


def _authority(address: str) -> str:
    return address.partition("://")[2].partition("/")[0]


@lru_cache(64)
def _strangers(host: str) -> str:
    """The name in a `Host` that a stranger could own; empty for addresses, names of one word, and those of nobody."""
    name, colon, port = host.lower().rpartition(":")
    name = (name if colon and port.isdigit() else host.lower()).rstrip(".")
    last = name.rpartition(".")
    is_name = bool(last[0]) and not name.startswith("[") and not last[2].isdigit()
    return name if is_name and last[2] not in _NOBODYS else ""


def _who(request: web.BaseRequest) -> str:
    if origin := request.headers.get("Origin"):
        return f'Origin: a page of "{origin[:_SHOWN]}"'
    return f'{_SITE}: a page that is "{request.headers[_SITE][:_SHOWN]}"'
