"""One turn of an executor: converts its events to frames and decides how the turn ends."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any

from .exceptions import (
    ERROR_ID_BYTES,
    describe_leaf,
    failure_fields,
    generic_error_text,
    is_a,
    leaves,
    name_of,
    text_of,
)

log = logging.getLogger("dragoman.executor")

SendFrame = Callable[..., int]
"""Sends one frame, `send_frame(events=...)`, and returns its size in bytes."""

MAX_UNCONFIRMED_EVENTS = 256
MAX_UNCONFIRMED_BYTES = 1024 * 1024
"""Events of a turn that are not on disk yet, and their bytes, until it waits. The server's limits are higher."""

MAX_CALLS = 100
"""Calls of a turn without an answer, until the next one waits. The server takes as many."""

AUTH_HOLD_SECONDS = 0.05
"""Seconds to hold AUTH_REQUIRED back. If execute() returns in time, it ends the turn; otherwise it is an ordinary event
and the executor keeps running."""

WORKING = "TASK_STATE_WORKING"
CANCELED = "TASK_STATE_CANCELED"
AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
RUNNING_STATES = frozenset(("TASK_STATE_UNSPECIFIED", "TASK_STATE_SUBMITTED", WORKING))
FINAL_STATES = frozenset(
    ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", CANCELED, "TASK_STATE_REJECTED", "TASK_STATE_INPUT_REQUIRED")
)
"""States during a turn, and states that end a turn at once."""

USAGE_KEY = "usage"
"""The key of a task's metadata that the server writes."""


class OversizedEvent(ValueError):
    """An event is larger than the server accepts."""


class CallRejected(RuntimeError):
    """The server rejected a call about a task, or the turn ended before the answer."""


class ExecutorTurn:
    """The API of a turn for the adapters. Messages, artifacts and metadata are ProtoJSON of A2A 1.0."""

    def __init__(
        self,
        start: dict[str, Any],
        send_frame: SendFrame,
        max_event_bytes: int,
        *,
        max_unconfirmed_events: int = MAX_UNCONFIRMED_EVENTS,
        max_unconfirmed_bytes: int = MAX_UNCONFIRMED_BYTES,
        auth_hold: float = AUTH_HOLD_SECONDS,
    ) -> None:
        """`start`: the TurnStart frame. `max_event_bytes`: the largest event that the server accepts. `auth_hold`:
        seconds to hold AUTH_REQUIRED back."""
        self._max_unconfirmed_events = max_unconfirmed_events
        self._max_unconfirmed_bytes = max_unconfirmed_bytes
        self._auth_hold = auth_hold
        self.start = start
        self.id: str = start["turnId"]
        self.task_id: str = start["taskId"]
        self.context_id: str = start.get("contextId", "")
        self.message: dict[str, Any] = start.get("message", {})
        self.history: list[dict[str, Any]] = start.get("history", [])
        self.is_follow_up: bool = bool(start.get("turnsBefore"))
        """Whether the task has earlier turns."""
        self.previous_artifacts: list[dict[str, Any]] = start.get("previousArtifacts", [])
        """The task's artifacts; empty in the first attempt of a turn."""
        self.attempt: int = start.get("attempt", 1)
        self.canceled = False
        self.cancel_reason = ""
        self.cancel_metadata: dict[str, Any] = {}
        """The metadata of the client's cancel request."""
        self.is_over = False
        """The turn has ended, here or at the server: later events are dropped."""
        self._send_frame = send_frame
        self._max_event_bytes = max_event_bytes
        self._number = 0
        self._unconfirmed: deque[tuple[int, int]] = deque()
        self._unconfirmed_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._stored_steps: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._call_numbers = itertools.count(1)
        self._call_room = asyncio.Semaphore(MAX_CALLS)
        self._last_status = ""
        self._held_status: dict[str, Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._state_update: dict[str, Any] = {}
        self.task_metadata: dict[str, Any] = dict(start.get("taskMetadata", {}))
        """The task's metadata, with what this turn has set."""
        self._artifacts: set[str] = set()

    # Events of the executor ---------------------------------------------------------------------------------------

    async def status(
        self,
        state: str,
        message: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        merge: bool = True,
    ) -> None:
        """Sends a status change. A final state ends the turn, even if the executor continues.

        The metadata is that of the event; a2a-sdk's server also merges it into the task's, and so does this one by
        default.
        """
        if self._check_late(state):
            return
        if merge:
            self.merge_metadata(metadata)
        change: dict[str, Any] = {"state": state}
        if message:
            change["message"] = message
        if metadata:
            change["metadata"] = metadata
        if state == CANCELED and self.canceled:
            # From cancel(). The task is canceled only after execute() has stopped; its message is sent before.
            if message or self._state_update:
                await self._send({"status": {**change, "state": WORKING}})
        elif state in FINAL_STATES:
            self.end(change)
        elif state == AUTH_REQUIRED:
            self._flush_held()
            self._held_status = change
            self._timer = asyncio.get_running_loop().call_later(self._auth_hold, self._flush_held)
        elif state in RUNNING_STATES:
            if state != WORKING and not message and not metadata and not self._state_update:
                return
            await self._send({"status": {**change, "state": WORKING}})
        else:
            raise ValueError(f"{state} is not a task state")

    async def artifact(
        self,
        artifact: dict[str, Any],
        *,
        append: bool = False,
        last_chunk: bool = False,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Sends an artifact or a chunk of one."""
        id = artifact.get("artifactId", "")
        if self._check_late(f"artifact {id}"):
            return
        change: dict[str, Any] = {"artifact": artifact}
        # The first chunk has nothing to append to, and clients treat `append` without an artifact as an error.
        if append and (id in self._artifacts or self.is_follow_up):
            change["append"] = True
        if last_chunk:
            change["lastChunk"] = True
        if metadata:
            change["metadata"] = metadata
        self._artifacts.add(id)
        await self._send({"artifact": change})

    async def text(self, artifact_id: str, text: str, *, append: bool) -> None:
        """Sends a chunk of text of an artifact. Readers see neighboring chunks as one text."""
        if self._check_late(f"text of artifact {artifact_id}"):
            return
        change: dict[str, Any] = {"artifactId": artifact_id, "text": text}
        if append:
            change["append"] = True
        self._artifacts.add(artifact_id)
        await self._send({"text": change})

    def usage(self, tokens: int, cost: int = 0, key: str = "") -> None:
        """Reports usage since the last report: tokens, and a cost in billionths of the operator's currency."""
        if not self._check_late("usage"):
            frame = {"turnId": self.id, "tokens": str(tokens), "cost": str(cost), "key": key}
            self._send_frame(usage=frame)

    async def ensure_started(self) -> None:
        """Sends WORKING if nothing was sent yet, so that a client that waits for a first response gets it."""
        if not self._last_status and not self.is_over:
            await self._send({"status": {"state": WORKING}})

    def set_state(self, *, task_state: str | None = None, context_state: str | None = None) -> None:
        """Stores JSON objects with the next event."""
        self._state_update.update({} if task_state is None else {"taskState": task_state})
        self._state_update.update({} if context_state is None else {"contextState": context_state})

    def merge_metadata(self, metadata: dict[str, Any] | None) -> None:
        """Merges metadata into that of the task by key, with the next event."""
        changed = {
            key: value
            for key, value in (metadata or {}).items()
            if key not in self.task_metadata or not _is_same_json(self.task_metadata[key], value)
        }
        if changed.pop(USAGE_KEY, None) is not None:
            log.warning(
                '"%s" in metadata is dropped: the server writes this key', USAGE_KEY, extra={"task": self.task_id}
            )
        if changed:
            self.task_metadata.update(changed)
            self._state_update["taskMetadata"] = {**self._state_update.get("taskMetadata", {}), **changed}

    def send_step(self, step: dict[str, Any]) -> asyncio.Future[None]:
        """Sends a `Step` of dragoman.worker.v1.

        The future is done when it is on disk, and canceled if the turn ends before.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._check_late(f"step {step['name']}"):
            stored.cancel()
            return stored
        self._flush_held()
        self._state_update.setdefault("steps", []).append(step)
        self._send_event(None)
        self._stored_steps.append((self._number, stored))
        return stored

    async def call(self, **request: dict[str, Any]) -> dict[str, Any] | None:
        """Calls this agent as the caller of the turn: `send=`, `get=` or `cancel=` with a request of A2A 1.0.

        Returns the task, or None if there is none with this id. Raises CallRejected.
        """
        number = next(self._call_numbers)
        frame = {"turnId": self.id, "number": str(number), **request}
        self._check_size(frame)
        await self._call_room.acquire()
        if self.is_over:
            self._call_room.release()
            raise CallRejected("the turn has ended, and with it its calls")
        self._calls[number] = answer = asyncio.get_running_loop().create_future()
        self._send_frame(taskCall=frame)
        result = await answer
        if "task" not in result and result.get("reason") != "TASK_NOT_FOUND":
            raise CallRejected(result.get("error", ""))
        task: dict[str, Any] | None = result.get("task")
        return task

    def reply(self, message: dict[str, Any]) -> None:
        """Ends the turn with a Message as its response."""
        if not self._check_late("a message"):
            self._end(reply=message)

    def end(self, change: dict[str, Any]) -> None:
        """Ends the turn with a status."""
        self._end(status=change)

    def _check_late(self, label: str) -> bool:
        if self.is_over and not self.canceled:
            log.warning("%s was sent after the end of the turn and is dropped", label, extra={"task": self.task_id})
        return self.is_over

    # Sending ------------------------------------------------------------------------------------------------------

    async def _send(self, event: dict[str, Any]) -> None:
        self._flush_held()
        status = event.get("status")
        if status == {"state": WORKING} and self._last_status == WORKING and not self._state_update:
            return  # a repetition without news
        if status is None:
            self._last_status = WORKING + " and more"
        else:
            self._last_status = status["state"] if len(status) == 1 else status["state"] + " and more"
        self._send_event(event)
        await self._room.wait()

    def _send_event(self, event: dict[str, Any] | None) -> None:
        """Sends an event with the pending state, or the state alone."""
        self._number += 1
        frame: dict[str, Any] = {"turnId": self.id, "number": str(self._number), "events": [event] if event else []}
        if self._state_update:
            frame["stateUpdate"], self._state_update = self._state_update, {}
        self._check_size(frame)
        size = self._send_frame(events=frame)
        self._unconfirmed.append((self._number, size))
        self._unconfirmed_bytes += size
        if not self._has_room:
            self._room.clear()

    @property
    def _has_room(self) -> bool:
        """Whether another event may be sent before earlier ones are on disk."""
        return (
            len(self._unconfirmed) < self._max_unconfirmed_events
            and self._unconfirmed_bytes < self._max_unconfirmed_bytes
        )

    def _flush_held(self) -> None:
        """Sends a held AUTH_REQUIRED, because the executor continues."""
        held, self._held_status = self._held_status, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if held is not None and not self.is_over:
            self._last_status = AUTH_REQUIRED
            self._send_event({"status": held})

    def _end(self, **outcome: Any) -> None:
        self._flush_held()
        if self._state_update:
            outcome["stateUpdate"], self._state_update = self._state_update, {}
        frame = {"turnId": self.id, **outcome}
        self._check_size(frame)
        self._send_frame(turnEnd=frame)
        self._close()

    def _check_size(self, frame: dict[str, Any]) -> None:
        size = _approximate_size(frame)
        if size > self._max_event_bytes:
            raise OversizedEvent(
                f"an event has about {size} bytes; this server accepts at most {self._max_event_bytes}. "
                "Send it in several chunks, or start the server with a larger --message-bytes."
            )

    def _close(self) -> None:
        self.is_over = True
        self._room.set()
        while self._stored_steps:
            self._stored_steps.popleft()[1].cancel()
        for number in tuple(self._calls):
            self.on_call_result({"number": number, "error": "the turn has ended, and with it its calls"})

    # Frames from the server ---------------------------------------------------------------------------------------

    def on_committed(self, number: int) -> None:
        """Handles the confirmation that all events up to this number are on disk."""
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._unconfirmed_bytes -= self._unconfirmed.popleft()[1]
        if self._has_room:
            self._room.set()
        while self._stored_steps and self._stored_steps[0][0] <= number:
            stored = self._stored_steps.popleft()[1]
            if not stored.done():  # canceled with the code that waited for it
                stored.set_result(None)

    def on_call_result(self, result: dict[str, Any]) -> None:
        """Handles the answer to a call."""
        answer = self._calls.pop(int(result["number"]), None)
        if answer is not None:
            self._call_room.release()
            if not answer.done():  # canceled with the code that waited for it
                answer.set_result(result)

    def abort(self) -> None:
        """Handles the end of the turn at the server."""
        self._close()

    # The end of execute() -----------------------------------------------------------------------------------------

    def new_error_id(self, error: BaseException) -> str:
        """An id that stands for the text of this error; empty if callers may see the text.

        They always see that of `dragoman.AgentError` and of protocol errors of a2a-sdk.
        """
        is_protocol_error = any(module == "a2a.utils.errors" for module, _ in _classes(error))
        if self.start.get("showErrorTexts") or is_protocol_error or _is_agent_error(error):
            return ""
        return secrets.token_hex(ERROR_ID_BYTES)

    def on_returned(self, error: BaseException | None, error_id: str = "") -> None:
        """Handles the return of execute(), with or without an error. Ends a turn that has not ended.

        `error_id`: what callers see in place of the error's text.
        """
        if self.is_over:
            return
        held, self._held_status = self._held_status, None
        if (error is not None and is_a(error, asyncio.CancelledError)) or (self.canceled and error is None):
            if not self.canceled:
                self.end(failed_status("CancelledError: execute() was canceled by its own code"))
            elif self.cancel_reason == "drain":
                self._end(released={})
            else:
                self._end(canceled={})
        elif error is not None:
            text = generic_error_text(error_id) if error_id else describe_error(error)
            self.end({**failed_status(text), "failure": failure_fields(error)})
        elif held is not None:
            self.end(held)
        elif self._last_status == AUTH_REQUIRED:
            self.end({"state": AUTH_REQUIRED})
        else:
            self.end(
                failed_status(
                    "InvalidAgentResponse: execute() returned without a final state; enqueue a status with completed, "
                    "failed, canceled, rejected or input-required, or answer with a Message"
                )
            )


def failed_status(text: str) -> dict[str, Any]:
    """A FAILED status with a text."""
    return {"state": "TASK_STATE_FAILED", "message": {"parts": [{"text": text}]}}


MAX_ERROR_TEXT_CHARS = 4_000
"""Characters of an error's text in the task."""


def _is_agent_error(error: BaseException) -> bool:
    """By name: the executor's environment need not have our package."""
    return any(name == "AgentError" and module.partition(".")[0] == "dragoman" for module, name in _classes(error))


def _classes(error: BaseException) -> list[tuple[str, str]]:
    """Module and name of the classes of an error; none of one whose classes hide them."""
    try:
        return [(str(base.__module__), base.__name__) for base in type.mro(type(error))]
    except BaseException:
        return []


def describe_error(error: BaseException) -> str:
    """An error as one line for the task, of a group the first in it. The traceback goes to the log only."""
    return describe_leaf(error, _describe_one(leaves(error)[0]))


def _describe_one(error: BaseException) -> str:
    if _is_agent_error(error) and (text := text_of(error)):
        return text
    name, text = name_of(error), ""
    try:
        inner = getattr(error, "error", None)  # a2a-sdk 0.3 wraps the error in a ServerError
        for one in (inner, error):
            if message := getattr(one, "message", None):
                name, text = type(one).__name__, str(message)[:MAX_ERROR_TEXT_CHARS]
                break
    except BaseException:  # an attribute of its class failed
        text = ""
    text = text.encode(errors="backslashreplace").decode() or text_of(error)
    return f"{name}: {text}" if text else name


def _is_same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same. In Python `1 == True`."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _approximate_size(value: Any) -> int:
    """Estimates the bytes of a frame: the bytes of its texts, and a few for each other value."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, dict):
        return sum(_approximate_size(key) + _approximate_size(item) + 2 for key, item in value.items())
    if isinstance(value, list):
        return sum(_approximate_size(item) + 2 for item in value)
    return 9
