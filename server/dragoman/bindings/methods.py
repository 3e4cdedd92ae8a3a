"""The method table: every RPC of both packages, and what each binding has to know of it.

One row serves gRPC and REST alike; adding an RPC is adding a row. Request and answer types and streaming come from
the service's descriptor, routes and bodies from its `google.api.http` rules; the row adds what no proto says:
which operation it is, how a 0.3 message becomes a 1.0 one and back, and where real clients depart from the rule.

Operations answer in serialized `lf.a2a.v1`, so a row without `encode` passes bytes on untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.core.errors import A2AError, InvalidParams, PushNotificationNotSupported, UnsupportedOperation
from dragoman.core.log import Event
from dragoman.runtime.service import Call, TaskService
from dragoman.wire import protojson, sse, v03
from dragoman.wire.dialects import Dialect
from dragoman.wire.transcode import WHOLE
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Operation = Callable[[Call, Any], Any]
"""An operation of the service: a coroutine of bytes, or an async iterator of events when the RPC streams."""


class Form:
    """One wire form of the events of a stream. An event is encoded once for each and shared by all its readers."""

    __slots__ = ("_encode",)

    def __init__(self, encode: Callable[[pb.StreamResponse, bool], bytes]) -> None:
        self._encode = encode

    def __call__(self, event: Event, final: bool) -> bytes:
        """The event in this form. `final`: the stream that asks stops with it, and the dialect says so."""
        key = (self, final)
        data = event.forms.get(key)
        if data is None:
            data = event.forms[key] = self._encode(pb.StreamResponse.FromString(event.data), final)
        return data


def _untouched(event: Event, final: bool) -> bytes:
    return event.data


Frame = Callable[[Event, bool], bytes]
"""What turns an event into the bytes that a stream writes."""

_V1_JSON: Final = protojson.compile(pb.StreamResponse, protojson.V1)
_V03_JSON: Final = protojson.compile(v03_pb.StreamResponse, protojson.V03)


@dataclass(frozen=True, slots=True)
class Forms:
    """How one dialect writes the events of a stream: over gRPC, as SSE frame, as element of a JSON array."""

    grpc: Frame
    sse: Frame
    json: Frame


_V1_FORMS: Final = Forms(
    grpc=_untouched,
    sse=Form(lambda event, final: sse.frame(_V1_JSON.encode(event))),
    json=Form(lambda event, final: _V1_JSON.encode(event)),
)
_V03_FORMS: Final = Forms(
    grpc=Form(lambda event, final: v03.write_stream(event, ends=final).SerializeToString()),
    sse=Form(lambda event, final: sse.frame(_V03_JSON.encode(v03.write_stream(event, ends=final)))),
    json=Form(lambda event, final: _V03_JSON.encode(v03.write_stream(event, ends=final))),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One RPC in one dialect."""

    dialect: Dialect
    method: MethodDescriptor
    call: Callable[[TaskService], Operation] | None = None
    """The operation; None for a card, which needs no task, and for what is refused."""
    decode: Callable[[Any], Any] | None = None
    """From the dialect's request to the 1.0 request; None when they are the same."""
    answer: type[Message] | None = None
    """The 1.0 message that the operation's bytes are."""
    encode: Callable[[Any], Message] | None = None
    """From that message to the dialect's answer; None when they are the same."""
    refuses: type[A2AError] | None = None
    """What every call is told: a capability that the card does not declare (1.0 §3.3.4)."""
    card: bool = False
    """The answer is the agent's public card."""
    blocking: bool = False
    """The answer may wait for a turn to end, so a caller's deadline bounds the wait."""
    turn: bool = False
    """The stream is that of a send, which stops when the turn ends."""
    shows_finished: bool = False
    """Subscribing to a finished task gives the Task and closes (0.3), instead of UnsupportedOperation (1.0)."""
    bodies: tuple[str, ...] = ()
    """Request bodies that real clients send, best first, where they depart from the rule (wire/transcode.py)."""

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def service(self) -> str:
        return self.method.containing_service.full_name

    @property
    def streaming(self) -> bool:
        return bool(self.method.server_streaming)

    @property
    def request(self) -> type[Message]:
        return GetMessageClass(self.method.input_type)

    @property
    def response(self) -> type[Message]:
        return GetMessageClass(self.method.output_type)

    @property
    def forms(self) -> Forms:
        return _V1_FORMS if self.dialect is Dialect.V1 else _V03_FORMS

    @property
    def json(self) -> protojson.JsonDialect:
        return protojson.V1 if self.dialect is Dialect.V1 else protojson.V03

    def message(self, data: bytes) -> Message:
        """The dialect's answer, from what the operation gave."""
        assert self.answer is not None
        answer = self.answer.FromString(data)
        return answer if self.encode is None else self.encode(answer)

    def asked(self, request: Any) -> Any:
        """The 1.0 request. Raises InvalidParams for a resource name of another form."""
        return request if self.decode is None else self.decode(request)


def parse(cls: type[Message], data: bytes) -> Message:
    """A request from gRPC's bytes. Raises InvalidParams when they are none."""
    try:
        return cls.FromString(data)
    except DecodeError:
        name = cls.DESCRIPTOR.full_name
        raise InvalidParams(f"request: is no serialized {name}, or holds text that is not UTF-8") from None


_V1_SERVICE: Final = pb.DESCRIPTOR.services_by_name["A2AService"]
_V03_SERVICE: Final = v03_pb.DESCRIPTOR.services_by_name["A2AService"]


def _v1(rpc: str, **columns: Any) -> Row:
    method = _V1_SERVICE.methods_by_name[rpc]
    answer = None if method.server_streaming else GetMessageClass(method.output_type)
    return Row(dialect=Dialect.V1, method=method, answer=answer, **columns)


def _v03(rpc: str, **columns: Any) -> Row:
    return Row(dialect=Dialect.V03, method=_V03_SERVICE.methods_by_name[rpc], **columns)


_NO_PUSH: Final = PushNotificationNotSupported

ROWS: Final = (
    _v1("SendMessage", call=lambda service: service.send_message, blocking=True),
    _v1("SendStreamingMessage", call=lambda service: service.send_streaming_message, turn=True),
    _v1("GetTask", call=lambda service: service.get_task),
    _v1("ListTasks", call=lambda service: service.list_tasks),
    _v1("CancelTask", call=lambda service: service.cancel_task),
    _v1("SubscribeToTask", call=lambda service: service.subscribe_to_task),
    _v1("CreateTaskPushNotificationConfig", refuses=_NO_PUSH),
    _v1("GetTaskPushNotificationConfig", refuses=_NO_PUSH),
    _v1("ListTaskPushNotificationConfigs", refuses=_NO_PUSH),
    _v1("DeleteTaskPushNotificationConfig", refuses=_NO_PUSH),
    _v1("GetExtendedAgentCard", refuses=UnsupportedOperation),
    _v03(
        "SendMessage",
        call=lambda service: service.send_message,
        decode=v03.read_send_message,
        answer=pb.SendMessageResponse,
        encode=v03.write_send_message,
        blocking=True,
    ),
    _v03(
        "SendStreamingMessage",
        call=lambda service: service.send_streaming_message,
        decode=v03.read_send_message,
        turn=True,
    ),
    _v03(
        "GetTask",
        call=lambda service: service.get_task,
        decode=v03.read_get_task,
        answer=pb.Task,
        encode=v03.write_task,
    ),
    _v03(
        "ListTasks",
        call=lambda service: service.list_tasks,
        decode=v03.read_list_tasks,
        answer=pb.ListTasksResponse,
        encode=v03.write_list_tasks,
    ),
    _v03(
        "CancelTask",
        call=lambda service: service.cancel_task,
        decode=v03.read_cancel_task,
        answer=pb.Task,
        encode=v03.write_task,
    ),
    _v03(
        "TaskSubscription",
        call=lambda service: service.subscribe_to_task,
        decode=v03.read_subscription,
        shows_finished=True,
    ),
    _v03(
        "CreateTaskPushNotificationConfig",
        refuses=_NO_PUSH,
        # The rule says `config`. One SDK posts the whole request, others and Google's clients the bare
        # PushNotificationConfig's parent, and the rule's own shape is what the JS SDK sends.
        bodies=("config", WHOLE, "config.push_notification_config"),
    ),
    _v03("GetTaskPushNotificationConfig", refuses=_NO_PUSH),
    _v03("ListTaskPushNotificationConfig", refuses=_NO_PUSH),
    _v03("DeleteTaskPushNotificationConfig", refuses=_NO_PUSH),
    _v03("GetAgentCard", decode=v03.read_get_agent_card, card=True),
)


def services() -> Iterator[tuple[ServiceDescriptor, dict[str, Row]]]:
    """Both services with their rows by RPC name, 1.0 first."""
    for service in (_V1_SERVICE, _V03_SERVICE):
        yield service, {row.name: row for row in ROWS if row.service == service.full_name}
