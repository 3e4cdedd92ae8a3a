"""What the server has besides the protocol, for the description: cards and health."""

from __future__ import annotations

from typing import Any, Final, cast

from google.protobuf.descriptor import Descriptor

from dragoman.bindings import examples
from dragoman.bindings.failures import UNKNOWN_AGENT, Responses
from dragoman.bindings.parameters import in_path
from dragoman.bindings.schemas import Schema, Schemas, pointer
from dragoman.wire.dialects import Dialect
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TAG: Final = "Server"
JSON: Final = "application/json"
_KEY: Final = {
    **{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig"},
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    "kid": "cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s",
}
"""The key of RFC 7517, A.1, by its thumbprint."""

SCHEMAS: Final[dict[str, Schema]] = {
    "Health": {
        "type": "object",
        "required": ["status"],
        "properties": {
            "status": {
                "type": "string",
                "enum": ["ok", "degraded", "draining", "not ready"],
                "description": "`degraded`: everything is served, but servers hear late of each other.",
            },
            "reason": {"type": "string", "description": "Why it is degraded."},
        },
    },
    "Keys": {
        "type": "object",
        "required": ["keys"],
        "properties": {
            "keys": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": sorted(_KEY.keys() - {"y"}),  # keys of Ed25519 have none
                    "properties": {name: {"type": "string"} for name in sorted(_KEY)},
                },
            }
        },
    },
}


def paths(schemas: Schemas, responses: Responses, root: str, *, push: bool) -> dict[str, dict[str, Any]]:
    """The paths with their operations."""
    cards = [schemas.message(cast(Descriptor, message.DESCRIPTOR)) for message in (pb.AgentCard, v03_pb.AgentCard)]
    unknown = responses.refer("site", [(UNKNOWN_AGENT, Dialect.V1)])
    found: dict[str, dict[str, Any]] = {}
    for path, name in (
        ("/.well-known/agent-card.json", "card"),
        ("/.well-known/agent.json", "card_of_0_3"),
        ("/{agent}/.well-known/agent-card.json", "agent_card"),
        ("/{agent}/.well-known/agent.json", "agent_card_of_0_3"),
    ):
        own = path.startswith("/{agent}")
        shown = {"card": {"summary": "One card for both generations", "value": examples.card()}}
        answer = {"schema": {"allOf": cards}, "examples": shown}
        found[path] = {
            "get": {
                "operationId": name,
                "summary": f"The card of {'an' if own else 'the root'} agent",
                "description": "Who the agent is, what it can do, how it is reached; in one object for 1.0 and 0.3.",
                "tags": [TAG],
                "parameters": [in_path("agent", root)] if own else [],
                "responses": {
                    "200": {"description": "The card.", "content": {JSON: answer}},
                    "304": {"description": "The caller has this card already."},
                    **(unknown if own else {}),
                },
            }
        }
    if push:
        found["/.well-known/jwks.json"] = {
            "get": {
                "operationId": "keys",
                "summary": "What signatures of push notifications are checked with",
                "description": "A JWK Set (RFC 7517).",
                "tags": [TAG],
                "parameters": [],
                "responses": {
                    "200": {
                        "description": "The keys.",
                        "content": {JSON: {"schema": pointer("Keys"), "example": {"keys": [_KEY]}}},
                    }
                },
            }
        }
    for path, summary, states in (
        ("/healthz", "Is the process alive?", ((200, "ok"),)),
        ("/readyz", "Does it take new messages?", ((200, "ok"), (503, "draining"))),
    ):
        found[path] = {
            "get": {
                "operationId": path.strip("/"),
                "summary": summary,
                "tags": [TAG],
                "parameters": [],
                "responses": {
                    str(status): {
                        "description": f"`{state}`",
                        "content": {JSON: {"schema": pointer("Health"), "example": {"status": state}}},
                    }
                    for status, state in states
                },
            }
        }
    return found
