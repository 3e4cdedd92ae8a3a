"""Two JSON dialects between 0.3 and 1.0, and responses that merge several dialects.

`JSON_FASTA2A`, fasta2a 2.x: the methods of 0.3 with the objects of 1.0 (flat parts, wrapped unions, no `kind`), states
and roles as in 0.3, and `blocking`.
`JSON_RUST`, a2a-rust 0.3: the methods of 1.0, parts distinguished by `type`, the result of a send without its wrapper,
the events of a stream within theirs. States and roles are written as in 1.0: its documentation shows these names, and
every release reads them beside the lower-case words that 0.3 of it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

from dragoman.wire.dialects import json_proto, json_v01, json_v03, parts
from dragoman.wire.json import protojson
from dragoman.wire.json.wellknown import Encode
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_ALWAYS_EMITTED: Final = {
    **json_v03.ALWAYS_EMITTED,
    "lf.a2a.v1.ListTaskPushNotificationConfigsResponse": {"configs"},
    # a2a-rust rejects an authentication without them.
    "lf.a2a.v1.AuthenticationInfo": {"scheme", "credentials"},
}

JSON_FASTA2A: Final = protojson.JsonDialect(
    "fasta2a",
    enums=json_proto.ENUM_ALIASES,
    enum_words=json_proto.ENUM_WORDS,
    always_emitted=_ALWAYS_EMITTED,
    decode_hooks={
        "lf.a2a.v1.Part": parts.part_decoder,
        "lf.a2a.v1.SendMessageConfiguration": json_proto.decode_hook(json_v03.read_configuration),
        "lf.a2a.v1.GetTaskRequest": json_proto.decode_hook(json_proto.read_history),
        "lf.a2a.v1.TaskPushNotificationConfig": json_proto.decode_hook(json_proto.read_push),
    },
    encode_hooks={
        **json_v03.STATUS_HOOKS,
        "lf.a2a.v1.SendMessageConfiguration": json_v03.encode_hook(json_v03.write_blocking),
    },
)
"""fasta2a 2.x."""

JSON_RUST: Final = protojson.JsonDialect(
    "a2a-rust",
    fields={"lf.a2a.v1.SendMessageConfiguration": [json_proto.PUSH_CONFIG_KEYS]},
    enums=json_proto.ENUM_ALIASES,
    always_emitted=_ALWAYS_EMITTED,
    decode_hooks={
        "lf.a2a.v1.Part": parts.part_decoder,
        "lf.a2a.v1.SendMessageRequest": json_proto.decode_hook(json_proto.read_context),
        "lf.a2a.v1.SendMessageConfiguration": json_proto.decode_hook(json_proto.read_blocking),
        "lf.a2a.v1.SendMessageResponse": json_v03.wrap_union(json_v03.union_member),
        "lf.a2a.v1.TaskPushNotificationConfig": json_proto.decode_hook(json_proto.read_push),
    },
    encode_hooks={
        "lf.a2a.v1.Part": lambda _: parts.part_encoder("type"),
        "lf.a2a.v1.SendMessageResponse": json_v03.unwrap_union,
    },
)
"""a2a-rust 0.3.x."""

_TASK_V03: Final = protojson.compile(pb.Task, json_v03.JSON_V03)


def _flat_with_kind(encode: Encode) -> Encode:
    """Writes a flat part merged with its 0.3 form. Data that is not an object is written flat only."""
    tagged = parts.part_encoder("kind")

    def write(part: Any) -> dict[str, Any]:
        flat, old = encode(part), tagged(part)
        return {"kind": old["kind"], **flat} if old.get("data") != flat.get("data") else {**old, **flat}

    return write


_TASK_FASTA2A: Final = protojson.compile(
    pb.Task,
    replace(
        json_v03.JSON_V03,
        name="0.3 and fasta2a",
        encode_hooks={**json_v03.JSON_V03.encode_hooks, "lf.a2a.v1.Part": _flat_with_kind},
    ),
)


def merge(own: Any, other: Any) -> Any:
    """Merges two JSON values: objects by key, arrays by item; `own` takes precedence."""
    if type(own) is dict and type(other) is dict:
        return {**other, **{key: merge(value, other[key]) if key in other else value for key, value in own.items()}}
    if type(own) is list and type(other) is list and len(own) == len(other):
        return [merge(mine, theirs) for mine, theirs in zip(own, other, strict=True)]
    return own


def _task_writer(dialect: protojson.JsonDialect) -> Callable[[pb.Task], dict[str, Any]]:
    encode = protojson.compile(pb.Task, dialect).to_dict
    return lambda task: cast("dict[str, Any]", merge(encode(task), _TASK_V03.to_dict(task)))


def _event_writer(dialect: protojson.JsonDialect) -> Callable[[pb.StreamResponse, bool], dict[str, Any]]:
    encode = protojson.compile(pb.StreamResponse, dialect).to_dict
    return lambda event, is_last: {**json_v03.write_event(event, is_last), **encode(event)}


write_v01_task: Final = _task_writer(json_v01.JSON_V01)  # encodes a task created over 0.1, readable for 0.3 too
write_fasta2a_task: Final = _TASK_FASTA2A.to_dict  # encodes a task created by fasta2a 2.x, readable for 0.3 too
write_rust_task: Final = _task_writer(JSON_RUST)
"""Encodes a task created by a2a-rust 0.3, with the keys of 0.3 added. States and roles are a2a-rust's."""

write_fasta2a_event: Final = _event_writer(JSON_FASTA2A)
write_rust_event: Final = _event_writer(JSON_RUST)
"""Encode one event of a stream of a task created by these clients, which read the wrapped form; 0.3 reads the rest."""
