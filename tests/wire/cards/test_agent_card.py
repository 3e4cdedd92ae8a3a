"""Cards of an agent in every version: interfaces, documents, capabilities."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import json_format

from dragoman.core.cards.agent_spec import AgentSpec, Extension, Provider, Skill
from dragoman.core.cards.skill_schemas import SCHEMAS_URI, SkillSchemas, with_schemas
from dragoman.wire.cards import agent_card
from dragoman.wire.cards.agent_card import CardView
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BARE = AgentSpec(id="plain", name="Plain", description="")
RICH = AgentSpec(
    id="rich",
    name="Rich",
    description="Has everything",
    version="2.1",
    skills=(
        Skill(
            id="s",
            name="Skill",
            description="Does",
            tags=("t",),
            examples=("x",),
            input_modes=("text/csv",),
            output_modes=("text/plain",),
        ),
    ),
    input_modes=("text/plain", "text/csv"),
    output_modes=("application/json",),
    provider=Provider(organization="Org", url="https://org.example"),
    icon_url="https://org.example/icon.png",
    documentation_url="https://org.example/docs",
)
ROOT = CardView(http="https://agents.example.com/", grpc="grpc.example.com:443", is_root=True)
OTHER = CardView(http="https://agents.example.com", grpc="grpc.example.com:443", is_root=False)
NO_GRPC = CardView(http="https://agents.example.com", is_root=True)

BOTH = pytest.mark.parametrize("spec", [BARE, RICH], ids=["bare", "rich"])
EVERYWHERE = pytest.mark.parametrize("at", [ROOT, OTHER, NO_GRPC], ids=["root", "other", "no gRPC"])


def parsed(body: bytes) -> dict[str, Any]:
    document = json.loads(body)
    assert isinstance(document, dict)
    return document


# Security ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [agent_card.v03_document, agent_card.combined_document, agent_card.legacy_document])
def test_an_api_key_has_the_keys_of_the_specification_and_of_fasta2a(write: Callable[..., bytes]) -> None:
    key = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
    card = parsed(write(replace(BARE, security_schemes={"key": key}), ROOT))
    assert card["securitySchemes"]["key"].items() >= {**key, "in_": "header"}.items()


def test_signatures_of_0_3_cover_the_keys_of_the_specification_alone() -> None:
    """The SDK of 0.3 drops keys that it does not know before it verifies a signature."""
    payloads: list[bytes] = []

    def sign(found: Sequence[bytes]) -> list[tuple[str, str]]:
        payloads.extend(found)
        return []

    key = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
    for write in (agent_card.v03_document, agent_card.combined_document):
        payloads.clear()
        write(replace(BARE, security_schemes={"key": key}), ROOT, sign)
        assert any(b'"in":"header"' in payload and b'"in_"' not in payload for payload in payloads)
        assert any(b'"in_":"header"' in payload for payload in payloads), "of readers that drop nothing"


# Interfaces ----------------------------------------------------------------------------------------------------

BASE = "https://agents.example.com"


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (
            ROOT,
            [
                (BASE, "JSONRPC", "", "1.0"),
                (BASE, "HTTP+JSON", "", "1.0"),
                ("grpc.example.com:443", "GRPC", "", "1.0"),
                (BASE, "JSONRPC", "", "0.3"),
                (BASE, "HTTP+JSON", "", "0.3"),
                ("dns:///grpc.example.com:443", "GRPC", "", "0.3"),
            ],
        ),
        (
            OTHER,
            [
                (f"{BASE}/plain", "JSONRPC", "plain", "1.0"),
                (BASE, "HTTP+JSON", "plain", "1.0"),
                ("grpc.example.com:443", "GRPC", "plain", "1.0"),
                (f"{BASE}/plain", "JSONRPC", "", "0.3"),
                (f"{BASE}/plain", "HTTP+JSON", "", "0.3"),
            ],
        ),
        (
            NO_GRPC,
            [
                (BASE, "JSONRPC", "", "1.0"),
                (BASE, "HTTP+JSON", "", "1.0"),
                (BASE, "JSONRPC", "", "0.3"),
                (BASE, "HTTP+JSON", "", "0.3"),
            ],
        ),
    ],
    ids=["root", "other", "no gRPC"],
)
def test_a_1_0_card_lists_interfaces_of_both_versions(at: CardView, expected: list[tuple[str, str, str, str]]) -> None:
    card = agent_card.v1_card(BARE, at)
    assert [(i.url, i.protocol_binding, i.tenant, i.protocol_version) for i in card.supported_interfaces] == expected


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (ROOT, [(BASE, "JSONRPC"), (BASE, "HTTP+JSON"), ("dns:///grpc.example.com:443", "GRPC")]),
        (OTHER, [(f"{BASE}/plain", "JSONRPC"), (f"{BASE}/plain", "HTTP+JSON")]),
        (NO_GRPC, [(BASE, "JSONRPC"), (BASE, "HTTP+JSON")]),
    ],
    ids=["root", "other", "no gRPC"],
)
def test_a_0_3_card_lists_the_interfaces_of_0_3_main_one_first(at: CardView, expected: list[tuple[str, str]]) -> None:
    card = agent_card.v03_card(BARE, at)
    assert (card.url, card.preferred_transport) == expected[0]
    assert [(i.url, i.transport) for i in card.additional_interfaces] == expected
    assert card.protocol_version == "0.3.0"


# Documents -----------------------------------------------------------------------------------------------------


@BOTH
@EVERYWHERE
def test_the_combined_document_parses_as_a_1_0_card(spec: AgentSpec, at: CardView) -> None:
    read = json_format.Parse(agent_card.combined_document(spec, at), pb.AgentCard(), ignore_unknown_fields=True)
    assert read == agent_card.v1_card(spec, at)


@BOTH
@EVERYWHERE
def test_the_combined_document_parses_as_a_0_3_card(spec: AgentSpec, at: CardView) -> None:
    read = json_format.Parse(agent_card.combined_document(spec, at), v03.AgentCard(), ignore_unknown_fields=True)
    assert read == agent_card.v03_card(spec, at)


@BOTH
@EVERYWHERE
def test_the_0_3_document_has_no_unknown_keys(spec: AgentSpec, at: CardView) -> None:
    assert json_format.Parse(agent_card.v03_document(spec, at), v03.AgentCard()) == agent_card.v03_card(spec, at)


REQUIRED = {
    "name",
    "description",
    "url",
    "version",
    "capabilities",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
    "protocolVersion",
    "preferredTransport",
}


@BOTH
@EVERYWHERE
@pytest.mark.parametrize("make", [agent_card.combined_document, agent_card.v03_document])
def test_documents_have_the_fields_that_0_3_requires(spec: AgentSpec, at: CardView, make: Any) -> None:
    document = parsed(make(spec, at))
    assert document.keys() >= REQUIRED
    for skill in document["skills"]:
        assert skill.keys() >= {"id", "name", "description", "tags"}


def empty_fields(value: Any, path: str = "") -> list[str]:
    match value:
        case dict():
            found = [name for key, inner in value.items() for name in empty_fields(inner, f"{path}.{key}")]
        case list():
            found = [name for inner in value for name in empty_fields(inner, f"{path}[]")]
        case _:
            found = []
    return found if value not in ("", [], {}, None) else [path]


@BOTH
@EVERYWHERE
@pytest.mark.parametrize("make", [agent_card.combined_document, agent_card.v03_document])
def test_no_field_is_empty(spec: AgentSpec, at: CardView, make: Any) -> None:
    assert empty_fields(parsed(make(spec, at))) == []


def test_a_document_contains_all_declared_fields() -> None:
    document = parsed(agent_card.combined_document(RICH, ROOT))
    assert {key: document[key] for key in ("name", "description", "version", "provider", "iconUrl")} == {
        "name": "Rich",
        "description": "Has everything",
        "version": "2.1",
        "provider": {"organization": "Org", "url": "https://org.example"},
        "iconUrl": "https://org.example/icon.png",
    }
    assert document["documentationUrl"] == "https://org.example/docs"
    assert (document["defaultInputModes"], document["defaultOutputModes"]) == (
        ["text/plain", "text/csv"],
        ["application/json"],
    )
    assert document["skills"] == [
        {
            "id": "s",
            "name": "Skill",
            "description": "Does",
            "tags": ["t"],
            "examples": ["x"],
            "inputModes": ["text/csv"],
            "outputModes": ["text/plain"],
        }
    ]


def test_an_agent_without_skills_gets_one_skill() -> None:
    modes = ["text/plain", "application/json"]
    skill = {"id": "plain", "name": "Plain", "description": "Plain", "tags": ["plain"]}
    skill |= {"inputModes": modes, "outputModes": modes}
    assert parsed(agent_card.combined_document(BARE, ROOT))["skills"] == [skill]


# Capabilities --------------------------------------------------------------------------------------------------


def test_a_card_declares_streaming_and_no_push_by_default() -> None:
    card = agent_card.v1_card(BARE, ROOT)
    assert card.capabilities.streaming
    assert card.capabilities.HasField("push_notifications")
    assert not card.capabilities.push_notifications
    assert not card.capabilities.HasField("extended_agent_card")
    assert "supportsAuthenticatedExtendedCard" not in parsed(agent_card.combined_document(BARE, ROOT))


def test_an_extended_card_and_push_are_declared_in_both_versions() -> None:
    at = CardView(http=BASE, is_root=True, push=True, extended=True)
    document = parsed(agent_card.combined_document(BARE, at))
    del document["capabilities"]["extensions"]
    assert document["capabilities"] == {"streaming": True, "pushNotifications": True, "extendedAgentCard": True}
    assert document["supportsAuthenticatedExtendedCard"] is True
    assert agent_card.v03_card(BARE, at).capabilities.push_notifications


def test_schemas_of_extended_skills_are_on_extended_cards_only() -> None:
    order = SkillSchemas({"type": "object"}, {"minimum": 0.5}, {"title": "T", "readOnlyHint": True})
    spec = with_schemas(
        replace(RICH, extended_skills=(Skill(id="x", name="X", description="x"),)), {"": order, "s": order, "x": order}
    )
    shown = {
        "input": {"type": "object"},
        "output": {"minimum": 0.5},
        "annotations": {"title": "T", "readOnlyHint": True},
    }
    for document in (agent_card.v1_document, agent_card.v03_document, agent_card.combined_document):
        for trusted, skills in ((False, ["", "s"]), (True, ["", "s", "x"])):
            card = parsed(document(spec, replace(ROOT, trusted=trusted)))
            (extension,) = [one for one in card["capabilities"]["extensions"] if one["uri"] == SCHEMAS_URI]
            assert extension["params"] == dict.fromkeys(skills, shown)
            assert not extension.get("required")
    assert "extensions" not in parsed(agent_card.v01_document(spec, ROOT))["capabilities"]


def test_servers_behind_one_address_write_the_same_bytes() -> None:
    """In a card, maps are sorted: protobuf iterates them in an order that differs from process to process."""
    names = [f"n{number}" for number in range(20)]
    spec = replace(
        RICH,
        security_schemes={name: {"type": "http", "scheme": "bearer"} for name in reversed(names)},
        security=(dict.fromkeys(reversed(names), ()),),
        extensions=(Extension(uri="urn:x", params={name: [dict.fromkeys(reversed(names), 1)] for name in names}),),
    )
    card = parsed(agent_card.v1_document(spec, ROOT))
    params = card["capabilities"]["extensions"][0]["params"]
    for found in (card["securitySchemes"], card["securityRequirements"][0]["schemes"], params, params["n7"][0]):
        assert list(found) == sorted(names)
    for document in (agent_card.v03_document, agent_card.v03_protojson_document, agent_card.combined_document):
        (extension,) = [
            one for one in parsed(document(spec, ROOT))["capabilities"]["extensions"] if one["uri"] == "urn:x"
        ]
        assert list(extension["params"]) == sorted(names)


def test_the_etag_is_quoted_and_changes_with_the_document() -> None:
    one, two = (agent_card.etag(agent_card.combined_document(spec, ROOT)) for spec in (BARE, RICH))
    assert one != two
    assert one == agent_card.etag(agent_card.combined_document(BARE, ROOT))
    assert one.startswith('"')
    assert one.endswith('"')
