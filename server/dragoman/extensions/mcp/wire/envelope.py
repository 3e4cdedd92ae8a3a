"""The envelope of an MCP request: its revision, what the client can do, and the headers that repeat the body.

Revision 2026-07-28 sends all of it with each request (basic, "_meta"; Streamable HTTP, "Request Metadata"). In earlier
ones `initialize` declares it once. This server keeps no sessions: the id of a session carries what its client declared,
so every server of a store can serve every request. It grants nothing; callers are known by their credentials.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
from multidict import MultiMapping

from dragoman.core.errors import InvalidParams
from dragoman.extensions.mcp.wire.errors import (
    TASKS_EXTENSION,
    HeaderMismatch,
    InvalidSession,
    MalformedEnvelope,
    UnsupportedVersion,
)

STATELESS_VERSION: Final = "2026-07-28"
"""The revision without a handshake."""

HANDSHAKE_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Revisions that begin with `initialize`, latest first."""

SUPPORTED_VERSIONS: Final = (STATELESS_VERSION, *HANDSHAKE_VERSIONS)

VERSION_HEADER: Final = "MCP-Protocol-Version"
METHOD_HEADER: Final = "Mcp-Method"
NAME_HEADER: Final = "Mcp-Name"
SESSION_HEADER: Final = "Mcp-Session-Id"
_REPEATED_HEADERS: Final = (VERSION_HEADER, METHOD_HEADER, NAME_HEADER)

_META: Final = "io.modelcontextprotocol/"
VERSION_META: Final = _META + "protocolVersion"
CAPABILITIES_META: Final = _META + "clientCapabilities"
SERVER_META: Final = _META + "serverInfo"
SUBSCRIPTION_META: Final = _META + "subscriptionId"

IDEMPOTENCY_META: Final = "dragoman/idempotencyKey"
"""A call with the key of an earlier one follows the task of that one."""
CURSOR_META: Final = "dragoman/cursor"
"""In calls: progress continues after it. In progress notifications: the cursor of the event."""
CONTEXT_META: Final = "dragoman/contextId"
"""The conversation of a task."""
TASK_META: Final = "dragoman/task"
"""In results and progress notifications: the handle of the task."""

STATELESS_METHODS: Final = frozenset(
    {"server/discover", "tasks/get", "tasks/update", "tasks/cancel", "subscriptions/listen"}
)
"""Methods of 2026-07-28 alone."""

_NAMED_METHODS: Final = {"tools/call": "name"}
"""Methods whose `Mcp-Name` is required, with the parameter that it repeats."""
_NAMED_TASK_METHODS: Final = {"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
"""Methods whose `Mcp-Name` is compared if it is there (SEP-2663, "Routing Headers")."""

_SESSION_PREFIX: Final = "d1."


@dataclass(frozen=True, slots=True)
class ClientFeatures:
    """The client capabilities that change our responses."""

    version: str = HANDSHAKE_VERSIONS[-1]
    """The revision of MCP that it speaks."""
    takes_tasks: bool = False
    """It takes task handles as the result of a call (SEP-2663)."""
    asks_forms: bool = False
    """It can ask its user to fill in a form."""
    asks_urls: bool = False
    """It can ask its user to visit a URL."""
    session: str = ""
    """A random text that tells its session from others; empty without a session."""

    @property
    def is_stateless(self) -> bool:
        """Whether it speaks a revision without a handshake."""
        return self.version == STATELESS_VERSION


@dataclass(frozen=True, slots=True)
class Envelope:
    """Metadata of a request besides its parameters."""

    client: ClientFeatures
    progress_token: str | int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """A text in `_meta`; empty if it is absent. Raises InvalidParams for another type."""
        value = self.meta.get(key, "")
        if not isinstance(value, str):
            raise InvalidParams.field(f"_meta.{key}", "must be a string")
        return value


def read_envelope(method: str, params: Mapping[str, Any], headers: MultiMapping[str]) -> Envelope:
    """The envelope of a request.

    Raises InvalidParams, HeaderMismatch and UnsupportedVersion, and InvalidSession for an invalid session id.
    """
    meta = params.get("_meta")
    if meta is None:
        meta = {}
    if not isinstance(meta, dict):
        raise InvalidParams.field("_meta", "must be an object")
    token = meta.get("progressToken")
    if token is not None and (isinstance(token, bool) or not isinstance(token, str | int)):
        raise InvalidParams.field("_meta.progressToken", "must be a string or an integer")
    named = headers.get(VERSION_HEADER)
    needs_version = method in STATELESS_METHODS and named is None and SESSION_HEADER not in headers
    if VERSION_META in meta or named == STATELESS_VERSION or needs_version:
        client = _stateless_client(method, params, meta, headers)
    elif named is not None and named not in HANDSHAKE_VERSIONS:
        raise UnsupportedVersion(named, SUPPORTED_VERSIONS)
    else:
        client = read_session(headers.get(SESSION_HEADER, ""), named or "")
        if named is not None and named != client.version:
            client = replace(client, version=named)
    return Envelope(client, token, meta)


def _stateless_client(
    method: str, params: Mapping[str, Any], meta: Mapping[str, Any], headers: MultiMapping[str]
) -> ClientFeatures:
    if missing := [key for key in (VERSION_META, CAPABILITIES_META) if key not in meta]:
        raise MalformedEnvelope.field(f"_meta.{missing[0]}", f"is required in every request of {STATELESS_VERSION}")
    version, capabilities = meta[VERSION_META], meta[CAPABILITIES_META]
    for name in _REPEATED_HEADERS:
        if len(headers.getall(name, ())) > 1:
            raise HeaderMismatch(f"{name}: must occur once")
    _check_header(headers, VERSION_HEADER, version, f"_meta.{VERSION_META}")
    _check_header(headers, METHOD_HEADER, method, "method")
    if method in _NAMED_METHODS:
        _check_header(headers, NAME_HEADER, params.get(_NAMED_METHODS[method]), f"params.{_NAMED_METHODS[method]}")
    elif method in _NAMED_TASK_METHODS and NAME_HEADER in headers:
        field_name = _NAMED_TASK_METHODS[method]
        _check_header(headers, NAME_HEADER, params.get(field_name), f"params.{field_name}")
    if version != STATELESS_VERSION:
        raise UnsupportedVersion(str(version), SUPPORTED_VERSIONS)
    if not isinstance(capabilities, dict):
        raise MalformedEnvelope.field(f"_meta.{CAPABILITIES_META}", "must be an object")
    return client_features(STATELESS_VERSION, capabilities)


def _check_header(headers: MultiMapping[str], name: str, expected: object, source: str) -> None:
    """Raises HeaderMismatch for a header that is missing or does not repeat the body."""
    value = headers.get(name)
    if value is None:
        raise HeaderMismatch(f"{name}: is required, with the value of {source}")
    if expected is not None and decode_header(value) != expected:
        raise HeaderMismatch(f'{name}: header value "{value[:100]}" does not match {source}')


def decode_header(value: str) -> str | None:
    """The text of a header that may be encoded as `=?base64?...?=`; None for an invalid encoding."""
    if not (value.startswith("=?base64?") and value.endswith("?=") and len(value) >= len("=?base64??=")):
        return value
    encoded = value.removeprefix("=?base64?").removesuffix("?=")
    try:
        decoded = base64.b64decode(encoded, validate=True)
        # Only the one canonical encoding, so that no two readers can differ.
        return decoded.decode() if base64.b64encode(decoded).decode() == encoded else None
    except ValueError:  # also binascii.Error and UnicodeDecodeError
        return None


def client_features(version: str, capabilities: Mapping[str, Any], session: str = "") -> ClientFeatures:
    """The capabilities that a client declares. Unknown ones are ignored."""
    extensions, elicitation = capabilities.get("extensions"), capabilities.get("elicitation")
    has_form, has_url = False, False
    if isinstance(elicitation, dict):
        # An empty object means forms: revisions before 2025-11-25 knew no other (client/elicitation, "Capabilities").
        has_form, has_url = "form" in elicitation or "url" not in elicitation, "url" in elicitation
    takes_tasks = version == STATELESS_VERSION and isinstance(extensions, dict) and TASKS_EXTENSION in extensions
    return ClientFeatures(version, takes_tasks, has_form, has_url, session)


def new_session(version: str, capabilities: Mapping[str, Any], nonce: str) -> str:
    """The session id for a client that sent `initialize`. `nonce`: a random text."""
    client = client_features(version, capabilities)
    state = [client.version, int(client.asks_forms), int(client.asks_urls), nonce]
    return _SESSION_PREFIX + base64.urlsafe_b64encode(orjson.dumps(state)).decode().rstrip("=")


def read_session(session: str, version: str = "") -> ClientFeatures:
    """The capabilities that a session's client declared; none without a session. Raises InvalidSession.

    `version`: the revision of a client without a session, if it is one that is served.
    """
    if not session:
        return ClientFeatures(version) if version in SUPPORTED_VERSIONS else ClientFeatures()
    text = session.removeprefix(_SESSION_PREFIX)
    try:
        if text == session:
            raise InvalidSession
        version, forms, urls, nonce = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError, binascii.Error):
        raise InvalidSession from None
    if version not in HANDSHAKE_VERSIONS or not isinstance(nonce, str):
        raise InvalidSession
    return ClientFeatures(version, False, forms == 1, urls == 1, nonce)


def negotiated_version(requested: object) -> str:
    """The revision that answers an `initialize`: the requested one, or else the latest with a handshake."""
    return requested if isinstance(requested, str) and requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0]
