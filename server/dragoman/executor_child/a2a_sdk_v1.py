"""AgentExecutors of a2a-sdk 1.x."""

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
    """An executor, as `serving` calls it."""

    def __init__(self, module: ModuleType, target: Any, executor: Any) -> None:
        self._module, self._target, self._executor = module, target, executor

    def registration(self, id: str) -> dict[str, Any]:
        """What it says of itself."""
        found = target.find_cards(self._module, self._executor, types.AgentCard)
        said = [MessageToDict(one) if one is not None else None for one in found]
        return target.build_registration(id, self._target, *said)  # type: ignore[no-any-return]

    async def execute(self, turn: ExecutorTurn) -> None:
        """Runs a turn."""
        request = ParseDict(turn.start.get("envelope", {}), types.SendMessageRequest(), ignore_unknown_fields=True)
        ParseDict(turn.message, request.message, ignore_unknown_fields=True)
        await self._executor.execute(_request_context(turn, request), _SdkV1EventQueue(turn))

    async def cancel(self, turn: ExecutorTurn) -> None:
        """Asks the executor to stop a turn."""
        await self._executor.cancel(_request_context(turn, None, current=True), _SdkV1EventQueue(turn))


def _request_context(turn: ExecutorTurn, request: Any, *, current: bool = False) -> RequestContext:
    named = turn.start.get("references", [])
    return RequestContext(
        call_context=ServerCallContext(user=user_of(turn)),
        request=request,
        task_id=turn.task_id,
        context_id=turn.context_id,
        task=_task(turn) if turn.is_follow_up or current else None,
        related_tasks=[ParseDict(one, types.Task(), ignore_unknown_fields=True) for one in named],
    )


def _task(turn: ExecutorTurn) -> Any:
    """The task as the executor's earlier turns left it, and the messages said in it."""
    asked = turn.start.get("asked")
    status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": asked} if asked else {"state": "TASK_STATE_WORKING"}
    said = {"id": turn.task_id, "contextId": turn.context_id, "status": status, "history": turn.history}
    said["artifacts"] = turn.start.get("artifacts", [])
    return ParseDict(said, types.Task(), ignore_unknown_fields=True)


class _SdkV1EventQueue(EventQueue):
    """Hands on what the executor enqueues, as it comes, and waits where there is no room."""

    def __init__(self, turn: ExecutorTurn) -> None:
        self._turn = turn

    async def enqueue_event(self, event: Any) -> None:
        turn = self._turn
        said = MessageToDict(event)
        match event:
            case types.Message():
                turn.reply(said)
            case types.TaskStatusUpdateEvent():
                status = said.get("status", {})
                await turn.status(_state(status), status.get("message"), said.get("metadata"))
            case types.TaskArtifactUpdateEvent():
                await turn.artifact(
                    said.get("artifact", {}),
                    append=event.append,
                    last_chunk=event.last_chunk,
                    metadata=said.get("metadata"),
                )
            case types.Task():
                await turn.ensure_started()
                for artifact in said.get("artifacts", []):
                    await turn.artifact(artifact, last_chunk=True)
                status = said.get("status", {})
                await turn.status(_state(status), status.get("message"))
            case _:
                raise TypeError(
                    f"a {type(event).__name__} is no event: Message, Task, or an update of a task's status or artifact"
                )

    async def close(self, immediate: bool = False) -> None:
        """Nothing waits in it."""

    def is_closed(self) -> bool:
        return self._turn.is_over


def _state(status: dict[str, Any]) -> str:
    return str(status.get("state", "TASK_STATE_UNSPECIFIED"))
