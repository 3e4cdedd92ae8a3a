"""The wire forms of a stream's events: each event is encoded once for each, and shared by all who read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from dragoman.core.task.log import Event
from dragoman.wire.dialects import json_mixed, json_proto, json_v01, json_v03, v03
from dragoman.wire.http import sse
from dragoman.wire.json import protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class Form:
    """One wire form."""

    __slots__ = ("_encode",)

    def __init__(self, encode: Callable[[pb.StreamResponse, bool], bytes]) -> None:
        self._encode = encode

    def __call__(self, event: Event, final: bool) -> bytes:
        """The event in this form. `final`: the stream that asks stops with it, and the dialect says so."""
        key = (self, final)
        data: bytes | None = event.encodings.get(key)
        if data is None:
            data = event.encodings[key] = self._encode(pb.StreamResponse.FromString(event.data), final)
        return data


class SseForm(Form):
    """A wire form whose frames carry the event's cursor as their id."""

    __slots__ = ()

    def __call__(self, event: Event, final: bool) -> bytes:
        """The SSE frame."""
        key = (self, final)
        data: bytes | None = event.encodings.get(key)
        if data is None:
            value = self._encode(pb.StreamResponse.FromString(event.data), final)
            data = event.encodings[key] = sse.frame(value, id=event.cursor or None)
        return data


Frame = Callable[[Event, bool], bytes]
"""What turns an event into the bytes that a stream writes."""


def untouched(event: Event, final: bool) -> bytes:
    """The form of 1.0 over gRPC: what the store gave."""
    return event.data


@dataclass(frozen=True, slots=True)
class Forms:
    """How one dialect writes the events of a stream: over gRPC, as SSE frame, as element of a JSON array."""

    grpc: Frame
    sse: Frame
    json: Frame


_V1_JSON: Final = protojson.compile(pb.StreamResponse, json_proto.PROTOJSON_V1)
_V03_JSON: Final = protojson.compile(v03_pb.StreamResponse, json_proto.PROTOJSON_V03)
_FASTA2A: Final = protojson.compile(pb.StreamResponse, json_mixed.JSON_FASTA2A)
_RUST: Final = protojson.compile(pb.StreamResponse, json_mixed.JSON_RUST)

V1: Final = Forms(
    grpc=untouched,
    sse=SseForm(lambda event, final: _V1_JSON.encode(event)),
    json=Form(lambda event, final: _V1_JSON.encode(event)),
)
V03: Final = Forms(
    grpc=Form(lambda event, final: v03.write_stream(event, is_last=final).SerializeToString()),
    sse=SseForm(lambda event, final: _V03_JSON.encode(v03.write_stream(event, is_last=final))),
    json=Form(lambda event, final: _V03_JSON.encode(v03.write_stream(event, is_last=final))),
)


def _in_envelope(event: pb.StreamResponse) -> bytes:
    """What a2a-rust 0.3 reads and what it documents: its client takes the events of REST for answers of JSON-RPC too,
    while its book shows them bare. Either reader skips the other's keys."""
    value = _RUST.to_dict(event)
    return orjson.dumps({"jsonrpc": "2.0", "id": None, "result": value, **value})


RUST: Final = Forms(
    grpc=untouched,
    sse=SseForm(lambda event, final: _in_envelope(event)),
    json=Form(lambda event, final: _RUST.encode(event)),
)


# JSON-RPC --------------------------------------------------------------------------------------------------

Results = Callable[[Event, bool], Sequence[bytes]]
"""What turns an event into the results of successive JSON-RPC answers."""


def _one(frame: Frame) -> Callable[[], Results]:
    def results(event: Event, final: bool) -> Sequence[bytes]:
        return (frame(event, final),)

    return lambda: results


def v01_results() -> Results:
    """The results of one 0.1 stream, which depend on what it has told before, so nobody shares them."""
    stream = json_v01.V01StreamWriter()

    def results(event: Event, final: bool) -> Sequence[bytes]:
        every = json_v01.to_updates(pb.StreamResponse.FromString(event.data))
        last = len(every) - 1
        return [orjson.dumps(stream.write(update, final and index == last)) for index, update in enumerate(every)]

    return results


def shared_v01_results() -> Results:
    """As `v01_results`, for readers of 0.3 too."""
    write = json_mixed.v01_event_writer()

    def results(event: Event, final: bool) -> Sequence[bytes]:
        return [orjson.dumps(said) for said in write(pb.StreamResponse.FromString(event.data), final)]

    return results


shared_fasta2a_results: Final = _one(
    Form(lambda event, final: orjson.dumps(json_mixed.write_fasta2a_event(event, final)))
)
shared_rust_results: Final = _one(Form(lambda event, final: orjson.dumps(json_mixed.write_rust_event(event, final))))
v1_results: Final = _one(V1.json)
v03_results: Final = _one(Form(lambda event, final: orjson.dumps(json_v03.write_event(event, final))))
fasta2a_results: Final = _one(Form(lambda event, final: _FASTA2A.encode(event)))
rust_results: Final = _one(RUST.json)
