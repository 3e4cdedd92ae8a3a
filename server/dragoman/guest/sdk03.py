"""AgentExecutors of a2a-sdk 0.3."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import a2a.types as types
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue

from . import card, older
from .turn import Turn
from .user import user


class Executor:
    """An executor, as `serving` calls it."""

    def __init__(self, module: ModuleType, found: Any, executor: Any) -> None:
        self._module, self._found, self._executor = module, found, executor

    def registration(self, id: str) -> dict[str, Any]:
        """What it says of itself."""
        found = card.cards(self._module, self._executor, types.AgentCard)
        said = [_json(one) if one is not None else None for one in found]
        return card.registration(id, self._found, *said)  # type: ignore[no-any-return]

    async def execute(self, turn: Turn) -> None:
        """Runs a turn."""
        envelope = turn.start.get("envelope", {})
        asked = envelope.get("configuration", {})
        configuration = {key: asked[key] for key in ("acceptedOutputModes", "historyLength") if key in asked}
        configuration["blocking"] = not asked.get("returnImmediately", False)
        params = {"message": older.message_to(turn.message), "configuration": configuration}
        if envelope.get("metadata"):
            params["metadata"] = envelope["metadata"]
        request = types.MessageSendParams.model_validate(params)
        await self._executor.execute(_context(turn, request), _Queue(turn))

    async def cancel(self, turn: Turn) -> None:
        """Asks the executor to stop a turn."""
        await self._executor.cancel(_context(turn, None, current=True), _Queue(turn))


def _context(turn: Turn, request: Any, *, current: bool = False) -> RequestContext:
    return RequestContext(
        request=request,
        task_id=turn.task_id,
        context_id=turn.context_id,
        task=_task(turn, answering=not current) if turn.follows or current else None,
        related_tasks=[types.Task.model_validate(_older(one)) for one in turn.start.get("references", [])],
        call_context=ServerCallContext(user=user(turn)),
    )


def _task(turn: Turn, *, answering: bool) -> Any:
    """The task as the executor's earlier turns left it; the message to answer is the last of its history by then."""
    history = [*turn.history, turn.message] if answering else turn.history
    said: dict[str, Any] = {"id": turn.task_id, "contextId": turn.context_id, "history": history}
    asked = turn.start.get("asked")
    said["status"] = {"state": "TASK_STATE_INPUT_REQUIRED" if asked and answering else "TASK_STATE_WORKING"}
    said["artifacts"] = turn.start.get("artifacts", [])
    return types.Task.model_validate(_older(said))


def _older(task: dict[str, Any]) -> dict[str, Any]:
    status = dict(task.get("status", {}))
    status["state"] = older.state_to(status.get("state", ""))
    if "message" in status:
        status["message"] = older.message_to(status["message"])
    made = {"kind": "task", **task, "status": status, "contextId": task.get("contextId", "")}
    made["history"] = [older.message_to(one) for one in task.get("history", [])]
    made["artifacts"] = [older.artifact_to(one) for one in task.get("artifacts", [])]
    return made


class _Queue(EventQueue):
    """Hands on what the executor enqueues, as it comes, and waits where there is no room."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    async def enqueue_event(self, event: Any) -> None:
        turn = self._turn
        match event:
            case types.Message():
                turn.reply(older.message_from(_json(event)))
            case types.TaskStatusUpdateEvent():
                said = _json(event)
                await _tell(turn, said["status"], said.get("metadata"))
            case types.TaskArtifactUpdateEvent():
                said = _json(event)
                await turn.artifact(
                    older.artifact_from(said["artifact"]),
                    append=bool(event.append),
                    last_chunk=bool(event.last_chunk),
                    metadata=said.get("metadata"),
                )
            case types.Task():
                await turn.begun()
                said = _json(event)
                for artifact in said.get("artifacts") or []:
                    await turn.artifact(older.artifact_from(artifact), last_chunk=True)
                await _tell(turn, said["status"], None)
            case _:
                raise TypeError(
                    f"a {type(event).__name__} is no event: Message, Task, or an update of a task's status or artifact"
                )


async def _tell(turn: Turn, status: dict[str, Any], metadata: dict[str, Any] | None) -> None:
    message = status.get("message")
    await turn.status(older.state_from(status["state"]), older.message_from(message) if message else None, metadata)


def _json(model: Any) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)  # type: ignore[no-any-return]
