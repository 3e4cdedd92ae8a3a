"""Examples of requests and answers, for the description of the routes.

They are messages, written by the codecs that write the real ones, so an example is never in a form that the server
would not speak.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
"""Examples by name, as OpenAPI's `examples` has them."""


@dataclass(frozen=True, slots=True)
class _SendExample:
    """A message to send, and what is asked with it."""

    name: str
    summary: str
    message: pb.Message
    configuration: pb.SendMessageConfiguration | None = None


def _part(**fields: Any) -> pb.Part:
    return pb.Part(**fields)


def _data(value: Any) -> pb.Part:
    part = pb.Part()
    ParseDict(value, part.data.struct_value)
    return part


_SEND_EXAMPLES: Final = (
    _SendExample(
        "text",
        "A question, which begins a task",
        pb.Message(message_id="hello-1", role=pb.ROLE_USER, parts=[_part(text="echo hello")]),
    ),
    _SendExample(
        "data",
        "Data with a question, answered as soon as the task is stored",
        pb.Message(
            message_id="orders-1",
            role=pb.ROLE_USER,
            parts=[_part(text="Which of these are late?"), _data({"orders": [{"id": 17, "due": "2026-11-20"}]})],
        ),
        pb.SendMessageConfiguration(accepted_output_modes=["text/plain"], return_immediately=True, history_length=10),
    ),
)


def _status(state: pb.TaskState, millis: int, text: str = "") -> pb.TaskStatus:
    status = pb.TaskStatus(state=state)
    status.timestamp.seconds, status.timestamp.nanos = _EPOCH_SECONDS, millis * 1_000_000
    if text:
        status.message.MergeFrom(_reply(text))
        status.message.task_id = EXAMPLE_TASK_ID
    return status


def _reply(text: str) -> pb.Message:
    return pb.Message(message_id="reply-1", context_id=_CONTEXT_ID, role=pb.ROLE_AGENT, parts=[_part(text=text)])


def _artifact(text: str) -> pb.Artifact:
    return pb.Artifact(artifact_id="output", parts=[_part(text=text)])


def _task(status: pb.TaskStatus, *artifacts: pb.Artifact) -> pb.Task:
    message = pb.Message()
    message.CopyFrom(_SEND_EXAMPLES[0].message)
    message.task_id, message.context_id = EXAMPLE_TASK_ID, _CONTEXT_ID
    return pb.Task(id=EXAMPLE_TASK_ID, context_id=_CONTEXT_ID, status=status, artifacts=artifacts, history=[message])


_WEBHOOK: Final[Mapping[str, Any]] = {"url": "https://client.example.com/hooks/a2a", "token": "9f0c2d"}
_PUSH_CONFIG: Final = pb.TaskPushNotificationConfig(id=EXAMPLE_CONFIG_ID, task_id=EXAMPLE_TASK_ID, url=_WEBHOOK["url"])
_PUSH_CONFIG_PAGE: Final = pb.ListTaskPushNotificationConfigsResponse(configs=[_PUSH_CONFIG])

_COMPLETED_TASK: Final = _task(_status(states.COMPLETED, 118), _artifact("hello"))
_RESPONSES: Final[Mapping[str, tuple[tuple[str, str, Message], ...]]] = {
    "SendMessage": (
        ("task", "The agent worked on a task", pb.SendMessageResponse(task=_COMPLETED_TASK)),
        ("message", "The agent answered without a task", pb.SendMessageResponse(message=_reply("hello"))),
    ),
    "GetTask": (
        ("done", "A task that is finished", _COMPLETED_TASK),
        ("asks", "A task that waits", _task(_status(states.INPUT_REQUIRED, 95, "Which month?"))),
    ),
    "ListTasks": (
        (
            "page",
            "A page that is the last",
            pb.ListTasksResponse(tasks=[_task(_status(states.WORKING, 40))], page_size=50, total_size=1),
        ),
    ),
    "CreateTaskPushNotificationConfig": (("kept", "What is kept; secrets are not shown", _PUSH_CONFIG),),
    "GetTaskPushNotificationConfig": (("kept", "One webhook", _PUSH_CONFIG),),
    "ListTaskPushNotificationConfigs": (("page", "A page that is the last", _PUSH_CONFIG_PAGE),),
    "ListTaskPushNotificationConfig": (("page", "A page that is the last", _PUSH_CONFIG_PAGE),),
    "DeleteTaskPushNotificationConfig": (("gone", "It is gone", empty_pb2.Empty()),),
    "CancelTask": (("canceled", "The work has stopped", _task(_status(states.CANCELED, 260))),),
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
    """A stream as it is over SSE, and its elements as a JSON array."""
    *before, last = [Event(number, update.SerializeToString()) for number, update in enumerate(_stream_updates(), 1)]
    frames = [(event, False) for event in before] + [(last, True)]
    text = b"".join(row.stream_encoders.sse(event, final) for event, final in frames).decode()
    return text, [orjson.loads(row.stream_encoders.json(event, final)) for event, final in frames]


def response_examples(row: RpcRow) -> NamedExamples:
    """The answers of an operation that does not stream."""
    if row.op.operation is None:
        make = agent_card.v1_document if row.op.extended_card else agent_card.v03_document
        return {"card": {"summary": "The card of an agent", "value": orjson.loads(make(_AGENT_SPEC, _CARD_ADDRESSES))}}
    codec = protojson.compile(row.response, row.json)
    return {
        name: {"summary": summary, "value": codec.to_dict(row.response_message(answer.SerializeToString()))}
        for name, summary, answer in _RESPONSES.get(row.name, ())
    }


def request_examples(row: RpcRow) -> NamedExamples:
    """The bodies that a route of an operation takes, less what its path says."""
    if row.name in ("SendMessage", "SendStreamingMessage"):
        codec = protojson.compile(row.request, row.json)
        make = _v1_send_request if row.dialect is Dialect.V1 else _v03_send_request
        return {send.name: {"summary": send.summary, "value": codec.to_dict(make(send))} for send in _SEND_EXAMPLES}
    if row.name == "CreateTaskPushNotificationConfig":
        config = _V1_CONFIG if row.dialect is Dialect.V1 else _V03_CONFIG
        value = protojson.compile(type(config), row.json).to_dict(config)
        return {"webhook": {"summary": "A webhook with a token", "value": value}}
    return {"nothing": {"summary": "The path says it all", "value": {}}}


def _v1_send_request(example: _SendExample) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(message=example.message, configuration=example.configuration)


def _v03_send_request(example: _SendExample) -> v03_pb.SendMessageRequest:
    request = v03_pb.SendMessageRequest(request=v03.write_message(example.message))
    if given := example.configuration:
        request.configuration.MergeFrom(
            v03_pb.SendMessageConfiguration(
                accepted_output_modes=given.accepted_output_modes,
                blocking=not given.return_immediately,
                history_length=given.history_length,
            )
        )
    return request


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
_CARD_ADDRESSES: Final = agent_card.CardAddresses(
    http="https://agents.example.com", grpc="agents.example.com:443", is_root=True
)


def card_example() -> Any:
    """The card for both generations."""
    return orjson.loads(agent_card.combined_document(_AGENT_SPEC, _CARD_ADDRESSES))
