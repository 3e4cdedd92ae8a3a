"""The method table: every method of every dialect, with the operation it calls and its codec.

An `A2AOperation` is dialect-neutral; a row maps one method of one dialect to it. A new operation needs an
`A2AOperation` and a row per dialect. `RPC_ROWS` serve gRPC and REST: types and routes come from the proto descriptors
and `google.api.http` rules; a row adds the operation, the conversion to and from 1.0, and deviations of real clients.
`JSONRPC_ROWS` serve JSON-RPC over HTTP and WebSocket. Operations return serialized `lf.a2a.v1`, so a row without
`encode` passes the bytes through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.bindings import event_encoders
from dragoman.bindings.event_encoders import EncodeResults, StreamEncoders
from dragoman.core.access.identity import Caller
from dragoman.core.agent_sources import FileForm
from dragoman.core.names import DEFAULT_SCOPE
from dragoman.core.task.cursors import MAX_PAGE_SIZE
from dragoman.runtime import Operations
from dragoman.runtime.push_configs import MAX_CONFIG_PAGE_SIZE
from dragoman.wire.dialects import Dialect, file_bytes, json_mixed, json_proto, json_v01, json_v03, v03
from dragoman.wire.http.transcode import WHOLE_REQUEST
from dragoman.wire.json import protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

# Operations: request and response of 1.0, and the runtime operation behind each -----------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class A2AOperation:
    """One operation, with the request and response types of 1.0."""

    request: type[Message]
    response: type[Message]
    rpc: str = ""  # the RPC of 1.0, if there is one
    operation: Callable[[Operations], Callable[..., Any]] | None = None
    """Selects the method: a coroutine of bytes, or an async iterator of events if `streaming`. None for descriptions,
    such as cards, which need no task."""
    names_agent: bool = True  # the request names an agent, which its caller has to be allowed to call
    streaming: bool = False
    blocking: bool = False  # the response may wait for a turn to end, so the caller's deadline bounds the wait
    push: bool = False  # needs push notifications, which a server may disable (1.0 §3.3.4)
    extended_card: bool = False  # returns the agent's extended card
    max_page_size: int = 0  # the largest page of a list; 0 for other operations; Google's form clamps to it (AIP-158)

    @property
    def shows_card(self) -> bool:
        """Whether the response is the agent's public card."""
        return self.operation is None and not self.extended_card


_V1_SERVICE: Final = pb.DESCRIPTOR.services_by_name["A2AService"]
_V03_SERVICE: Final = v03_pb.DESCRIPTOR.services_by_name["A2AService"]


def _operation(rpc: str, path: str = "", **columns: Any) -> A2AOperation:
    """The operation of an RPC of 1.0. `path`: to its method, from `Operations`; empty for a card."""
    method = _V1_SERVICE.methods_by_name[rpc]
    return A2AOperation(
        rpc=rpc, request=GetMessageClass(method.input_type), response=GetMessageClass(method.output_type),
        operation=attrgetter(path) if path else None, streaming=bool(method.server_streaming), **columns,
    )  # fmt: skip


SEND_MESSAGE: Final = _operation("SendMessage", "send.send_message", blocking=True)
STREAM_MESSAGE: Final = _operation("SendStreamingMessage", "send.send_streaming_message")
GET_TASK: Final = _operation("GetTask", "read.get_task")
LIST_TASKS: Final = _operation("ListTasks", "read.list_tasks", max_page_size=MAX_PAGE_SIZE)
CANCEL_TASK: Final = _operation("CancelTask", "cancel.cancel_task")
SUBSCRIBE_TASK: Final = _operation("SubscribeToTask", "read.subscribe_to_task")
CREATE_PUSH_CONFIG: Final = _operation("CreateTaskPushNotificationConfig", "push_configs.create", push=True)
SET_PUSH_CONFIG: Final = replace(CREATE_PUSH_CONFIG, operation=attrgetter("push_configs.set"))
"""Before 1.0: one without an id replaces the earlier one without an id."""
GET_PUSH_CONFIG: Final = _operation("GetTaskPushNotificationConfig", "push_configs.get", push=True)
LIST_PUSH_CONFIGS: Final = _operation(
    "ListTaskPushNotificationConfigs", "push_configs.list", push=True, max_page_size=MAX_CONFIG_PAGE_SIZE
)
DELETE_PUSH_CONFIG: Final = _operation("DeleteTaskPushNotificationConfig", "push_configs.delete", push=True)
EXTENDED_CARD: Final = _operation("GetExtendedAgentCard", extended_card=True)
PUBLIC_CARD: Final = _operation("GetExtendedAgentCard")

_V1_OPERATIONS: Final = (
    *(SEND_MESSAGE, STREAM_MESSAGE, GET_TASK, LIST_TASKS, CANCEL_TASK, SUBSCRIBE_TASK, CREATE_PUSH_CONFIG),
    *(GET_PUSH_CONFIG, LIST_PUSH_CONFIGS, DELETE_PUSH_CONFIG, EXTENDED_CARD),
)

# Method names of JSON-RPC that several dialects share. -------------------------------------------------------

OLD_PUSH_METHODS: Final = {"tasks/pushNotification/set": SET_PUSH_CONFIG, "tasks/pushNotification/get": GET_PUSH_CONFIG}
PUSH_METHODS: Final = {
    "tasks/pushNotificationConfig/set": SET_PUSH_CONFIG,
    "tasks/pushNotificationConfig/get": GET_PUSH_CONFIG,
    "tasks/pushNotificationConfig/list": LIST_PUSH_CONFIGS,
    "tasks/pushNotificationConfig/delete": DELETE_PUSH_CONFIG,
}
TASK_METHODS: Final = {"tasks/get": GET_TASK, "tasks/cancel": CANCEL_TASK, "tasks/resubscribe": SUBSCRIBE_TASK}
MESSAGE_METHODS: Final = {"message/send": SEND_MESSAGE, "message/stream": STREAM_MESSAGE}


# RPCs: gRPC and REST ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectRow:
    """One method in one dialect."""

    name: str
    op: A2AOperation
    dialect: Dialect
    leaves_blocking_open: Callable[[Any], bool] | None = None
    """Whether the dialect's request is a send that does not say whether it waits for the turn; None: it says so."""
    turn: bool = False  # the stream stops when the turn ends, and its last event is marked as the last


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcRow(DialectRow):
    """One RPC in one dialect, with the dialect's request and its response or event."""

    method: MethodDescriptor
    service: str
    streaming: bool
    request: type[Message]
    response: type[Message]
    decode: Callable[[Any], Any] | None = None
    """Converts the dialect's request to that of 1.0; None if it is one. Raises InvalidParams for malformed names."""
    encode: Callable[[Any], Message] | None = None  # converts the 1.0 response to the dialect's; None: the same
    read_google: Callable[[Any], None] | None = None
    """Completes the dialect's request by rules of Google's form. Raises InvalidParams for contradictions."""
    qualify: Callable[[Any, str], None] | None = None
    """Makes the names in the dialect's response full, given the agent's; None for responses without names."""
    shows_finished: bool = False
    """Subscribing to a finished task returns the Task and closes (0.3), instead of UnsupportedOperation (1.0)."""
    bodies: tuple[str, ...] = ()
    """Accepted request bodies, preferred first, where real clients deviate from the rule (wire/http/transcode.py)."""

    def stream_encoders(self, *, base64_files: bool = False) -> StreamEncoders:
        if self.dialect is Dialect.V1:
            return event_encoders.V1_STREAM_ENCODERS
        return event_encoders.V03_BASE64_STREAM_ENCODERS if base64_files else event_encoders.V03_STREAM_ENCODERS

    def waits_for_auth(self, caller: Caller) -> bool:
        """Whether a stream goes on at AUTH_REQUIRED: Google's form, which is `a2a.v1` with an agent's resource name."""
        return self.dialect is Dialect.V03 and caller.owner.scope != DEFAULT_SCOPE

    @property
    def json(self) -> protojson.JsonDialect:
        return json_proto.PROTOJSON_V1 if self.dialect is Dialect.V1 else json_proto.PROTOJSON_V03

    def response_message(self, data: bytes, agent_name: str = "", *, base64_files: bool = False) -> Message:
        """The dialect's response, from the bytes that the operation returned. `agent_name`: as in `agent_name()`."""
        response = self.op.response.FromString(data)
        if base64_files:
            file_bytes.write_base64(response)
        encoded = response if self.encode is None else self.encode(response)
        if agent_name and self.qualify is not None:
            self.qualify(encoded, agent_name)
        return encoded

    def agent_name(self, request: Any) -> str:
        """The agent's resource name, if names of the dialect's request are full: those of the response are then too."""
        return v03.agent_name(request) if self.qualify is not None else ""

    def read_files(self, request: Any, form: FileForm, tenant: str, extensions: Collection[str]) -> bool:
        """Decodes the files of a 1.0 request, in place. Returns whether the response has them as base64 text.

        Arguments as in `file_bytes.are_base64`. Raises InvalidParams for files that are not in the form.
        """
        if self.dialect is not Dialect.V03 or not file_bytes.are_base64(form, tenant, extensions):
            return False
        if isinstance(request, pb.SendMessageRequest):
            file_bytes.read_base64(request)
        return True


def _row(service: ServiceDescriptor, rpc: str, op: A2AOperation, dialect: Dialect, **columns: Any) -> RpcRow:
    method = service.methods_by_name[rpc]
    return RpcRow(
        op=op, dialect=dialect, method=method, name=rpc, service=service.full_name,
        streaming=bool(method.server_streaming), request=GetMessageClass(method.input_type),
        response=GetMessageClass(method.output_type), **columns,
    )  # fmt: skip


def _v03(rpc: str, op: A2AOperation, **columns: Any) -> RpcRow:
    response_class = GetMessageClass(_V03_SERVICE.methods_by_name[rpc].output_type)
    columns.setdefault("decode", lambda request: v03.read_request(request, op.request()))
    if op is not DELETE_PUSH_CONFIG and not op.streaming and not op.shows_card:
        columns.setdefault("encode", lambda response: v03.convert(response, response_class()))
    if op.push and op is not DELETE_PUSH_CONFIG:
        columns["qualify"] = v03.qualify_push_configs
    return _row(_V03_SERVICE, rpc, op, Dialect.V03, **columns)


RPC_ROWS: Final = (
    *(_row(_V1_SERVICE, op.rpc, op, Dialect.V1, turn=op is STREAM_MESSAGE) for op in _V1_OPERATIONS),
    _v03("SendMessage", SEND_MESSAGE, leaves_blocking_open=v03.leaves_blocking_open),
    _v03("SendStreamingMessage", STREAM_MESSAGE, turn=True),
    _v03("GetTask", GET_TASK),
    _v03("ListTasks", LIST_TASKS),
    _v03("CancelTask", CANCEL_TASK),
    _v03("TaskSubscription", SUBSCRIBE_TASK, shows_finished=True),
    _v03(
        "CreateTaskPushNotificationConfig",
        SET_PUSH_CONFIG,
        decode=v03.read_create_push_config,
        encode=v03.write_push_config,
        read_google=v03.read_google_config_id,
        # The rule says `config`, which the JS SDK sends. One SDK posts the complete request, others and Google's
        # clients the parent of the bare PushNotificationConfig.
        bodies=("config", WHOLE_REQUEST, "config.push_notification_config"),
    ),
    _v03(
        "GetTaskPushNotificationConfig", GET_PUSH_CONFIG, decode=v03.read_get_push_config, encode=v03.write_push_config
    ),
    _v03(
        "ListTaskPushNotificationConfig",
        LIST_PUSH_CONFIGS,
        decode=v03.read_list_push_configs,
        encode=v03.write_push_configs,
    ),
    _v03("DeleteTaskPushNotificationConfig", DELETE_PUSH_CONFIG, decode=v03.read_delete_push_config),
    _v03("GetAgentCard", PUBLIC_CARD),
)


def rpc_services() -> Iterator[tuple[ServiceDescriptor, dict[str, RpcRow]]]:
    """Yields both services with their rows by RPC name, 1.0 first."""
    for service in (_V1_SERVICE, _V03_SERVICE):
        yield service, {row.name: row for row in RPC_ROWS if row.service == service.full_name}


# JSON-RPC --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonRpcRow(DialectRow):
    """One JSON-RPC method in one dialect."""

    read: Callable[[object], Any]  # converts `params` to the 1.0 request; raises InvalidParams
    write: Callable[[Any], object]  # converts the 1.0 response to the JSON value of `result`
    stream_results: Callable[[], EncodeResults]  # returns the encoder of one stream's events
    names_tasks: bool = False  # the client chooses task ids (0.1)
    shows_tokens: bool = False  # push configurations are shown with their token (the types of fasta2a before 1.0)
    errors_in_stream: bool = False
    """Errors before the first event are sent inside a stream: clients of these methods look nowhere else."""


@dataclass(frozen=True, slots=True)
class ExtensionRow:
    """One kind of request of another protocol: which operation of A2A it becomes, with 1.0 as its dialect."""

    op: A2AOperation
    dialect: Dialect = Dialect.V1


_CODECS: Final[Mapping[Dialect, tuple[protojson.JsonDialect, Callable[[], EncodeResults]]]] = {
    Dialect.V1: (json_proto.PROTOJSON_V1, event_encoders.v1_results),
    Dialect.V03: (json_v03.JSON_V03, event_encoders.v03_results),
    Dialect.V01: (json_v01.JSON_V01, event_encoders.v01_results),
    Dialect.FASTA2A: (json_mixed.JSON_FASTA2A, event_encoders.fasta2a_results),
    Dialect.RUST: (json_mixed.JSON_RUST, event_encoders.rust_results),
}
"""The JSON of each dialect, and the encoder of its streams."""


def _jsonrpc_rows(dialect: Dialect, names: Mapping[str, A2AOperation], **more: Any) -> Iterator[JsonRpcRow]:
    """Rows of one dialect whose params and results are 1.0 messages in the dialect's JSON.

    Streams of a sent message stop with the turn in every dialect, subscriptions only in dialects before 1.0.
    `more` overrides columns by method name, with `_` for `/`.
    """
    before_v1 = dialect not in (Dialect.V1, Dialect.RUST)
    json, results = _CODECS[dialect]
    for name, op in names.items():
        columns: dict[str, Any] = {
            "read": protojson.compile(op.request, json).decode,
            "write": (lambda _: None) if op is DELETE_PUSH_CONFIG else protojson.compile(op.response, json).to_dict,
            "stream_results": results,
            "turn": op is STREAM_MESSAGE or (op is SUBSCRIBE_TASK and before_v1),
            "errors_in_stream": op.streaming and before_v1,
            **({"leaves_blocking_open": json_v03.leaves_blocking_open} if op is SEND_MESSAGE and before_v1 else {}),
            **more.get(name.replace("/", "_"), {}),
        }
        yield JsonRpcRow(name=name, op=op, dialect=dialect, **columns)


_V1_METHODS: Final = {op.rpc: op for op in _V1_OPERATIONS}
JSONRPC_ROWS: Final = (
    *_jsonrpc_rows(Dialect.V1, _V1_METHODS),
    *_jsonrpc_rows(
        Dialect.V03,
        {**MESSAGE_METHODS, **TASK_METHODS, **PUSH_METHODS, "agent/getAuthenticatedExtendedCard": EXTENDED_CARD},
        tasks_pushNotificationConfig_list={"write": json_v03.write_push_list},
    ),
    *_jsonrpc_rows(
        Dialect.V01,
        {"tasks/send": SEND_MESSAGE, "tasks/sendSubscribe": STREAM_MESSAGE, **TASK_METHODS, **OLD_PUSH_METHODS},
        tasks_send={"names_tasks": True},
        tasks_sendSubscribe={"names_tasks": True},
        tasks_pushNotification_set={"shows_tokens": True},
        tasks_pushNotification_get={"shows_tokens": True},
    ),
    # fasta2a 0.5 and 0.6 speak 0.3 but use 0.1's names for these two methods.
    *_jsonrpc_rows(
        Dialect.V03,
        OLD_PUSH_METHODS,
        tasks_pushNotification_set={"write": json_v03.write_v01_push, "shows_tokens": True},
        tasks_pushNotification_get={"write": json_v03.write_v01_push, "shows_tokens": True},
    ),
    *_jsonrpc_rows(
        Dialect.FASTA2A,
        {**MESSAGE_METHODS, **TASK_METHODS, "tasks/list": LIST_TASKS, **OLD_PUSH_METHODS, **PUSH_METHODS},
    ),
    *_jsonrpc_rows(
        Dialect.RUST,
        {
            **_V1_METHODS,
            **MESSAGE_METHODS,
            **TASK_METHODS,
            **PUSH_METHODS,
            "tasks/pushNotificationConfig/set": CREATE_PUSH_CONFIG,  # its server gives fresh ids here too
            "tasks/list": LIST_TASKS,
            "tasks/subscribe": SUBSCRIBE_TASK,
            "agent/authenticatedExtendedCard": EXTENDED_CARD,
        },
        DeleteTaskPushNotificationConfig={"write": lambda _: {}},
        tasks_pushNotificationConfig_delete={"write": lambda _: {}},
    ),
)

_SHARED_CODECS: Final[Mapping[Dialect, tuple[Callable[[Any], object], Callable[[], EncodeResults]]]] = {
    Dialect.V01: (json_mixed.write_v01_task, partial(event_encoders.v01_results, shared=True)),
    Dialect.FASTA2A: (json_mixed.write_fasta2a_task, event_encoders.shared_fasta2a_results),
    Dialect.RUST: (json_mixed.write_rust_task, event_encoders.shared_rust_results),
}
SHARED_TASK_ROWS: Final = {
    (row.name, dialect): row
    for dialect, (write, results) in _SHARED_CODECS.items()
    for row in _jsonrpc_rows(
        dialect,
        TASK_METHODS,
        tasks_get={"write": write},
        tasks_cancel={"write": write},
        tasks_resubscribe={"stream_results": results, "turn": True},
    )
}
"""Rows for tasks created in one of these dialects, when the caller's own dialect is unknown."""


def jsonrpc_rows() -> dict[str, dict[Dialect, JsonRpcRow]]:
    """JSON-RPC rows by method name and dialect; the first dialect is the default."""
    rows: dict[str, dict[Dialect, JsonRpcRow]] = {}
    for row in JSONRPC_ROWS:
        rows.setdefault(row.name, {})[row.dialect] = row
    return rows
