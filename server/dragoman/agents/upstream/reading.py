"""An agent's card is fetched and judged: what it is called here, what is shown of it, and which roads lead there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dragoman.agents.upstream.road import BOUNDS, Away, Blocked, Bounds, Nonsense, Road, url_of
from dragoman.core.card import AgentSpec
from dragoman.core.extensions import IDEMPOTENCY, SERVER
from dragoman.core.upstreams import Upstream, id_for
from dragoman.ports import Forbidden, NobodyThere, Outlet, Unreachable
from dragoman.wire import card_reading
from dragoman.wire.card_reading import Card, Interface, Unfit

CARD_BYTES: Final = 1024 * 1024
CARD_SILENCE: Final = 10.0
"""Bytes of a card, and seconds without one of them."""

PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where cards are: since 0.3, and before."""

_NEWEST: Final = ("1.0", "0.3", "0.1")
_RETRIES: Final = 100
"""How often a turn is begun again after a process died: none of that has it run twice upstream."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was learnt of an agent."""

    spec: AgentSpec
    interfaces: tuple[Interface, ...]
    """Those that may be called, the best first."""
    left_out: tuple[str, ...]
    """Why others may not."""
    extensions: str
    """URIs that each call has to activate, with commas."""
    idempotent: bool
    streaming: bool


@dataclass(frozen=True, slots=True)
class Means:
    """How agents upstream are reached."""

    outlet: Outlet
    ca: Path | None = None
    bounds: Bounds = BOUNDS

    def road(self, upstream: Upstream, interface: Interface) -> Road:
        """A road to an interface. What makes one is not loaded before: few servers stand in front of others."""
        from dragoman.agents.upstream.over_grpc import GrpcRoad
        from dragoman.agents.upstream.over_http import HttpRoad

        if interface.binding != "GRPC":
            return HttpRoad(interface, self.outlet, upstream.headers, self.bounds)
        safe = upstream.url.startswith("https:")
        return GrpcRoad(interface, self.outlet, upstream.headers, self.bounds, safe=safe, ca=self.ca)


async def find(upstream: Upstream, means: Means) -> Found:
    """Fetches and judges a card. Raises CallFailed: Away, Blocked, or Nonsense for one that cannot be used."""
    document, url = await fetch(upstream, means.outlet)
    try:
        card = card_reading.read(document, url)
        return judged(upstream, card, means.outlet)
    except ValueError as error:
        raise Nonsense(f"the card at {_shown(url)}: {error}") from None


async def fetch(upstream: Upstream, outlet: Outlet) -> tuple[bytes, str]:
    """An agent's card, and where it was. Raises CallFailed."""
    if urlsplit(upstream.url).path.endswith(".json"):
        urls = [upstream.url]
    else:
        urls = [upstream.url.partition("?")[0].rstrip("/") + path for path in PATHS]
    statuses = []
    for url in urls:
        # One server shows its card of 1.0 to those alone who say that they read it.
        headers = {**upstream.headers, "Accept": "application/json", "A2A-Version": "1.0"}
        status, document = await _get(url, headers, outlet)
        if status == 400:
            status, document = await _get(url, {**upstream.headers, "Accept": "application/json"}, outlet)
        if status == 200:
            return document, url
        if 300 <= status < 400:
            raise Nonsense(
                f"{_shown(url)} answered with a redirect ({status}), which is not followed; name where it leads"
            )
        if status in (401, 403):
            raise Nonsense(f"{_shown(url)} refused our credentials, or wants some ({status})")
        if status in (429, 502, 503, 504):
            raise Away(f"{_shown(url)} answered with status {status}", arrived=False)
        statuses.append(f"{_shown(url)} answered with status {status}")
    raise Nonsense(f"there is no card: {', '.join(statuses)}")


def judged(upstream: Upstream, card: Card, outlet: Outlet) -> Found:
    """What to make of a card. Raises ValueError for an agent that cannot be called."""
    interfaces, left_out = [], list(card.left_out)
    for interface in card.interfaces:
        if problem := _problem(upstream, interface, outlet):
            left_out.append(f"{interface}: {problem}")
        else:
            interfaces.append(interface)
    if not interfaces:
        raise Unfit(f"names no interface that may be called: {'; '.join(left_out)}")
    interfaces.sort(key=lambda one: _NEWEST.index(one.dialect))  # and as the card has them in each dialect
    ours = {extension.uri for extension in SERVER}
    spec = AgentSpec(
        id=id_for(upstream, card.name),
        name=card.name,
        description=card.description,
        version=card.version,
        skills=card.skills,
        input_modes=card.input_modes,
        output_modes=card.output_modes,
        judges_modes=True,  # many take more than their cards say
        provider=card.provider,
        icon_url=card.icon_url,
        documentation_url=card.documentation_url,
        extensions=tuple(one for one in card.extensions if one.uri not in ours),
        streaming=True,  # here; whether it is so there is seen when it is called
        direct=True,
        retries=_RETRIES,
        time_limit=upstream.time_limit,
    )
    return Found(
        spec,
        tuple(interfaces),
        tuple(left_out),
        ",".join(one.uri for one in card.extensions if one.required),
        any(one.uri == IDEMPOTENCY.uri for one in card.extensions),
        card.streaming,
    )


def unread(upstream: Upstream) -> AgentSpec:
    """What is shown of an agent with an id whose card nobody has read yet."""
    name = upstream.id.replace("-", " ").capitalize()
    return AgentSpec(
        id=upstream.id,
        name=name,
        description=f"{name}, an agent that was not reached yet",
        judges_modes=True,
        direct=True,
        retries=_RETRIES,
        time_limit=upstream.time_limit,
    )


def _problem(upstream: Upstream, interface: Interface, outlet: Outlet) -> str:
    """Why an interface is not called; empty when it may be."""
    safe = upstream.url.startswith("https:")
    url = url_of(interface.url, safe=safe) if interface.binding == "GRPC" else interface.url
    try:
        outlet.check(url)
    except Forbidden as error:
        return str(error)
    there = urlsplit(url)
    if upstream.headers and there.hostname != urlsplit(upstream.url).hostname:
        return "is at another host than the card, and would get the credentials that are for that one"
    if safe and there.scheme == "http":
        return "is not encrypted, and the card is"
    return ""


async def _get(url: str, headers: Mapping[str, str], outlet: Outlet) -> tuple[int, bytes]:
    try:
        async with outlet.open("GET", url, headers, silence=CARD_SILENCE) as answer:
            data = bytearray()
            if answer.status == 200:
                async for chunk in answer.chunks():
                    data += chunk
                    if len(data) > CARD_BYTES:
                        raise Nonsense(f"{_shown(url)}: the card is longer than {CARD_BYTES} bytes")
            return answer.status, bytes(data)
    except Forbidden as error:
        raise Blocked(str(error)) from None
    except Unreachable as error:
        raise Away(str(error), arrived=not isinstance(error, NobodyThere)) from None


def _shown(url: str) -> str:
    return url.partition("?")[0]
