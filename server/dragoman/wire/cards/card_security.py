"""Security schemes on cards, and the payloads that card signatures cover.

Schemes are declared in OpenAPI's form, `{"type": "http", "scheme": "bearer"}`, as in 0.3 JSON (0.3 §5.5.3). The protos
have one message per type, with other field names (1.0 §4.5). The server's own schemes are already merged into the
specification (`core.cards.security_schemes`). Payloads are canonical JSON (RFC 8785); clients of each version derive
different ones from a card, so each gets a signature of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from google.protobuf.json_format import ParseDict

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


def write_v1_security(spec: AgentSpec, card: pb.AgentCard) -> None:
    """Adds schemes and requirements to a 1.0 card."""
    for name, scheme in spec.security_schemes.items():
        ParseDict(
            _scheme_json(scheme, _flow_names(pb.OAuthFlows)), card.security_schemes[name], ignore_unknown_fields=True
        )
    for schemes in spec.security:
        requirement = card.security_requirements.add()
        for name, scopes in schemes.items():
            requirement.schemes[name].list.extend(scopes)


def write_v03_security(spec: AgentSpec, card: v03.AgentCard) -> None:
    """Adds schemes and requirements to a 0.3 card."""
    for name, scheme in spec.security_schemes.items():
        ParseDict(
            _scheme_json(scheme, _flow_names(v03.OAuthFlows)), card.security_schemes[name], ignore_unknown_fields=True
        )
    for schemes in spec.security:
        requirement = card.security.add()
        for name, scopes in schemes.items():
            requirement.schemes[name].list.extend(scopes)


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


def _flow_names(flows_class: type[pb.OAuthFlows] | type[v03.OAuthFlows]) -> list[str]:
    return [field.json_name for field in flows_class.DESCRIPTOR.fields]


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
    """The payloads that 1.0 clients derive from a card. Raises ValueError for a card with a NaN."""
    specified, plain = (_without_signatures(codec.to_dict(card)) for codec in (_SPECIFIED_CODEC, _PROTOJSON_CODEC))
    return unique_payloads([canonical_json(specified), canonical_json(plain), canonical_json(without_empty(plain))])


def v03_payloads(document: Mapping[str, Any]) -> list[bytes]:
    """The payloads that 0.3 clients derive from a document that is, or contains, the 0.3 card."""
    return unique_payloads([document_payload(document), _sdk_03_payload(document)])


def document_payload(document: Mapping[str, Any]) -> bytes:
    """The payload of a document with all its keys but the signatures."""
    return canonical_json(_without_signatures(document))


def unique_payloads(payloads: Sequence[bytes]) -> list[bytes]:
    """The payloads without duplicates, in order."""
    return list(dict.fromkeys(payloads))


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


MAX_CANONICAL_DEPTH: Final = 128
"""Maximum nesting of objects and arrays."""

_MAX_EXACT_INTEGER: Final = 2**53
"""Numbers are doubles, which are exact for integers up to this one (I-JSON, RFC 7493 §2.2)."""

_ESCAPES: Final = {
    **{code: f"\\u{code:04x}" for code in range(0x20)},
    **{ord(text): f"\\{name}" for text, name in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)},
}


def canonical_json(value: Any) -> bytes:
    """The canonical form of a JSON value (RFC 8785).

    Raises ValueError for NaN, infinity, integers that are not exact as doubles, lone surrogates, keys that are not
    strings, and more than MAX_CANONICAL_DEPTH levels.
    """
    parts: list[str] = []
    _write(value, parts.append, MAX_CANONICAL_DEPTH)
    return "".join(parts).encode()  # UnicodeEncodeError is a ValueError


def without_empty(value: Any) -> Any:
    """The value without empty strings, arrays and objects, on all levels; None if it is empty."""
    if isinstance(value, Mapping):
        rest = {key: kept for key, item in value.items() if (kept := without_empty(item)) is not None}
        return rest or None
    if isinstance(value, list | tuple):
        return [kept for item in value if (kept := without_empty(item)) is not None] or None
    return None if value == "" else value


def _write(value: Any, out: Any, depth: int) -> None:
    match value:
        case None | True | False:
            out("null" if value is None else "true" if value else "false")
        case str():
            out(_text(value))
        case int() | float():
            out(_number(value))
        case Mapping():
            _check_depth(depth)
            out("{")
            for index, (key, item) in enumerate(_sorted_items(value)):
                out(f"{',' if index else ''}{_text(key)}:")
                _write(item, out, depth - 1)
            out("}")
        case list() | tuple():
            _check_depth(depth)
            out("[")
            for index, item in enumerate(value):
                if index:
                    out(",")
                _write(item, out, depth - 1)
            out("]")
        case _:
            raise ValueError(f"{type(value).__name__} is not a JSON type")


def _check_depth(depth: int) -> None:
    if not depth:
        raise ValueError(f"objects and arrays are nested more than {MAX_CANONICAL_DEPTH} levels deep")


def _sorted_items(value: Mapping[Any, Any]) -> Iterable[tuple[str, Any]]:
    if not all(isinstance(key, str) for key in value):
        raise ValueError("keys must be strings")
    return sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))


def _text(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _number(number: float) -> str:
    """ECMAScript's Number::toString (ECMA-262 §6.1.6.1.20)."""
    if isinstance(number, int):
        if abs(number) < _MAX_EXACT_INTEGER:
            return str(number)
        if not abs(number) < 1 << 1023 or int(float(number)) != number:
            raise ValueError(f"{str(number)[:40]} is not exact as a double")
        number = float(number)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a JSON number")
    if not number:
        return "0"  # also -0
    sign = "-" if number < 0 else ""
    # Python's repr has the shortest digits that parse to the same number, as in ECMAScript; only the form differs.
    _, figures, exponent = Decimal(repr(abs(number))).normalize().as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, figures))
    point = len(digits) + exponent
    if len(digits) <= point <= 21:
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"
