"""Two shapes between 0.3 and 1.0, each of one family of clients.

`FASTA2A`, fasta2a 2.x: the methods of 0.3 with the objects of 1.0 (flat parts, wrapped unions, no `kind`), words for
states and roles as in 0.3, and `blocking`.

`RUST`, a2a-rust 0.3: the methods of 1.0, parts told apart by `type`, words as in 0.3, a send's result without its
wrapper, a stream's events within theirs.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.wire import parts, protojson
from dragoman.wire.lenient import ALIASES, SPELLED, read_blocking, read_context, read_history, read_push, rewritten
from dragoman.wire.v03_json import bare, member_of, said, unwrapped, write_blocking

_ALWAYS: Final = {
    "lf.a2a.v1.Task": {"id", "context_id"},
    "lf.a2a.v1.Message": {"message_id", "role", "parts"},
    "lf.a2a.v1.Artifact": {"artifact_id", "parts"},
    "lf.a2a.v1.TaskStatus": {"state"},
    "lf.a2a.v1.TaskStatusUpdateEvent": {"task_id", "context_id"},
    "lf.a2a.v1.TaskArtifactUpdateEvent": {"task_id", "context_id"},
    "lf.a2a.v1.ListTasksResponse": {"tasks", "next_page_token", "page_size", "total_size"},
    "lf.a2a.v1.ListTaskPushNotificationConfigsResponse": {"configs"},
    # a2a-rust reads no authentication without them.
    "lf.a2a.v1.AuthenticationInfo": {"scheme", "credentials"},
}


FASTA2A: Final = protojson.JsonDialect(
    "fasta2a",
    enums=ALIASES,
    spell=SPELLED,
    always=_ALWAYS,
    reads={
        "lf.a2a.v1.Part": parts.reading,
        "lf.a2a.v1.SendMessageConfiguration": rewritten(lambda value: read_history(read_blocking(value))),
        "lf.a2a.v1.GetTaskRequest": rewritten(read_history),
        "lf.a2a.v1.TaskPushNotificationConfig": rewritten(read_push),
    },
    writes={"lf.a2a.v1.SendMessageConfiguration": said(write_blocking)},
)
"""fasta2a 2.x."""


def _read_rust_configuration(value: dict[str, Any]) -> dict[str, Any]:
    push = value.pop("pushNotificationConfig", None)
    if push is not None:
        value["taskPushNotificationConfig"] = push
    return read_blocking(value)


RUST: Final = protojson.JsonDialect(
    "a2a-rust",
    enums=ALIASES,
    spell={
        **SPELLED,
        "lf.a2a.v1.TaskState": {**SPELLED["lf.a2a.v1.TaskState"], "TASK_STATE_UNSPECIFIED": "unspecified"},
    },
    always=_ALWAYS,
    reads={
        "lf.a2a.v1.Part": parts.reading,
        "lf.a2a.v1.SendMessageRequest": rewritten(read_context),
        "lf.a2a.v1.SendMessageConfiguration": rewritten(_read_rust_configuration),
        "lf.a2a.v1.SendMessageResponse": bare(member_of),
        "lf.a2a.v1.TaskPushNotificationConfig": rewritten(read_push),
    },
    writes={"lf.a2a.v1.Part": lambda _: parts.writing("type"), "lf.a2a.v1.SendMessageResponse": unwrapped},
)
"""a2a-rust 0.3.x."""


def is_rust(request: object) -> bool:
    """Whether a send in the shape of 1.0 is a2a-rust's: its first part says its `type`."""
    message = request.get("message") if isinstance(request, dict) else None
    given = message.get("parts") if isinstance(message, dict) else None
    first = given[0] if isinstance(given, list) and given else None
    return isinstance(first, dict) and "type" in first
