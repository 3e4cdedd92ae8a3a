"""Adapter for AgentExecutors of a2a-sdk 0.3."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import a2a.types as types
from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue

from . import json_v03, target
from .turn import ExecutorTurn


class SdkV03Adapter:
    """Runs an AgentExecutor of a2a-sdk 0.3 for `main`."""

    def __init__(self, module: ModuleType, target: Any, executor: Any) -> None:
        self._module, self._target, self._executor = module, target, executor

    def registration(self, id: str) -> dict[str, Any]:
        """The registration, from the module's cards."""
        found = target.find_cards(self._module, self._executor, types.AgentCard)
        cards = [_json(card) if card is not None else None for card in found]
        return target.build_registration(id, self._target, *cards)  # type: ignore[no-any-return]

    async def execute(self, turn: ExecutorTurn) -> None:
        """Runs a turn."""
        envelope = turn.start.get("envelope", {})
        requested = envelope.get("configuration", {})
        configuration = {key: requested[key] for key in ("acceptedOutputModes", "historyLength") if key in requested}
        configuration["blocking"] = not requested.get("returnImmediately", False)
        params = {"message": json_v03.message_to_v03(turn.message), "configuration": configuration}
        if envelope.get("metadata"):
            params["metadata"] = envelope["metadata"]
        request = types.MessageSendParams.model_validate(params)
        await self._executor.execute(_request_context(turn, request), _SdkV03EventQueue(turn))

    async def cancel(self, turn: ExecutorTurn) -> None:
        """Calls the executor's cancel() for a turn."""
        context = _request_context(turn, None, current=True)
        context.metadata = turn.cancel_metadata
        await self._executor.cancel(context, _SdkV03EventQueue(turn))


class _CancelContext(RequestContext):
    """The context of cancel(). Its metadata is that of the cancel request, which the SDK's own servers drop."""

    metadata: Any = None


def _request_context(turn: ExecutorTurn, request: Any, *, current: bool = False) -> RequestContext:
    kind = _CancelContext if current else RequestContext
    return kind(
        request=request,
        task_id=turn.task_id,
        context_id=turn.context_id,
        task=_task(turn, answering=not current) if turn.is_follow_up or current else None,
        related_tasks=[types.Task.model_validate(_task_to_v03(one)) for one in turn.start.get("references", [])],
        call_context=ServerCallContext(user=user_of(turn)),
    )


def _task(turn: ExecutorTurn, *, answering: bool) -> Any:
    """The task after earlier turns. With `answering`, the last message of its history is the one to answer."""
    history = [*turn.history, turn.message] if answering else turn.history
    task: dict[str, Any] = {"id": turn.task_id, "contextId": turn.context_id, "history": history}
    question = turn.start.get("question")
    task["status"] = {"state": "TASK_STATE_INPUT_REQUIRED" if question and answering else "TASK_STATE_WORKING"}
    task["artifacts"] = turn.previous_artifacts
    task["metadata"] = turn.task_metadata
    return types.Task.model_validate(_task_to_v03(task))


def _task_to_v03(task: dict[str, Any]) -> dict[str, Any]:
    status = dict(task.get("status", {}))
    status["state"] = json_v03.state_to_v03(status.get("state", ""))
    if "message" in status:
        status["message"] = json_v03.message_to_v03(status["message"])
    converted = {"kind": "task", **task, "status": status, "contextId": task.get("contextId", "")}
    converted["history"] = [json_v03.message_to_v03(message) for message in task.get("history", [])]
    converted["artifacts"] = [json_v03.artifact_to_v03(artifact) for artifact in task.get("artifacts", [])]
    return converted


class _SdkV03EventQueue(EventQueue):
    """Forwards each event of the executor to the turn, and waits while the buffer is full."""

    def __init__(self, turn: ExecutorTurn) -> None:
        super().__init__()
        self._turn = turn

    async def enqueue_event(self, event: Any) -> None:
        turn = self._turn
        match event:
            case types.Message():
                turn.reply(json_v03.message_from_v03(_json(event)))
            case types.TaskStatusUpdateEvent():
                content = _json(event)
                await _send_status(turn, content["status"], content.get("metadata"))
            case types.TaskArtifactUpdateEvent():
                content = _json(event)
                await turn.artifact(
                    json_v03.artifact_from_v03(content["artifact"]),
                    append=bool(event.append),
                    last_chunk=bool(event.last_chunk),
                    metadata=content.get("metadata"),
                )
            case types.Task():
                content = _json(event)
                turn.merge_metadata(content.get("metadata"))
                await turn.ensure_started()
                for artifact in content.get("artifacts") or []:
                    await turn.artifact(json_v03.artifact_from_v03(artifact), last_chunk=True)
                await _send_status(turn, content["status"], None)
            case _:
                raise TypeError(
                    f"{type(event).__name__} is not an event; enqueue a Message, Task, TaskStatusUpdateEvent or "
                    "TaskArtifactUpdateEvent"
                )


async def _send_status(turn: ExecutorTurn, status: dict[str, Any], metadata: dict[str, Any] | None) -> None:
    message = status.get("message")
    await turn.status(
        json_v03.state_from_v03(status["state"]), json_v03.message_from_v03(message) if message else None, metadata
    )


def _json(model: Any) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)  # type: ignore[no-any-return]


def user_of(turn: ExecutorTurn) -> User:
    """The principal of a turn's message as an SDK user. Works with a2a-sdk 0.3 and 1.x."""
    name = turn.start.get("principal", "")
    return _AuthenticatedUser(name) if name and name != "anonymous" else UnauthenticatedUser()


class _AuthenticatedUser(User):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name
