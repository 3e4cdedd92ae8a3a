"""Cards of remote agents in every version, and invalid ones."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.core.agent_sources import FileForm
from dragoman.core.cards.agent_spec import (
    BASE64_FILES_EXTENSION,
    DEFAULT_MODES,
    AgentSpec,
    Extension,
    Provider,
    Skill,
)
from dragoman.wire.cards import agent_card, remote_card
from dragoman.wire.cards.remote_card import Interface, InvalidRemoteCard, RemoteCard
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BASE = "https://x.example/a/.well-known/agent-card.json"
URL = "https://x.example/a"

SPEC = AgentSpec(
    id="desk",
    name="Desk",
    description="Answers",
    version="2.1",
    skills=(Skill(id="s", name="S", description="Does", tags=("t",), examples=("e",)),),
    input_modes=("text/plain",),
    output_modes=("application/json",),
    provider=Provider(organization="O", url="https://o.example"),
    icon_url="https://x.example/i.png",
    documentation_url="https://x.example/docs",
    extensions=(Extension(uri="urn:x", description="d", required=True, params={"a": [1]}),),
)
AT = agent_card.CardView(http="https://x.example", grpc="x.example:443", is_root=False)


def read(card: Any, base: str = BASE) -> RemoteCard:
    return remote_card.parse_card(orjson.dumps(card), base)


def interfaces_of(card: RemoteCard) -> list[tuple[str, str, str]]:
    return [(interface.binding, interface.dialect, interface.tenant) for interface in card.interfaces]


@pytest.mark.parametrize("write", [agent_card.combined_document, agent_card.v1_document, agent_card.legacy_document])
def test_own_cards_of_1_0_round_trip(write: Any) -> None:
    card = remote_card.parse_card(write(SPEC, AT), BASE)
    assert (card.name, card.description, card.version, card.streaming) == ("Desk", "Answers", "2.1", True)
    assert card.interfaces[:3] == (
        Interface(URL.replace("/a", "/desk"), "JSONRPC", "1.0", "desk"),
        Interface("https://x.example", "HTTP+JSON", "1.0", "desk"),
        Interface("x.example:443", "GRPC", "1.0", "desk"),
    )
    assert ("JSONRPC", "0.3", "") in interfaces_of(card)
    (skill,) = card.skills
    assert (skill.id, skill.examples, skill.tags) == ("s", ("e",), ("t",))
    assert (card.input_modes, card.output_modes, card.provider) == (
        SPEC.input_modes,
        SPEC.output_modes,
        SPEC.provider,
    )
    assert (card.icon_url, card.documentation_url) == (SPEC.icon_url, SPEC.documentation_url)
    assert SPEC.extensions[0] in card.extensions


def test_parameters_of_an_extension_may_have_28_levels() -> None:
    def read_params(levels: int) -> RemoteCard:
        params: Any = {}
        for _ in range(levels - 1):
            params = {"a": params}
        extension = {"uri": "urn:x", "params": params}
        return read({"name": "A", "url": URL, "capabilities": {"extensions": [extension, {"uri": "urn:y"}]}})

    for levels, kept in ((28, True), (29, False), (200, False)):
        card = read_params(levels)
        assert [extension.uri for extension in card.extensions] == ["urn:x", "urn:y"]
        assert bool(card.extensions[0].params) is kept
        document = agent_card.combined_document(replace(SPEC, extensions=card.extensions), AT)
        message = agent_card.v1_card(replace(SPEC, extensions=card.extensions), AT)
        assert b"urn:x" in document
        assert pb.AgentCard.FromString(message.SerializeToString()) == message


@pytest.mark.parametrize(
    ("url", "cards"),
    [
        (URL, [f"{URL}/.well-known/agent-card.json", f"{URL}/.well-known/agent.json"]),
        (f"{URL}//?a=b", [f"{URL}/.well-known/agent-card.json", f"{URL}/.well-known/agent.json"]),
        (BASE, [BASE]),
        (f"{BASE}/", [BASE]),
        (f"{BASE}/?a=b", [f"{BASE}?a=b"]),
    ],
)
def test_a_card_is_found_by_the_url_of_its_agent_and_its_own_with_a_slash_too(url: str, cards: list[str]) -> None:
    assert remote_card.card_urls(url) == cards


def test_own_cards_of_0_3_and_0_1_round_trip() -> None:
    old = remote_card.parse_card(agent_card.v03_document(SPEC, AT), BASE)
    assert interfaces_of(old) == [("JSONRPC", "0.3", ""), ("HTTP+JSON", "0.3", "")]
    oldest = remote_card.parse_card(agent_card.v01_document(SPEC, AT), BASE)
    assert interfaces_of(oldest) == [("JSONRPC", "0.1", "")]


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ({"url": URL, "authentication": {"schemes": []}}, [("JSONRPC", "0.1", "")]),  # fasta2a 0.2, Google's samples
        ({"url": URL}, [("JSONRPC", "0.3", "")]),  # 0.2.0 to 0.2.4 have no version
        ({"url": URL, "protocolVersion": "0.2.5"}, [("JSONRPC", "0.3", "")]),  # fasta2a 0.5
        ({"url": URL, "protocolVersion": "0.1.0"}, [("JSONRPC", "0.1", "")]),
        ({"url": URL, "preferredTransport": "GRPC", "protocolVersion": "0.3.0"}, [("GRPC", "0.3", "")]),
        (
            {
                "url": URL,
                "preferredTransport": "JSONRPC",
                "additionalInterfaces": [
                    {"url": URL, "transport": "JSONRPC"},
                    {"url": "https://x.example/r", "transport": "HTTP+JSON"},
                ],
                "protocolVersion": "0.3.0",
            },
            [("JSONRPC", "0.3", ""), ("HTTP+JSON", "0.3", "")],
        ),
        ({"supportedInterfaces": [{"url": URL, "protocolBinding": "JSONRPC"}]}, [("JSONRPC", "1.0", "")]),
        (  # fasta2a 2 writes some proto names
            {"supported_interfaces": [{"url": URL, "protocol_binding": "JSONRPC", "protocol_version": "1.0"}]},
            [("JSONRPC", "1.0", "")],
        ),
        (
            {
                "supportedInterfaces": [
                    {"url": "a:1", "protocolBinding": "grpc", "protocolVersion": "1.0.1", "tenant": "t"}
                ]
            },
            [("GRPC", "1.0", "t")],
        ),
        (  # a2a-sdk 1.x merges both
            {
                "supportedInterfaces": [{"url": URL, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
                "url": URL,
                "protocolVersion": "1.0",
            },
            [("JSONRPC", "1.0", ""), ("JSONRPC", "0.3", "")],
        ),
    ],
)
def test_interfaces_are_read_from_cards_of_every_version(
    card: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    assert interfaces_of(read({"name": "x", **card})) == expected


@pytest.mark.parametrize(
    ("url", "binding", "expected"),
    [
        ("/rpc", "JSONRPC", "https://x.example/rpc"),
        ("", "JSONRPC", None),
        ("dns:///h:1", "GRPC", "h:1"),
        ("[::1]:9", "GRPC", "x.example:9"),
        ("grpcs://h:1", "GRPC", "grpcs://h:1"),
        ("https://h:1", "GRPC", "https://h:1"),
        ("unix:///tmp/s", "GRPC", None),
        ("xds:///h", "GRPC", None),
        ("file:///etc/passwd", "HTTP+JSON", None),
        ("grpc://h:1", "JSONRPC", None),
        ("http://[", "JSONRPC", None),
        ("http://x/" + "a" * 3000, "JSONRPC", None),
        (7, "JSONRPC", None),
    ],
)
def test_interface_urls_are_http_or_grpc_targets(url: object, binding: str, expected: str | None) -> None:
    card = {"name": "x", "supportedInterfaces": [{"url": url, "protocolBinding": binding, "protocolVersion": "1.0"}]}
    if expected is None:
        with pytest.raises(InvalidRemoteCard, match="is not a URL"):
            read(card)
    else:
        assert read(card).interfaces[0].url == expected


@pytest.mark.parametrize(
    ("card", "why"),
    [
        ([], "is not a JSON object"),
        ({}, "name: is required"),
        ({"name": " "}, "name: is required"),
        ({"name": "x"}, "neither supportedInterfaces nor url"),
        ({"name": "x", "url": URL, "protocolVersion": "7.0"}, "url: its version is not one of"),
        ({"name": "x", "url": URL, "preferredTransport": 3}, "that is missing or not a string is not one of JSONRPC"),
        (
            {"name": "x", "url": URL, "preferredTransport": "GRPC", "protocolVersion": "0.1"},
            "0.1 is supported over JSONRPC only",
        ),
    ],
)
def test_interfaces_that_cannot_be_called_are_reported(card: object, why: str) -> None:
    with pytest.raises(InvalidRemoteCard, match=why):
        read(card)


def test_invalid_json_is_reported() -> None:
    with pytest.raises(InvalidRemoteCard, match="is not JSON"):
        remote_card.parse_card(b"<html>", BASE)


def test_invalid_fields_are_ignored_and_long_texts_truncated() -> None:
    card = read(
        {
            "name": "x" * 500,
            "description": "two\nlines\x1b[31m",
            "url": URL,
            "version": 3,
            "capabilities": {"streaming": "yes", "extensions": [{"uri": "a b"}, {"uri": "urn:x"}, {"uri": "urn:x"}, 5]},
            "skills": [{"id": "a"}, {"id": "a"}, {"name": ""}, "s", {"id": "b", "tags": "t", "inputModes": ["no"]}],
            "defaultInputModes": ["text", "nonsense", "data", 5, "text/plain"],
            "defaultOutputModes": "text",
            "provider": {"organization": "o"},
            "iconUrl": "javascript:alert(1)",
        }
    )
    assert (len(card.name), card.description, card.version) == (200, "two lines [31m", "unknown")
    assert not card.streaming
    assert [extension.uri for extension in card.extensions] == ["urn:x"]
    assert [skill.id for skill in card.skills] == ["a", "b"]
    assert card.skills[1].input_modes == ()
    assert card.input_modes == ("text/plain", "application/json")
    assert card.output_modes == DEFAULT_MODES
    assert (card.provider, card.icon_url) == (None, "")


def test_lists_are_truncated() -> None:
    many = [{"url": f"https://x/{n}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for n in range(100)]
    card = read({"name": "x", "supportedInterfaces": many, "skills": [{"id": str(n)} for n in range(1000)]})
    assert (len(card.interfaces), len(card.skills)) == (remote_card.MAX_INTERFACES, remote_card.MAX_SKILLS)


PLAIN = st.sampled_from([None, True, 3, "", "x", URL, "0.3.0", "JSONRPC"])
OBJECTS = st.dictionaries(st.sampled_from(("url", "uri", "id", "protocolBinding", "transport", "extensions")), PLAIN)
KEYS = ("url", "supportedInterfaces", "additionalInterfaces", "capabilities", "skills", "provider", "protocolVersion")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS), PLAIN | OBJECTS | st.lists(PLAIN | OBJECTS, max_size=3)))
def test_any_document_gives_a_card_or_invalid_remote_card(card: dict[str, Any]) -> None:
    with suppress(InvalidRemoteCard):
        assert read({"name": "x", "url": URL, **card}).interfaces


@pytest.mark.parametrize(
    ("binding", "url", "base", "called"),
    [
        ("JSONRPC", "http://0.0.0.0:9/rpc", "http://agent:8/card.json", "http://agent:9/rpc"),
        ("JSONRPC", "http://[::]:9/rpc", "http://10.1.2.3/card.json", "http://10.1.2.3:9/rpc"),
        ("HTTP+JSON", "http://:9", "http://[fd00::1]:8/card.json", "http://[fd00::1]:9"),
        ("JSONRPC", "http://*:9/rpc?x=1", "http://agent/card.json", "http://agent:9/rpc?x=1"),
        ("JSONRPC", "http://localhost:9/rpc", "http://agent:8/card.json", "http://agent:9/rpc"),
        ("JSONRPC", "http://127.0.0.1:9/rpc", "http://localhost:8/card.json", "http://127.0.0.1:9/rpc"),
        ("JSONRPC", "agent:9/rpc", "https://agent/card.json", "https://agent:9/rpc"),
        ("JSONRPC", "127.0.0.1:9/rpc", "http://127.0.0.1/card.json", "http://127.0.0.1:9/rpc"),
        ("JSONRPC", "0.0.0.0:9", "http://agent/card.json", "http://agent:9"),
        ("JSONRPC", "rpc", "http://agent/a/card.json", "http://agent/a/rpc"),
        ("GRPC", "0.0.0.0:9", "http://agent/card.json", "agent:9"),
        ("GRPC", ":9", "http://agent/card.json", "agent:9"),
        ("GRPC", "dns:///[::]:9", "http://[fd00::1]/card.json", "[fd00::1]:9"),
        ("GRPC", "grpc://0.0.0.0:9", "http://agent/card.json", "grpc://agent:9"),
        ("GRPC", "localhost:9", "http://127.0.0.1/card.json", "localhost:9"),
    ],
)
def test_an_address_of_the_agents_own_machine_is_called_on_the_host_of_its_card(
    binding: str, url: str, base: str, called: str
) -> None:
    card = read({"name": "x", "url": url, "preferredTransport": binding, "protocolVersion": "0.3.0"}, base)
    assert [interface.url for interface in card.interfaces] == [called]


CARD_03 = {
    "name": "x",
    "url": URL,
    "preferredTransport": "GRPC",
    "protocolVersion": "0.3.0",
    "additionalInterfaces": [
        {"url": URL, "transport": "HTTP+JSON"},
        {"url": URL, "transport": "JSONRPC"},
    ],
}


@pytest.mark.parametrize(
    ("form", "bindings"),
    [
        (None, ["JSONRPC", "GRPC", "HTTP+JSON"]),
        ("bytes", ["GRPC", "HTTP+JSON", "JSONRPC"]),
        ("base64", ["GRPC", "HTTP+JSON", "JSONRPC"]),
    ],
)
def test_jsonrpc_goes_first_in_0_3_while_the_form_of_its_files_is_unknown(
    form: FileForm | None, bindings: list[str]
) -> None:
    chosen = remote_card.choose_interfaces(read(CARD_03), BASE, has_credentials=False, v03_files=form)
    assert [interface.binding for interface in chosen.interfaces] == bindings
    newer = {"url": URL, "protocolBinding": "GRPC", "protocolVersion": "1.0"}
    card = read({**CARD_03, "supportedInterfaces": [newer]})
    best = remote_card.choose_interfaces(card, BASE, has_credentials=False, v03_files=form).interfaces[0]
    assert (best.binding, best.dialect) == ("GRPC", "1.0")


@pytest.mark.parametrize(
    ("form", "extensions", "files"),
    [
        (None, [], None),
        (None, [BASE64_FILES_EXTENSION.uri], "bytes"),  # of a Dragoman, whose field holds the file
        ("base64", [BASE64_FILES_EXTENSION.uri], "base64"),
        ("bytes", [], "bytes"),
    ],
)
def test_the_form_of_files_is_as_set_and_known_of_cards_that_declare_our_extension(
    form: FileForm | None, extensions: list[str], files: FileForm | None
) -> None:
    card = read({**CARD_03, "capabilities": {"extensions": [{"uri": uri} for uri in extensions]}})
    chosen = remote_card.choose_interfaces(card, BASE, has_credentials=False, v03_files=form)
    assert {interface.files for interface in chosen.interfaces} == {files}
