"""What older readers and writers of JSON say differently, and every reader of ours therefore understands.

Before 1.0 states and roles were lower-case words, `blocking` stood for the opposite of `returnImmediately`, and
zero was "not said". Clients mix: a2a-rust 0.3 sends the words in 1.0 calls, 1.0's release candidate `blocking`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dragoman.wire.dialects import parts
from dragoman.wire.json.protojson import JsonDialect
from dragoman.wire.json.protojson_decoder import Decode
from dragoman.wire.json.wellknown import FieldError

STATE_WORDS: Final = {
    "TASK_STATE_UNSPECIFIED": "unknown",
    "TASK_STATE_SUBMITTED": "submitted",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_CANCELED": "canceled",
    "TASK_STATE_INPUT_REQUIRED": "input-required",
    "TASK_STATE_REJECTED": "rejected",
    "TASK_STATE_AUTH_REQUIRED": "auth-required",
}
ROLE_WORDS: Final = {"ROLE_USER": "user", "ROLE_AGENT": "agent", "ROLE_UNSPECIFIED": "unspecified"}

ENUM_WORDS: Final = {"lf.a2a.v1.TaskState": STATE_WORDS, "lf.a2a.v1.Role": ROLE_WORDS}

_CANCELED_ALIASES: Final = (
    "TASK_STATE_CANCELED",
    "TASK_STATE_CANCELLED",
    "canceled",
    "cancelled",
    "CANCELED",
    "CANCELLED",
)

ENUM_ALIASES: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    # Two l's, and the constants of a client that sends 0.1's states in capitals.
    "lf.a2a.v1.TaskState": [
        _CANCELED_ALIASES,
        ("TASK_STATE_UNSPECIFIED", "UNKNOWN", "unknown", "unspecified"),
        *((name, word, name.removeprefix("TASK_STATE_")) for name, word in STATE_WORDS.items()),
    ],
    "lf.a2a.v1.Role": [(name, word, name.removeprefix("ROLE_")) for name, word in ROLE_WORDS.items()],
}
"""Groups of spellings that mean the same, by enum."""


def decode_hook(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Decode], Decode]:
    """Decodes what `change` makes of an object. `change` gets a copy of its own."""

    def around(decode: Decode) -> Decode:
        def read(message: Any, value: object) -> None:
            decode(message, change(dict(value)) if type(value) is dict else value)

        return read

    return around


def read_blocking(value: dict[str, Any]) -> dict[str, Any]:
    """`blocking` as the opposite of `returnImmediately`; one that waits need not say so."""
    blocking = value.pop("blocking", None)
    if blocking is not None:
        if type(blocking) is not bool:
            error = FieldError("must be true or false")
            error.path.append("blocking")
            raise error
        value["returnImmediately"] = not blocking
    return value


def read_context(value: dict[str, Any]) -> dict[str, Any]:
    """`contextId` beside the message, where a2a-rust 0.3 says it, as the message's own; its own goes before it."""
    context, message = value.get("contextId"), value.get("message")
    if context is not None and type(message) is dict and not (message.get("contextId") or message.get("context_id")):
        value["message"] = {**message, "contextId": context}
    return value


def read_push(value: dict[str, Any]) -> dict[str, Any]:
    """A push configuration as 1.0 has it: without the wrapper of the versions before, whose task is `taskId`, or `id`
    beside it; and the first of their `schemes` as the one `scheme`."""
    inner = value.get("pushNotificationConfig", value.get("push_notification_config"))
    if inner is not None:
        if type(inner) is not dict:
            error = FieldError("must be a JSON object")
            error.path.append("pushNotificationConfig")
            raise error
        task = value.get("taskId", value.get("task_id"))
        if task is not None and value.get("id") is not None:  # 1.0's release candidate has both beside it
            inner = {"id": value["id"], **inner}
        value = {**inner, "taskId": value.get("id") if task is None else task, "tenant": value.get("tenant")}
    authentication = value.get("authentication")
    if type(authentication) is dict and "schemes" in authentication:
        schemes = authentication["schemes"]
        if type(schemes) is not list or not all(type(scheme) is str for scheme in schemes):
            error = FieldError("must be an array of strings")
            error.path += ["schemes", "authentication"]
            raise error
        value["authentication"] = {
            **{key: item for key, item in authentication.items() if key != "schemes"},
            "scheme": schemes[0] if schemes else "",
        }
    return value


def read_history(value: dict[str, Any]) -> dict[str, Any]:
    """Zero as "all" in `historyLength`."""
    if value.get("historyLength") == 0:
        del value["historyLength"]
    return value


def _tagged_data(decode: Decode) -> Decode:
    """Reads a part whose `kind` is data as JSON-RPC has it, too: the object stands there without a wrapper."""

    def read(message: Any, value: object) -> None:
        if type(value) is dict and value.get("kind") == "data" and type(data := value.get("data")) is dict:
            wrapped = len(data) == 1 and type(data.get("data")) is dict
            value = value if wrapped else {**value, "data": {"data": data}}
        decode(message, value)

    return read


_STATUS_AFTER: Final = ("status_timestamp_after", "statusTimestampAfter", "last_updated_time", "lastUpdatedTime")

PROTOJSON_V03: Final = JsonDialect(
    "a2a.v1",
    # Names that changed between the releases of the package, all with the same number.
    fields={
        "a2a.v1.SendMessageRequest": [("request", "message")],
        "a2a.v1.SendMessageConfiguration": [
            ("push_notification", "pushNotification", "push_notification_config", "pushNotificationConfig")
        ],
        "a2a.v1.SendMessageResponse": [("msg", "message")],
        "a2a.v1.StreamResponse": [("msg", "message")],
        "a2a.v1.TaskStatus": [("update", "message")],
        "a2a.v1.Message": [("content", "parts")],
        # The words of the same version over JSON-RPC.
        "a2a.v1.FilePart": [("file_with_bytes", "bytes"), ("file_with_uri", "uri")],
        "a2a.v1.ListTasksRequest": [(*_STATUS_AFTER, "last_updated_after", "lastUpdatedAfter")],
    },
    enums={name.removeprefix("lf."): groups for name, groups in ENUM_ALIASES.items()},
    decode_hooks={"a2a.v1.Part": _tagged_data},
    always_emitted={
        "a2a.v1.ListTasksResponse": {"tasks", "next_page_token", "total_size"},
        "a2a.v1.ListTaskPushNotificationConfigResponse": {"configs"},
    },
)
"""A2A 0.3 as protobuf defines it, with the later additions."""

PROTOJSON_V1: Final = JsonDialect(
    "lf.a2a.v1",
    fields={
        # The filter of the Go client.
        "lf.a2a.v1.ListTasksRequest": [(*_STATUS_AFTER, "last_updated_after", "lastUpdatedAfter")],
        # 1.0's release candidate.
        "lf.a2a.v1.SendMessageConfiguration": [
            ("task_push_notification_config", "push_notification_config", "pushNotificationConfig")
        ],
    },
    enums=ENUM_ALIASES,
    # A2A 1.0 §3.1.4: the fields of the response are required, so zero and empty are written.
    always_emitted={
        "lf.a2a.v1.ListTasksResponse": {"tasks", "next_page_token", "page_size", "total_size"},
        "lf.a2a.v1.ListTaskPushNotificationConfigsResponse": {"configs"},
    },
    decode_hooks={
        "lf.a2a.v1.Part": parts.part_decoder,
        "lf.a2a.v1.SendMessageRequest": decode_hook(read_context),
        "lf.a2a.v1.SendMessageConfiguration": decode_hook(read_blocking),
        # The wrapper of 1.0's release candidate.
        "lf.a2a.v1.TaskPushNotificationConfig": decode_hook(read_push),
    },
)
"""A2A 1.0, written exactly; read with what older clients mix in."""
