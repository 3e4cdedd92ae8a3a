"""The operations of A2A, whatever the dialect: request and response of 1.0, and the runtime operation behind each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from dragoman.core.task.cursors import MAX_PAGE_SIZE
from dragoman.runtime import Operations
from dragoman.runtime.push_configs import MAX_CONFIG_PAGE_SIZE
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

OperationMethod = Callable[..., Any]
"""A method of an operation: a coroutine of bytes, or an async iterator of events for streaming methods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class A2AOperation:
    """One operation, with the request and response types of 1.0."""

    request: type[Message]
    response: type[Message]
    operation: Callable[[Operations], OperationMethod] | None = None
    """Selects the method; None for descriptions, such as cards, which need no task."""
    names_agent: bool = True
    """The request names an agent, which its caller has to be allowed to call."""
    streaming: bool = False
    blocking: bool = False
    """The response may wait for a turn to end, so the caller's deadline bounds the wait."""
    push: bool = False
    """Needs push notifications, which a server may disable (1.0 §3.3.4)."""
    extended_card: bool = False
    """Returns the agent's extended card."""
    max_page_size: int = 0
    """The largest page of a list; 0 for other operations. Google's form clamps to it (AIP-158)."""

    @property
    def shows_card(self) -> bool:
        """Whether the response is the agent's public card."""
        return self.operation is None and not self.extended_card


SEND_MESSAGE: Final = A2AOperation(
    request=pb.SendMessageRequest,
    response=pb.SendMessageResponse,
    operation=lambda operations: operations.send.send_message,
    blocking=True,
)
STREAM_MESSAGE: Final = A2AOperation(
    request=pb.SendMessageRequest,
    response=pb.StreamResponse,
    operation=lambda operations: operations.send.send_streaming_message,
    streaming=True,
)
GET_TASK: Final = A2AOperation(
    request=pb.GetTaskRequest, response=pb.Task, operation=lambda operations: operations.read.get_task
)
LIST_TASKS: Final = A2AOperation(
    request=pb.ListTasksRequest,
    response=pb.ListTasksResponse,
    operation=lambda operations: operations.read.list_tasks,
    max_page_size=MAX_PAGE_SIZE,
)
CANCEL_TASK: Final = A2AOperation(
    request=pb.CancelTaskRequest, response=pb.Task, operation=lambda operations: operations.cancel.cancel_task
)
SUBSCRIBE_TASK: Final = A2AOperation(
    request=pb.SubscribeToTaskRequest,
    response=pb.StreamResponse,
    operation=lambda operations: operations.subscribe.subscribe_to_task,
    streaming=True,
)
CREATE_PUSH_CONFIG: Final = A2AOperation(
    request=pb.TaskPushNotificationConfig,
    response=pb.TaskPushNotificationConfig,
    operation=lambda operations: operations.push_configs.create,
    push=True,
)
SET_PUSH_CONFIG: Final = replace(CREATE_PUSH_CONFIG, operation=lambda operations: operations.push_configs.set)
"""Before 1.0: one without an id replaces the earlier one without an id."""
GET_PUSH_CONFIG: Final = A2AOperation(
    request=pb.GetTaskPushNotificationConfigRequest,
    response=pb.TaskPushNotificationConfig,
    operation=lambda operations: operations.push_configs.get,
    push=True,
)
LIST_PUSH_CONFIGS: Final = A2AOperation(
    request=pb.ListTaskPushNotificationConfigsRequest,
    response=pb.ListTaskPushNotificationConfigsResponse,
    operation=lambda operations: operations.push_configs.list,
    push=True,
    max_page_size=MAX_CONFIG_PAGE_SIZE,
)
DELETE_PUSH_CONFIG: Final = A2AOperation(
    request=pb.DeleteTaskPushNotificationConfigRequest,
    response=empty_pb2.Empty,
    operation=lambda operations: operations.push_configs.delete,
    push=True,
)
EXTENDED_CARD: Final = A2AOperation(request=pb.GetExtendedAgentCardRequest, response=pb.AgentCard, extended_card=True)
PUBLIC_CARD: Final = A2AOperation(request=pb.GetExtendedAgentCardRequest, response=pb.AgentCard)

# Method names of JSON-RPC that several dialects share. -------------------------------------------------------

OLD_PUSH_METHODS: Final = {
    "tasks/pushNotification/set": SET_PUSH_CONFIG,
    "tasks/pushNotification/get": GET_PUSH_CONFIG,
}
PUSH_METHODS: Final = {
    "tasks/pushNotificationConfig/set": SET_PUSH_CONFIG,
    "tasks/pushNotificationConfig/get": GET_PUSH_CONFIG,
    "tasks/pushNotificationConfig/list": LIST_PUSH_CONFIGS,
    "tasks/pushNotificationConfig/delete": DELETE_PUSH_CONFIG,
}
TASK_METHODS: Final = {
    "tasks/get": GET_TASK,
    "tasks/cancel": CANCEL_TASK,
    "tasks/resubscribe": SUBSCRIBE_TASK,
}
MESSAGE_METHODS: Final = {"message/send": SEND_MESSAGE, "message/stream": STREAM_MESSAGE}
