"""Examples of requests and responses for the OpenAPI document, encoded by the server's own codecs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
from google.protobuf import empty_pb2
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from dragoman.bindings.method_table import RpcRow
from dragoman.core.cards.agent_spec import AgentSpec, Skill
from dragoman.core.task import states
from dragoman.core.task.log import Event
from dragoman.wire.cards import agent_card
from dragoman.wire.dialects import Dialect, v03
from dragoman.wire.json import protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EXAMPLE_TASK_ID: Final = "01a1fb2a-bd29-7b48-8221-ff7b0dc19d30"
EXAMPLE_CONFIG_ID: Final = "orders-hook"
_CONTEXT_ID: Final = "5515f0fb-2b99-4b70-94db-0c046e219aea"
_EPOCH_SECONDS: Final = 1_795_215_245

NamedExamples = dict[str, dict[str, Any]]
"""Examples by name, for OpenAPI's `examples`."""


def _order_data() -> pb.Part:
    part = pb.Part()
    # One key in each object: a Struct has no order, and the document is the same in every process.
    ParseDict({"orders": [{"due": "2026-11-20"}, {"due": "2026-12-01"}]}, part.data.struct_value)
    return part


_SEND_EXAMPLES: Final = {
    "text": (
        "A question, which starts a task",
        pb.SendMessageRequest(
            message=pb.Message(message_id="hello-1", role=pb.ROLE_USER, parts=[pb.Part(text="echo hello")])
        ),
    ),
    "data": (
        "Data with a question; the response returns as soon as the task is stored",
        pb.SendMessageRequest(
            message=pb.Message(
                message_id="orders-1",
                role=pb.ROLE_USER,
                parts=[pb.Part(text="Which of these are late?"), _order_data()],
            ),
            configuration=pb.SendMessageConfiguration(
                accepted_output_modes=["text/plain"], return_immediately=True, history_length=10
            ),
        ),
    ),
}
"""Summary and request by name."""


def _status(state: pb.TaskState, millis: int, text: str = "") -> pb.TaskStatus:
    status = pb.TaskStatus(state=state)
    status.timestamp.seconds, status.timestamp.nanos = _EPOCH_SECONDS, millis * 1_000_000
    if text:
        status.message.MergeFrom(_reply(text))
        status.message.task_id = EXAMPLE_TASK_ID
    return status


def _reply(text: str) -> pb.Message:
    return pb.Message(message_id="reply-1", context_id=_CONTEXT_ID, role=pb.ROLE_AGENT, parts=[pb.Part(text=text)])


def _artifact(text: str) -> pb.Artifact:
    return pb.Artifact(artifact_id="output", parts=[pb.Part(text=text)])


def _task(status: pb.TaskStatus, *artifacts: pb.Artifact) -> pb.Task:
    _, request = _SEND_EXAMPLES["text"]
    task = pb.Task(id=EXAMPLE_TASK_ID, context_id=_CONTEXT_ID, status=status, artifacts=artifacts)
    task.history.add(task_id=EXAMPLE_TASK_ID, context_id=_CONTEXT_ID).MergeFrom(request.message)
    return task


_WEBHOOK: Final[Mapping[str, Any]] = {"url": "https://client.example.com/hooks/a2a", "token": "9f0c2d"}
_PUSH_CONFIG: Final = pb.TaskPushNotificationConfig(id=EXAMPLE_CONFIG_ID, task_id=EXAMPLE_TASK_ID, url=_WEBHOOK["url"])
_PUSH_CONFIG_PAGE: Final = pb.ListTaskPushNotificationConfigsResponse(configs=[_PUSH_CONFIG])

_COMPLETED_TASK: Final = _task(_status(states.COMPLETED, 118), _artifact("hello"))
_RESPONSES: Final[Mapping[str, tuple[tuple[str, str, Message], ...]]] = {
    "SendMessage": (
        ("task", "The agent works on a task", pb.SendMessageResponse(task=_COMPLETED_TASK)),
        ("message", "The agent replies without a task", pb.SendMessageResponse(message=_reply("hello"))),
    ),
    "GetTask": (
        ("completed", "A completed task", _COMPLETED_TASK),
        ("question", "A task that waits for input", _task(_status(states.INPUT_REQUIRED, 95, "Which month?"))),
    ),
    "ListTasks": (
        (
            "page",
            "The last page",
            pb.ListTasksResponse(tasks=[_task(_status(states.WORKING, 40))], page_size=50, total_size=1),
        ),
    ),
    "CreateTaskPushNotificationConfig": (("stored", "The stored configuration without its secrets", _PUSH_CONFIG),),
    "GetTaskPushNotificationConfig": (("config", "One configuration", _PUSH_CONFIG),),
    "ListTaskPushNotificationConfigs": (("page", "The last page", _PUSH_CONFIG_PAGE),),
    "ListTaskPushNotificationConfig": (("page", "The last page", _PUSH_CONFIG_PAGE),),
    "DeleteTaskPushNotificationConfig": (("deleted", "The configuration is deleted", empty_pb2.Empty()),),
    "CancelTask": (("canceled", "The agent has stopped", _task(_status(states.CANCELED, 260))),),
}


def _stream_updates() -> Iterator[pb.StreamResponse]:
    yield pb.StreamResponse(task=_task(_status(states.SUBMITTED, 7)))
    ids: dict[str, Any] = {"task_id": EXAMPLE_TASK_ID, "context_id": _CONTEXT_ID}
    yield pb.StreamResponse(
        status_update=pb.TaskStatusUpdateEvent(**ids, status=_status(states.WORKING, 9, "looking at it"))
    )
    for text, more in (("hel", False), ("lo", True)):
        chunk = pb.TaskArtifactUpdateEvent(**ids, artifact=_artifact(text), append=more, last_chunk=more)
        yield pb.StreamResponse(artifact_update=chunk)
    yield pb.StreamResponse(status_update=pb.TaskStatusUpdateEvent(**ids, status=_status(states.COMPLETED, 118)))


def stream_example(row: RpcRow) -> tuple[str, list[Any]]:
    """Returns a stream as SSE text and as the elements of a JSON array."""
    events = [Event(number, update.SerializeToString()) for number, update in enumerate(_stream_updates(), 1)]
    frames = [(event, event is events[-1]) for event in events]
    text = b"".join(row.stream_encoders().sse(event, final) for event, final in frames).decode()
    return text, [orjson.loads(row.stream_encoders().json(event, final)) for event, final in frames]


def response_examples(row: RpcRow) -> NamedExamples:
    """Returns the responses of a unary operation."""
    if row.op.operation is None:
        make = agent_card.v1_document if row.op.extended_card else agent_card.v03_protojson_document
        return {"card": {"summary": "The card of an agent", "value": orjson.loads(make(_AGENT_SPEC, _CARD_VIEW))}}
    codec = protojson.compile(row.response, row.json)
    return {
        name: {"summary": summary, "value": codec.to_dict(row.response_message(response.SerializeToString()))}
        for name, summary, response in _RESPONSES.get(row.name, ())
    }


def request_examples(row: RpcRow) -> NamedExamples:
    """Returns the request bodies of an operation, without the fields in the path."""
    if row.name in ("SendMessage", "SendStreamingMessage"):
        codec = protojson.compile(row.request, row.json)
        make = _v03_send_request if row.dialect is not Dialect.V1 else lambda request: request
        return {
            name: {"summary": summary, "value": codec.to_dict(make(request))}
            for name, (summary, request) in _SEND_EXAMPLES.items()
        }
    if row.name == "CreateTaskPushNotificationConfig":
        config = _V1_CONFIG if row.dialect is Dialect.V1 else _V03_CONFIG
        body = protojson.compile(type(config), row.json).to_dict(config)
        return {"webhook": {"summary": "A webhook with a token", "value": body}}
    return {"empty": {"summary": "No fields: the path has them all", "value": {}}}


def _v03_send_request(request: pb.SendMessageRequest) -> v03_pb.SendMessageRequest:
    v03_request = v03_pb.SendMessageRequest(request=v03.convert(request.message, v03_pb.Message()))
    if request.HasField("configuration"):
        configuration = request.configuration
        v03_request.configuration.accepted_output_modes.extend(configuration.accepted_output_modes)
        v03_request.configuration.blocking = not configuration.return_immediately
        v03_request.configuration.history_length = configuration.history_length
    return v03_request


_V1_CONFIG: Final = pb.TaskPushNotificationConfig(**_WEBHOOK)
_V03_CONFIG: Final = v03_pb.TaskPushNotificationConfig(
    name=f"tasks/{EXAMPLE_TASK_ID}/pushNotificationConfigs/{EXAMPLE_CONFIG_ID}",
    push_notification_config=v03_pb.PushNotificationConfig(id=EXAMPLE_CONFIG_ID, **_WEBHOOK),
)

_AGENT_SPEC: Final = AgentSpec(
    id="orders",
    name="Orders",
    description="Answers questions about orders",
    skills=(
        Skill(
            id="late",
            name="Late orders",
            description="Finds the orders that are late",
            tags=("orders",),
            examples=("Which of these are late?",),
        ),
    ),
)
_CARD_VIEW: Final = agent_card.CardView(http="https://agents.example.com", grpc="agents.example.com:443", is_root=True)


def card_example() -> Any:
    """Returns the card for A2A 1.0 and 0.3 together."""
    return orjson.loads(agent_card.combined_document(_AGENT_SPEC, _CARD_VIEW))
