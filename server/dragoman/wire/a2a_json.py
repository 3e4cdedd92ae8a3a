"""The two JSON dialects of A2A that protobuf defines: what clients write beside the names in the protos."""

from __future__ import annotations

from typing import Any, Final

from dragoman.wire import lenient, parts
from dragoman.wire.protojson import JsonDialect
from dragoman.wire.protojson_in import Decode


def _tagged_data(decode: Decode) -> Decode:
    """Reads a part whose `kind` is data as JSON-RPC has it, too: the object stands there without a wrapper."""

    def read(message: Any, value: object) -> None:
        if type(value) is dict and value.get("kind") == "data" and type(data := value.get("data")) is dict:
            wrapped = len(data) == 1 and type(data.get("data")) is dict
            value = value if wrapped else {**value, "data": {"data": data}}
        decode(message, value)

    return read


_STATUS_AFTER: Final = ("status_timestamp_after", "statusTimestampAfter", "last_updated_time", "lastUpdatedTime")

V03: Final = JsonDialect(
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
    enums={name.removeprefix("lf."): groups for name, groups in lenient.ALIASES.items()},
    reads={"a2a.v1.Part": _tagged_data},
    always={
        "a2a.v1.ListTasksResponse": {"tasks", "next_page_token", "total_size"},
        "a2a.v1.ListTaskPushNotificationConfigResponse": {"configs"},
    },
)
"""A2A 0.3 as protobuf defines it, with the later additions."""

V1: Final = JsonDialect(
    "lf.a2a.v1",
    fields={
        # The filter of the Go client.
        "lf.a2a.v1.ListTasksRequest": [(*_STATUS_AFTER, "last_updated_after", "lastUpdatedAfter")],
        # 1.0's release candidate.
        "lf.a2a.v1.SendMessageConfiguration": [
            ("task_push_notification_config", "push_notification_config", "pushNotificationConfig")
        ],
    },
    enums=lenient.ALIASES,
    # A2A 1.0 §3.1.4: the fields of the response are required, so zero and empty are written.
    always={
        "lf.a2a.v1.ListTasksResponse": {"tasks", "next_page_token", "page_size", "total_size"},
        "lf.a2a.v1.ListTaskPushNotificationConfigsResponse": {"configs"},
    },
    reads={
        "lf.a2a.v1.Part": parts.reading,
        "lf.a2a.v1.SendMessageRequest": lenient.rewritten(lenient.read_context),
        "lf.a2a.v1.SendMessageConfiguration": lenient.rewritten(lenient.read_blocking),
        # The wrapper of 1.0's release candidate.
        "lf.a2a.v1.TaskPushNotificationConfig": lenient.rewritten(lenient.read_push),
    },
)
"""A2A 1.0, written exactly; read with what older clients mix in."""
