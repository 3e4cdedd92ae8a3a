"""The parsers of binary forms: requests over gRPC, what workers and other servers say, and framed rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from google.protobuf.message import DecodeError, Message
from tests.fuzz.of_json import check
from tests.fuzz.parser import Parser

from dragoman.agents.dialled import events, registration
from dragoman.bindings import methods
from dragoman.bus.nats import frames as bus_frames
from dragoman.core import references
from dragoman.core.card import AgentSpec
from dragoman.core.errors import A2AError
from dragoman.core.log import Append, Event, Inbound, NotTerminal, StatusChange, TaskRef
from dragoman.core.names import Owner
from dragoman.ports import Job, Signal
from dragoman.wire import a2a_json, cards, flat_json, protojson, v03_json
from dragoman.wire import v03 as v03_codec
from dragoman.wire.dialects import Dialect
from dragoman.worker.card import registration as registered
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def read_rpc(data: bytes) -> None:
    """A number that says which RPC, and its request: what is taken can be written in every dialect's JSON."""
    if not data:
        return
    row = methods.ROWS[data[0] % len(methods.ROWS)]
    try:
        asked = row.asked(methods.parse(row.request, data[1:]))
        check(asked)
    except A2AError:
        return
    assert type(asked).FromString(asked.SerializeToString()) == asked
    for codec in (a2a_json.V1, v03_json.JSON, flat_json.FASTA2A, flat_json.RUST):
        if isinstance(asked, pb.SendMessageRequest):
            protojson.compile(pb.Message, codec).encode(asked.message)
    if isinstance(asked, pb.SendMessageRequest):
        v03_codec.write_message(asked.message)


_DESK: Any = SimpleNamespace(task_id="t", context_id="c")


def read_worker(data: bytes) -> None:
    """A frame of a worker."""
    try:
        frame = methods.parse(wk.ConnectRequest, data)
        assert isinstance(frame, wk.ConnectRequest)
        match frame.WhichOneof("frame"):
            case "hello":
                for spec in registration.check_hello(frame.hello):
                    _show(spec)
            case "events":
                for event in frame.events.events:
                    events.change(event, _DESK, lambda: "id")
            case "turn_end":
                events.ending(frame.turn_end, _DESK, lambda: "id")
    except A2AError:
        return


_AT: Final = cards.Addresses(http="http://a.example", grpc="a.example:1", root=True)


def _show(spec: AgentSpec) -> None:
    """Its card, as everybody may ask for it."""
    for document in (cards.document, cards.old_document, cards.v1_document, cards.v03_document, cards.v01_document):
        document(spec, _AT)


def read_bus(data: bytes) -> None:
    """What another server says."""
    for read in (bus_frames.read_events, bus_frames.read_job, bus_frames.read_signal, bus_frames.read_hello):
        try:
            found: Any = read(data)
        except bus_frames.Unreadable:
            continue
        if read is bus_frames.read_events and found:
            again = list(bus_frames.events(found, 1 << 20))
            assert [event for message in again for event in bus_frames.read_events(message)] == found


_MARKER: Final = b"0123456789abcdef"
_REF: Final = TaskRef(Owner("default", "p"), b"0123456789abcdef")


def read_rows(data: bytes) -> None:
    """A message of a stranger, with its large parts taken out and put in again: the same to the byte."""
    try:
        message = pb.Message.FromString(data)
    except DecodeError:
        return
    framed = message.SerializeToString()
    if _MARKER in framed:
        return
    change = Append(task=_REF, guard=NotTerminal(), message=Inbound(framed), events=[StatusChange(1, framed)])
    with patch.object(references, "LARGE", 20):
        spilled = references.spill(change, _MARKER)
    kept = spilled.change
    assert kept.message is not None
    assert isinstance(kept.events[0], StatusChange)

    def resolve(reference: references.Reference) -> tuple[int, bytes]:
        return references.RAW, spilled.contents[reference.blob.digest]

    assert references.restore(kept.message.message, references.MESSAGE, _MARKER, resolve) == framed
    assert references.restore(kept.events[0].message, references.MESSAGE, _MARKER, resolve) == framed


_PART: Final = pb.Part(text="hi", metadata={"k": [1.5, None, True, {"x": "y"}]})
_MESSAGE: Final = pb.Message(
    message_id="m", role=pb.ROLE_USER, parts=[_PART, pb.Part(raw=b"abc" * 200, filename="f", media_type="a/b")]
)
_OLD: Final = v03.SendMessageRequest(
    request=v03.Message(message_id="m", role=v03.ROLE_USER, content=[v03.Part(file=v03.FilePart(file_with_bytes=b"a"))])
)
_SPEC: Final = registration.read(
    wk.AgentRegistration(id="x", card=pb.AgentCard(name="X", description="d", skills=[pb.AgentSkill(id="s", name="S")]))
)
_STATUS: Final = wk.StatusChange(state=pb.TASK_STATE_WORKING, message=pb.Message(parts=[_PART]))
_FRAMES: Final = (
    wk.ConnectRequest(hello=wk.Hello(name="w", agents=[registered(_SPEC, 3)])),
    wk.ConnectRequest(events=wk.Events(turn_id="t", events=[wk.Event(status=_STATUS)])),
    wk.ConnectRequest(turn_end=wk.TurnEnd(turn_id="t", status=wk.StatusChange(state=pb.TASK_STATE_COMPLETED))),
    wk.ConnectRequest(turn_end=wk.TurnEnd(turn_id="t", reply=_MESSAGE, notes=wk.Notes(task_state="{}"))),
)
_TELLS: Final = (
    next(bus_frames.events([Event(1, b"data", 2), Event(2, b"", 3)], 1 << 20)),
    bus_frames.job(Job("echo", _REF)),
    bus_frames.signal(_REF, Signal.CANCEL),
    bus_frames.hello(bus_frames.Hello("0a", "0b", True)),
)


def _rpc(name: str, dialect: Dialect, request: Message) -> bytes:
    number = next(at for at, row in enumerate(methods.ROWS) if (row.name, row.dialect) == (name, dialect))
    return bytes((number,)) + request.SerializeToString()


PARSERS: Final = {
    "grpc": Parser(
        read_rpc,
        (
            _rpc("SendMessage", Dialect.V1, pb.SendMessageRequest(message=_MESSAGE)),
            _rpc("SendMessage", Dialect.V03, _OLD),
            _rpc("ListTasks", Dialect.V1, pb.ListTasksRequest(context_id="c", page_size=3)),
            _rpc("GetTask", Dialect.V03, v03.GetTaskRequest(name="tasks/t")),
        ),
        ("tasks/", "projects/", "/pushNotificationConfigs/"),
    ),
    "worker": Parser(read_worker, tuple(frame.SerializeToString() for frame in _FRAMES)),
    "bus": Parser(read_bus, _TELLS, ('"server"', '"epoch"', '"fresh"')),
    "rows": Parser(read_rows, (_MESSAGE.SerializeToString(),)),
}
