"""One turn of an executor: what it says becomes frames, and how it goes decides how the turn ends."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger("dragoman.executor")

SendFrame = Callable[..., int]
"""Sends one frame, and gives its size in bytes: `say(events=...)`."""

MAX_UNCONFIRMED_EVENTS = 256
MAX_UNCONFIRMED_BYTES = 1024 * 1024
"""Events of a turn, and bytes of them, that are not on disk yet, past which it waits. The server has higher limits."""

AUTH_HOLD_SECONDS = 0.05
"""Seconds that AUTH_REQUIRED waits for execute() to return: then it ends the turn; else the executor goes on under
it, and it is an event like others."""

WORKING = "TASK_STATE_WORKING"
CANCELED = "TASK_STATE_CANCELED"
AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
RUNNING_STATES = frozenset(("TASK_STATE_UNSPECIFIED", "TASK_STATE_SUBMITTED", WORKING))
FINAL_STATES = frozenset(
    ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED", "TASK_STATE_INPUT_REQUIRED")
)
"""States by name that go on, and that end a turn at once."""


class OversizedEvent(ValueError):
    """An event is larger than the server takes."""


class ExecutorTurn:
    """What an adapter has in its hands. Messages, artifacts and metadata are ProtoJSON of A2A 1.0 throughout."""

    def __init__(self, start: dict[str, Any], send_frame: SendFrame, max_event_bytes: int) -> None:
        """`start`: the TurnStart. `limit`: bytes of one event."""
        self.start = start
        self.id: str = start["turnId"]
        self.task_id: str = start["taskId"]
        self.context_id: str = start.get("contextId", "")
        self.message: dict[str, Any] = start.get("message", {})
        self.history: list[dict[str, Any]] = start.get("history", [])
        self.is_follow_up: bool = bool(start.get("turnsBefore"))
        """Whether earlier turns of the task were answered."""
        self.attempt: int = start.get("attempt", 1)
        self.cancelled = False
        self.cancel_reason = ""
        self.is_over = False
        """Nothing that is said of it counts any more: it has ended, or the server takes no more."""
        self._send_frame = send_frame
        self._max_event_bytes = max_event_bytes
        self._number = 0
        self._unconfirmed: deque[tuple[int, int]] = deque()
        self._unconfirmed_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._last_status = ""
        self._held_status: dict[str, Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._state_update: dict[str, str] = {}
        self._artifacts: set[str] = set()

    # What the executor says -------------------------------------------------------------------------------------

    async def status(
        self, state: str, message: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """How it goes. A state that ends the turn ends it here, whatever the executor still does."""
        if self._check_late(state):
            return
        change: dict[str, Any] = {"state": state}
        if message:
            change["message"] = message
        if metadata:
            change["metadata"] = metadata
        if state == CANCELED and self.cancelled:
            # Said by cancel(): true only once execute() has stopped. Its message is shown before that.
            if message:
                await self._put({"status": {**change, "state": WORKING}})
        elif state == CANCELED:
            text = {"parts": [{"text": "The agent canceled this task by itself."}]}
            self.end({**change, "state": "TASK_STATE_FAILED", "message": message or text})
        elif state in FINAL_STATES:
            self.end(change)
        elif state == AUTH_REQUIRED:
            self._flush_held()
            self._held_status = change
            self._timer = asyncio.get_running_loop().call_later(AUTH_HOLD_SECONDS, self._flush_held)
        elif state in RUNNING_STATES:
            if state != WORKING and not message and not metadata:
                return
            await self._put({"status": {**change, "state": WORKING}})
        else:
            raise ValueError(f"{state} is no state of a task")

    async def artifact(
        self,
        artifact: dict[str, Any],
        *,
        append: bool = False,
        last_chunk: bool = False,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """An artifact, or a piece of one."""
        id = artifact.get("artifactId", "")
        if self._check_late(f"artifact {id}"):
            return
        change: dict[str, Any] = {"artifact": artifact}
        # A piece that is the first of all replaces nothing; clients take one that says `append` to nothing for a slip.
        if append and (id in self._artifacts or self.is_follow_up):
            change["append"] = True
        if last_chunk:
            change["lastChunk"] = True
        if metadata:
            change["metadata"] = metadata
        self._artifacts.add(id)
        await self._put({"artifact": change})

    async def ensure_started(self) -> None:
        """The task is there, as far as the executor goes: whoever waits for a first answer gets it."""
        if not self._last_status and not self.is_over:
            await self._put({"status": {"state": WORKING}})

    def set_state(self, *, task_state: str | None = None, context_state: str | None = None) -> None:
        """JSON objects to be kept, with whatever is said next."""
        self._state_update.update({} if task_state is None else {"taskState": task_state})
        self._state_update.update({} if context_state is None else {"contextState": context_state})

    def reply(self, message: dict[str, Any]) -> None:
        """A Message as the whole answer."""
        if not self._check_late("a message"):
            self._end(reply=message)

    def end(self, change: dict[str, Any]) -> None:
        """Ends the turn in a state."""
        self._end(status=change)

    def _check_late(self, label: str) -> bool:
        if self.is_over and not self.cancelled:
            log.warning("task %s: %s comes after the end of the turn, and is dropped", self.task_id, label)
        return self.is_over

    # How it goes out --------------------------------------------------------------------------------------------

    async def _put(self, event: dict[str, Any]) -> None:
        self._flush_held()
        said = event.get("status")
        if said == {"state": WORKING} and self._last_status == WORKING:
            return  # said already, and it says nothing new
        if said is None:
            self._last_status = WORKING + " and more"
        else:
            self._last_status = said["state"] if len(said) == 1 else said["state"] + " and more"
        self._send_event(event)
        await self._room.wait()

    def _send_event(self, event: dict[str, Any]) -> None:
        self._number += 1
        frame: dict[str, Any] = {"turnId": self.id, "number": str(self._number), "events": [event]}
        if self._state_update:
            frame["notes"], self._state_update = self._state_update, {}
        self._check_size(frame)
        size = self._send_frame(events=frame)
        self._unconfirmed.append((self._number, size))
        self._unconfirmed_bytes += size
        if len(self._unconfirmed) >= MAX_UNCONFIRMED_EVENTS or self._unconfirmed_bytes >= MAX_UNCONFIRMED_BYTES:
            self._room.clear()

    def _flush_held(self) -> None:
        """Lets AUTH_REQUIRED out that was held: the executor goes on."""
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
            outcome["notes"], self._state_update = self._state_update, {}
        frame = {"turnId": self.id, **outcome}
        self._check_size(frame)
        self._send_frame(turnEnd=frame)
        self._close()

    def _check_size(self, frame: dict[str, Any]) -> None:
        size = _approximate_size(frame)
        if size > self._max_event_bytes:
            raise OversizedEvent(
                f"an event of about {size} bytes is more than this server takes at once, {self._max_event_bytes}: give it in "
                "several chunks, or have the server run with a larger --message-bytes"
            )

    def _close(self) -> None:
        self.is_over = True
        self._room.set()

    # What the server says ---------------------------------------------------------------------------------------

    def on_committed(self, number: int) -> None:
        """Everything up to this number is on disk."""
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._unconfirmed_bytes -= self._unconfirmed.popleft()[1]
        if len(self._unconfirmed) < MAX_UNCONFIRMED_EVENTS and self._unconfirmed_bytes < MAX_UNCONFIRMED_BYTES:
            self._room.set()

    def abort(self) -> None:
        """The server takes no more of it."""
        self._close()

    # The end of execute() ---------------------------------------------------------------------------------------

    def on_returned(self, error: BaseException | None) -> None:
        """execute() is over, with an error or without. Ends the turn if that did not happen yet."""
        if self.is_over:
            return
        held, self._held_status = self._held_status, None
        if isinstance(error, asyncio.CancelledError) or (self.cancelled and error is None):
            if not self.cancelled:
                self.end(failed_status("CancelledError: execute() was canceled from within"))
            elif self.cancel_reason == "drain":
                self._end(givenBack={})
            else:
                self._end(canceled={})
        elif error is not None:
            self.end(failed_status(describe_error(error)))
        elif held is not None:
            self.end(held)
        elif self._last_status == AUTH_REQUIRED:
            self.end({"state": AUTH_REQUIRED})
        else:
            self.end(
                failed_status(
                    "InvalidAgentResponse: execute() returned and left the task unfinished; it has to say a final "
                    "state (completed, failed, rejected, input-required), or answer with a Message"
                )
            )


def failed_status(text: str) -> dict[str, Any]:
    """FAILED with a text."""
    return {"state": "TASK_STATE_FAILED", "message": {"parts": [{"text": text}]}}


def describe_error(error: BaseException) -> str:
    """An error in a line, for the task: no traceback, which is for the log."""
    inner = getattr(error, "error", None)  # a2a-sdk 0.3 wraps what it means in a ServerError
    said = getattr(inner, "message", None) or getattr(error, "message", None) or str(error)
    name = type(inner if getattr(inner, "message", None) else error).__name__
    return f"{name}: {said}" if said else name


def _approximate_size(value: Any) -> int:
    """About how many bytes a frame has: those of its texts, and a few for each value."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, dict):
        return sum(_approximate_size(key) + _approximate_size(one) + 2 for key, one in value.items())
    if isinstance(value, list):
        return sum(_approximate_size(one) + 2 for one in value)
    return 9
