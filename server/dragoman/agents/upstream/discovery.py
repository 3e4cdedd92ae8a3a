"""Discovery of upstream agents: fetches a card, and makes an agent spec of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dragoman.agents.called.agent import CRASH_RETRIES
from dragoman.agents.upstream.transport import TransportFactory, outbound_errors
from dragoman.calling import transport_http
from dragoman.calling.errors import ProtocolError, ServerUnavailable
from dragoman.calling.transport_http import CardResponse
from dragoman.core.agent_sources import UpstreamSpec, upstream_agent_id
from dragoman.core.cards.agent_spec import IDEMPOTENCY_EXTENSION, SERVER_EXTENSIONS, AgentSpec
from dragoman.ports import OutboundForbidden, OutboundStreams
from dragoman.wire.cards import remote_card
from dragoman.wire.cards.remote_card import Interface, RemoteCard

MAX_UPSTREAM_CARD_BYTES: Final = 1024 * 1024
CARD_IDLE_TIMEOUT: Final = 10.0
"""Limits of a card: its bytes, and seconds without a byte while it is fetched."""


@dataclass(frozen=True, slots=True)
class DiscoveredAgent:
    """An agent as its card describes it."""

    spec: AgentSpec
    interfaces: tuple[Interface, ...]  # usable interfaces, the best first
    skipped: tuple[str, ...]  # why the other interfaces are not used
    required_extensions: str  # URIs that each call has to activate, separated by commas
    idempotent: bool
    streaming: bool


async def discover(upstream: UpstreamSpec, transport_factory: TransportFactory) -> DiscoveredAgent:
    """Fetches and evaluates a card. Raises ServerUnavailable, CallForbidden, and ProtocolError for an unusable card."""
    document, url = await fetch_card(upstream, transport_factory.outbound)
    try:
        card = remote_card.parse_card(document, url)
        return evaluate_card(upstream, card, transport_factory.outbound)
    except ValueError as error:
        raise ProtocolError(f"the card at {_without_query(url)}: {error}") from None


async def fetch_card(upstream: UpstreamSpec, outbound: OutboundStreams) -> tuple[bytes, str]:
    """An agent's card and its URL. Raises ClientError."""

    async def get(url: str, headers: Mapping[str, str]) -> CardResponse:
        headers, data = {**upstream.headers, **headers}, b""
        with outbound_errors():
            async with outbound.open("GET", url, headers, idle_timeout=CARD_IDLE_TIMEOUT) as response:
                if response.status == 200:
                    data = await transport_http.read_body(response, _without_query(url), MAX_UPSTREAM_CARD_BYTES, None)
                return CardResponse(url, response.status, response.headers, data)

    responses = await transport_http.fetch_card(upstream.url, get)
    last = responses[-1]
    url = _without_query(last.url)
    if last.status == 200:
        return last.document, last.url
    if last.is_redirect:
        raise ProtocolError(
            f"{url} responded with a redirect ({last.status}), which is not followed; configure its target"
        )
    if last.status in (401, 403):
        raise ProtocolError(f"{url} rejected the credentials, or requires some ({last.status})")
    if last.is_conclusive:
        raise ServerUnavailable.for_reason(f"{url} responded with status {last.status}", may_have_arrived=False)
    statuses = ", ".join(f"{_without_query(one.url)} responded with status {one.status}" for one in responses)
    raise ProtocolError(f"there is no card: {statuses}")


_CARD_FIELDS: Final = (
    "name", "description", "version", "skills", "input_modes", "output_modes", "provider", "icon_url",
    "documentation_url",
)  # fmt: skip
"""Fields of a card that an agent here has as they are."""


def evaluate_card(upstream: UpstreamSpec, card: RemoteCard, outbound: OutboundStreams) -> DiscoveredAgent:
    """The agent that a card describes. Raises ValueError for an agent that cannot be called."""
    choice = remote_card.choose_interfaces(
        card,
        upstream.url,
        has_credentials=bool(upstream.headers),
        v03_files=upstream.v03_files,
        url_problem=lambda url: _forbidden_reason(url, outbound),
    )
    ours = {extension.uri for extension in SERVER_EXTENSIONS}
    spec = AgentSpec(
        id=upstream_agent_id(upstream, card.name),
        **{name: getattr(card, name) for name in _CARD_FIELDS},
        checks_own_modes=True,  # many accept more than their cards declare
        extensions=tuple(one for one in card.extensions if one.uri not in ours),
        streaming=True,  # as served here; whether the upstream streams shows when it is called
        direct=True,
        crash_retries=CRASH_RETRIES,
        time_limit=upstream.time_limit,
    )
    return DiscoveredAgent(
        spec,
        choice.interfaces,
        choice.skipped_interfaces,
        ",".join(one.uri for one in card.extensions if one.required),
        any(one.uri == IDEMPOTENCY_EXTENSION.uri for one in card.extensions),
        card.streaming,
    )


def _forbidden_reason(url: str, outbound: OutboundStreams) -> str:
    """Why a policy forbids a URL; empty when it is allowed."""
    try:
        outbound.check_url(url)
    except OutboundForbidden as error:
        return str(error)
    return ""


def _without_query(url: str) -> str:
    return url.partition("?")[0]
