"""Security on cards: from OpenAPI's shape, which 0.3's JSON shares, to the messages of 0.3 and 1.0.

An agent declares `{"type": "http", "scheme": "bearer"}` and the like (0.3 §5.5.3); the protos have one message for
each type (1.0 §4.5), with the same fields under names of their own. Where the server itself asks callers who they are,
its cards say what it takes (`core.enforced`), whatever agents declare.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from google.protobuf.json_format import ParseDict

from dragoman.core.card import AgentSpec
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_MEMBERS: Final = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}


def write_v1(spec: AgentSpec, card: pb.AgentCard) -> None:
    """Adds schemes and requirements to a 1.0 card."""
    for name, scheme in spec.security_schemes.items():
        ParseDict(_member(scheme, _flows(pb.OAuthFlows)), card.security_schemes[name], ignore_unknown_fields=True)
    for one in spec.security:
        requirement = card.security_requirements.add()
        for name, scopes in one.items():
            requirement.schemes[name].list.extend(scopes)


def write_v03(spec: AgentSpec, card: v03.AgentCard) -> None:
    """Adds schemes and requirements to a 0.3 card."""
    for name, scheme in spec.security_schemes.items():
        ParseDict(_member(scheme, _flows(v03.OAuthFlows)), card.security_schemes[name], ignore_unknown_fields=True)
    for one in spec.security:
        requirement = card.security.add()
        for name, scopes in one.items():
            requirement.schemes[name].list.extend(scopes)


def names(spec: AgentSpec) -> list[str]:
    """What 0.1 says of security: the names of HTTP schemes, and the types of others."""
    found = [
        str(scheme["scheme"]).capitalize() if scheme["type"] == "http" else str(scheme["type"])
        for scheme in spec.security_schemes.values()
    ]
    return list(dict.fromkeys(found))


def _member(scheme: Mapping[str, Any], flows: Collection[str]) -> dict[str, Any]:
    fields = {key: value for key, value in scheme.items() if key not in ("type", "in")}
    if "in" in scheme:
        fields["location"] = scheme["in"]
    if "flows" in scheme:
        # A message holds one flow, OpenAPI's object many: the first is shown, and 0.3's JSON shows them all.
        known = [name for name in scheme["flows"] if name in flows]
        fields["flows"] = {name: scheme["flows"][name] for name in known[:1]}
    return {_MEMBERS[scheme["type"]]: fields}


def _flows(form: type[pb.OAuthFlows] | type[v03.OAuthFlows]) -> list[str]:
    return [field.json_name for field in form.DESCRIPTOR.fields]
