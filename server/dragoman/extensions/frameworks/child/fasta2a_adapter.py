"""Adapter for Workers of fasta2a 0.2 and newer, with our own storage, broker and event bus.

| fasta2a | JSON of A2A | conversation | a worker writes with |
|---|---|---|---|
| 0.2 to 0.4.0 | 0.1 | `session_id` | `update_task(message=, artifacts=)` |
| 0.4.1 to 0.6 | 0.3 | `context_id`, and a stored context | `update_task(new_messages=, new_artifacts=)` |
| from 1.0 | 1.0 | the same | the same, and `publish_artifact` |
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import datetime
import importlib.metadata
import inspect
import json
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any

import fasta2a
import pydantic
from fasta2a import storage as their_storage
from fasta2a.broker import Broker as TheirBroker

from . import json_v01, json_v03, target
from .target import InvalidTarget
from .turn import CANCELED, ExecutorTurn

try:
    from fasta2a.event_bus import EventBus as TheirBus
except ImportError:  # fasta2a before 1.0
    TheirBus = object

HAS_FLAT_PARTS = TheirBus is not object
"""Whether parts have no `kind`, as in fasta2a 1.0 and newer."""

HAS_SESSIONS = not hasattr(their_storage.Storage, "load_context")
"""Whether a conversation is a `session_id` without a stored context, as in fasta2a before 0.4.1."""

if HAS_SESSIONS and "artifacts" not in inspect.signature(their_storage.Storage.update_task).parameters:
    raise InvalidTarget(
        f"workers of fasta2a {importlib.metadata.version('fasta2a')} cannot be run, because its storage is unknown; "
        "supported are fasta2a 0.2 to 2.x"
    )

CONTEXT_ID = "session_id" if HAS_SESSIONS else "context_id"
"""The key of the conversation's id."""

CURRENT_RUN: contextvars.ContextVar[_TaskRun] = contextvars.ContextVar("dragoman_turn")
"""The run that the current code belongs to."""


class _TaskRun:
    """A running turn, and the task as the worker sees it."""

    def __init__(self, turn: ExecutorTurn) -> None:
        self.turn = turn
        self.final_status: tuple[str, dict[str, Any] | None] | None = None
        """The final state and last message in the storage, sent when run_task returns."""
        self.published_status: tuple[str, dict[str, Any] | None] | None = None
        """The last status that was only published, which ends the turn if the storage has no final state."""
        self.published: dict[str, list[Any]] = {}
        """Parts already sent, by artifact id."""
        history = [_to_fasta2a_message(message) for message in (*turn.history, turn.message)]
        self.task: dict[str, Any] = {"id": turn.task_id, CONTEXT_ID: turn.context_id, "history": history}
        # A worker receives each task once, as submitted, and a follow-up in the same way.
        self.task["status"] = {"state": "submitted"}
        self.task["artifacts"] = [
            _to_fasta2a_artifact(artifact, index) for index, artifact in enumerate(turn.previous_artifacts)
        ]
        # Workers may change it in place, as in fasta2a's own storage.
        self.task["metadata"] = copy.deepcopy(turn.task_metadata)
        self.artifact_ids: dict[int, str] = {}
        """Of a worker without artifact ids: the id of the last artifact with this index."""
        self.artifact_count = 0
        """Of such a worker: the number of artifacts of this turn."""
        self.task.update(_TASK_KIND)
        self.submitted: dict[str, Any] = {}
        """Tasks that the worker has submitted and not run, by their ids."""

    def read_metadata(self) -> None:
        """Merges the metadata that the worker has set into the task's."""
        self.turn.merge_metadata(copy.deepcopy(self.task.get("metadata")))

    async def update(self, state: str, artifacts: list[Any], messages: list[Any]) -> None:
        """Sends what a worker writes to its storage.

        Messages join the task's history, as in the storage of fasta2a. A status message does so with the next status
        (A2A 1.0), so the last one of a task that ends is sent twice: on the way, and as the message of its end.
        """
        self.task["status"] = {"state": state}
        self.read_metadata()
        self.task["artifacts"] += artifacts
        for artifact in artifacts:
            append = HAS_SESSIONS and artifact.get("append") is True
            last_chunk = not (HAS_SESSIONS and artifact.get("last_chunk") is False)
            await _publish_artifact(self, artifact, append=append, last_chunk=last_chunk)
        self.task["history"] += messages
        converted = [_from_fasta2a_message(message) for message in messages]
        name = json_v03.state_from_v03(state)
        last_message = converted.pop() if converted and name not in _ENDED_STATES else None
        for message in converted:
            await self.turn.status("TASK_STATE_WORKING", message)
        if state in ("submitted", "working"):
            self.final_status = None
            await self.turn.status(name, last_message)
        else:
            self.final_status = name, last_message or (converted[-1] if converted else None)


_TASK_KIND = {} if HAS_FLAT_PARTS or HAS_SESSIONS else {"kind": "task"}

_ENDED_STATES = frozenset(("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED"))
"""States that no status follows. The message of CANCELED is sent before it anyway."""


class Fasta2aAdapter:
    """Runs a Worker of fasta2a for `main`."""

    def __init__(self, module: ModuleType, target: Any, worker: Any, dependencies: dict[str, Any]) -> None:
        self._module, self._target, self._worker = module, target, worker
        self._runs: dict[str, _TaskRun] = {}
        worker.broker, worker.storage = dependencies["broker"], dependencies["storage"]
        dependencies["storage"].context_type = _context_type(worker)

    def registration(self, id: str) -> dict[str, Any]:
        """The registration, from the first FastA2A app of the module."""
        apps = (value for value in vars(self._module).values() if isinstance(value, fasta2a.FastA2A))
        return app_registration(id, self._target, next(apps, None))

    def running(self) -> AbstractAsyncContextManager[Any]:
        """The worker's own lifespan. Its task loop stays idle, because turns run here."""
        return self._worker.run()  # type: ignore[no-any-return]

    async def execute(self, turn: ExecutorTurn) -> None:
        """Runs a turn."""
        run = self._runs[turn.id] = _TaskRun(turn)
        CURRENT_RUN.set(run)
        envelope = turn.start.get("envelope", {})
        requested = envelope.get("configuration", {})
        params: dict[str, Any] = {
            "id": turn.task_id,
            CONTEXT_ID: turn.context_id,
            "message": _to_fasta2a_message(turn.message),
        }
        if "historyLength" in requested:
            params["history_length"] = requested["historyLength"]
        if requested.get("acceptedOutputModes") and not HAS_SESSIONS:
            params["accepted_output_modes"] = requested["acceptedOutputModes"]
        if envelope.get("metadata"):
            params["metadata"] = envelope["metadata"]
        try:
            await self._worker.run_task(params)
        finally:
            run.read_metadata()
            del self._runs[turn.id]
        if final_status := run.final_status or run.published_status:
            await turn.status(*final_status)

    async def cancel(self, turn: ExecutorTurn) -> None:
        """Calls the worker's cancel_task() for a turn."""
        if (run := self._runs.get(turn.id)) is not None:
            CURRENT_RUN.set(run)
            params: dict[str, Any] = {"id": turn.task_id}
            if turn.cancel_metadata:
                params["metadata"] = turn.cancel_metadata
            await self._worker.cancel_task(params)
            run.read_metadata()
            if run.final_status is not None and run.final_status[0] == CANCELED:
                await turn.status(*run.final_status)


def app_registration(id: str, source: Any, app: Any) -> dict[str, Any]:
    """The registration with the card of a FastA2A app, or without one, of `source`."""
    names = ("name", "description", "version", "provider", "skills")
    card = {name: _camel(getattr(app, name, None)) for name in names} if app is not None else None
    return target.build_registration(id, source, card, None)  # type: ignore[no-any-return]


class TurnStorage(their_storage.Storage):
    """The storage that a worker sees: its current task and conversation, and other tasks of the caller to read."""

    context_type: Any = Any

    async def load_task(self, task_id: str, history_length: int | None = None) -> Any:
        run = CURRENT_RUN.get(None)
        if run is None:
            return None
        task = run.task if run.turn.task_id == task_id else run.submitted.get(task_id)
        if task is None and (found := await run.turn.call(get={"id": task_id})):
            task = _to_fasta2a_task(found)
        return {**task, "history": task["history"][-history_length:]} if task and history_length else task

    async def submit_task(self, context_id: str, message: Any) -> Any:
        return self._submit(str(uuid.uuid4()), context_id, message)

    def _submit(self, task_id: str, context_id: str, message: Any) -> Any:
        """A task that begins when the broker runs it: until then only this turn knows it."""
        if not HAS_SESSIONS:
            message["task_id"], message["context_id"] = task_id, context_id
        status = {"state": "submitted", "timestamp": datetime.datetime.now().isoformat()}
        task = {"id": task_id, CONTEXT_ID: context_id, **_TASK_KIND, "status": status, "history": [message]}
        _current_run("submit_task").submitted[task_id] = task
        return task

    async def update_task(
        self, task_id: str, state: str, new_artifacts: list[Any] | None = None, new_messages: list[Any] | None = None
    ) -> Any:
        run = _run_of_task(task_id)
        for message in new_messages or []:
            message["task_id"], message["context_id"] = task_id, run.turn.context_id
        await run.update(state, new_artifacts or [], new_messages or [])
        return run.task

    async def load_context(self, context_id: str) -> Any:
        run = CURRENT_RUN.get(None)
        text = run.turn.start.get("contextState") if run is not None and run.turn.context_id == context_id else None
        if not text:
            return None
        return pydantic.TypeAdapter(self.context_type).validate_python(json.loads(text).get("fasta2a"))

    async def update_context(self, context_id: str, context: Any) -> None:
        turn = _run_of_context(context_id).turn
        value = pydantic.TypeAdapter(self.context_type).dump_python(context, mode="json")
        text = json.dumps({"fasta2a": value}, ensure_ascii=False, allow_nan=False)
        turn.start["contextState"] = text
        turn.set_state(context_state=text)


class SessionStorage(TurnStorage):
    """The storage that a worker of fasta2a before 0.4.1 sees."""

    async def submit_task(  # type: ignore[override]
        self, task_id: str, session_id: str, message: Any
    ) -> Any:
        if await self.load_task(task_id) is not None:
            raise ValueError(f"Task {task_id} already exists")
        return self._submit(task_id, session_id, message)

    async def update_task(
        self, task_id: str, state: str, message: Any | None = None, artifacts: list[Any] | None = None
    ) -> Any:
        run = _run_of_task(task_id)
        await run.update(state, artifacts or [], [message] if message else [])
        return run.task


class _TurnEventBus(TheirBus):
    """Forwards the events that a worker publishes to its turn."""

    @asynccontextmanager
    async def subscribe(self, task_id: str) -> AsyncIterator[Any]:
        raise NotImplementedError("a worker cannot subscribe to tasks; clients subscribe at the server")
        yield

    async def emit(self, task_id: str, event: Any) -> None:
        run = _run_of_task(task_id)
        if update := event.get("artifact_update"):
            await _publish_artifact(
                run,
                update["artifact"],
                append=update.get("append", False),
                last_chunk=update.get("last_chunk", False),
                metadata=update.get("metadata"),
            )
        elif update := event.get("status_update"):
            message, state = update["status"].get("message"), update["status"]["state"]
            converted = json_v03.message_from_v03(_camel(message)) if message else None
            if state == "working":
                await run.turn.status("TASK_STATE_WORKING", converted, update.get("metadata"))
            elif state != "submitted":  # a worker writes it to its storage too, which goes first when run_task returns
                run.published_status = json_v03.state_from_v03(state), converted

    async def close(self, task_id: str) -> None:
        pass


class TurnBroker(TheirBroker):
    """A broker whose queue stays empty: it gives tasks to the server, as the caller of the current turn."""

    def __init__(self) -> None:
        if HAS_FLAT_PARTS:
            super().__init__(event_bus=_TurnEventBus())

    async def run_task(self, params: Any) -> None:
        if params.get("push_notification"):
            raise ValueError("push_notification: is set with tasks/pushNotification/set, when the task runs")
        run = _current_run("run_task")
        message = {"messageId": str(uuid.uuid4()), **_from_fasta2a_message(params["message"]), "taskId": params["id"]}
        message["contextId"] = params.get(CONTEXT_ID) or ""
        names = {"history_length": "historyLength", "accepted_output_modes": "acceptedOutputModes"}
        configuration = {names[key]: value for key, value in params.items() if key in names and value is not None}
        request = {"message": message, "configuration": configuration, "metadata": params.get("metadata") or {}}
        await run.turn.call(send=request)
        run.submitted.pop(params["id"], None)

    async def cancel_task(self, params: Any) -> None:
        run = _current_run("cancel_task")
        if run.submitted.pop(params["id"], None) is None:
            request = {"id": params["id"], "metadata": params.get("metadata") or {}}
            if await run.turn.call(cancel=request) is None:
                raise LookupError(f'there is no task "{params["id"]}" of this caller')

    async def __aenter__(self) -> TurnBroker:
        return self

    async def __aexit__(self, *_: Any) -> None:
        pass

    async def receive_task_operations(self) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


def worker_dependencies() -> dict[str, Any]:
    """Constructor arguments of a Worker."""
    return {"broker": TurnBroker(), "storage": SessionStorage() if HAS_SESSIONS else TurnStorage()}


async def _publish_artifact(
    run: _TaskRun, artifact: Any, *, append: bool, last_chunk: bool, metadata: dict[str, Any] | None = None
) -> None:
    """Sends an artifact or a chunk of one. Skips an artifact that was already sent in chunks."""
    converted = _from_fasta2a_artifact(run, artifact, append=append)
    id = converted.get("artifactId", "")
    sent_parts = run.published.get(id)
    if not append and sent_parts is not None and _merge_texts(sent_parts) == _merge_texts(converted["parts"]):
        return
    run.published[id] = [*(sent_parts or []), *converted["parts"]] if append else converted["parts"]
    await run.turn.artifact(converted, append=append, last_chunk=last_chunk, metadata=metadata)


def _merge_texts(parts: list[Any]) -> list[Any]:
    """Joins adjacent text parts."""
    joined: list[Any] = []
    for part in parts:
        if joined and set(part) == {"text"} == set(joined[-1]):
            joined[-1] = {"text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


def _current_run(method: str) -> _TaskRun:
    run = CURRENT_RUN.get(None)
    if run is None:
        raise RuntimeError(f"{method} works within run_task or cancel_task of a worker: it acts for a task's caller")
    return run


def _run_of_context(context_id: str) -> _TaskRun:
    run = CURRENT_RUN.get(None)
    if run is None or run.turn.context_id != context_id:
        raise LookupError(f'"{context_id}" is not the context of the current task')
    return run


def _run_of_task(task_id: str) -> _TaskRun:
    run = CURRENT_RUN.get(None)
    if run is None or run.turn.task_id != task_id:
        raise LookupError(f'"{task_id}" is not the current task')
    return run


def _context_type(worker: Any) -> Any:
    """The context type of a worker: the argument of its base class Worker[...]."""
    for kind in type(worker).__mro__:
        for base in getattr(kind, "__orig_bases__", ()):
            origin = getattr(base, "__origin__", None)
            arguments = getattr(base, "__args__", ())
            if origin is fasta2a.Worker and arguments and not hasattr(arguments[0], "__constraints__"):
                return arguments[0]
    return Any


def _to_fasta2a_message(message: dict[str, Any]) -> Any:
    if HAS_SESSIONS:
        return _snake(json_v01.message_to_v01(message))
    return _snake(json_v03.message_to_v03(message, flat=HAS_FLAT_PARTS))


def _from_fasta2a_message(message: Any) -> dict[str, Any]:
    return (json_v01.message_from_v01 if HAS_SESSIONS else json_v03.message_from_v03)(_camel(message))


def _to_fasta2a_task(task: dict[str, Any]) -> Any:
    status = {"state": json_v03.state_to_v03(task["status"]["state"])}
    if message := task["status"].get("message"):
        status["message"] = _to_fasta2a_message(message)
    if timestamp := task["status"].get("timestamp"):
        status["timestamp"] = timestamp
    converted = {"id": task["id"], CONTEXT_ID: task["contextId"], **_TASK_KIND, "status": status}
    converted["history"] = [_to_fasta2a_message(message) for message in task.get("history", [])]
    converted["artifacts"] = [_to_fasta2a_artifact(one, index) for index, one in enumerate(task.get("artifacts", []))]
    return {**converted, "metadata": task["metadata"]} if task.get("metadata") else converted


def _to_fasta2a_artifact(artifact: dict[str, Any], index: int) -> Any:
    if HAS_SESSIONS:
        return _snake(json_v01.artifact_to_v01(artifact, index))
    return _snake(json_v03.artifact_to_v03(artifact, flat=HAS_FLAT_PARTS))


def _from_fasta2a_artifact(run: _TaskRun, artifact: Any, *, append: bool) -> dict[str, Any]:
    if not HAS_SESSIONS:
        return json_v03.artifact_from_v03(_camel(artifact))
    index = artifact.get("index") or 0
    if not (append and index in run.artifact_ids):
        # fasta2a keeps artifacts of the same index, so the id is a number; later turns must not replace earlier ones.
        number, turn = str(run.artifact_count), run.turn.start.get("turnsBefore")
        run.artifact_ids[index] = f"{number}-{int(turn) + 1}" if turn else number
        run.artifact_count += 1
    return json_v01.artifact_from_v01(_camel(artifact), run.artifact_ids[index])


_OPAQUE_KEYS = frozenset(("metadata", "data", "params"))
"""Keys whose values are free-form JSON, so their keys are not converted."""


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
