"""Where an agent's card is looked for, and which of the interfaces that it names are called, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from dragoman.wire.card_reading import Card, Interface, Unfit

PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where cards are: since 0.3, and before."""

HEADERS: Final = ({"Accept": "application/json", "A2A-Version": "1.0"}, {"Accept": "application/json"})
"""What to ask for a card with: one server shows its card of 1.0 to those alone who say that they read it, and others
refuse (400) who names a version."""

_NEWEST: Final = ("1.0", "0.3", "0.1")
_PLAIN: Final = {"grpc": "http", "http": "http"}
_SAFE: Final = {"grpcs": "https", "https": "https"}


class Choice(NamedTuple):
    """Interfaces that may be called, the best first; and why the others may not."""

    interfaces: tuple[Interface, ...]
    left_out: tuple[str, ...]


def places(url: str) -> list[str]:
    """The URLs at which to look for the card of an agent at `url`, which may be the card's own."""
    if urlsplit(url).path.endswith(".json"):
        return [url]
    return [url.partition("?")[0].rstrip("/") + path for path in PATHS]


def chosen(card: Card, at: str, *, credentials: bool, allowed: Callable[[str], str] = lambda url: "") -> Choice:
    """The interfaces of a card that was found at `at`, newest dialect first and as the card has them in each.

    `credentials`: some are shown with each call, which must not go to another host. `allowed` says why a URL may not be
    called, empty when it may be. Raises Unfit when none is left.
    """
    kept, left_out = [], list(card.left_out)
    for interface in card.interfaces:
        if problem := _problem(interface, at, credentials, allowed):
            left_out.append(f"{interface}: {problem}")
        else:
            kept.append(interface)
    if not kept:
        raise Unfit(f"names no interface that may be called: {'; '.join(left_out)}")
    return Choice(tuple(ranked(kept)), tuple(left_out))


def ranked(interfaces: Iterable[Interface]) -> Sequence[Interface]:
    """Newest dialect first, and as they were in each."""
    return sorted(interfaces, key=lambda one: _NEWEST.index(one.dialect))


def url_of(address: str, *, safe: bool) -> str:
    """The URL that stands for the address of a gRPC interface. One without a scheme is encrypted if `safe`, as its card
    is."""
    scheme, divider, rest = address.partition("://")
    if not divider:
        return f"{'https' if safe else 'http'}://{address}"
    known = _SAFE.get(scheme.lower()) or _PLAIN.get(scheme.lower(), "https")
    return f"{known}://{rest.partition('/')[0]}"


def _problem(interface: Interface, at: str, credentials: bool, allowed: Callable[[str], str]) -> str:
    """Why an interface is not called; empty when it may be."""
    safe = at.startswith("https:")
    url = url_of(interface.url, safe=safe) if interface.binding == "GRPC" else interface.url
    if problem := allowed(url):
        return problem
    there = urlsplit(url)
    if credentials and there.hostname != urlsplit(at).hostname:
        return "is at another host than the card, and would get the credentials that are for that one"
    if safe and there.scheme == "http":
        return "is not encrypted, and the card is"
    return ""
