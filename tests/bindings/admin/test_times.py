"""Times in requests: one out of range is refused with the name of its field, and no valid one is an internal error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from tests.bindings.admin.operators import OLGA, Server, running_server

from dragoman import Turn, agent
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as worker
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1

DURATION, TIMESTAMP = "google.protobuf.Duration", "google.protobuf.Timestamp"
MAX_SECONDS = 315_576_000_000
INVALID = {
    DURATION: ((2**62, 0), (-(2**62), 0), (MAX_SECONDS + 1, 0), (1, -1), (0, 2**31 - 1)),
    TIMESTAMP: ((2**62, 0), (-(2**62), 0), (253_402_300_800, 0), (1, -1)),
}
VALID = {
    DURATION: ((MAX_SECONDS, 0), (-MAX_SECONDS, 0), (-1, -1)),
    TIMESTAMP: ((253_402_300_799, 999_999_999), (-62_135_596_800, 0)),
}
MODULES = (v1, v03, ops, worker)
METHODS = [
    method for one in MODULES for service in one.DESCRIPTOR.services_by_name.values() for method in service.methods
]


class Place(NamedTuple):
    """A field of a request that is a time: the names that lead to it."""

    method: MethodDescriptor
    names: tuple[str, ...]
    kind: str

    @property
    def json_path(self) -> str:
        head, *rest = ".".join(self.names).split("_")
        return head + "".join(word[0].upper() + word[1:] for word in rest)

    def request(self, seconds: int, nanos: int) -> Any:
        message: Any = GetMessageClass(self.method.input_type)()
        time = message
        for name in self.names:
            is_repeated = time.DESCRIPTOR.fields_by_name[name].is_repeated
            time = getattr(time, name)
            if is_repeated:
                time = time["COMPLETED"] if hasattr(time, "keys") else time.add()
        time.seconds, time.nanos = seconds, nanos
        return message


def places(method: MethodDescriptor) -> Iterator[Place]:
    def below(descriptor: Descriptor, names: tuple[str, ...], outer: frozenset[str]) -> Iterator[Place]:
        for field in descriptor.fields:
            kind = field.message_type
            if kind is not None and kind.GetOptions().map_entry:
                kind = kind.fields_by_name["value"].message_type
            if kind is None or kind.full_name in outer:
                continue
            if kind.full_name in INVALID:
                yield Place(method, (*names, field.name), kind.full_name)
            else:
                yield from below(kind, (*names, field.name), outer | {kind.full_name})

    yield from below(method.input_type, (), frozenset())


PLACES = [place for method in METHODS for place in places(method)]


@agent(id="echo", name="Echo", description="Returns the text", default=True)
async def echo(turn: Turn) -> str:
    return turn.text


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(f"sqlite:///{tmp_path}/tasks.db", [echo]) as opened:
        yield opened


async def call(server: Server, place: Place, request: Any) -> grpc.aio.AioRpcError | None:
    """Calls the method of a place over gRPC, and returns its error."""
    method, channel = place.method, server.channel
    path = f"/{method.containing_service.full_name}/{method.name}"
    kinds: Any = {
        "request_serializer": type(request).SerializeToString,
        "response_deserializer": GetMessageClass(method.output_type).FromString,
    }
    metadata = tuple(OLGA.items())
    try:
        if method.client_streaming:
            stream = channel.stream_stream(path, **kinds)(metadata=metadata)
            await stream.write(request)
            await stream.read()
        elif method.server_streaming:
            await channel.unary_stream(path, **kinds)(request, metadata=metadata).read()
        else:
            await channel.unary_unary(path, **kinds)(request, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error
    return None


def test_times_of_all_services_are_found() -> None:
    found = {(place.method.name, ".".join(place.names)) for place in PLACES}
    assert {
        ("ListTasks", "status_timestamp_after"),
        ("Purge", "selection.older_than"),
        ("RotateKey", "grace"),
        ("CancelTasks", "filter.changed_since"),
        ("Connect", "hello.agents.retention"),
        ("Connect", "turn_end.pause.until"),
    } <= found, sorted(found)


async def test_a_time_out_of_range_is_refused_with_its_field(server: Server) -> None:
    for place in PLACES:
        for seconds, nanos in INVALID[place.kind]:
            error = await call(server, place, place.request(seconds, nanos))
            assert error is not None, (place, seconds)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (place, seconds, error)
            assert (
                str(error.details()).removeprefix("InvalidParamsError: ").startswith(f"{place.json_path}: must be ")
            ), (place, seconds, error)


async def test_the_first_and_last_times_of_the_range_are_no_fault_of_the_server(server: Server) -> None:
    for place in PLACES:
        if place.method.name in ("Connect", "WatchTasks"):  # they go on
            continue
        for seconds, nanos in VALID[place.kind]:
            error = await call(server, place, place.request(seconds, nanos))
            assert error is None or error.code() is not grpc.StatusCode.INTERNAL, (place, seconds, error)
