"""Mutations of what a remote server sends: of its JSON, of the bytes, and of the HTTP response around them.

All choices come from one `random.Random`, so a seed gives the same mutations again.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

DEEP: Final = 200
MANY: Final = 300
LONG: Final = 20_000
"""Levels, items and characters of a value that is too large for most fields."""

_VALUES: Final[tuple[Callable[[random.Random], Any], ...]] = (
    lambda _: None,
    lambda chance: chance.choice((True, False)),
    lambda chance: chance.choice((0, -1, 1, 2**31, 2**53 + 1, -(2**63), 2**64 - 1, 1.5, -0.0, 1e308)),
    lambda chance: chance.choice(("", " ", "\0", "\ufffd", "\u202e", "null", "NaN", "-1", "9007199254740993")),
    lambda chance: chance.choice(
        ("2026-11-27", "20261127T101112Z", "2026-11-27T10:11:12+0100", "0000-01-01T00:00:00Z")
    ),
    lambda chance: chance.choice(("AA==", "AA", "A\nA==", "-_8=", "%", "data:,x", "http://[::1", "file:///etc/passwd")),
    lambda chance: chance.choice(
        ("TASK_STATE_WORKING", "completed", "TASK_STATE_NEW", "unknown", "auth-required", "ROLE_USER", "agent", "GRPC")
    ),
    lambda _: "x" * LONG,
    lambda _: [],
    lambda _: {},
    lambda _: [{}],
    lambda chance: {chance.choice(("id", "kind", "task", "error", "code", "")): {}},
    lambda _: _nested(DEEP),
    lambda _: [None] * MANY,
    lambda _: {str(number): number for number in range(MANY)},
)

_BROKEN_JSON: Final = (
    b"NaN",
    b"1e999",
    b"9" * 400,
    b'"\\ud800"',
    b'{"a":1,"a":2}',
    b"[" * 2000,
    b'"\xff\xfe"',
    b"\xef\xbb\xbf{}",
    b"",
    b"{",
    b"<html>",
    b"null",
)


@dataclass
class Answer:
    """An HTTP response to be sent. `cut`: it breaks off after its last chunk."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    chunks: list[bytes] = field(default_factory=list)
    cut: bool = False
    refused: bool = False
    """Whether there is no connection at all."""


def mutated_json(value: Any, chance: random.Random) -> Any:
    """A copy of JSON with one to three changes at random places."""
    holder = {"": copy.deepcopy(value)}
    for _ in range(chance.randint(1, 3)):
        places = list(_places(holder))
        container, key = chance.choice(places)
        match chance.randrange(6):
            case 0 | 1 | 2:
                container[key] = chance.choice(_VALUES)(chance)
            case 3 if container is not holder:
                del container[key]
            case 4 if isinstance(container, list):
                container += [copy.deepcopy(container[key])] * chance.choice((1, MANY))
            case 4 if container is not holder:
                container[chance.choice((str(key).upper(), f"{key}s", "kind", "type", ""))] = container[key]
            case _:  # what belongs elsewhere
                other, name = chance.choice(places)
                if name in other if isinstance(other, dict) else name < len(other):
                    container[key] = copy.deepcopy(other[name])
    return holder[""]


def mutated_bytes(data: bytes, chance: random.Random) -> bytes:
    """Bytes with a change at a random place."""
    at = chance.randrange(len(data) + 1)
    match chance.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + chance.randbytes(chance.randint(1, 4)) + data[at:]
        case 2:
            return data[:at] + chance.choice(_BROKEN_JSON) + data[at + chance.randint(0, 8) :]
        case 3:
            return chance.choice(_BROKEN_JSON)
        case _:
            return data + data


def mutate_response(answer: Answer, chance: random.Random) -> None:
    """Changes the response around a body, in place."""
    match chance.randrange(9):
        case 0:
            answer.status = chance.choice((100, 201, 202, 204, 301, 307, 400, 401, 403, 404, 405, 413, 429))
        case 1:
            answer.status = chance.choice((500, 501, 502, 503, 504, 599, 999))
        case 2:
            answer.headers["content-type"] = chance.choice(
                (
                    "",
                    "text/html",
                    "text/event-stream",
                    "application/json; charset=utf-16",
                    "application/grpc",
                    ";;",
                    "\t",
                )
            )
        case 3:
            answer.headers["retry-after"] = chance.choice(("-1", "1e9", "x", "0", "Thu, 01 Jan 1970 00:00:00 GMT"))
        case 4:
            answer.headers["location"] = "http://10.0.0.1/"
            answer.status = 302
        case 5:
            answer.cut = True
        case 6:
            answer.chunks = [bytes([byte]) for byte in b"".join(answer.chunks)[:500]]
        case 7:
            answer.chunks = [gzip.compress(b"".join(answer.chunks))]
        case _:
            answer.refused = True


def json_answer(value: Any) -> Answer:
    """A response with this JSON."""
    return Answer(chunks=[_encode(value)])


def events_answer(values: list[Any]) -> Answer:
    """A stream of server-sent events with this JSON."""
    return Answer(
        headers={"content-type": "text/event-stream"}, chunks=[b"data: " + _encode(one) + b"\n\n" for one in values]
    )


def mutated_answer(values: list[Any], chance: random.Random, *, is_stream: bool) -> Answer:
    """A response with this JSON, or a stream of these events, with one kind of change."""
    kind = chance.randrange(8)
    if kind < 5:
        index = chance.randrange(len(values))
        values = [*values[:index], mutated_json(values[index], chance), *values[index + 1 :]]
    answer = events_answer(values) if is_stream else json_answer(values[0])
    if kind == 5:
        index = chance.randrange(len(answer.chunks))
        answer.chunks[index] = mutated_bytes(answer.chunks[index], chance)
    elif kind == 6 and is_stream:
        answer.chunks.insert(
            chance.randrange(len(answer.chunks) + 1),
            chance.choice(
                (b"event: ping\ndata:\n\n", b"data: \n\n", b": x\n\n", b"event: error\ndata: {}\n\n", b"id: \xff\n\n")
            ),
        )
    elif kind >= 6:
        mutate_response(answer, chance)
    return answer


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers with lower-case names, as the port of outbound HTTP has them."""
    return {name.lower(): value for name, value in headers.items()}


def _encode(value: Any) -> bytes:
    """JSON of any depth and any integers, which faster encoders refuse."""
    return json.dumps(value, ensure_ascii=False).encode()


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Each place of a JSON value: its container, and the key or index in it."""
    places: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        container = pending.pop()
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        places += [(container, key) for key in keys]
        pending += [container[key] for key in keys if isinstance(container[key], dict | list)]
    return places
