"""An agent's card is fetched and judged: what it is called here, what is shown of it, and which roads lead there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.agents.upstream.road import BOUNDS, Away, Blocked, Bounds, Nonsense, Road
from dragoman.core.card import AgentSpec
from dragoman.core.extensions import IDEMPOTENCY, SERVER
from dragoman.core.upstreams import Upstream, id_for
from dragoman.ports import Forbidden, NobodyThere, Outlet, Unreachable
from dragoman.wire import card_reading, finding_cards
from dragoman.wire.card_reading import Card, Interface

CARD_BYTES: Final = 1024 * 1024
CARD_SILENCE: Final = 10.0
"""Bytes of a card, and seconds without one of them."""

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
    statuses = []
    for url in finding_cards.places(upstream.url):
        for headers in finding_cards.HEADERS:
            status, document = await _get(url, {**upstream.headers, **headers}, outlet)
            if status != 400:
                break
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
    choice = finding_cards.chosen(
        card, upstream.url, credentials=bool(upstream.headers), allowed=lambda url: _forbidden(url, outlet)
    )
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
        choice.interfaces,
        choice.left_out,
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


def _forbidden(url: str, outlet: Outlet) -> str:
    """Why this server may not call there; empty when it may."""
    try:
        outlet.check(url)
    except Forbidden as error:
        return str(error)
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
