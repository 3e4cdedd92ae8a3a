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

from . import card, older
from .target import Unusable
from .turn import CANCELED, Turn

try:
    from fasta2a.event_bus import EventBus as TheirBus
except ImportError:  # before 2.0
    TheirBus = object

FLAT = TheirBus is not object
"""Parts have no kind, as of 2.0."""

if not hasattr(their_storage.Storage, "load_context"):
    raise Unusable("this fasta2a is older than 0.5, and has no context storage; use a newer one")

NOW: contextvars.ContextVar[_Work] = contextvars.ContextVar("dragoman_turn")
"""The turn that this code runs for."""


class _Work:
    """A turn under way, and the task as the worker sees it."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.final: tuple[str, dict[str, Any] | None] | None = None
        """The state that the worker left in the storage, and its last message; said when run_task returns."""
        self.published: dict[str, list[Any]] = {}
        """Parts of artifacts, by id, that went out already."""
        history = [_to(message) for message in (*turn.history, turn.message)]
        self.task: dict[str, Any] = {"id": turn.task_id, "context_id": turn.context_id, "history": history}
        # A worker is given a task once, as it was submitted; to it a follow-up is the same.
        self.task["status"] = {"state": "submitted"}
        self.task["artifacts"] = [_snake(older.artifact_to(one, flat=FLAT)) for one in turn.start.get("artifacts", [])]
        if not FLAT:
            self.task["kind"] = "task"


class Executor:
    """A worker, as `serving` calls it."""

    def __init__(self, module: ModuleType, found: Any, worker: Any, given: dict[str, Any]) -> None:
        self._module, self._found, self._worker = module, found, worker
        self._working: dict[str, _Work] = {}
        worker.broker, worker.storage = given["broker"], given["storage"]
        given["storage"].context_type = _context_type(worker)

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
        return card.registration(id, self._found, said, None)  # type: ignore[no-any-return]

    def running(self) -> AbstractAsyncContextManager[Any]:
        """The worker's own lifespan. Its loop finds nothing to do: turns are run here."""
        return self._worker.run()  # type: ignore[no-any-return]

    async def execute(self, turn: Turn) -> None:
        """Runs a turn."""
        work = self._working[turn.id] = _Work(turn)
        NOW.set(work)
        envelope = turn.start.get("envelope", {})
        asked = envelope.get("configuration", {})
        params: dict[str, Any] = {"id": turn.task_id, "context_id": turn.context_id, "message": _to(turn.message)}
        if asked.get("historyLength"):
            params["history_length"] = asked["historyLength"]
        if asked.get("acceptedOutputModes"):
            params["accepted_output_modes"] = asked["acceptedOutputModes"]
        if envelope.get("metadata"):
            params["metadata"] = envelope["metadata"]
        try:
            await self._worker.run_task(params)
        finally:
            del self._working[turn.id]
        if work.final is not None:
            state, message = work.final
            await turn.status(state, message)

    async def cancel(self, turn: Turn) -> None:
        """Asks the worker to stop a turn."""
        if (work := self._working.get(turn.id)) is not None:
            NOW.set(work)
            await self._worker.cancel_task({"id": turn.task_id})
            if work.final is not None and work.final[0] == CANCELED:
                await turn.status(*work.final)


class Storage(their_storage.Storage):
    """The one task that a worker works on, and its conversation."""

    context_type: Any = Any

    async def load_task(self, task_id: str, history_length: int | None = None) -> Any:
        task = _work(task_id).task
        return {**task, "history": task["history"][-history_length:]} if history_length else task

    async def submit_task(self, context_id: str, message: Any) -> Any:
        raise NotImplementedError("tasks are made by those who send messages")

    async def update_task(
        self, task_id: str, state: str, new_artifacts: list[Any] | None = None, new_messages: list[Any] | None = None
    ) -> Any:
        work = _work(task_id)
        task, turn = work.task, work.turn
        task["status"] = {"state": state}
        for artifact in new_artifacts or []:
            task["artifacts"].append(artifact)
            await _put(work, artifact, append=False, last_chunk=True)
        for message in new_messages or []:
            message["task_id"], message["context_id"] = task_id, task["context_id"]
            task["history"].append(message)
        said = [older.message_from(_camel(message)) for message in new_messages or []]
        name = older.state_from(state)
        last = said.pop() if said else None
        for message in said:
            await turn.status("TASK_STATE_WORKING", message)
        if state in ("submitted", "working"):
            work.final = None
            await turn.status(name, last)
        else:
            work.final = name, last
        return task

    async def load_context(self, context_id: str) -> Any:
        text = _here(context_id).turn.start.get("contextState")
        if not text:
            return None
        return pydantic.TypeAdapter(self.context_type).validate_python(json.loads(text).get("fasta2a"))

    async def update_context(self, context_id: str, context: Any) -> None:
        turn = _here(context_id).turn
        value = pydantic.TypeAdapter(self.context_type).dump_python(context, mode="json")
        text = json.dumps({"fasta2a": value}, ensure_ascii=False, allow_nan=False)
        turn.start["contextState"] = text
        turn.keep(context=text)


class _Bus(TheirBus):
    """Takes what a worker publishes while it works."""

    @asynccontextmanager
    async def subscribe(self, task_id: str) -> AsyncIterator[Any]:
        raise NotImplementedError("who follows a task asks the server")
        yield

    async def emit(self, task_id: str, event: Any) -> None:
        work = _work(task_id)
        if said := event.get("artifact_update"):
            await _put(
                work, said["artifact"], append=said.get("append", False), last_chunk=said.get("last_chunk", False)
            )
        elif (said := event.get("status_update")) and said["status"]["state"] == "working":
            message = said["status"].get("message")
            await work.turn.status("TASK_STATE_WORKING", older.message_from(_camel(message)) if message else None)
        # How it ends is what the storage says when run_task has returned.

    async def close(self, task_id: str) -> None:
        pass


class Broker(TheirBroker):
    """A queue that stays empty."""

    def __init__(self) -> None:
        if FLAT:
            super().__init__(event_bus=_Bus())

    async def run_task(self, params: Any) -> None:
        raise NotImplementedError("tasks are made by those who send messages")

    async def cancel_task(self, params: Any) -> None:
        raise NotImplementedError("tasks are canceled by those who made them")

    async def __aenter__(self) -> Broker:
        return self

    async def __aexit__(self, *_: Any) -> None:
        pass

    async def receive_task_operations(self) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


def given() -> dict[str, Any]:
    """What a Worker is made with."""
    return {"broker": Broker(), "storage": Storage()}


async def _put(work: _Work, artifact: Any, *, append: bool, last_chunk: bool) -> None:
    """An artifact, or a piece of one. The whole of what went out in pieces is not said again."""
    said = older.artifact_from(_camel(artifact))
    id = said.get("artifactId", "")
    before = work.published.get(id)
    if not append and before is not None and _joined(before) == _joined(said["parts"]):
        return
    work.published[id] = [*(before or []), *said["parts"]] if append else said["parts"]
    await work.turn.artifact(said, append=append, last_chunk=last_chunk)


def _joined(parts: list[Any]) -> list[Any]:
    """Parts with neighbouring texts as one."""
    joined: list[Any] = []
    for part in parts:
        if joined and set(part) == {"text"} == set(joined[-1]):
            joined[-1] = {"text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


def _here(context_id: str) -> _Work:
    work = NOW.get(None)
    if work is None or work.turn.context_id != context_id:
        raise LookupError(f'"{context_id}" is not the conversation of the task that is run')
    return work


def _work(task_id: str) -> _Work:
    work = NOW.get(None)
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


def _to(message: dict[str, Any]) -> Any:
    return _snake(older.message_to(message, flat=FLAT))


_FREE = frozenset(("metadata", "data", "params"))
"""Keys under which anything may be, which keeps its spelling."""


def _snake(value: Any) -> Any:
    return _respelled(value, lambda key: re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", key))


def _camel(value: Any) -> Any:
    return _respelled(value, lambda key: re.sub(r"_([a-z])", lambda found: found[1].upper(), key))


def _respelled(value: Any, spell: Any) -> Any:
    if isinstance(value, dict):
        return {spell(key): one if key in _FREE else _respelled(one, spell) for key, one in value.items()}
    if isinstance(value, list):
        return [_respelled(one, spell) for one in value]
    return value
