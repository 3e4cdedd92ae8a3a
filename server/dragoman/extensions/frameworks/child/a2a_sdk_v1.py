"""Adapter for AgentExecutors of a2a-sdk 1.x."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import a2a.types as types
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from google.protobuf.json_format import MessageToDict, ParseDict

from . import target
from .a2a_sdk_v03 import user_of
from .turn import ExecutorTurn


class SdkV1Adapter:
    """Runs an AgentExecutor of a2a-sdk 1.x for `main`."""

    def __init__(self, module: ModuleType, target: Any, executor: Any) -> None:
        self._module, self._target, self._executor = module, target, executor

    def registration(self, id: str) -> dict[str, Any]:
        """The registration, from the module's cards."""
        found = target.find_cards(self._module, self._executor, types.AgentCard)
        cards = [MessageToDict(card) if card is not None else None for card in found]
        return target.build_registration(id, self._target, *cards)  # type: ignore[no-any-return]

    async def execute(self, turn: ExecutorTurn) -> None:
        """Runs a turn."""
        request = ParseDict(turn.start.get("envelope", {}), types.SendMessageRequest(), ignore_unknown_fields=True)
        ParseDict(turn.message, request.message, ignore_unknown_fields=True)
        await self._executor.execute(_request_context(turn, request), _SdkV1EventQueue(turn))

    async def cancel(self, turn: ExecutorTurn) -> None:
        """Calls the executor's cancel() for a turn."""
        context = _request_context(turn, None, current=True)
        context.metadata = turn.cancel_metadata
        await self._executor.cancel(context, _SdkV1EventQueue(turn))


class _CancelContext(RequestContext):
    """The context of cancel(). Its metadata is that of the cancel request, which the SDK's own servers drop."""

    metadata: Any = None


def _request_context(turn: ExecutorTurn, request: Any, *, current: bool = False) -> RequestContext:
    references = turn.start.get("references", [])
    kind = _CancelContext if current else RequestContext
    return kind(
        call_context=ServerCallContext(user=user_of(turn)),
        request=request,
        task_id=turn.task_id,
        context_id=turn.context_id,
        task=_task(turn) if turn.is_follow_up or current else None,
        related_tasks=[ParseDict(task, types.Task(), ignore_unknown_fields=True) for task in references],
    )


def _task(turn: ExecutorTurn) -> Any:
    """The task after earlier turns, with its messages."""
    status = {"state": "TASK_STATE_WORKING"}
    if question := turn.start.get("question"):
        status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": question}
    task = {"id": turn.task_id, "contextId": turn.context_id, "status": status, "history": turn.history}
    task["artifacts"] = turn.previous_artifacts
    task["metadata"] = turn.task_metadata
    return ParseDict(task, types.Task(), ignore_unknown_fields=True)


class _SdkV1EventQueue(EventQueue):
    """Forwards each event of the executor to the turn, and waits while the buffer is full."""

    def __init__(self, turn: ExecutorTurn) -> None:
        self._turn = turn

    async def enqueue_event(self, event: Any) -> None:
        turn = self._turn
        content = MessageToDict(event)
        match event:
            case types.Message():
                turn.reply(content)
            case types.TaskStatusUpdateEvent():
                status = content.get("status", {})
                await turn.status(_state(status), status.get("message"), content.get("metadata"))
            case types.TaskArtifactUpdateEvent():
                await turn.artifact(
                    content.get("artifact", {}),
                    append=event.append,
                    last_chunk=event.last_chunk,
                    metadata=content.get("metadata"),
                )
            case types.Task():
                turn.merge_metadata(content.get("metadata"))
                await turn.ensure_started()
                for artifact in content.get("artifacts", []):
                    await turn.artifact(artifact, last_chunk=True)
                status = content.get("status", {})
                await turn.status(_state(status), status.get("message"))
            case _:
                raise TypeError(
                    f"{type(event).__name__} is not an event; enqueue a Message, Task, TaskStatusUpdateEvent or "
                    "TaskArtifactUpdateEvent"
                )

    async def close(self, immediate: bool = False) -> None:
        """Nothing to do: events are not queued here."""

    def is_closed(self) -> bool:
        return self._turn.is_over


def _state(status: dict[str, Any]) -> str:
    return str(status.get("state", "TASK_STATE_UNSPECIFIED"))
