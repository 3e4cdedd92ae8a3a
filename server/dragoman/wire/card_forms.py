"""What signatures of a card are made over: the texts that its readers make of it, before they check one (1.0 §8.4.1).

The specification has one text for a card: fields that are not set or have their default are absent, unless they are
REQUIRED or were set although they are `optional`; then JCS. Readers differ where something is empty, and in what they
take for the card:

| reader                            | its text                                                                       |
|-----------------------------------|--------------------------------------------------------------------------------|
| of the specification              | as above                                                                       |
| of ProtoJSON                      | what is REQUIRED and empty is absent, too                                      |
| a2a-sdk 1.x, Python and JavaScript | everything empty is absent, on all levels                                     |
| a2a-sdk for Python, 0.3           | the 0.3 card without what is empty or has its default; escapes for non-ASCII   |
| who knows no A2A, and any of 0.3  | what was fetched, as it is, but for `signatures`                               |

(The one for JavaScript loses the security schemes besides, wherever there are some. There is no text for that: it would
be a good signature for a card from which somebody took them.)

Most cards have one text for most of them. Any one good signature is enough for a reader, so there is one for each text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dragoman.wire import a2a_json, protojson
from dragoman.wire.canonical import canonical, cleaned
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_FLOWS: Final = ("AuthorizationCode", "ClientCredentials", "DeviceCode")
_REQUIRED: Final = replace(a2a_json.V1, always={f"lf.a2a.v1.{flow}OAuthFlow": {"scopes"} for flow in _FLOWS})
"""What is REQUIRED and may be empty on a card of ours."""

_SPECIFIED: Final = protojson.compile(pb.AgentCard, _REQUIRED)
_PLAIN: Final = protojson.compile(pb.AgentCard, a2a_json.V1)

_DEFAULTS: Final = {"protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}
"""Of the 0.3 SDK's AgentCard."""


def of_v1(card: pb.AgentCard) -> list[bytes]:
    """The texts that readers of 1.0 make of a card. Raises ValueError for a card that has none (a NaN in it)."""
    specified, plain = (_without_signatures(codec.to_dict(card)) for codec in (_SPECIFIED, _PLAIN))
    return distinct([canonical(specified), canonical(plain), canonical(cleaned(plain))])


def of_v03(document: Mapping[str, Any]) -> list[bytes]:
    """The texts that readers of 0.3 make of a document that is, or holds, the 0.3 card."""
    return distinct([as_fetched(document), _by_sdk_0_3(document)])


def as_fetched(document: Mapping[str, Any]) -> bytes:
    """The text of a document as it is."""
    return canonical(_without_signatures(document))


def distinct(texts: Sequence[bytes]) -> list[bytes]:
    """Each text once, in this order."""
    return list(dict.fromkeys(texts))


def _without_signatures(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "signatures"}


def _by_sdk_0_3(document: Mapping[str, Any]) -> bytes:
    kept = {key: value for key, value in document.items() if value != _DEFAULTS.get(key)}
    if "securitySchemes" in kept:
        # The type of a scheme is a default, of the class that stands for it.
        schemes = kept["securitySchemes"].items()
        kept["securitySchemes"] = {
            name: {key: value for key, value in scheme.items() if key != "type"} for name, scheme in schemes
        }
    return json.dumps(cleaned(_without_signatures(kept)), separators=(",", ":"), sort_keys=True).encode()
