"""AgentExecutors of a2a-sdk 1.x."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import a2a.types as types
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from google.protobuf.json_format import MessageToDict, ParseDict

from . import card
from .turn import Turn
from .user import user


class Executor:
    """An executor, as `serving` calls it."""

    def __init__(self, module: ModuleType, found: Any, executor: Any) -> None:
        self._module, self._found, self._executor = module, found, executor

    def registration(self, id: str) -> dict[str, Any]:
        """What it says of itself."""
        found = card.cards(self._module, self._executor, types.AgentCard)
        said = [MessageToDict(one) if one is not None else None for one in found]
        return card.registration(id, self._found, *said)  # type: ignore[no-any-return]

    async def execute(self, turn: Turn) -> None:
        """Runs a turn."""
        request = ParseDict(turn.start.get("envelope", {}), types.SendMessageRequest(), ignore_unknown_fields=True)
        ParseDict(turn.message, request.message, ignore_unknown_fields=True)
        await self._executor.execute(_context(turn, request), _Queue(turn))

    async def cancel(self, turn: Turn) -> None:
        """Asks the executor to stop a turn."""
        await self._executor.cancel(_context(turn, None, current=True), _Queue(turn))


def _context(turn: Turn, request: Any, *, current: bool = False) -> RequestContext:
    named = turn.start.get("references", [])
    return RequestContext(
        call_context=ServerCallContext(user=user(turn)),
        request=request,
        task_id=turn.task_id,
        context_id=turn.context_id,
        task=_task(turn) if turn.follows or current else None,
        related_tasks=[ParseDict(one, types.Task(), ignore_unknown_fields=True) for one in named],
    )


def _task(turn: Turn) -> Any:
    """The task as the executor's earlier turns left it, and the messages said in it."""
    asked = turn.start.get("asked")
    status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": asked} if asked else {"state": "TASK_STATE_WORKING"}
    said = {"id": turn.task_id, "contextId": turn.context_id, "status": status, "history": turn.history}
    said["artifacts"] = turn.start.get("artifacts", [])
    return ParseDict(said, types.Task(), ignore_unknown_fields=True)


class _Queue(EventQueue):
    """Hands on what the executor enqueues, as it comes, and waits where there is no room."""

    def __init__(self, turn: Turn) -> None:
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
                await turn.begun()
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
