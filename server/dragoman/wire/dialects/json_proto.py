"""ProtoJSON dialects of 1.0 and 0.3, and the aliases of older clients that every decoder accepts.

Before 1.0, states and roles were lower-case words, `blocking` was the opposite of `returnImmediately`, and zero meant
absent. Clients mix these: a2a-rust 0.3 sends the words in 1.0 calls, the 1.0 release candidate sends `blocking`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dragoman.core.push.configuration import describe_scheme, join_schemes
from dragoman.core.task import states
from dragoman.wire.dialects import parts
from dragoman.wire.json.protojson import JsonDialect
from dragoman.wire.json.remote_values import rfc3339
from dragoman.wire.json.wellknown import Decode, FieldError

STATE_WORDS: Final = {
    "TASK_STATE_UNSPECIFIED": "unknown",
    **{states.name(state): states.word(state) for state in sorted(states.STORED_STATES)},
}
ROLE_WORDS: Final = {"ROLE_USER": "user", "ROLE_AGENT": "agent", "ROLE_UNSPECIFIED": "unspecified"}

ENUM_WORDS: Final = {"lf.a2a.v1.TaskState": STATE_WORDS, "lf.a2a.v1.Role": ROLE_WORDS}

ENUM_ALIASES: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    # "Cancelled" with two l's, and a client that sends the states of 0.1 in capitals.
    "lf.a2a.v1.TaskState": [
        ("TASK_STATE_CANCELED", "TASK_STATE_CANCELLED", "canceled", "cancelled", "CANCELED", "CANCELLED"),
        ("TASK_STATE_UNSPECIFIED", "UNKNOWN", "unknown", "unspecified"),
        *((name, word, name.removeprefix("TASK_STATE_")) for name, word in STATE_WORDS.items()),
    ],
    "lf.a2a.v1.Role": [(name, word, name.removeprefix("ROLE_")) for name, word in ROLE_WORDS.items()],
}
"""Groups of synonyms, by enum."""


def decode_hook(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Decode], Decode]:
    """A hook that applies `change` to a copy of each object before decoding it."""

    def around(decode: Decode) -> Decode:
        def read(message: Any, value: object) -> None:
            decode(message, change(dict(value)) if type(value) is dict else value)

        return read

    return around


_STATE_NAMES: Final = frozenset(
    (*(name for group in ENUM_ALIASES["lf.a2a.v1.TaskState"] for name in group), *map(str, range(len(STATE_WORDS))))
)


def _status_decoder(decode: Decode) -> Decode:
    def read(message: Any, value: object) -> None:
        if type(value) is dict and type(state := value.get("state")) in (str, int) and str(state) not in _STATE_NAMES:
            value = {**value, "state": "TASK_STATE_UNSPECIFIED"}
        try:
            decode(message, value)
        except FieldError as error:
            if type(value) is not dict or error.path != ["timestamp"]:
                raise
            message.Clear()
            decode(message, {**value, "timestamp": rfc3339(value["timestamp"])})

    return read


STATUS_HOOK: Final = {f"{package}.TaskStatus": _status_decoder for package in ("lf.a2a.v1", "a2a.v1")}
"""Reads a state that no version defines as unspecified, and a time in any form of ISO 8601; leaves out one that cannot
be read. Only servers send statuses, and their task goes on."""


def read_blocking(value: dict[str, Any]) -> dict[str, Any]:
    """Reads `blocking` as the opposite of `returnImmediately`."""
    blocking = value.pop("blocking", None)
    if blocking is not None:
        if type(blocking) is not bool:
            raise FieldError("must be true or false", "blocking")
        value["returnImmediately"] = not blocking
    return value


def read_context(value: dict[str, Any]) -> dict[str, Any]:
    """Moves `contextId` beside the message, as in a2a-rust 0.3, into the message, unless it has one."""
    context, message = value.get("contextId"), value.get("message")
    if context is not None and type(message) is dict and not (message.get("contextId") or message.get("context_id")):
        value["message"] = {**message, "contextId": context}
    return value


def read_push(value: dict[str, Any]) -> dict[str, Any]:
    """Converts a push configuration to 1.0: removes the wrapper of older versions, joins `schemes`.

    fasta2a 0.5 has an OpenAPI scheme in place of `schemes`, of which `{"type": "http", "scheme": ...}` is usable.
    The task is `taskId`, or `id` beside the wrapper.
    """
    inner = value.get("pushNotificationConfig", value.get("push_notification_config"))
    if inner is not None:
        if type(inner) is not dict:
            raise FieldError("must be a JSON object", "pushNotificationConfig")
        task = value.get("taskId", value.get("task_id"))
        if task is not None and value.get("id") is not None:  # the 1.0 release candidate has both beside the wrapper
            inner = {"id": value["id"], **inner}
        elif task is None and value.get("id") == "":
            raise FieldError("is required", "id")
        value = {**inner, "taskId": value.get("id") if task is None else task, "tenant": value.get("tenant")}
    authentication = value.get("authentication")
    # After a line break a description would follow (`describe_scheme`); `repr`, because a list may hold anything.
    if type(authentication) is dict and r"\n" in repr([authentication.get(key) for key in ("scheme", "schemes")]):
        raise FieldError("must be an HTTP authentication scheme, such as Bearer", "scheme", "authentication")
    if type(authentication) is dict and "schemes" in authentication:
        schemes = authentication["schemes"]
        if type(schemes) is not list or not all(type(scheme) is str for scheme in schemes):
            raise FieldError("must be an array of strings", "schemes", "authentication")
        value["authentication"] = {
            **{key: item for key, item in authentication.items() if key != "schemes"},
            "scheme": join_schemes(schemes),
        }
    elif type(authentication) is dict and "type" in authentication:
        value["authentication"] = _read_openapi_scheme(authentication)
    return value


_REFUSED_SCHEMES: Final = {
    "apiKey": "a notification has no place for a key of another name; send the key as token",
    "oauth2": "this server fetches no access token; send one as credentials",
    "openIdConnect": "this server fetches no access token; send one as credentials",
}
"""Types of schemes that no delivery can use, and what to send in their place."""


def _read_openapi_scheme(authentication: dict[str, Any]) -> dict[str, Any]:
    kind, scheme = authentication["type"], authentication.get("scheme")
    if kind != "http":
        reason = _REFUSED_SCHEMES.get(str(kind), "no delivery knows another type")
        raise FieldError(f'must be "http": {reason}', "type", "authentication")
    if type(scheme) is not str or not scheme:
        raise FieldError("is required, such as Bearer", "scheme", "authentication")
    description = {name: authentication[name] for name in ("bearerFormat", "description") if authentication.get(name)}
    for name, text in description.items():
        if type(text) is not str:
            raise FieldError("must be a string", name, "authentication")
    return {**authentication, "scheme": describe_scheme(scheme, description)}


def read_history(value: dict[str, Any]) -> dict[str, Any]:
    """Reads a `historyLength` of zero as "all"."""
    if value.get("historyLength") == 0:
        del value["historyLength"]
    return value


def _tagged_data(value: dict[str, Any]) -> dict[str, Any]:
    """Accepts a data part as in JSON-RPC too, with the object unwrapped."""
    data = value.get("data")
    if value.get("kind") != "data" or type(data) is not dict or (len(data) == 1 and type(data.get("data")) is dict):
        return value
    return {**value, "data": {"data": data}}


def _data_part(decode: Decode) -> Decode:
    """Refuses an object in 1.0's form, without the second `data`: all its keys would be unknown, and lost."""

    def read(message: Any, value: object) -> None:
        if type(value) is not dict or value.keys() - {"data"}:
            raise FieldError('must be an object with one key, "data", that has the content: {"data": {"data": {...}}}')
        decode(message, value)

    return read


PUSH_CONFIG_KEYS: Final = ("task_push_notification_config", "push_notification_config", "pushNotificationConfig")
"""The push configuration of a send: in 1.0, and in its release candidate and 0.3."""

_STATUS_AFTER: Final = ("status_timestamp_after", "statusTimestampAfter", "last_updated_time", "lastUpdatedTime")

PROTOJSON_V03: Final = JsonDialect(
    "a2a.v1",
    # Fields renamed between releases of the package, all with the same number.
    fields={
        "a2a.v1.SendMessageRequest": [("request", "message")],
        "a2a.v1.SendMessageConfiguration": [
            ("push_notification", "pushNotification", "push_notification_config", "pushNotificationConfig")
        ],
        "a2a.v1.SendMessageResponse": [("msg", "message")],
        "a2a.v1.StreamResponse": [("msg", "message")],
        "a2a.v1.TaskStatus": [("update", "message")],
        "a2a.v1.Message": [("content", "parts")],
        # The names of the same version over JSON-RPC.
        "a2a.v1.FilePart": [("file_with_bytes", "bytes"), ("file_with_uri", "uri")],
        "a2a.v1.ListTasksRequest": [(*_STATUS_AFTER, "last_updated_after", "lastUpdatedAfter")],
    },
    enums={name.removeprefix("lf."): groups for name, groups in ENUM_ALIASES.items()},
    decode_hooks={"a2a.v1.Part": decode_hook(_tagged_data), "a2a.v1.DataPart": _data_part, **STATUS_HOOK},
    always_emitted={
        "a2a.v1.ListTasksResponse": {"tasks", "next_page_token", "total_size"},
        "a2a.v1.ListTaskPushNotificationConfigResponse": {"configs"},
    },
)
"""A2A 0.3 as defined in protobuf, with later additions."""

PROTOJSON_GOOGLE: Final = replace(
    PROTOJSON_V03, name="a2a.v1, strict", decode_hooks={"a2a.v1.DataPart": _data_part}, rejects_unknown=True
)
"""`a2a.v1` as Google's front end reads it: unknown fields and query parameters are errors."""

PROTOJSON_GOOGLE_NUMBERS: Final = replace(PROTOJSON_GOOGLE, name="a2a.v1, enums as numbers", enum_numbers=True)
"""`a2a.v1` as written for `alt=json;enum-encoding=int`."""

PROTOJSON_V1: Final = JsonDialect(
    "lf.a2a.v1",
    fields={
        # The filter of the Go client.
        "lf.a2a.v1.ListTasksRequest": [(*_STATUS_AFTER, "last_updated_after", "lastUpdatedAfter")],
        "lf.a2a.v1.SendMessageConfiguration": [PUSH_CONFIG_KEYS],
    },
    enums=ENUM_ALIASES,
    # A2A 1.0 §3.1.4: the fields of the response are required, so zero and empty are written.
    always_emitted={
        "lf.a2a.v1.ListTasksResponse": {"tasks", "next_page_token", "page_size", "total_size"},
        "lf.a2a.v1.ListTaskPushNotificationConfigsResponse": {"configs"},
    },
    decode_hooks={
        **STATUS_HOOK,
        "lf.a2a.v1.Part": parts.part_decoder,
        "lf.a2a.v1.SendMessageRequest": decode_hook(read_context),
        "lf.a2a.v1.SendMessageConfiguration": decode_hook(read_blocking),
        # The wrapper of the 1.0 release candidate.
        "lf.a2a.v1.TaskPushNotificationConfig": decode_hook(read_push),
    },
)
"""A2A 1.0: written exactly, read with the aliases of older clients."""
