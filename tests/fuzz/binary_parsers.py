"""Parsers of binary input: gRPC requests, frames of workers, bus messages and framed rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from google.protobuf.message import DecodeError, Message
from tests.fuzz.json_parsers import check
from tests.fuzz.parser import Parser

from dragoman.agents.workers import connection, turn
from dragoman.bindings import method_table
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import A2AError
from dragoman.core.names import Owner
from dragoman.core.task import blob_references
from dragoman.core.task.log import Append, Event, Exists, IncomingMessage, StatusChange, TaskRef
from dragoman.extensions.nats import codec as bus_frames
from dragoman.ports import Job, TaskSignal
from dragoman.wire import field_count
from dragoman.wire.cards import agent_card
from dragoman.wire.dialects import Dialect, json_mixed, json_proto, json_v03
from dragoman.wire.dialects import v03 as v03_codec
from dragoman.wire.json import protojson
from dragoman.worker.frames import encode_registration as registered
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def read_rpc(data: bytes) -> None:
    """An index of an RPC and its request. Accepted messages can be encoded in every dialect."""
    if not data:
        return
    row = method_table.RPC_ROWS[data[0] % len(method_table.RPC_ROWS)]
    try:
        request = field_count.parse_message(row.request, data[1:])
        value = request if row.decode is None else row.decode(request)
        check(value)
    except A2AError:
        return
    assert type(value).FromString(value.SerializeToString()) == value
    for codec in (json_proto.PROTOJSON_V1, json_v03.JSON_V03, json_mixed.JSON_FASTA2A, json_mixed.JSON_RUST):
        if isinstance(value, pb.SendMessageRequest):
            protojson.compile(pb.Message, codec).encode(value.message)
    if isinstance(value, pb.SendMessageRequest):
        v03_codec.convert(value.message, v03.Message())


_TURN_CONTEXT: Any = SimpleNamespace(task_id="t", context_id="c")


def read_worker(data: bytes) -> None:
    """A frame from a worker."""
    try:
        frame = field_count.parse_message(wk.ConnectRequest, data)
        assert isinstance(frame, wk.ConnectRequest)
        match frame.WhichOneof("frame"):
            case "hello":
                for spec in connection.check_hello(frame.hello):
                    _encode_cards(spec)
            case "events":
                for event in frame.events.events:
                    turn.decode_event(event, _TURN_CONTEXT, lambda: "id")
            case "turn_end":
                turn.decode_turn_end(frame.turn_end, _TURN_CONTEXT, lambda: "id")
    except A2AError:
        return


_AT: Final = agent_card.CardView(http="http://a.example", grpc="a.example:1", is_root=True)


def _encode_cards(spec: AgentSpec) -> None:
    """Encodes the card of an agent in every form."""
    for document in (
        agent_card.combined_document,
        agent_card.legacy_document,
        agent_card.v1_document,
        agent_card.v03_document,
        agent_card.v01_document,
    ):
        document(spec, _AT)


def read_bus(data: bytes) -> None:
    """A bus message from another server."""
    for read in (
        bus_frames.decode_events,
        bus_frames.decode_job,
        bus_frames.decode_signal,
        bus_frames.decode_heartbeat,
    ):
        try:
            decoded: Any = read(data)
        except bus_frames.InvalidBusMessage:
            continue
        if read is bus_frames.decode_events and decoded:
            encoded = list(bus_frames.encode_events(decoded, 1 << 20))
            assert [event for message in encoded for event in bus_frames.decode_events(message)] == decoded


_MARKER: Final = b"0123456789abcdef"
_REF: Final = TaskRef(Owner("default", "p"), b"0123456789abcdef")


def read_rows(data: bytes) -> None:
    """A message whose large parts are offloaded and restored: the bytes are identical."""
    try:
        message = pb.Message.FromString(data)
    except DecodeError:
        return
    framed = message.SerializeToString()
    if _MARKER in framed:
        return
    change = Append(task=_REF, guard=Exists(), message=IncomingMessage(framed), events=[StatusChange(1, framed)])
    with patch.object(blob_references, "LARGE_PART_BYTES", 20):
        offloaded = blob_references.offload_parts(change, _MARKER)
    stored = offloaded.change
    assert stored.message is not None
    assert isinstance(stored.events[0], StatusChange)

    def resolve(reference: blob_references.BlobReference) -> tuple[int, bytes]:
        return blob_references.RAW_FIELD, offloaded.contents[reference.blob.digest]

    for row in (stored.message.message, stored.events[0].message):
        assert blob_references.restore_parts(row, blob_references.MESSAGE_TREE, _MARKER, resolve) == framed


_PART: Final = pb.Part(text="hi", metadata={"k": [1.5, None, True, {"x": "y"}]})
_MESSAGE: Final = pb.Message(
    message_id="m", role=pb.ROLE_USER, parts=[_PART, pb.Part(raw=b"abc" * 200, filename="f", media_type="a/b")]
)
_OLD: Final = v03.SendMessageRequest(
    request=v03.Message(message_id="m", role=v03.ROLE_USER, content=[v03.Part(file=v03.FilePart(file_with_bytes=b"a"))])
)
_SPEC: Final = connection.read_registration(
    wk.AgentRegistration(id="x", card=pb.AgentCard(name="X", description="d", skills=[pb.AgentSkill(id="s", name="S")]))
)
_STATUS: Final = wk.StatusChange(state=pb.TASK_STATE_WORKING, message=pb.Message(parts=[_PART]))
_FRAMES: Final = (
    wk.ConnectRequest(hello=wk.Hello(name="w", agents=[registered(_SPEC, 3)])),
    wk.ConnectRequest(events=wk.Events(turn_id="t", events=[wk.Event(status=_STATUS)])),
    wk.ConnectRequest(turn_end=wk.TurnEnd(turn_id="t", status=wk.StatusChange(state=pb.TASK_STATE_COMPLETED))),
    wk.ConnectRequest(turn_end=wk.TurnEnd(turn_id="t", reply=_MESSAGE, state_update=wk.StateUpdate(task_state="{}"))),
)
_BUS_MESSAGES: Final = (
    next(bus_frames.encode_events([Event(1, b"data", 2), Event(2, b"", 3)], 1 << 20)),
    bus_frames.encode_job(Job("echo", _REF)),
    bus_frames.encode_signal(_REF, TaskSignal.CANCEL),
    bus_frames.encode_heartbeat(bus_frames.BusHeartbeat("0a", "0b", True)),
)


def _rpc(name: str, dialect: Dialect, request: Message) -> bytes:
    number = next(at for at, row in enumerate(method_table.RPC_ROWS) if (row.name, row.dialect) == (name, dialect))
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
    "bus": Parser(read_bus, _BUS_MESSAGES, ('"server"', '"epoch"', '"fresh"')),
    "rows": Parser(read_rows, (_MESSAGE.SerializeToString(),)),
}
