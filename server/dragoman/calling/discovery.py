"""Card discovery: fetches an agent's card from the places where servers have it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from dragoman.wire.cards import remote_card

_CONCLUSIVE_STATUSES: Final = frozenset({200, 401, 403, 429, 502, 503, 504})


class CardResponse(NamedTuple):
    """The response to one request for a card. `url`: where it came from, after redirects."""

    url: str
    status: int
    headers: Mapping[str, str]
    document: bytes

    @property
    def is_redirect(self) -> bool:
        return 300 <= self.status < 400

    @property
    def is_conclusive(self) -> bool:
        """Whether no other place has to be tried: a card, a redirect, or an error of the whole server."""
        return self.status in _CONCLUSIVE_STATUSES or self.is_redirect


CardGetter = Callable[[str, Mapping[str, str]], Awaitable[CardResponse]]
"""Requests a URL with these headers. Raises ClientError."""


async def fetch_card(url: str, get: CardGetter) -> list[CardResponse]:
    """The last response of each place where the card may be, up to a conclusive one. `url`: the agent or its card."""
    responses: list[CardResponse] = []
    for card_url in remote_card.card_urls(url):
        for headers in remote_card.CARD_REQUEST_HEADERS:
            response = await get(card_url, headers)
            if response.status != 400:
                break
        responses.append(response)
        if response.is_conclusive:
            break
    return responses
