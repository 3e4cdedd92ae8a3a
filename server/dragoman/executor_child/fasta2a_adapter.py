"""Workers of fasta2a from 0.5 on: a storage, a broker and a context storage of ours stand for its own."""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any

import fasta2a
import pydantic
from fasta2a import storage as their_storage
from fasta2a.broker import Broker as TheirBroker

from . import json_v03, target
from .target import InvalidTarget
from .turn import CANCELED, ExecutorTurn

try:
    from fasta2a.event_bus import EventBus as TheirBus
except ImportError:  # before 2.0
    TheirBus = object

HAS_FLAT_PARTS = TheirBus is not object
"""Parts have no kind, as of 2.0."""

if not hasattr(their_storage.Storage, "load_context"):
    raise InvalidTarget("this fasta2a is older than 0.5, and has no context storage; use a newer one")

CURRENT_RUN: contextvars.ContextVar[_TaskRun] = contextvars.ContextVar("dragoman_turn")
"""The turn that this code runs for."""


class _TaskRun:
    """A turn under way, and the task as the worker sees it."""

    def __init__(self, turn: ExecutorTurn) -> None:
        self.turn = turn
        self.final_status: tuple[str, dict[str, Any] | None] | None = None
        """The state that the worker left in the storage, and its last message; said when run_task returns."""
        self.published: dict[str, list[Any]] = {}
        """Parts of artifacts, by id, that went out already."""
        history = [_to_fasta2a_message(message) for message in (*turn.history, turn.message)]
        self.task: dict[str, Any] = {"id": turn.task_id, "context_id": turn.context_id, "history": history}
        # A worker is given a task once, as it was submitted; to it a follow-up is the same.
        self.task["status"] = {"state": "submitted"}
        self.task["artifacts"] = [
            _snake(json_v03.artifact_to_v03(one, flat=HAS_FLAT_PARTS)) for one in turn.start.get("artifacts", [])
        ]
        if not HAS_FLAT_PARTS:
            self.task["kind"] = "task"


class Fasta2aAdapter:
    """A worker, as `serving` calls it."""

    def __init__(self, module: ModuleType, target: Any, worker: Any, dependencies: dict[str, Any]) -> None:
        self._module, self._target, self._worker = module, target, worker
        self._runs: dict[str, _TaskRun] = {}
        worker.broker, worker.storage = dependencies["broker"], dependencies["storage"]
        dependencies["storage"].context_type = _context_type(worker)

    def registration(self, id: str) -> dict[str, Any]:
        """What it says of itself: what a FastA2A of the module says."""
        said = None
        for app in vars(self._module).values():
            if isinstance(app, fasta2a.FastA2A):
                said = {
                    name: _camel(getattr(app, name, None)) for name in ("name", "description", "version", "provider")
                }
                said["skills"] = _camel(getattr(app, "skills", None))
                break
        return target.build_registration(id, self._target, said, None)  # type: ignore[no-any-return]

    def running(self) -> AbstractAsyncContextManager[Any]:
        """The worker's own lifespan. Its loop finds nothing to do: turns are run here."""
        return self._worker.run()  # type: ignore[no-any-return]

    async def execute(self, turn: ExecutorTurn) -> None:
        """Runs a turn."""
        work = self._runs[turn.id] = _TaskRun(turn)
        CURRENT_RUN.set(work)
        envelope = turn.start.get("envelope", {})
        asked = envelope.get("configuration", {})
        params: dict[str, Any] = {
            "id": turn.task_id,
            "context_id": turn.context_id,
            "message": _to_fasta2a_message(turn.message),
        }
        if asked.get("historyLength"):
            params["history_length"] = asked["historyLength"]
        if asked.get("acceptedOutputModes"):
            params["accepted_output_modes"] = asked["acceptedOutputModes"]
        if envelope.get("metadata"):
            params["metadata"] = envelope["metadata"]
        try:
            await self._worker.run_task(params)
        finally:
            del self._runs[turn.id]
        if work.final_status is not None:
            state, message = work.final_status
            await turn.status(state, message)

    async def cancel(self, turn: ExecutorTurn) -> None:
        """Asks the worker to stop a turn."""
        if (work := self._runs.get(turn.id)) is not None:
            CURRENT_RUN.set(work)
            await self._worker.cancel_task({"id": turn.task_id})
            if work.final_status is not None and work.final_status[0] == CANCELED:
                await turn.status(*work.final_status)


class TurnStorage(their_storage.Storage):
    """The one task that a worker works on, and its conversation."""

    context_type: Any = Any

    async def load_task(self, task_id: str, history_length: int | None = None) -> Any:
        task = _run_of_task(task_id).task
        return {**task, "history": task["history"][-history_length:]} if history_length else task

    async def submit_task(self, context_id: str, message: Any) -> Any:
        raise NotImplementedError("tasks are made by those who send messages")

    async def update_task(
        self, task_id: str, state: str, new_artifacts: list[Any] | None = None, new_messages: list[Any] | None = None
    ) -> Any:
        work = _run_of_task(task_id)
        task, turn = work.task, work.turn
        task["status"] = {"state": state}
        for artifact in new_artifacts or []:
            task["artifacts"].append(artifact)
            await _publish_artifact(work, artifact, append=False, last_chunk=True)
        for message in new_messages or []:
            message["task_id"], message["context_id"] = task_id, task["context_id"]
            task["history"].append(message)
        said = [json_v03.message_from_v03(_camel(message)) for message in new_messages or []]
        name = json_v03.state_from_v03(state)
        last = said.pop() if said else None
        for message in said:
            await turn.status("TASK_STATE_WORKING", message)
        if state in ("submitted", "working"):
            work.final_status = None
            await turn.status(name, last)
        else:
            work.final_status = name, last
        return task

    async def load_context(self, context_id: str) -> Any:
        text = _run_of_context(context_id).turn.start.get("contextState")
        if not text:
            return None
        return pydantic.TypeAdapter(self.context_type).validate_python(json.loads(text).get("fasta2a"))

    async def update_context(self, context_id: str, context: Any) -> None:
        turn = _run_of_context(context_id).turn
        value = pydantic.TypeAdapter(self.context_type).dump_python(context, mode="json")
        text = json.dumps({"fasta2a": value}, ensure_ascii=False, allow_nan=False)
        turn.start["contextState"] = text
        turn.set_state(context_state=text)


class _TurnEventBus(TheirBus):
    """Takes what a worker publishes while it works."""

    @asynccontextmanager
    async def subscribe(self, task_id: str) -> AsyncIterator[Any]:
        raise NotImplementedError("who follows a task asks the server")
        yield

    async def emit(self, task_id: str, event: Any) -> None:
        work = _run_of_task(task_id)
        if said := event.get("artifact_update"):
            await _publish_artifact(
                work, said["artifact"], append=said.get("append", False), last_chunk=said.get("last_chunk", False)
            )
        elif (said := event.get("status_update")) and said["status"]["state"] == "working":
            message = said["status"].get("message")
            await work.turn.status(
                "TASK_STATE_WORKING", json_v03.message_from_v03(_camel(message)) if message else None
            )
        # How it ends is what the storage says when run_task has returned.

    async def close(self, task_id: str) -> None:
        pass


class IdleBroker(TheirBroker):
    """A queue that stays empty."""

    def __init__(self) -> None:
        if HAS_FLAT_PARTS:
            super().__init__(event_bus=_TurnEventBus())

    async def run_task(self, params: Any) -> None:
        raise NotImplementedError("tasks are made by those who send messages")

    async def cancel_task(self, params: Any) -> None:
        raise NotImplementedError("tasks are canceled by those who made them")

    async def __aenter__(self) -> IdleBroker:
        return self

    async def __aexit__(self, *_: Any) -> None:
        pass

    async def receive_task_operations(self) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


def worker_dependencies() -> dict[str, Any]:
    """What a Worker is made with."""
    return {"broker": IdleBroker(), "storage": TurnStorage()}


async def _publish_artifact(run: _TaskRun, artifact: Any, *, append: bool, last_chunk: bool) -> None:
    """An artifact, or a piece of one. The whole of what went out in pieces is not said again."""
    said = json_v03.artifact_from_v03(_camel(artifact))
    id = said.get("artifactId", "")
    before = run.published.get(id)
    if not append and before is not None and _merge_texts(before) == _merge_texts(said["parts"]):
        return
    run.published[id] = [*(before or []), *said["parts"]] if append else said["parts"]
    await run.turn.artifact(said, append=append, last_chunk=last_chunk)


def _merge_texts(parts: list[Any]) -> list[Any]:
    """Parts with neighbouring texts as one."""
    joined: list[Any] = []
    for part in parts:
        if joined and set(part) == {"text"} == set(joined[-1]):
            joined[-1] = {"text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


def _run_of_context(context_id: str) -> _TaskRun:
    work = CURRENT_RUN.get(None)
    if work is None or work.turn.context_id != context_id:
        raise LookupError(f'"{context_id}" is not the conversation of the task that is run')
    return work


def _run_of_task(task_id: str) -> _TaskRun:
    work = CURRENT_RUN.get(None)
    if work is None or work.turn.task_id != task_id:
        raise LookupError(f'"{task_id}" is not the task that is run')
    return work


def _context_type(worker: Any) -> Any:
    """What a worker says that its contexts are: the argument of Worker[...] among its bases."""
    for kind in type(worker).__mro__:
        for base in getattr(kind, "__orig_bases__", ()):
            origin = getattr(base, "__origin__", None)
            arguments = getattr(base, "__args__", ())
            if origin is fasta2a.Worker and arguments and not hasattr(arguments[0], "__constraints__"):
                return arguments[0]
    return Any


def _to_fasta2a_message(message: dict[str, Any]) -> Any:
    return _snake(json_v03.message_to_v03(message, flat=HAS_FLAT_PARTS))


_OPAQUE_KEYS = frozenset(("metadata", "data", "params"))
"""Keys under which anything may be, which keeps its spelling."""


def _snake(value: Any) -> Any:
    return _convert_keys(value, lambda key: re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", key))


def _camel(value: Any) -> Any:
    return _convert_keys(value, lambda key: re.sub(r"_([a-z])", lambda found: found[1].upper(), key))


def _convert_keys(value: Any, convert: Any) -> Any:
    if isinstance(value, dict):
        return {convert(key): one if key in _OPAQUE_KEYS else _convert_keys(one, convert) for key, one in value.items()}
    if isinstance(value, list):
        return [_convert_keys(one, convert) for one in value]
    return value
