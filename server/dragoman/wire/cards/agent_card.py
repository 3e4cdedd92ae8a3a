"""Agent cards: what an agent says of itself and where it is reached, in the shape of each generation.

- `v1_card`: `lf.a2a.v1.AgentCard` (A2A 1.0 §4.4.1), which GetExtendedAgentCard answers.
- `v03_card`: `a2a.v1.AgentCard` (A2A 0.3 §5.5), which the gRPC method GetAgentCard answers.
- `v03_document`: that card as JSON, for `GET /v1/card`. One text suits both of its kinds of readers, who
agree on every key until there are security schemes: those who read the ProtoJSON of `a2a.v1`, and SDKs that
read the card of 0.3's JSON-RPC.
- `v1_document`, `v01_document`: the cards of 1.0 and 0.1 as JSON, for those who name their version.
- `document`: both generations in one object, for `/.well-known/agent-card.json`; `legacy_document`, for `agent.json`,
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

from dragoman.core.cards.agent_spec import SERVER_EXTENSIONS, AgentSpec, Extension, Skill
from dragoman.wire.cards import card_security
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

JSONRPC_BINDING: Final = "JSONRPC"
HTTP_JSON_BINDING: Final = "HTTP+JSON"
GRPC_BINDING: Final = "GRPC"

V1_INTERFACE_VERSION: Final = "1.0"
V03_INTERFACE_VERSION: Final = "0.3"
"""Versions of interfaces, without a patch: one SDK finds its interface by comparing this text."""

V03_CARD_VERSION: Final = "0.3.0"
"""`protocolVersion` of a 0.3 card, which is written with a patch (0.3 §5.5)."""


# What 1.0 requires and is empty for most agents: a2a-rust reads no card without it.
_CARD_JSON: Final = replace(
    json_proto.PROTOJSON_V1,
    always_emitted={
        "lf.a2a.v1.StringList": {"list"},
        **{
            f"lf.a2a.v1.{flow}OAuthFlow": {"scopes"}
            for flow in ("AuthorizationCode", "ClientCredentials", "Implicit", "Password", "DeviceCode")
        },
    },
)
_V1_CODEC: Final = protojson.compile(pb.AgentCard, _CARD_JSON)
_V03_CODEC: Final = protojson.compile(v03.AgentCard, json_proto.PROTOJSON_V03)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCapabilities:
    """What the server can do for this agent (A2A 1.0 §4.4.3)."""

    streaming: bool = True
    push: bool = False
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CardAddresses:
    """Where clients reach one agent."""

    http: str
    """Public base URL of the server, such as `https://agents.example.com`."""
    grpc: str = ""
    """Public `host:port` for gRPC; empty when there is none."""
    trusted: bool = False
    """The card is for a caller who has shown who it is: with the skills that others do not see."""
    is_root: bool
    """The agent is the one meant when a request names none, so no address of it has to."""
    capabilities: CardCapabilities = CardCapabilities()

    @property
    def base_url(self) -> str:
        return self.http.rstrip("/")

    def agent_url(self, spec: AgentSpec) -> str:
        """The agent's own address: of its JSON-RPC, and before `/v1` of its 0.3 REST."""
        return self.base_url if self.is_root else f"{self.base_url}/{spec.id}"


_V03_CAPABILITIES: Final = frozenset(v03.AgentCapabilities.DESCRIPTOR.fields_by_camelcase_name)

SignPayloads = Callable[[Sequence[bytes]], list[tuple[str, str]]]
"""Signs a card, by the texts that its readers make of it (wire/cards/card_security.py): protected headers and
signatures.
"""


def no_signatures(_: Sequence[bytes]) -> list[tuple[str, str]]:
    """The card is not signed."""
    return []


def sign_v1_card(card: pb.AgentCard, sign: SignPayloads) -> pb.AgentCard:
    """The 1.0 card as a message, with its signatures."""
    for protected, signature in [] if sign is no_signatures else sign(card_security.v1_payloads(card)):
        card.signatures.add(protected=protected, signature=signature)
    return card


def sign_v03_card(card: v03.AgentCard, sign: SignPayloads) -> v03.AgentCard:
    """The 0.3 card as a message, with its signatures."""
    for protected, signature in (
        [] if sign is no_signatures else sign(card_security.v03_payloads(_V03_CODEC.to_dict(card)))
    ):
        card.signatures.add(protected=protected, signature=signature)
    return card


def v1_card(spec: AgentSpec, addresses: CardAddresses) -> pb.AgentCard:
    """The card in the domain vocabulary, 1.0 interfaces first: the first is the preferred one."""
    card = pb.AgentCard(
        name=spec.name,
        description=_description(spec),
        version=spec.version,
        supported_interfaces=_v1_interfaces(spec, addresses),
        capabilities=pb.AgentCapabilities(
            streaming=addresses.capabilities.streaming, push_notifications=addresses.capabilities.push
        ),
        default_input_modes=spec.input_modes,
        default_output_modes=spec.output_modes,
        skills=[pb.AgentSkill(**_skill_fields(skill, spec)) for skill in _skills(spec, addresses)],
    )
    for extension in (*spec.extensions, *SERVER_EXTENSIONS):
        card.capabilities.extensions.append(_extension(pb.AgentExtension(), extension))
    card_security.write_v1_security(spec, card)
    if addresses.capabilities.extended:
        card.capabilities.extended_agent_card = True
    if spec.provider:
        card.provider.organization = spec.provider.organization
        card.provider.url = spec.provider.url
    if spec.documentation_url:
        card.documentation_url = spec.documentation_url
    if spec.icon_url:
        card.icon_url = spec.icon_url
    return card


def v03_card(spec: AgentSpec, addresses: CardAddresses) -> v03.AgentCard:
    """The card as 0.3 clients know it."""
    interfaces = _v03_interfaces(spec, addresses)
    card = v03.AgentCard(
        protocol_version=V03_CARD_VERSION,
        name=spec.name,
        description=_description(spec),
        url=interfaces[0].url,
        preferred_transport=interfaces[0].transport,
        additional_interfaces=interfaces,  # 0.3 §5.6.2: the main one again
        version=spec.version,
        documentation_url=spec.documentation_url,
        icon_url=spec.icon_url,
        capabilities=v03.AgentCapabilities(
            streaming=addresses.capabilities.streaming,
            push_notifications=addresses.capabilities.push,
            state_transition_history=spec.state_transition_history,
        ),
        supports_authenticated_extended_card=addresses.capabilities.extended,
        default_input_modes=spec.input_modes,
        default_output_modes=spec.output_modes,
        skills=[v03.AgentSkill(**_skill_fields(skill, spec)) for skill in _skills(spec, addresses)],
    )
    for extension in (*spec.extensions, *SERVER_EXTENSIONS):
        card.capabilities.extensions.append(_extension(v03.AgentExtension(), extension))
    card_security.write_v03_security(spec, card)
    if spec.provider:
        card.provider.organization = spec.provider.organization
        card.provider.url = spec.provider.url
    return card


def v03_document(spec: AgentSpec, addresses: CardAddresses, sign: SignPayloads = no_signatures) -> bytes:
    """The 0.3 card as JSON, with no key that 0.3 does not have: readers of `GET /v1/card` may be strict."""
    card = _v03_card_json(spec, addresses)
    return _signed_document(card, lambda: card_security.v03_payloads(card), sign)


def v1_document(spec: AgentSpec, addresses: CardAddresses, sign: SignPayloads = no_signatures) -> bytes:
    """The 1.0 card as JSON, with no key that 1.0 does not have."""
    card = v1_card(spec, addresses)
    document = _V1_CODEC.to_dict(card)
    return _signed_document(
        document, lambda: [*card_security.v1_payloads(card), card_security.document_payload(document)], sign
    )


def v01_document(spec: AgentSpec, addresses: CardAddresses, sign: SignPayloads = no_signatures) -> bytes:
    """The 0.1 card (0.1.0 §5.5), with no key that 0.1 does not have; signatures are not among those."""
    card = _v03_card_json(spec, addresses)
    card["capabilities"].pop("extensions", None)
    kept = ("name", "description", "url", "provider", "version", "documentationUrl", "capabilities", "skills")
    modes = ("defaultInputModes", "defaultOutputModes")
    return orjson.dumps({**{key: card[key] for key in (*kept, *modes) if key in card}, **_v01_fields(spec, card)})


def combined_document(spec: AgentSpec, addresses: CardAddresses, sign: SignPayloads = no_signatures) -> bytes:
    """The card as JSON that readers of both generations accept; where they share a key they mean the same."""
    return _signed_combined_document(_combined_card(spec, addresses), spec, addresses, sign)


def legacy_document(spec: AgentSpec, addresses: CardAddresses, sign: SignPayloads = no_signatures) -> bytes:
    """That card with what 0.1 readers look for besides: theirs is the path `agent.json`."""
    card = _combined_card(spec, addresses)
    return _signed_combined_document({**card, **_v01_fields(spec, card)}, spec, addresses, sign)


def _signed_combined_document(
    document: Mapping[str, Any], spec: AgentSpec, addresses: CardAddresses, sign: SignPayloads
) -> bytes:
    def texts() -> list[bytes]:
        old = _v03_card_json(spec, addresses)
        values = {key: value for key, value in document["capabilities"].items() if key in _V03_CAPABILITIES}
        return [
            *card_security.v1_payloads(v1_card(spec, addresses)),
            *card_security.v03_payloads({**old, "capabilities": values}),
            card_security.document_payload(document),
        ]

    return _signed_document(document, texts, sign)


def _signed_document(document: Mapping[str, Any], payloads: Callable[[], Sequence[bytes]], sign: SignPayloads) -> bytes:
    signed = [] if sign is no_signatures else sign(card_security.unique_payloads(payloads()))
    signatures = [{"protected": protected, "signature": signature} for protected, signature in signed]
    return orjson.dumps({**document, "signatures": signatures} if signatures else document)


def _combined_card(spec: AgentSpec, addresses: CardAddresses) -> dict[str, Any]:
    old, new = _v03_card_json(spec, addresses), _V1_CODEC.to_dict(v1_card(spec, addresses))
    # Each scheme in both shapes: readers of 0.3 go by `type`, those of 1.0 by the member's name.
    schemes = {
        name: {**old["securitySchemes"][name], **new["securitySchemes"][name]}
        for name in new.get("securitySchemes", {})
    }
    capabilities = {**old["capabilities"], **new["capabilities"]}
    return {**old, **new, "capabilities": capabilities, **({"securitySchemes": schemes} if schemes else {})}


def _v03_card_json(spec: AgentSpec, addresses: CardAddresses) -> dict[str, Any]:
    """The 0.3 card as that version's JSON-RPC knows it, which differs from its ProtoJSON in the security schemes."""
    card = _V03_CODEC.to_dict(v03_card(spec, addresses))
    if spec.security_schemes:
        card["securitySchemes"] = {name: dict(scheme) for name, scheme in spec.security_schemes.items()}
    if spec.security:
        card["security"] = [{name: list(scopes) for name, scopes in one.items()} for one in spec.security]
    return card


def _v01_fields(spec: AgentSpec, card: Mapping[str, Any]) -> dict[str, Any]:
    """What only 0.1 has: three capabilities said in any case, and the names of authentication schemes."""
    flags = {"streaming": False, "pushNotifications": False, "stateTransitionHistory": False}
    return {
        "capabilities": {**flags, **card["capabilities"]},
        "authentication": {"schemes": card_security.v01_scheme_names(spec)},
    }


def etag(body: bytes) -> str:
    """A strong entity tag, quoted as the header wants it (RFC 9110 §8.8.3)."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _v1_interfaces(spec: AgentSpec, addresses: CardAddresses) -> list[pb.AgentInterface]:
    # JSON-RPC is first: one client takes the first interface for it, whatever that is. Its address names the
    # agent, so that a caller may leave the tenant out; over REST clients put the tenant before the path (1.0 §11.3).
    tenant = "" if addresses.is_root else spec.id
    found = [
        pb.AgentInterface(
            url=addresses.agent_url(spec),
            protocol_binding=JSONRPC_BINDING,
            tenant=tenant,
            protocol_version=V1_INTERFACE_VERSION,
        ),
        pb.AgentInterface(
            url=addresses.base_url,
            protocol_binding=HTTP_JSON_BINDING,
            tenant=tenant,
            protocol_version=V1_INTERFACE_VERSION,
        ),
    ]
    if addresses.grpc:
        found.append(
            pb.AgentInterface(
                url=addresses.grpc, protocol_binding=GRPC_BINDING, tenant=tenant, protocol_version=V1_INTERFACE_VERSION
            )
        )
    return found + [
        pb.AgentInterface(url=legacy.url, protocol_binding=legacy.transport, protocol_version=V03_INTERFACE_VERSION)
        for legacy in _v03_interfaces(spec, addresses)
    ]


def _v03_interfaces(spec: AgentSpec, addresses: CardAddresses) -> list[v03.AgentInterface]:
    # 0.3 clients cannot name a tenant. Over HTTP the address can; over gRPC nothing can, so only the root agent is
    # there. Its address is a gRPC target with a scheme (gRPC Name Resolution): readers that want a URL find one,
    # and those that hand it to gRPC as it is get a channel, which they would not with http://.
    url = addresses.agent_url(spec)
    found = [
        v03.AgentInterface(url=url, transport=JSONRPC_BINDING),
        v03.AgentInterface(url=url, transport=HTTP_JSON_BINDING),
    ]
    if addresses.grpc and addresses.is_root:
        found.append(v03.AgentInterface(url=f"dns:///{addresses.grpc}", transport=GRPC_BINDING))
    return found


def _description(spec: AgentSpec) -> str:
    return spec.description or spec.name


def _skills(spec: AgentSpec, addresses: CardAddresses) -> tuple[Skill, ...]:
    skills = spec.skills + (spec.extended_skills if addresses.trusted else ())
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
