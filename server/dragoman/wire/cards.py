"""Agent cards: what an agent says of itself and where it is reached, in the shape of each generation.

- `v1_card`: `lf.a2a.v1.AgentCard` (A2A 1.0 §4.4.1), which GetExtendedAgentCard answers.
- `v03_card`: `a2a.v1.AgentCard` (A2A 0.3 §5.5), which the gRPC method GetAgentCard answers.
- `v03_document`: that card as JSON, for `GET /v1/card`. One text suits both of its kinds of readers, who
agree on every key until there are security schemes: those who read the ProtoJSON of `a2a.v1`, and SDKs that
read the card of 0.3's JSON-RPC.
- `v1_document`, `v01_document`: the cards of 1.0 and 0.1 as JSON, for those who name their version.
- `document`: both generations in one object, for `/.well-known/agent-card.json`; `old_document`, for `agent.json`,
has what 0.1 readers look for besides. Readers of
  1.0 go by `supportedInterfaces` and skip the rest; 0.3 readers go by `url`, `preferredTransport` and
  `additionalInterfaces`.

No field is written empty: signed cards are compared after dropping empty fields by some readers and keeping
them by others. So an agent without skills is shown with one, itself; and what is required has a fallback. Only the
scopes of security are, where there are none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import orjson
from google.protobuf.json_format import ParseDict

from dragoman.core.card import AgentSpec, Extension, Skill
from dragoman.core.extensions import SERVER
from dragoman.wire import a2a_json, card_forms, card_security, protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

JSONRPC: Final = "JSONRPC"
HTTP_JSON: Final = "HTTP+JSON"
GRPC: Final = "GRPC"

V1: Final = "1.0"
V03: Final = "0.3"
"""Versions of interfaces, without a patch: one SDK finds its interface by comparing this text."""

V03_CARD: Final = "0.3.0"
"""`protocolVersion` of a 0.3 card, which is written with a patch (0.3 §5.5)."""


# What 1.0 requires and is empty for most agents: a2a-rust reads no card without it.
_JSON: Final = replace(
    a2a_json.V1,
    always={
        "lf.a2a.v1.StringList": {"list"},
        **{
            f"lf.a2a.v1.{flow}OAuthFlow": {"scopes"}
            for flow in ("AuthorizationCode", "ClientCredentials", "Implicit", "Password", "DeviceCode")
        },
    },
)
_V1: Final = protojson.compile(pb.AgentCard, _JSON)
_V03: Final = protojson.compile(v03.AgentCard, a2a_json.V03)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the server can do for this agent (A2A 1.0 §4.4.3)."""

    streaming: bool = True
    push: bool = False
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where clients reach one agent."""

    http: str
    """Public base URL of the server, such as `https://agents.example.com`."""
    grpc: str = ""
    """Public `host:port` for gRPC; empty when there is none."""
    trusted: bool = False
    """The card is for a caller who has shown who it is: with the skills that others do not see."""
    root: bool
    """The agent is the one meant when a request names none, so no address of it has to."""
    capabilities: Capabilities = Capabilities()

    @property
    def base(self) -> str:
        return self.http.rstrip("/")

    def of(self, spec: AgentSpec) -> str:
        """The agent's own address: of its JSON-RPC, and before `/v1` of its 0.3 REST."""
        return self.base if self.root else f"{self.base}/{spec.id}"


_V03_CAPABILITIES: Final = frozenset(v03.AgentCapabilities.DESCRIPTOR.fields_by_camelcase_name)

Seal = Callable[[Sequence[bytes]], list[tuple[str, str]]]
"""Signs a card, by the texts that its readers make of it (wire/card_forms.py): protected headers and signatures."""


def unsealed(_: Sequence[bytes]) -> list[tuple[str, str]]:
    """The card is not signed."""
    return []


def sealed_card(card: pb.AgentCard, seal: Seal) -> pb.AgentCard:
    """The 1.0 card as a message, with its signatures."""
    for protected, signature in [] if seal is unsealed else seal(card_forms.of_v1(card)):
        card.signatures.add(protected=protected, signature=signature)
    return card


def sealed_v03_card(card: v03.AgentCard, seal: Seal) -> v03.AgentCard:
    """The 0.3 card as a message, with its signatures."""
    for protected, signature in [] if seal is unsealed else seal(card_forms.of_v03(_V03.to_dict(card))):
        card.signatures.add(protected=protected, signature=signature)
    return card


def v1_card(spec: AgentSpec, at: Addresses) -> pb.AgentCard:
    """The card in the domain vocabulary, 1.0 interfaces first: the first is the preferred one."""
    card = pb.AgentCard(
        name=spec.name,
        description=_description(spec),
        version=spec.version,
        supported_interfaces=_v1_interfaces(spec, at),
        capabilities=pb.AgentCapabilities(streaming=at.capabilities.streaming, push_notifications=at.capabilities.push),
        default_input_modes=spec.input_modes,
        default_output_modes=spec.output_modes,
        skills=[pb.AgentSkill(**_skill_fields(skill, spec)) for skill in _skills(spec, at)],
    )
    for extension in (*spec.extensions, *SERVER):
        card.capabilities.extensions.append(_extension(pb.AgentExtension(), extension))
    card_security.write_v1(spec, card)
    if at.capabilities.extended:
        card.capabilities.extended_agent_card = True
    if spec.provider:
        card.provider.organization = spec.provider.organization
        card.provider.url = spec.provider.url
    if spec.documentation_url:
        card.documentation_url = spec.documentation_url
    if spec.icon_url:
        card.icon_url = spec.icon_url
    return card


def v03_card(spec: AgentSpec, at: Addresses) -> v03.AgentCard:
    """The card as 0.3 clients know it."""
    interfaces = _v03_interfaces(spec, at)
    card = v03.AgentCard(
        protocol_version=V03_CARD,
        name=spec.name,
        description=_description(spec),
        url=interfaces[0].url,
        preferred_transport=interfaces[0].transport,
        additional_interfaces=interfaces,  # 0.3 §5.6.2: the main one again
        version=spec.version,
        documentation_url=spec.documentation_url,
        icon_url=spec.icon_url,
        capabilities=v03.AgentCapabilities(
            streaming=at.capabilities.streaming,
            push_notifications=at.capabilities.push,
            state_transition_history=spec.state_transition_history,
        ),
        supports_authenticated_extended_card=at.capabilities.extended,
        default_input_modes=spec.input_modes,
        default_output_modes=spec.output_modes,
        skills=[v03.AgentSkill(**_skill_fields(skill, spec)) for skill in _skills(spec, at)],
    )
    for extension in (*spec.extensions, *SERVER):
        card.capabilities.extensions.append(_extension(v03.AgentExtension(), extension))
    card_security.write_v03(spec, card)
    if spec.provider:
        card.provider.organization = spec.provider.organization
        card.provider.url = spec.provider.url
    return card


def v03_document(spec: AgentSpec, at: Addresses, seal: Seal = unsealed) -> bytes:
    """The 0.3 card as JSON, with no key that 0.3 does not have: readers of `GET /v1/card` may be strict."""
    card = _v03(spec, at)
    return _sealed(card, lambda: card_forms.of_v03(card), seal)


def v1_document(spec: AgentSpec, at: Addresses, seal: Seal = unsealed) -> bytes:
    """The 1.0 card as JSON, with no key that 1.0 does not have."""
    card = v1_card(spec, at)
    document = _V1.to_dict(card)
    return _sealed(document, lambda: [*card_forms.of_v1(card), card_forms.as_fetched(document)], seal)


def v01_document(spec: AgentSpec, at: Addresses, seal: Seal = unsealed) -> bytes:
    """The 0.1 card (0.1.0 §5.5), with no key that 0.1 does not have; signatures are not among those."""
    card = _v03(spec, at)
    card["capabilities"].pop("extensions", None)
    kept = ("name", "description", "url", "provider", "version", "documentationUrl", "capabilities", "skills")
    modes = ("defaultInputModes", "defaultOutputModes")
    return orjson.dumps({**{key: card[key] for key in (*kept, *modes) if key in card}, **_v01_keys(spec, card)})


def document(spec: AgentSpec, at: Addresses, seal: Seal = unsealed) -> bytes:
    """The card as JSON that readers of both generations accept; where they share a key they mean the same."""
    return _shared(_both(spec, at), spec, at, seal)


def old_document(spec: AgentSpec, at: Addresses, seal: Seal = unsealed) -> bytes:
    """That card with what 0.1 readers look for besides: theirs is the path `agent.json`."""
    card = _both(spec, at)
    return _shared({**card, **_v01_keys(spec, card)}, spec, at, seal)


def _shared(document: Mapping[str, Any], spec: AgentSpec, at: Addresses, seal: Seal) -> bytes:
    def texts() -> list[bytes]:
        old = _v03(spec, at)
        said = {key: value for key, value in document["capabilities"].items() if key in _V03_CAPABILITIES}
        return [
            *card_forms.of_v1(v1_card(spec, at)),
            *card_forms.of_v03({**old, "capabilities": said}),
            card_forms.as_fetched(document),
        ]

    return _sealed(document, texts, seal)


def _sealed(document: Mapping[str, Any], texts: Callable[[], Sequence[bytes]], seal: Seal) -> bytes:
    signed = [] if seal is unsealed else seal(card_forms.distinct(texts()))
    signatures = [{"protected": protected, "signature": signature} for protected, signature in signed]
    return orjson.dumps({**document, "signatures": signatures} if signatures else document)


def _both(spec: AgentSpec, at: Addresses) -> dict[str, Any]:
    old, new = _v03(spec, at), _V1.to_dict(v1_card(spec, at))
    # Each scheme in both shapes: readers of 0.3 go by `type`, those of 1.0 by the member's name.
    schemes = {
        name: {**old["securitySchemes"][name], **new["securitySchemes"][name]}
        for name in new.get("securitySchemes", {})
    }
    capabilities = {**old["capabilities"], **new["capabilities"]}
    return {**old, **new, "capabilities": capabilities, **({"securitySchemes": schemes} if schemes else {})}


def _v03(spec: AgentSpec, at: Addresses) -> dict[str, Any]:
    """The 0.3 card as that version's JSON-RPC knows it, which differs from its ProtoJSON in the security schemes."""
    card = _V03.to_dict(v03_card(spec, at))
    if spec.security_schemes:
        card["securitySchemes"] = {name: dict(scheme) for name, scheme in spec.security_schemes.items()}
    if spec.security:
        card["security"] = [{name: list(scopes) for name, scopes in one.items()} for one in spec.security]
    return card


def _v01_keys(spec: AgentSpec, card: Mapping[str, Any]) -> dict[str, Any]:
    """What only 0.1 has: three capabilities said in any case, and the names of authentication schemes."""
    flags = {"streaming": False, "pushNotifications": False, "stateTransitionHistory": False}
    return {
        "capabilities": {**flags, **card["capabilities"]},
        "authentication": {"schemes": card_security.names(spec)},
    }


def etag(body: bytes) -> str:
    """A strong entity tag, quoted as the header wants it (RFC 9110 §8.8.3)."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _v1_interfaces(spec: AgentSpec, at: Addresses) -> list[pb.AgentInterface]:
    # JSON-RPC is first: one client takes the first interface for it, whatever that is. Its address names the
    # agent, so that a caller may leave the tenant out; over REST clients put the tenant before the path (1.0 §11.3).
    tenant = "" if at.root else spec.id
    found = [
        pb.AgentInterface(url=at.of(spec), protocol_binding=JSONRPC, tenant=tenant, protocol_version=V1),
        pb.AgentInterface(url=at.base, protocol_binding=HTTP_JSON, tenant=tenant, protocol_version=V1),
    ]
    if at.grpc:
        found.append(pb.AgentInterface(url=at.grpc, protocol_binding=GRPC, tenant=tenant, protocol_version=V1))
    return found + [
        pb.AgentInterface(url=legacy.url, protocol_binding=legacy.transport, protocol_version=V03)
        for legacy in _v03_interfaces(spec, at)
    ]


def _v03_interfaces(spec: AgentSpec, at: Addresses) -> list[v03.AgentInterface]:
    # 0.3 clients cannot name a tenant. Over HTTP the address can; over gRPC nothing can, so only the root agent is
    # there. Its address is a gRPC target with a scheme (gRPC Name Resolution): readers that want a URL find one,
    # and those that hand it to gRPC as it is get a channel, which they would not with http://.
    url = at.of(spec)
    found = [v03.AgentInterface(url=url, transport=JSONRPC), v03.AgentInterface(url=url, transport=HTTP_JSON)]
    if at.grpc and at.root:
        found.append(v03.AgentInterface(url=f"dns:///{at.grpc}", transport=GRPC))
    return found


def _description(spec: AgentSpec) -> str:
    return spec.description or spec.name


def _skills(spec: AgentSpec, at: Addresses) -> tuple[Skill, ...]:
    skills = spec.skills + (spec.extended_skills if at.trusted else ())
    return skills or (Skill(id=spec.id, name=spec.name, description=_description(spec)),)


def _skill_fields(skill: Skill, spec: AgentSpec) -> dict[str, Any]:
    # The modes are said in any case: one family of clients refuses a skill without them.
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description or skill.name,
        "tags": skill.tags or (skill.id,),
        "examples": skill.examples,
        "input_modes": skill.input_modes or spec.input_modes,
        "output_modes": skill.output_modes or spec.output_modes,
    }


E = TypeVar("E", pb.AgentExtension, v03.AgentExtension)


def _extension(out: E, extension: Extension) -> E:
    out.uri = extension.uri
    out.description = extension.description
    out.required = extension.required
    if extension.params:
        ParseDict(dict(extension.params), out.params)
    return out
