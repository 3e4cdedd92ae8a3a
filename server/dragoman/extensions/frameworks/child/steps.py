"""Durable steps of an executor's turn: what a framework has finished need not be done again by its next run."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from .exceptions import failure_fields, note_step
from .turn import ExecutorTurn, describe_error

MAX_STEP_NAME_CHARS = 200
MAX_ERROR_CHARS = 2_000
"""The limits of the server."""

MAX_ARGUMENTS = 10
MAX_ARGUMENT_CHARS = 1_000
"""Limits of what operators are shown of a step. Together less than the server takes: 192 KiB."""

SHOW_RUNNING_AFTER = 0.25
"""Seconds after which a step that still runs is stored as running, for people. Shorter ones are stored once."""

ANY_ORDER = -1
"""The position of steps whose order may differ between the runs of a turn: their names alone identify them."""


class ExecutorSteps:
    """The steps of one turn, by their names. A name is used once in a turn.

    After the answer to a question, the steps of the turn that asked are stored still. The framework does not call them
    again, but goes on behind its question, so the names of a later turn contain the number of its message.
    """

    def __init__(self, turn: ExecutorTurn, show_running_after: float = SHOW_RUNNING_AFTER) -> None:
        self._turn = turn
        self._show_running_after = show_running_after
        self._stored: dict[str, dict[str, Any]] = {step["name"]: step for step in turn.start.get("steps", [])}
        turns = int(turn.start.get("turnsBefore", 0))
        self._suffix = f", message {turns + 1}" if turns else ""

    async def run(
        self,
        name: str,
        function: Callable[[], Awaitable[bytes]],
        media_type: str,
        arguments: dict[str, Any] | None = None,
    ) -> bytes:
        """The stored result of a step, or else that of the function, stored before it is returned.

        A step that fails is stored with its error, and runs again if the turn does. `arguments`: JSON, for operators.
        """
        done = self.find(name)
        if done is not None:
            return done
        stored = self._stored.get(self._full_name(name), {})
        details = {**stored.get("details", {}), "input": "" if arguments is None else _shown(arguments)}
        step = {**self._step(name), "state": "STEP_STATE_RUNNING", "attempt": int(stored.get("attempt", 0)) + 1}
        step["details"] = details
        shown = asyncio.get_running_loop().call_later(self._show_running_after, self._turn.send_step, dict(step))
        try:
            result = await function()
        except (Exception, GeneratorExit, KeyboardInterrupt, SystemExit) as error:
            note_step(error, step["name"])
            text = describe_error(error)[:MAX_ERROR_CHARS]
            failure = {**failure_fields(error), "attempt": step["attempt"], "ended": _now()}
            # Only the last failure: a step that failed runs again with the next attempt of its turn, which says why.
            step["details"] = {**details, "failures": [failure]}
            self._turn.send_step({**step, "state": "STEP_STATE_FAILED", "ended": failure["ended"], "error": text})
            raise
        finally:
            shown.cancel()
        await self._store(step, result, media_type)
        return result

    def find(self, name: str) -> bytes | None:
        """The result of a step that an earlier run has finished."""
        stored = self._stored.get(self._full_name(name), {})
        return b64decode(stored["result"].get("raw", "")) if stored.get("state") == "STEP_STATE_DONE" else None

    async def save(self, name: str, result: bytes, media_type: str) -> None:
        """Stores the result of a step, in place of the one that is stored."""
        await self._store(self._step(name), result, media_type)

    async def _store(self, step: dict[str, Any], result: bytes, media_type: str) -> None:
        content = {"raw": b64encode(result).decode(), "mediaType": media_type}
        await self._turn.send_step({**step, "state": "STEP_STATE_DONE", "ended": _now(), "result": content})

    def _step(self, name: str) -> dict[str, Any]:
        now = _now()
        return {"name": self._full_name(name), "number": 1, "position": ANY_ORDER, "attempt": 1, "started": now}

    def _full_name(self, name: str) -> str:
        return name[: MAX_STEP_NAME_CHARS - len(self._suffix)] + self._suffix


def _shown(arguments: dict[str, Any]) -> str:
    """Arguments as JSON for people. Large ones are cut, and say how much is missing."""
    shown = {}
    for name, value in list(arguments.items())[:MAX_ARGUMENTS]:
        text = json.dumps(value, ensure_ascii=False, default=str)
        rest = len(text) - MAX_ARGUMENT_CHARS
        shown[name[:MAX_STEP_NAME_CHARS]] = (
            value if rest <= 0 else f"{text[:MAX_ARGUMENT_CHARS]}… {rest:,} more characters"
        )
    if len(arguments) > MAX_ARGUMENTS:
        shown["…"] = f"… {len(arguments) - MAX_ARGUMENTS} more"
    return json.dumps(shown, ensure_ascii=False, default=str).encode(errors="backslashreplace").decode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
