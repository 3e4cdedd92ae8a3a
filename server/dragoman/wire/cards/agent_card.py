"""Cards of local agents, as messages (`..._card`) and JSON (`..._document`) of each version (1.0 §4.4.1, 0.3 §5.5).

`combined_document` serves 1.0 and 0.3 clients with one object: 1.0 clients read `supportedInterfaces`, 0.3 clients
`url`, `preferredTransport` and `additionalInterfaces`. `legacy_document` adds the fields of 0.1. One `v03_document`
serves readers of ProtoJSON and of JSON-RPC cards, whose keys differ only in security schemes.
No field is written empty, except scopes: before they verify a signature, some clients drop empty fields and others keep
them. So required fields have fallbacks, and an agent without skills gets one skill, itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from urllib.parse import quote

import orjson
from google.protobuf.json_format import ParseDict

from dragoman.core.cards.agent_spec import SERVER_EXTENSIONS, AgentSpec, Extension, Skill
from dragoman.core.cards.skill_schemas import shown_extensions
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
"""`protocolVersion` of interfaces, without a patch number: one SDK compares this text exactly."""

V03_CARD_VERSION: Final = "0.3.0"  # `protocolVersion` of a 0.3 card, which has a patch number (0.3 §5.5)

# Required in 1.0 and empty for most agents. a2a-rust rejects cards without them.
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
class CardView:
    """The parts of a card that differ by server and reader: addresses, optional features, what the reader may see."""

    http: str  # public base URL of the server, such as `https://agents.example.com`
    grpc: str = ""  # public `host:port` for gRPC, with or without a scheme; empty without gRPC
    trusted: bool = False  # whether the card is for an authenticated caller, who also sees the extended skills
    is_root: bool  # whether it is the root agent, whose addresses need no agent id
    is_mounted: bool = False  # whether the server is a part of another HTTP application
    resource: str = ""
    """The agent's resource name on a card that is read within a scope: its addresses stay in that scope."""
    # Optional features that the server offers for the agent (1.0 §4.4.3).
    streaming: bool = True
    push: bool = False
    extended: bool = False
    lists_v03: bool = True  # whether a 1.0 card lists the interfaces of 0.3, too

    @property
    def base_url(self) -> str:
        return self.http.rstrip("/")

    def agent_url(self, spec: AgentSpec) -> str:
        """The agent's URL; outside of scopes the base of `/v1` of its 0.3 REST binding."""
        if self.resource:
            return f"{self.base_url}/{quote(self.resource)}"
        return self.base_url if self.is_root else f"{self.base_url}/{spec.id}"

    def jsonrpc_url(self, spec: AgentSpec) -> str:
        """The agent's URL for JSON-RPC. Below a mount it is never the mount itself: Starlette redirects from there."""
        return f"{self.base_url}/" if self.is_mounted and self.is_root and not self.resource else self.agent_url(spec)

    def v03_rest_url(self, spec: AgentSpec) -> str:
        """The base of `/v1` of the agent's 0.3 REST binding."""
        return f"{self.base_url}/v1/{quote(self.resource)}/a2a" if self.resource else self.agent_url(spec)

    def tenant(self, spec: AgentSpec) -> str:
        """The tenant of the agent's 1.0 interfaces (1.0 §4.6)."""
        return self.resource or ("" if self.is_root else spec.id)


_V03_CAPABILITIES: Final = frozenset(v03.AgentCapabilities.DESCRIPTOR.fields_by_camelcase_name)

C = TypeVar("C", pb.AgentCard, v03.AgentCard)

SignPayloads = Callable[[Sequence[bytes]], list[tuple[str, str]]] | None
"""Signs each payload of a card (wire/cards/card_security.py) and returns the protected headers and signatures. None
leaves cards unsigned."""


def v1_message(spec: AgentSpec, view: CardView, sign: SignPayloads = None) -> bytes:
    card = v1_card(spec, view)
    return _signed_message(card, lambda: card_security.v1_payloads(card), sign)


def v03_message(spec: AgentSpec, view: CardView, sign: SignPayloads = None) -> bytes:
    card = v03_card(spec, view)
    return _signed_message(card, lambda: card_security.v03_payloads(_V03_CODEC.to_dict(card)), sign)


def _signed_message(card: C, payloads: Callable[[], Sequence[bytes]], sign: SignPayloads) -> bytes:
    for protected, signature in _signatures(payloads, sign):
        card.signatures.add(protected=protected, signature=signature)
    return card.SerializeToString()


def v1_card(spec: AgentSpec, view: CardView) -> pb.AgentCard:
    """The 1.0 card. The first interface is the preferred one; 1.0 interfaces come first."""
    card = pb.AgentCard(supported_interfaces=_v1_interfaces(spec, view))
    if view.extended:
        card.capabilities.extended_agent_card = True
    fields = _shared_fields(spec, view, pb.OAuthFlows)
    fields["security_requirements"] = fields.pop("security")
    return ParseDict(fields, card, ignore_unknown_fields=True)


def v03_card(spec: AgentSpec, view: CardView) -> v03.AgentCard:
    interfaces = _v03_interfaces(spec, view)
    card = v03.AgentCard(
        protocol_version=V03_CARD_VERSION,
        url=interfaces[0].url,
        preferred_transport=interfaces[0].transport,
        additional_interfaces=interfaces,  # 0.3 §5.6.2: includes the main one
        supports_authenticated_extended_card=view.extended,
    )
    return ParseDict(_shared_fields(spec, view, v03.OAuthFlows), card, ignore_unknown_fields=True)


def _shared_fields(
    spec: AgentSpec, view: CardView, flows: type[pb.OAuthFlows] | type[v03.OAuthFlows]
) -> dict[str, Any]:
    """The fields that the cards of both versions have, as JSON with proto names; empty texts are left out."""
    extensions = (*shown_extensions(spec, extended=view.trusted), *SERVER_EXTENSIONS)
    fields = {
        "name": spec.name,
        "description": _description(spec),
        "version": spec.version,
        "provider": spec.provider and {"organization": spec.provider.organization, "url": spec.provider.url},
        "documentation_url": spec.documentation_url,
        "icon_url": spec.icon_url,
        "capabilities": {
            "streaming": view.streaming,
            "push_notifications": view.push,
            "extensions": [_extension(extension) for extension in extensions],
        },
        "default_input_modes": spec.input_modes,
        "default_output_modes": spec.output_modes,
        "skills": [_skill_fields(skill, spec) for skill in _skills(spec, view)],
    }
    return {key: value for key, value in fields.items() if value} | card_security.security_fields(spec, flows)


def v03_document(spec: AgentSpec, view: CardView, sign: SignPayloads = None) -> bytes:
    """The 0.3 card in the JSON of JSON-RPC (0.3 §5.5), with 0.3 keys only: its readers may be strict."""
    card = _v03_card_json(spec, view)
    document = _with_interface_descriptions(spec, card_security.with_key_locations(card))
    return _signed_document(
        document, lambda: [*card_security.v03_payloads(card), card_security.document_payload(document)], sign
    )


def v03_protojson_document(spec: AgentSpec, view: CardView, sign: SignPayloads = None) -> bytes:
    """The 0.3 card as ProtoJSON of `a2a.v1.AgentCard`, for `GET /v1/card` and `card` under a resource path."""
    card = _json_of(_V03_CODEC, v03_card(spec, view))
    return _signed_document(card, lambda: card_security.v03_payloads(card), sign)


def v1_document(spec: AgentSpec, view: CardView, sign: SignPayloads = None) -> bytes:
    """The 1.0 card as JSON, with 1.0 keys only, for clients that name their version."""
    card = v1_card(spec, view)
    document = _json_of(_V1_CODEC, card)
    return _signed_document(
        document, lambda: [*card_security.v1_payloads(card), card_security.document_payload(document)], sign
    )


def v01_document(spec: AgentSpec, view: CardView, sign: SignPayloads = None) -> bytes:
    """The 0.1 card as JSON (0.1.0 §5.5), with 0.1 keys only, so without signatures."""
    card = _v03_card_json(spec, view)
    card["capabilities"].pop("extensions", None)
    kept = ("name", "description", "url", "provider", "version", "documentationUrl", "capabilities", "skills")
    modes = ("defaultInputModes", "defaultOutputModes")
    return orjson.dumps({**{key: card[key] for key in (*kept, *modes) if key in card}, **_v01_fields(spec, card)})


def combined_document(spec: AgentSpec, view: CardView, sign: SignPayloads = None) -> bytes:
    """The card as JSON for 1.0 and 0.3 clients (`/.well-known/agent-card.json`): shared keys have one meaning."""
    return _combined_document(spec, view, sign, with_v01=False)


def legacy_document(spec: AgentSpec, view: CardView, sign: SignPayloads = None) -> bytes:
    """The combined card with the fields of 0.1, at `/.well-known/agent.json`."""
    return _combined_document(spec, view, sign, with_v01=True)


def _combined_document(spec: AgentSpec, view: CardView, sign: SignPayloads, *, with_v01: bool) -> bytes:
    card = _combined_card(spec, view)
    document = {**card, **_v01_fields(spec, card)} if with_v01 else card

    def payloads() -> list[bytes]:
        v03_json = _v03_card_json(spec, view)
        capabilities = {key: value for key, value in document["capabilities"].items() if key in _V03_CAPABILITIES}
        return [
            *card_security.v1_payloads(v1_card(spec, view)),
            *card_security.v03_payloads({**v03_json, "capabilities": capabilities}),
            card_security.document_payload(document),
        ]

    return _signed_document(document, payloads, sign)


def _signatures(payloads: Callable[[], Sequence[bytes]], sign: SignPayloads) -> list[tuple[str, str]]:
    return [] if sign is None else sign(list(dict.fromkeys(payloads())))


def _signed_document(document: Mapping[str, Any], payloads: Callable[[], Sequence[bytes]], sign: SignPayloads) -> bytes:
    signatures = [{"protected": one, "signature": signature} for one, signature in _signatures(payloads, sign)]
    return orjson.dumps({**document, "signatures": signatures} if signatures else document)


def _json_of(codec: protojson.Codec[C], card: C) -> dict[str, Any]:
    """The card as JSON, with sorted maps.

    Protobuf iterates maps in an order of the process. All servers behind one address have to serve the same bytes, so
    that an ETag of one is current at the others.
    """
    document: dict[str, Any] = codec.to_dict(card)
    for key in ("securitySchemes", "securityRequirements", "security"):
        if key in document:
            document[key] = _with_sorted_keys(document[key])
    for extension in document["capabilities"].get("extensions", ()):
        if "params" in extension:
            extension["params"] = _with_sorted_keys(extension["params"])
    return document


def _with_sorted_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_sorted_keys(value[key]) for key in sorted(value)}
    return [_with_sorted_keys(item) for item in value] if isinstance(value, list) else value


def _combined_card(spec: AgentSpec, view: CardView) -> dict[str, Any]:
    old, new = _v03_card_json(spec, view), _json_of(_V1_CODEC, v1_card(spec, view))
    # Each scheme in both forms: 0.3 clients read `type`, 1.0 clients the name of the member.
    schemes = {
        name: {**old["securitySchemes"][name], **new["securitySchemes"][name]}
        for name in new.get("securitySchemes", {})
    }
    capabilities = {**old["capabilities"], **new["capabilities"]}
    card = {**old, **new, "capabilities": capabilities, **({"securitySchemes": schemes} if schemes else {})}
    return _with_interface_descriptions(spec, card_security.with_key_locations(card))


def _with_interface_descriptions(spec: AgentSpec, card: dict[str, Any]) -> dict[str, Any]:
    """The card with the descriptions of its 0.3 interfaces, for which the protos have no field."""
    if not spec.interface_descriptions:
        return card
    interfaces = [
        {**interface, "description": text}
        if (text := spec.interface_descriptions.get(interface["transport"]))
        else interface
        for interface in card["additionalInterfaces"]
    ]
    return {**card, "additionalInterfaces": interfaces}


def _v03_card_json(spec: AgentSpec, view: CardView) -> dict[str, Any]:
    """The 0.3 card in the JSON of JSON-RPC, which differs from ProtoJSON in the security schemes."""
    card = _json_of(_V03_CODEC, v03_card(spec, view))
    if spec.security_schemes:
        card["securitySchemes"] = {name: dict(scheme) for name, scheme in spec.security_schemes.items()}
    if spec.security:
        card["security"] = [
            {name: list(scopes) for name, scopes in requirement.items()} for requirement in spec.security
        ]
    return card


def _v01_fields(spec: AgentSpec, card: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that only 0.1 has: three required capabilities, and the authentication."""
    flags = {"streaming": False, "pushNotifications": False, "stateTransitionHistory": False}
    return {
        "capabilities": {**flags, **card["capabilities"]},
        "authentication": {
            "schemes": card_security.v01_scheme_names(spec),
            **({"credentials": spec.credentials} if spec.credentials else {}),
        },
    }


def etag(body: bytes) -> str:
    """A strong entity tag in quotes, as the header requires (RFC 9110 §8.8.3)."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _v1_interfaces(spec: AgentSpec, view: CardView) -> list[pb.AgentInterface]:
    # JSON-RPC is first: one client takes the first interface to be JSON-RPC. Its URL names the agent, so callers may
    # omit the tenant; over REST, clients put the tenant before the path (1.0 §11.3).
    tenant = view.tenant(spec)
    urls = {JSONRPC_BINDING: view.jsonrpc_url(spec), HTTP_JSON_BINDING: view.base_url}
    if view.grpc:
        urls[GRPC_BINDING] = view.grpc
    interfaces = [
        pb.AgentInterface(url=url, protocol_binding=binding, tenant=tenant, protocol_version=V1_INTERFACE_VERSION)
        for binding, url in urls.items()
    ]
    if not view.lists_v03:
        return interfaces
    return interfaces + [
        pb.AgentInterface(url=legacy.url, protocol_binding=legacy.transport, protocol_version=V03_INTERFACE_VERSION)
        for legacy in _v03_interfaces(spec, view)
    ]


def _v03_interfaces(spec: AgentSpec, view: CardView) -> list[v03.AgentInterface]:
    # 0.3 clients cannot send a tenant. Over HTTP the URL names agent and scope; over gRPC nothing does, so only the
    # root agent outside of scopes has that interface. Its URL is a gRPC target with a scheme (gRPC Name Resolution): it
    # is a URL for clients that parse it, and a valid target for those that pass it to gRPC unchanged, which http:// is
    # not.
    interfaces = [
        v03.AgentInterface(url=view.jsonrpc_url(spec), transport=JSONRPC_BINDING),
        v03.AgentInterface(url=view.v03_rest_url(spec), transport=HTTP_JSON_BINDING),
    ]
    if view.grpc and view.is_root and not view.resource:
        url = view.grpc if "://" in view.grpc else f"dns:///{view.grpc}"
        interfaces.append(v03.AgentInterface(url=url, transport=GRPC_BINDING))
    return interfaces


def _description(spec: AgentSpec) -> str:
    return spec.description or spec.name


def _skills(spec: AgentSpec, view: CardView) -> tuple[Skill, ...]:
    skills = spec.skills + (spec.extended_skills if view.trusted else ())
    return skills or (Skill(id=spec.id, name=spec.name, description=_description(spec)),)


def _skill_fields(skill: Skill, spec: AgentSpec) -> dict[str, Any]:
    # The modes are always written: one family of clients rejects a skill without them.
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description or skill.name,
        "tags": skill.tags or (skill.id,),
        "examples": skill.examples,
        "input_modes": skill.input_modes or spec.input_modes,
        "output_modes": skill.output_modes or spec.output_modes,
    }


def _extension(extension: Extension) -> dict[str, Any]:
    fields = {"uri": extension.uri, "description": extension.description, "required": extension.required}
    return fields | ({"params": dict(extension.params)} if extension.params else {})
