"""Agent cards: their addresses, encodings, signatures and HTTP responses (A2A 1.0 §8).

A card is encoded once for each address that callers use. Addresses come from the settings, else from the request,
else from the servers' bound addresses.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final, Literal, Self

from aiohttp import web

from dragoman.bindings.options import BoundAddress
from dragoman.core.access.identity import OPEN_ACCESS, AccessPolicy, Caller
from dragoman.core.cards.agent_spec import AgentSpec, CardOverride
from dragoman.core.cards.security_schemes import NO_SECURITY, ServerSecurity, apply_security
from dragoman.core.errors import (
    NO_AGENTS_YET,
    AgentNotFound,
    ExtendedAgentCardNotConfigured,
    Unauthenticated,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.core.names import DEFAULT_SCOPE, resource_name
from dragoman.ports import CardSigner
from dragoman.wire.cards import agent_card
from dragoman.wire.cards.remote_card import GRPC_LISTING
from dragoman.wire.dialects import Dialect

_log: Final = logging.getLogger("dragoman.bindings.cards")

CARD_MAX_AGE: Final = 300  # seconds for which clients may cache a card

_MAX_CACHED_CARDS: Final = 256  # a limit is needed: callers choose their `Host` and scope

_EncodeCard = Callable[[AgentSpec, agent_card.CardView, agent_card.SignPayloads], bytes]

_ENCODER_BY_VERSION: Final[Mapping[str, _EncodeCard]] = {
    "1.0": agent_card.v1_document,
    "0.3": agent_card.v03_document,
    "0.2": agent_card.v03_document,
    "0.1": agent_card.v01_document,
}

CardVersions = Literal["all", "1.0", "0.3"]  # the versions of A2A that cards are written for


@dataclass(frozen=True, slots=True)
class ServedCard:
    """An encoded card with its ETag."""

    body: bytes
    etag: str

    @classmethod
    def of(cls, body: bytes) -> Self:
        return cls(body, agent_card.etag(body))


@dataclass(frozen=True, slots=True)
class PublicAddresses:
    """The addresses that cards name, unchanged. Empty: the request decides."""

    url: str = ""
    grpc: str = ""  # HOST:PORT, or with a scheme
    trusted_proxies: TrustedNetworks = ()  # whose headers tell the address that the caller used


class Cards:
    """The cards of all agents, encoded with the address that each caller uses."""

    def __init__(
        self,
        agents: Mapping[str, AgentSpec],
        root: str,
        *,
        addresses: PublicAddresses = PublicAddresses(),  # frozen
        security: ServerSecurity = NO_SECURITY,
        access_policy: AccessPolicy = OPEN_ACCESS,
        push: bool = False,
        signer: CardSigner | None = None,
        versions: CardVersions = "all",
    ) -> None:
        """`security`: the server's security schemes; with any scheme, cards may have extended ones. `push`: the server
        has push notifications. `signer` signs cards and needs `addresses.url`, so that no caller gets a signed card
        with an address of its choice. `versions`: with one version every card at a well-known path is of it alone,
        whatever version is requested.
        """
        self._declared_specs = dict(agents)
        self._overrides: Mapping[str, CardOverride] = {}
        self.agents = {agent: _with_security(spec, security, access_policy) for agent, spec in agents.items()}
        """The agents as in their cards, by id: with overrides and security schemes."""
        self._access_policy = access_policy
        self.security = security
        self.root = root
        self.trusted_proxies = addresses.trusted_proxies
        self._push = push
        self._signer = signer
        self._versions = versions
        self.http: BoundAddress | None = None  # the bound address, set by the server once it listens
        self.grpc: BoundAddress | None = None  # the bound address of gRPC, set likewise
        self.is_mounted = False  # whether HTTP arrives through another application, set likewise
        self._public_url = addresses.url
        self._public_grpc = addresses.grpc
        self._cache: OrderedDict[tuple[_EncodeCard, str, str, str, str, bool], ServedCard] = OrderedDict()
        self.changed = asyncio.Event()  # set when an agent is added, changed or removed; a new one then takes its place

    def put_agent(self, spec: AgentSpec) -> None:
        """Adds or updates the card of an agent, which becomes the root agent if there is none."""
        self.root = self.root or spec.id
        self._declared_specs[spec.id] = spec
        card_spec = replace(spec, **self._overrides.get(spec.id, {}))
        self.agents[spec.id] = _with_security(card_spec, self.security, self._access_policy)
        for key in [key for key in self._cache if key[1] == spec.id]:
            del self._cache[key]
        self._note_change()

    def remove_agent(self, agent: str) -> None:
        self.agents.pop(agent, None)
        self._declared_specs.pop(agent, None)
        self._note_change()

    def _note_change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def apply_overrides(self, overrides: Mapping[str, CardOverride]) -> None:
        self._overrides = overrides
        for spec in list(self._declared_specs.values()):
            self.put_agent(spec)

    def clear_cache(self) -> None:
        self._cache.clear()

    def document(
        self, agent: str, origin: Origin | None, version: str = "", *, legacy: bool = False, scope: str = DEFAULT_SCOPE
    ) -> ServedCard:
        """The card for a version, `Major.Minor`; without one, a card that clients of all versions accept.

        With a single card version it is that version's card.

        `legacy`: requested at 0.1's path. `scope`: the scope within which it is read, and in which its addresses stay.
        Raises AgentNotFound.
        """
        if self._versions != "all":
            return self._cached_card(_ENCODER_BY_VERSION[self._versions], agent, origin, scope)
        encode = agent_card.legacy_document if legacy else agent_card.combined_document
        return self._cached_card(_ENCODER_BY_VERSION.get(version[:3], encode), agent, origin, scope)

    def v03_card(self, caller: Caller, origin: Origin | None, *, as_message: bool = False) -> ServedCard:
        """The 0.3 card for `GET /v1/card`, or as a message for GetAgentCard; extended for authenticated callers.

        Raises AgentNotFound.
        """
        trusted = caller.identity.is_authenticated and self._has_extended_card(self._find_spec(caller.agent))
        encode = agent_card.v03_message if as_message else agent_card.v03_protojson_document
        return self._cached_card(encode, caller.agent, origin, caller.owner.scope, trusted=trusted)

    def extended_card(
        self, caller: Caller, origin: Origin | None, dialect: Dialect, *, as_message: bool = False
    ) -> bytes:
        """The extended card as JSON, or as a message of 1.0 (1.0 §3.1.11, 0.3 §7.10).

        Raises UnsupportedOperation for an agent without one (0.3: ExtendedAgentCardNotConfigured), Unauthenticated for
        a caller without credentials.
        """
        is_v1 = dialect in (Dialect.V1, Dialect.RUST)
        if not self._has_extended_card(self._find_spec(caller.agent)):
            raise UnsupportedOperation if is_v1 else ExtendedAgentCardNotConfigured
        if not caller.identity.is_authenticated:
            raise Unauthenticated("the extended card needs credentials")
        encode = agent_card.v1_message if as_message else agent_card.v1_document if is_v1 else agent_card.v03_document
        return self._cached_card(encode, caller.agent, origin, caller.owner.scope, trusted=True).body

    def _has_extended_card(self, spec: AgentSpec) -> bool:
        return bool(self.security.schemes and spec.extended_skills)

    def sorted_agents(self) -> list[AgentSpec]:
        """All agents: the root agent first, then by id."""
        return sorted(self.agents.values(), key=lambda spec: (spec.id != self.root, spec.id))

    def card_url(self, agent: str, origin: Origin | None) -> str:
        return self.base_url(origin) + ("" if agent == self.root else f"/{agent}") + "/.well-known/agent-card.json"

    def origin(self, request: web.BaseRequest) -> Origin | None:
        """The address that the caller used; None if the request names no valid one."""
        return request_origin(request, self.trusted_proxies)

    def base_url(self, origin: Origin | None) -> str:
        """The public base address of HTTP."""
        if self._public_url:
            return self._public_url
        if origin is not None:
            return origin.url
        return self.http.reachable("localhost").url if self.http else "http://localhost"

    def _cached_card(
        self, encode: _EncodeCard, agent: str, origin: Origin | None, scope: str, *, trusted: bool = False
    ) -> ServedCard:
        spec = self._find_spec(agent)
        view = agent_card.CardView(
            http=self.base_url(origin),
            grpc=self._grpc_target(origin),
            is_root=agent == self.root,
            is_mounted=self.is_mounted,
            trusted=trusted,
            resource=resource_name(scope, agent),
            lists_v03=self._versions != "1.0",
            streaming=spec.streaming,
            push=self._push,
            extended=self._has_extended_card(spec),
        )
        key = encode, agent, view.http, view.grpc, scope, trusted
        served = self._cache.get(key)
        if served is None:
            keys_url = f"{self._public_url}/.well-known/jwks.json"
            sign = None if self._signer is None else partial(self._signer.sign, keys_url=keys_url)
            served = self._cache[key] = ServedCard.of(encode(spec, view, sign))
            if len(self._cache) > _MAX_CACHED_CARDS:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        return served

    def _find_spec(self, agent: str) -> AgentSpec:
        spec = self.agents.get(agent)
        if spec is None:
            raise AgentNotFound if self.agents else Unavailable(NO_AGENTS_YET)
        return spec

    def _grpc_target(self, origin: Origin | None) -> str:
        if self._public_grpc or self.grpc is None:
            return self._public_grpc
        if self._public_url or (origin is not None and (origin.forwarded or not origin.lists_grpc)):
            return ""  # behind a proxy only the setting knows the public address of gRPC
        if self.grpc.is_any and origin is not None:
            return f"{origin.name}:{self.grpc.port}"
        return str(self.grpc.reachable("localhost"))


def _with_security(spec: AgentSpec, security: ServerSecurity, access_policy: AccessPolicy) -> AgentSpec:
    card_spec, dropped = apply_security(spec, security, public=access_policy.is_public(spec.id))
    for requirement in dropped:
        _log.warning(
            "an agent declares security schemes that this server does not use; its card omits them",
            extra={"agent": spec.id, "schemes": sorted(requirement)},
        )
    return card_spec


MOUNT_PATH: Final = "dragoman.mount_path"
"""The extra information of a transport that says at which path of a host application we are mounted."""

_HOST: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?")
_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){0,8}")
_FORWARDED: Final = re.compile(r'(?:^|[;,\s])(proto|host)\s*=\s*(?:"([^"]*)"|([^;,\s"]*))', re.IGNORECASE)

TrustedNetworks = Sequence[IPv4Network | IPv6Network]


@dataclass(frozen=True, slots=True)
class Origin:
    """A base address: `url` as in cards, `name` without scheme and port."""

    url: str
    name: str
    forwarded: bool = False  # reported by a trusted proxy: callers do not reach this server's own ports
    lists_grpc: bool = False  # the caller takes addresses of another origin (`remote_card.GRPC_LISTING`)


def request_origin(request: web.BaseRequest, trusted: TrustedNetworks) -> Origin | None:
    """The address that the caller used; None if the request names no valid one."""
    headers = request.headers
    scheme, host, prefix, forwarded = request.scheme, headers.get("Host", ""), "", False
    if trusted and _is_trusted(request.remote, trusted):
        # Of several values the last was written by the proxy next to this server.
        forwarded_fields = {
            name.lower(): quoted or plain
            for name, quoted, plain in _FORWARDED.findall(_last(headers.getall("Forwarded", ())))
        }
        forwarded_scheme = forwarded_fields.get("proto") or _last(headers.getall("X-Forwarded-Proto", ()))
        forwarded_host = forwarded_fields.get("host") or _last(headers.getall("X-Forwarded-Host", ()))
        prefix = _last(headers.getall("X-Forwarded-Prefix", ())).rstrip("/")
        forwarded = bool(forwarded_scheme or forwarded_host or prefix)
        scheme = forwarded_scheme.lower() or scheme
        if forwarded_host:
            host = forwarded_host
            port = _last(headers.getall("X-Forwarded-Port", ()))
            is_default = (scheme, port) in (("http", "80"), ("https", "443"))
            if port.isascii() and port.isdigit() and not is_default and _HOST.fullmatch(f"{host}:{port}"):
                host += ":" + port
    match = _HOST.fullmatch(host)
    if match is None or scheme not in ("http", "https") or not _PREFIX.fullmatch(prefix):
        return None
    lists_grpc = any(GRPC_LISTING in value for value in headers.getall("A2A-Extensions", ()))
    mount_path = request.transport.get_extra_info(MOUNT_PATH, "") if request.transport is not None else ""
    return Origin(f"{scheme}://{host}{prefix}{mount_path}", match["name"], forwarded, lists_grpc)


def _last(values: Sequence[str]) -> str:
    return values[-1].rsplit(",", 1)[-1].strip() if values else ""


def _is_trusted(remote: str | None, trusted: TrustedNetworks) -> bool:
    try:
        address = ip_address(remote or "")
    except ValueError:
        return False
    return any(address in network for network in trusted)
