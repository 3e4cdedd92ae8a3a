"""Agent cards over both bindings: which addresses a card shows, and how HTTP hands it out (A2A 1.0 §8).

A card is made once for each address that callers use. Addresses come from the settings, else from the request,
else from where the servers listen.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from aiohttp import web

from dragoman.bindings import origins
from dragoman.bindings.origins import Networks, Origin
from dragoman.bindings.serving import Bound
from dragoman.core.access.identity import OPEN_ACCESS, AccessPolicy, Identity
from dragoman.core.cards import agent_spec
from dragoman.core.cards.agent_spec import AgentSpec, CardOverride
from dragoman.core.cards.security_schemes import NO_SECURITY, ServerSecurity, apply_security
from dragoman.core.errors import (
    AgentNotFound,
    ExtendedAgentCardNotConfigured,
    Unauthenticated,
    UnsupportedOperation,
)
from dragoman.ports import CardSigner
from dragoman.wire.cards import agent_card
from dragoman.wire.dialects import Dialect
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_log: Final = logging.getLogger("dragoman.bindings.cards")

MAX_AGE: Final = 300
"""Seconds a card may be reused unasked."""

_KEPT: Final = 256
"""Cards kept: a caller chooses its `Host`, so their number must not be a caller's to choose."""

_Make = Callable[[AgentSpec, agent_card.CardAddresses, agent_card.SignPayloads], bytes]

_SHAPES: Final[Mapping[str, _Make]] = {
    "1.0": agent_card.v1_document,
    "0.3": agent_card.v03_document,
    "0.2": agent_card.v03_document,
    "0.1": agent_card.v01_document,
}


@dataclass(frozen=True, slots=True)
class Served:
    """One card as HTTP serves it."""

    body: bytes
    etag: str


class Cards:
    """The cards of every agent, for the address each caller sees."""

    def __init__(
        self,
        agents: Mapping[str, AgentSpec],
        root: str,
        *,
        public_url: str = "",
        public_grpc: str = "",
        trusted_proxies: Networks = (),
        enforced: ServerSecurity = NO_SECURITY,
        doorway: AccessPolicy = OPEN_ACCESS,
        push: bool = False,
        signer: CardSigner | None = None,
    ) -> None:
        """`server_security`: what callers may show to say who they are; if there is anything, there are extended cards.
        `push`: this server pushes. `signer`: cards are signed, which needs a `public_url`: nobody shall have a card
        signed that leads to where its caller says.

        `public_url` and `public_grpc` (HOST:PORT) are shown as they are; empty: what the request says."""
        self._declared = dict(agents)
        self._overlays: Mapping[str, CardOverride] = {}
        self.agents = {id: _secured(spec, enforced, doorway) for id, spec in agents.items()}
        """As cards show them."""
        self._doorway = doorway
        self.enforced = enforced
        """What callers may show to say who they are."""
        self.root = root
        self.trusted_proxies = trusted_proxies
        self._push = push
        self._signer = signer
        self.http: Bound | None = None
        self.grpc: Bound | None = None
        """Where the servers listen, once they do; they set it themselves."""
        self._public_url = public_url
        self._public_grpc = public_grpc
        self._kept: OrderedDict[tuple[_Make, str, str, str, bool], Served] = OrderedDict()

    def show(self, spec: AgentSpec) -> None:
        """Shows the card of one more agent, or one that has changed. Where there is no root agent, it is that."""
        self.root = self.root or spec.id
        self._declared[spec.id] = spec
        shown = agent_spec.apply_card_override(spec, self._overlays.get(spec.id))
        self.agents[spec.id] = _secured(shown, self.enforced, self._doorway)
        for key in [key for key in self._kept if key[1] == spec.id]:
            del self._kept[key]

    def hide(self, agent: str) -> None:
        """Shows the card of an agent no more."""
        self.agents.pop(agent, None)
        self._declared.pop(agent, None)

    def lay_over(self, overlays: Mapping[str, CardOverride]) -> None:
        """Shows on cards what is said here of agents, by their ids, in the place of what they say themselves."""
        self._overlays = overlays
        for spec in list(self._declared.values()):
            self.show(spec)

    def forget(self) -> None:
        """Makes every card anew when it is asked for next."""
        self._kept.clear()

    def document(self, agent: str, origin: Origin | None, version: str = "", *, old: bool = False) -> Served:
        """The card in the shape of a version, `Major.Minor`; for those who name none, one that readers of all
        generations accept. `old`: it was asked for where 0.1 looks for it. Raises AgentNotFound."""
        make = agent_card.legacy_document if old else agent_card.combined_document
        return self._served(_SHAPES.get(version[:3], make), agent, origin)

    def v03_document(self, agent: str, origin: Origin | None, identity: Identity) -> Served:
        """The 0.3 card as JSON, for `GET /v1/card`: the extended one for who may see it. Raises AgentNotFound."""
        trusted = identity.is_authenticated and self._extends(self._spec(agent))
        return self._served(agent_card.v03_document, agent, origin, trusted=trusted)

    def v03_card(self, agent: str, identity: Identity) -> v03_pb.AgentCard:
        """The 0.3 card as message, for the gRPC method GetAgentCard, as `v03_document`. Raises AgentNotFound."""
        spec = self._spec(agent)
        trusted = identity.is_authenticated and self._extends(spec)
        return agent_card.sign_v03_card(
            agent_card.v03_card(spec, self._addresses(agent, None, trusted=trusted)), self._seal
        )

    def extended(self, agent: str, origin: Origin | None, identity: Identity, dialect: Dialect) -> bytes:
        """The extended card as JSON (1.0 §3.1.11, 0.3 §7.10).

        Raises UnsupportedOperation when the card declares none (0.3: ExtendedAgentCardNotConfigured),
        Unauthenticated for a caller who has not shown who it is.
        """
        self._check_extended(agent, identity, dialect)
        make = agent_card.v1_document if dialect in (Dialect.V1, Dialect.RUST) else agent_card.v03_document
        return self._served(make, agent, origin, trusted=True).body

    def extended_message(self, agent: str, identity: Identity) -> pb.AgentCard:
        """The extended card as message, as `extended`."""
        self._check_extended(agent, identity, Dialect.V1)
        return agent_card.sign_v1_card(
            agent_card.v1_card(self._spec(agent), self._addresses(agent, None, trusted=True)), self._seal
        )

    def _check_extended(self, agent: str, identity: Identity, dialect: Dialect) -> None:
        if not self._extends(self._spec(agent)):
            raise UnsupportedOperation if dialect in (Dialect.V1, Dialect.RUST) else ExtendedAgentCardNotConfigured
        if not identity.is_authenticated:
            raise Unauthenticated("the extended card is for callers who show who they are")

    def _extends(self, spec: AgentSpec) -> bool:
        return bool(self.enforced.schemes and spec.extended_skills)

    def catalogue(self) -> list[AgentSpec]:
        """Every agent, the root agent first, then by id."""
        return sorted(self.agents.values(), key=lambda spec: (spec.id != self.root, spec.id))

    def card_url(self, agent: str, origin: Origin | None) -> str:
        """Where an agent's card is."""
        return self.url(origin) + ("" if agent == self.root else f"/{agent}") + "/.well-known/agent-card.json"

    def url(self, origin: Origin | None) -> str:
        """The public base address of HTTP."""
        if self._public_url:
            return self._public_url
        if origin is not None:
            return origin.url
        return _reachable(self.http).url if self.http else "http://localhost"

    def _served(self, make: _Make, agent: str, origin: Origin | None, *, trusted: bool = False) -> Served:
        spec, at = self._spec(agent), self._addresses(agent, origin, trusted=trusted)
        key = make, agent, at.http, at.grpc, trusted
        served = self._kept.get(key)
        if served is None:
            body = make(spec, at, self._seal)
            served = self._kept[key] = Served(body, agent_card.etag(body))
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return served

    @property
    def _seal(self) -> agent_card.SignPayloads:
        if self._signer is None:
            return agent_card.no_signatures
        return partial(self._signer.sign, keys_url=f"{self._public_url}/.well-known/jwks.json")

    def _spec(self, agent: str) -> AgentSpec:
        spec = self.agents.get(agent)
        if spec is None:
            raise AgentNotFound
        return spec

    def _addresses(self, agent: str, origin: Origin | None, *, trusted: bool = False) -> agent_card.CardAddresses:
        spec = self._spec(agent)
        return agent_card.CardAddresses(
            http=self.url(origin),
            grpc=self._grpc_target(origin),
            is_root=agent == self.root,
            trusted=trusted,
            capabilities=agent_card.CardCapabilities(
                streaming=spec.streaming, push=self._push, extended=self._extends(spec)
            ),
        )

    def _grpc_target(self, origin: Origin | None) -> str:
        if self._public_grpc or self.grpc is None:
            return self._public_grpc
        if self._public_url or (origin is not None and origin.forwarded):
            return ""  # behind a proxy: where gRPC comes in from outside is only known when somebody says so
        if self.grpc.is_any and origin is not None:
            return f"{origin.name}:{self.grpc.port}"
        return str(_reachable(self.grpc))


def _reachable(bound: Bound) -> Bound:
    return replace(bound, host="localhost") if bound.is_any else bound


def _secured(spec: AgentSpec, server: ServerSecurity, doorway: AccessPolicy) -> AgentSpec:
    shown, gone = apply_security(spec, server, public=doorway.is_public(spec.id))
    for one in gone:
        _log.warning(
            "an agent declares security that is not what this server asks for; its card does not show it",
            extra={"agent": spec.id, "schemes": sorted(one)},
        )
    return shown


def origin(request: web.BaseRequest, known: Cards) -> Origin | None:
    """The address that the caller of this request used, as far as it matters and is told."""
    return origins.of(request, known.trusted_proxies)


def respond(
    request: web.BaseRequest, served: Served, *, vary: str = "A2A-Version", private: bool = False
) -> web.Response:
    """200 with the card, or 304 when the caller has it (RFC 9110 §13.1.2). `private`: it is for this caller alone."""
    headers = {
        "ETag": served.etag,
        "Cache-Control": "private, no-cache" if private else f"public, max-age={MAX_AGE}",
        "Vary": vary,
    }
    if _has(request.headers.getall("If-None-Match", ()), served.etag):
        return web.Response(status=304, headers=headers)
    return web.Response(body=served.body, headers={**headers, "Content-Type": "application/json"})


def _has(conditions: list[str] | tuple[()], etag: str) -> bool:
    # If-None-Match compares weakly: a proxy that compressed the card has made its tag a weak one.
    known = (tag.strip().removeprefix("W/") for condition in conditions for tag in condition.split(","))
    return any(tag in (etag, "*") for tag in known)
