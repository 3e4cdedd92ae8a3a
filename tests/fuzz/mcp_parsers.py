"""Parsers of MCP: envelopes, sessions, ids that clients send back, arguments of tools, and answers to questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson
from multidict import CIMultiDict
from tests.fuzz.parser import Parser

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import A2AError
from dragoman.extensions.mcp.endpoint.tool_call import ElicitationId, ResumePoint
from dragoman.extensions.mcp.wire import questions, tools
from dragoman.extensions.mcp.wire.envelope import (
    SUPPORTED_VERSIONS,
    client_features,
    new_session,
    read_envelope,
    read_session,
)
from dragoman.extensions.mcp.wire.tools import AgentTool
from dragoman.wire import question_forms
from dragoman.wire.json import request as json_request
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_MODES: Final = ("text/plain", "application/json", "image/png")
_TOOL: Final = AgentTool("echo", AgentSpec(id="echo", name="Echo", description="Echoes", input_modes=_MODES))


def _read_json(data: bytes) -> Any:
    """JSON as the endpoint reads it. Raises A2AError."""
    return json_request.loads(data)


def read_call(data: bytes) -> None:
    """Header lines, an empty line, and a body: the envelope of a request."""
    head, _, body = data.partition(b"\n\n")
    lines = (line.partition(":") for line in head.decode("latin-1").splitlines())
    headers = CIMultiDict((name, value.strip()) for name, _, value in lines if name)
    try:
        request = json_request.parse_request(_read_json(body))
        envelope = read_envelope(request.method, request.params if isinstance(request.params, dict) else {}, headers)
    except A2AError:
        return
    assert envelope.client.version in SUPPORTED_VERSIONS
    assert envelope.progress_token is None or type(envelope.progress_token) in (str, int)
    json_request.encode_result(request.id, orjson.dumps({"token": envelope.progress_token}))


def read_ids(data: bytes) -> None:
    """An accepted id of a session, an event or a question has one meaning, and can be sent again."""
    text = data.decode(errors="replace")
    kinds: tuple[Callable[[str], ResumePoint | ElicitationId], ...] = (ResumePoint.parse, ElicitationId.parse)
    for parse in kinds:
        try:
            parsed = parse(text)
        except A2AError:
            continue
        assert parse(str(parsed)) == parsed
        if isinstance(parsed, ResumePoint):
            json_request.encode_result(parsed.rpc_id, orjson.dumps([parsed.progress_token]))
    try:
        client = read_session(text)
    except A2AError:
        return
    assert client.version in SUPPORTED_VERSIONS
    assert not client.takes_tasks


def read_arguments(data: bytes) -> None:
    """Arguments of a tool become a valid message, and those of a task tool a handle."""
    try:
        arguments = _read_json(data)
    except A2AError:
        return
    if not isinstance(arguments, dict):
        return
    client_features("2026-07-28", arguments)
    for name in tools.TASK_TOOLS:
        try:
            handle, _ = tools.task_arguments(name, arguments)
        except A2AError:
            continue
        tenant, task = tools.split_handle(handle)
        assert not tenant or tools.handle_of(tenant, task) == handle
    try:
        request = tools.call_request(_TOOL, arguments, "m-1", "")
    except A2AError:
        return
    assert request.message.parts
    assert pb.SendMessageRequest.FromString(request.SerializeToString()) == request


def read_question(data: bytes) -> None:
    """Any data of a question has a form, and any result of an elicitation is an answer or is rejected."""
    try:
        value = _read_json(data)
    except A2AError:
        return
    question, result = value if isinstance(value, list) and len(value) == 2 else (value, {})
    parts = [{"text": "?"}, {"data": question}]
    form = question_forms.form_of(parts)
    assert form.schema["type"] == "object"
    for needs_auth in (False, True):
        request = questions.elicitation(parts, needs_auth=needs_auth, forms=True, urls=True, key="k")
        assert request is not None
        orjson.dumps(request)
        try:
            answer, action = questions.answer_parts(result, parts, needs_auth=needs_auth)
        except A2AError:
            continue
        assert answer
        assert action in ("accept", "decline", "cancel")
    question_forms.answer_part("{}", form)


_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}},
    "progressToken": 1,
}
_CALL: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "_meta": _META}}
_HEADERS: Final = b"MCP-Protocol-Version: 2026-07-28\nMcp-Method: tools/call\nMcp-Name: =?base64?ZWNobw==?="
_SESSION: Final = new_session("2025-11-25", {"elicitation": {}}, "nonce")
_PING: Final = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'
_FILE: Final = {"name": "a.png", "mimeType": "image/png", "data": "AAAA"}

PARSERS: Final = {
    "mcp-call": Parser(
        read_call,
        (
            _HEADERS + b"\n\n" + orjson.dumps(_CALL),
            f"MCP-Protocol-Version: 2025-06-18\nMcp-Session-Id: {_SESSION}\n\n".encode() + _PING,
        ),
        ("Mcp-Name: ", "=?base64?", "?=", '"_meta"', '"progressToken"', '"dragoman/cursor"', "d1."),
    ),
    "mcp-ids": Parser(
        read_ids,
        (
            str(ResumePoint("echo", "t", "0a.0b.3", 1, "p", "echo")).encode(),
            str(ElicitationId("echo", "t", "k")).encode(),
            _SESSION.encode(),
            b"r1.WyJlY2hvIiwidCIsIiIsW1tdXSxudWxsLCIiXQ",
        ),
        ("r1.", "elicit.", "d1.", "W10", "e30", "bnVsbA"),
    ),
    "mcp-arguments": Parser(
        read_arguments,
        (
            orjson.dumps({"message": "hi", "data": {"a": [1]}, "files": [_FILE], "contextId": "c"}),
            b'{"task":"echo/01a1fb2a","answer":"yes"}',
            b'{"files":[{"uri":"https://a.example/x","mimeType":"image/png"}]}',
        ),
        ('"files"', '"uri"', '"data"', '"contextId"', '"message"', "null", "[[]]", "1e400"),
    ),
    "mcp-question": Parser(
        read_question,
        (
            b'[{"choices":["a",{"value":1,"label":"one"}]},{"action":"accept","content":{"answer":"a"}}]',
            b'[{"schema":{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"]}},'
            b'{"action":"accept","content":{"a":"x"}}]',
            b'[{"schema":{"type":"array","items":{"anyOf":[{"const":1}]}}},{"action":"decline"}]',
            b'{"interrupts":[{"value":{"missing":["a",7]}}]}',
            b'{"approvals":[],"url":"https://a.example"}',
        ),
        ('"type"', '"enum"', '"items"', '"required"', '"requestedSchema"', '"options"', "[]", "{}", '"action"'),
    ),
}
"""Every parser with its seeds."""
