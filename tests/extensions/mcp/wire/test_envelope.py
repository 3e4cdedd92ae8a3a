"""The envelope of MCP requests: revisions, headers, capabilities and session ids."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from dragoman.core.errors import InvalidParams
from dragoman.extensions.mcp.wire.envelope import (
    CAPABILITIES_META,
    HANDSHAKE_VERSIONS,
    STATELESS_VERSION,
    VERSION_META,
    ClientFeatures,
    decode_header,
    negotiated_version,
    new_session,
    read_envelope,
    read_session,
)
from dragoman.extensions.mcp.wire.errors import HeaderMismatch, InvalidSession, UnsupportedVersion


def headers(**values: str) -> CIMultiDict[str]:
    return CIMultiDict({name.replace("_", "-"): value for name, value in values.items()})


def stateless(capabilities: Any = None, **meta: Any) -> dict[str, Any]:
    return {"_meta": {VERSION_META: STATELESS_VERSION, CAPABILITIES_META: capabilities or {}, **meta}}


def repeated(method: str, name: str = "") -> CIMultiDict[str]:
    found = headers(MCP_Protocol_Version=STATELESS_VERSION, Mcp_Method=method)
    if name:
        found["Mcp-Name"] = name
    return found


def test_a_stateless_request_declares_what_its_client_can_do() -> None:
    capabilities: dict[str, Any] = {
        "extensions": {"io.modelcontextprotocol/tasks": {}},
        "elicitation": {"form": {}, "url": {}},
    }
    envelope = read_envelope("ping", stateless(capabilities, progressToken=0), repeated("ping"))
    assert envelope.client == ClientFeatures(STATELESS_VERSION, True, True, True)
    assert envelope.progress_token == 0


@pytest.mark.parametrize(
    ("elicitation", "forms", "urls"),
    [({}, True, False), ({"form": {}}, True, False), ({"url": {}}, False, True), (None, False, False)],
)
def test_an_empty_elicitation_capability_means_forms(elicitation: Any, forms: bool, urls: bool) -> None:
    capabilities = {} if elicitation is None else {"elicitation": elicitation}
    client = read_envelope("ping", stateless(capabilities), repeated("ping")).client
    assert (client.asks_forms, client.asks_urls) == (forms, urls)


@pytest.mark.parametrize("missing", [VERSION_META, CAPABILITIES_META])
def test_a_stateless_request_without_its_envelope_is_invalid(missing: str) -> None:
    params = stateless()
    del params["_meta"][missing]
    with pytest.raises(InvalidParams, match=missing):
        read_envelope("ping", params, repeated("ping"))


def test_the_name_of_a_task_may_be_missing_in_headers_but_not_differ() -> None:
    params = {**stateless(), "taskId": "a/1"}
    read_envelope("tasks/get", params, repeated("tasks/get"))
    read_envelope("tasks/get", params, repeated("tasks/get", "a/1"))
    with pytest.raises(HeaderMismatch):
        read_envelope("tasks/get", params, repeated("tasks/get", "a/2"))


def test_a_header_that_occurs_twice_is_rejected() -> None:
    twice = repeated("ping")
    twice.add("Mcp-Method", "ping")
    with pytest.raises(HeaderMismatch, match="must occur once"):
        read_envelope("ping", stateless(), twice)


def test_a_revision_that_is_not_served_is_rejected_also_in_the_body() -> None:
    params = stateless(**{VERSION_META: "2030-01-01"})
    with pytest.raises(UnsupportedVersion) as caught:
        read_envelope("ping", params, headers(MCP_Protocol_Version="2030-01-01", Mcp_Method="ping"))
    assert caught.value.requested == "2030-01-01"


def test_texts_in_meta_have_to_be_texts() -> None:
    envelope = read_envelope("ping", {"_meta": {"key": "value", "number": 7}}, headers())
    assert (envelope.text("key"), envelope.text("absent")) == ("value", "")
    with pytest.raises(InvalidParams, match=r"_meta\.number: must be a string"):
        envelope.text("number")


@pytest.mark.parametrize(
    ("requested", "version"),
    [(version, version) for version in HANDSHAKE_VERSIONS]
    + [
        ("2024-11-05", HANDSHAKE_VERSIONS[0]),
        (STATELESS_VERSION, HANDSHAKE_VERSIONS[0]),
        (None, HANDSHAKE_VERSIONS[0]),
    ],
)
def test_a_handshake_agrees_on_a_served_revision(requested: Any, version: str) -> None:
    assert negotiated_version(requested) == version


@given(
    st.sampled_from(HANDSHAKE_VERSIONS),
    st.dictionaries(st.sampled_from(["form", "url"]), st.just({})) | st.none(),
    st.text(max_size=40),
)
def test_a_session_id_carries_what_its_client_declared(version: str, elicitation: Any, nonce: str) -> None:
    session = new_session(version, {} if elicitation is None else {"elicitation": elicitation}, nonce)
    assert session.isascii()
    assert session.isprintable()
    client = read_session(session)
    assert (client.version, client.session, client.takes_tasks) == (version, nonce, False)
    assert client.asks_urls == ("url" in (elicitation or {}))


@given(st.text() | st.text().map("d1.".__add__))
def test_any_other_session_id_is_unknown(session: str) -> None:
    if not session:
        assert read_session(session) == ClientFeatures()
        return
    with pytest.raises(InvalidSession):
        read_session(session)


def test_a_revision_in_the_header_wins_over_that_of_the_session() -> None:
    session = new_session("2025-11-25", {}, "n")
    found = headers(Mcp_Session_Id=session, MCP_Protocol_Version="2025-06-18")
    assert read_envelope("ping", {}, found).client.version == "2025-06-18"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("echo", "echo"),
        ("=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"),
        ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
        ("=?base64??=", ""),
        ("=?base64?%%%?=", None),
        ("=?base64?SGVsbG9=?=", None),
        ("=?base64?/w==?=", None),
        ("=?base64?=", "=?base64?="),
    ],
)
def test_headers_may_be_encoded_in_one_canonical_way(value: str, text: str | None) -> None:
    assert decode_header(value) == text
