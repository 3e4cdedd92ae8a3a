"""Agent cards: what an agent says of itself and where it is reached, in the shape of each generation.

- `v1_card`: `lf.a2a.v1.AgentCard` (A2A 1.0 §4.4.1), which GetExtendedAgentCard answers.
- `v03_card`: `a2a.v1.AgentCard` (A2A 0.3 §5.5), which the gRPC method GetAgentCard answers.
- `v03_document`: that card as JSON, for `GET /v1/card`. One text suits both of its kinds of readers, who
agree on every key until there are security schemes: those who read the ProtoJSON of `a2a.v1`, and SDKs that
read the card of 0.3's JSON-RPC.
- `document`: both generations in one object, for `/.well-known/agent-card.json` and `agent.json`. Readers of
  1.0 go by `supportedInterfaces` and skip the rest; 0.3 readers go by `url`, `preferredTransport` and
  `additionalInterfaces`.

No field is written empty: signed cards are compared after dropping empty fields by some readers and keeping
them by others. So an agent without skills is shown with one, itself; and what is required has a fallback.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import orjson
from google.protobuf.json_format import MessageToDict

from dragoman.core.card import AgentSpec, Skill
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HTTP_JSON: Final = "HTTP+JSON"
GRPC: Final = "GRPC"

V1: Final = "1.0"
V03: Final = "0.3"
"""Versions of interfaces, without a patch: one SDK finds its interface by comparing this text."""

V03_CARD: Final = "0.3.0"
"""`protocolVersion` of a 0.3 card, which is written with a patch (0.3 §5.5)."""


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
    root: bool
    """The agent is the one meant when a request names none, so no address of it has to."""
    capabilities: Capabilities = Capabilities()

    @property
    def base(self) -> str:
        return self.http.rstrip("/")


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
        skills=[
            pb.AgentSkill(
                id=skill.id,
                name=skill.name,
                description=skill.description or skill.name,
                tags=_tags(skill),
                examples=skill.examples,
                input_modes=skill.input_modes,
                output_modes=skill.output_modes,
            )
            for skill in _skills(spec)
        ],
    )
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
            streaming=at.capabilities.streaming, push_notifications=at.capabilities.push
        ),
        supports_authenticated_extended_card=at.capabilities.extended,
        default_input_modes=spec.input_modes,
        default_output_modes=spec.output_modes,
        skills=[
            v03.AgentSkill(
                id=skill.id,
                name=skill.name,
                description=skill.description or skill.name,
                tags=_tags(skill),
                examples=skill.examples,
                input_modes=skill.input_modes,
                output_modes=skill.output_modes,
            )
            for skill in _skills(spec)
        ],
    )
    if spec.provider:
        card.provider.organization = spec.provider.organization
        card.provider.url = spec.provider.url
    return card


def v03_document(spec: AgentSpec, at: Addresses) -> bytes:
    """The 0.3 card as JSON, with no key that 0.3 does not have: readers of `GET /v1/card` may be strict."""
    return orjson.dumps(MessageToDict(v03_card(spec, at)))


def document(spec: AgentSpec, at: Addresses) -> bytes:
    """The card as JSON that readers of both generations accept; where they share a key they mean the same."""
    return orjson.dumps({**MessageToDict(v03_card(spec, at)), **MessageToDict(v1_card(spec, at))})


def etag(body: bytes) -> str:
    """A strong entity tag, quoted as the header wants it (RFC 9110 §8.8.3)."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _v1_interfaces(spec: AgentSpec, at: Addresses) -> list[pb.AgentInterface]:
    tenant = "" if at.root else spec.id
    found = [
        # The tenant is no part of the address: clients put it before the path themselves (1.0 §11.3).
        pb.AgentInterface(url=at.base, protocol_binding=HTTP_JSON, tenant=tenant, protocol_version=V1)
    ]
    if at.grpc:
        found.append(pb.AgentInterface(url=at.grpc, protocol_binding=GRPC, tenant=tenant, protocol_version=V1))
    return found + [
        pb.AgentInterface(url=legacy.url, protocol_binding=legacy.transport, protocol_version=V03)
        for legacy in _v03_interfaces(spec, at)
    ]


def _v03_interfaces(spec: AgentSpec, at: Addresses) -> list[v03.AgentInterface]:
    # 0.3 clients cannot name a tenant. Over REST the address can, since they append /v1/… to it; over gRPC
    # nothing can, so only the root agent is there. Its address is a gRPC target with a scheme (gRPC Name
    # Resolution): readers that want a URL find one, and those that hand it to gRPC as it is get a channel,
    # which they would not with http://.
    url = at.base if at.root else f"{at.base}/{spec.id}"
    found = [v03.AgentInterface(url=url, transport=HTTP_JSON)]
    if at.grpc and at.root:
        found.append(v03.AgentInterface(url=f"dns:///{at.grpc}", transport=GRPC))
    return found


def _description(spec: AgentSpec) -> str:
    return spec.description or spec.name


def _skills(spec: AgentSpec) -> tuple[Skill, ...]:
    if spec.skills:
        return spec.skills
    return (Skill(id=spec.id, name=spec.name, description=_description(spec)),)


def _tags(skill: Skill) -> tuple[str, ...]:
    return skill.tags or (skill.id,)
