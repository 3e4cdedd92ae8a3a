"""Security schemes on cards, and the payloads that card signatures cover.

Schemes are declared in OpenAPI's form, `{"type": "http", "scheme": "bearer"}`, as in 0.3 JSON (0.3 §5.5.3). The protos
have one message per type, with other field names (1.0 §4.5). The server's own schemes are already merged into the
specification (`core.cards.security_schemes`). Payloads are canonical JSON (RFC 8785); clients of each version derive
different ones from a card, so each gets a signature of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import rfc8785

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_SCHEME_FIELDS: Final = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}


def security_fields(spec: AgentSpec, flows_class: type[pb.OAuthFlows] | type[v03.OAuthFlows]) -> dict[str, Any]:
    """Schemes and requirements of a card as JSON of its proto; 1.0 has another name for `security`."""
    flows = [field.json_name for field in flows_class.DESCRIPTOR.fields]
    return {
        "security_schemes": {name: _scheme_json(scheme, flows) for name, scheme in spec.security_schemes.items()},
        "security": [
            {"schemes": {name: {"list": list(scopes)} for name, scopes in schemes.items()}} for schemes in spec.security
        ],
    }


def with_key_locations(card: dict[str, Any]) -> dict[str, Any]:
    """The 0.3 card with `in_` beside `in` in API key schemes: the required key of fasta2a 0.4.1 to 0.6."""
    if "securitySchemes" not in card:
        return card
    schemes = card["securitySchemes"].items()
    return {
        **card,
        "securitySchemes": {
            name: {**scheme, "in_": scheme["in"]} if "in" in scheme else scheme for name, scheme in schemes
        },
    }


def v01_scheme_names(spec: AgentSpec) -> list[str]:
    """The scheme names of a 0.1 card: the names of HTTP schemes, and the types of others."""
    names = [
        str(scheme["scheme"]).capitalize() if scheme["type"] == "http" else str(scheme["type"])
        for scheme in spec.security_schemes.values()
    ]
    return list(dict.fromkeys(names))


def _scheme_json(scheme: Mapping[str, Any], flows: Collection[str]) -> dict[str, Any]:
    fields = {key: value for key, value in scheme.items() if key not in ("type", "in")}
    if "in" in scheme:
        fields["location"] = scheme["in"]
    if "flows" in scheme:
        # The message holds one flow, so the first is written. 0.3 JSON has all of them.
        known = [name for name in scheme["flows"] if name in flows]
        fields["flows"] = {name: scheme["flows"][name] for name in known[:1]}
    return {_SCHEME_FIELDS[scheme["type"]]: fields}


_OAUTH_FLOWS: Final = ("AuthorizationCode", "ClientCredentials", "DeviceCode")
_REQUIRED_FIELDS_JSON: Final = replace(
    json_proto.PROTOJSON_V1, always_emitted={f"lf.a2a.v1.{flow}OAuthFlow": {"scopes"} for flow in _OAUTH_FLOWS}
)
"""ProtoJSON with the required fields that may be empty."""

_SPECIFIED_CODEC: Final = protojson.compile(pb.AgentCard, _REQUIRED_FIELDS_JSON)
_PROTOJSON_CODEC: Final = protojson.compile(pb.AgentCard, json_proto.PROTOJSON_V1)

_SDK_03_DEFAULTS: Final = {"protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}
"""Default values in the 0.3 SDK's AgentCard, which it omits before it verifies a signature."""


def v1_payloads(card: pb.AgentCard) -> list[bytes]:
    """The payloads (RFC 8785) that 1.0 clients derive from a card. Raises ValueError for a card with a NaN."""
    specified, plain = (_without_signatures(codec.to_dict(card)) for codec in (_SPECIFIED_CODEC, _PROTOJSON_CODEC))
    return [rfc8785.dumps(specified), rfc8785.dumps(plain), rfc8785.dumps(without_empty(plain))]


def v03_payloads(document: Mapping[str, Any]) -> list[bytes]:
    """The payloads that 0.3 clients derive from a document that is, or contains, the 0.3 card."""
    return [document_payload(document), _sdk_03_payload(document)]


def document_payload(document: Mapping[str, Any]) -> bytes:
    """The payload of a document with all its keys but the signatures."""
    return rfc8785.dumps(_without_signatures(document))


def _without_signatures(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "signatures"}


def _sdk_03_payload(document: Mapping[str, Any]) -> bytes:
    kept = {key: value for key, value in document.items() if value != _SDK_03_DEFAULTS.get(key)}
    if "securitySchemes" in kept:
        # The type of a scheme is a default of its class in that SDK.
        schemes = kept["securitySchemes"].items()
        kept["securitySchemes"] = {
            name: {key: value for key, value in scheme.items() if key != "type"} for name, scheme in schemes
        }
    return json.dumps(without_empty(_without_signatures(kept)), separators=(",", ":"), sort_keys=True).encode()


def without_empty(value: Any) -> Any:
    """The value without empty strings, arrays and objects, on all levels; None if it is empty."""
    if isinstance(value, Mapping):
        rest = {key: kept for key, item in value.items() if (kept := without_empty(item)) is not None}
        return rest or None
    if isinstance(value, list | tuple):
        return [kept for item in value if (kept := without_empty(item)) is not None] or None
    return None if value == "" else value
