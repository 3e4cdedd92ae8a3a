"""Durable steps of a turn: their records, and the journal in which a repeated turn finds them.

A step is named, and numbered among the steps of its name: together these identify it within a turn, in all runs of that
turn. Steps called by the turn's own code also have a position, because that code calls them in an order of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import Any, Final

MAX_STEP_NAME_CHARS: Final = 200

MAX_RESULT_BYTES: Final = 16 * 1024 * 1024  # the largest result of a step
MAX_PARSED_BYTES: Final = 1024 * 1024  # of a result that is parsed to be shown: more would block the event loop
JSON_MEDIA_TYPE: Final = "application/json"
SECRET_NAME: Final = re.compile(r"passw|secret|token|api_?key|authorization|credential|cookie", re.IGNORECASE)
"""Names of arguments and keys whose text, and that of what is in them, is not stored."""
HIDDEN: Final = "(not stored)"
CURRENT_TURN: Final = 0  # the turn of the steps that the next run of the turn finds

NO_POSITION: Final = -1  # the position of steps that run in other asyncio tasks or threads than the turn's own code


class StepState(IntEnum):
    """States of a step. The numbers are stored."""

    RUNNING = 1  # it has begun, and runs again if the turn is interrupted
    DONE = 2
    """Its result is stored. It never runs again."""
    FAILED = 3
    """Its last attempt failed. It runs again if the turn does."""
    SLEEPING = 4  # a pause until `wake_at`


class StepMismatch(Exception):
    """The turn's code called another step than in its earlier run. The text names both."""


@dataclass(slots=True)
class StepRecord:
    """A step as it is stored. Times are milliseconds since the epoch, 0 for none. Never changed; not frozen."""

    name: str
    number: int  # which of the steps with this name it is, from 1
    position: int  # its place among the steps of the turn's own code, from 0; else NO_POSITION
    state: StepState
    attempt: int = 1
    started: int = 0
    ended: int = 0
    wake_at: int = 0  # when a pause ends
    result: bytes = b""  # the encoded result: a serialized `lf.a2a.v1.Part` with `raw` and `media_type`
    size: int = 0  # bytes of the result
    error: str = ""  # of the last failed attempt
    details: bytes = b""  # for people: a serialized `dragoman.worker.v1.StepDetails`
    turn: int = CURRENT_TURN
    """CURRENT_TURN; for steps of an earlier turn the number of the message with which that turn ended."""

    @property
    def label(self) -> str:
        """Its name, with its number from the second of that name on."""
        return step_label(self.name, self.number)


def result_text(data: bytes, media_type: str) -> tuple[str, str]:
    """A result as text for people, and the text's media type. A string is Markdown; bytes have no text."""
    is_json = media_type == JSON_MEDIA_TYPE
    if is_json and len(data) <= MAX_PARSED_BYTES:
        with suppress(LookupError, TypeError, ValueError, RecursionError):  # of a worker that has other results
            value = json.loads(data, object_hook=_without_kind)
            if isinstance(value, str):
                return value, "text/markdown"
            return json.dumps(value, indent=2, ensure_ascii=False), media_type
    return data.decode(errors="replace") if is_json or media_type.startswith("text/") else "", media_type


def _without_kind(value: dict[str, Any]) -> Any:
    """The content of a `$kind` object of `agents/functions/step_values.py`; another object as it is."""
    kind = next(iter(value)) if len(value) == 1 else ""
    if kind == "$dict":
        return {str(key): item for key, item in value[kind]}
    if kind == "$model":
        return json.loads(value[kind][1])
    if kind in ("$enum", "$path", "$dataclass", "$protobuf"):
        return value[kind][1]
    return value[kind] if kind.startswith("$") else value


def without_secrets(arguments: str) -> str:
    """Arguments as JSON, without the texts under a SECRET_NAME. Empty for invalid JSON, or if it is nested too deep."""
    try:
        return json.dumps(_hidden(json.loads(arguments), ""), separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def _hidden(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _hidden(item, f"{name} {key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item, name) for item in value]
    return HIDDEN if isinstance(value, str) and SECRET_NAME.search(name) else value


def step_label(name: str, number: int) -> str:
    """`search`, `search#2`, ..."""
    return name if number == 1 else f"{name}#{number}"


class StepJournal:
    """The steps of a turn: those that earlier runs have stored, and the order in which this run calls its own.

    Not thread-safe.
    """

    def __init__(self, stored: Iterable[StepRecord], task: str, turn_number: int = 0) -> None:
        """stored: steps of the task. task: identifies the task. turn_number: the number of the current turn, unless
        `stored` has steps of earlier turns."""
        self.turn_number = turn_number
        """The same in all runs of this turn, and in no other turn of the task that has steps."""
        self._stored: dict[tuple[str, int], StepRecord] = {}
        self._by_position: dict[int, StepRecord] = {}
        for step in stored:
            self.turn_number = max(self.turn_number, step.turn)
            if step.turn == CURRENT_TURN:
                self._stored[step.name, step.number] = step
                if step.position != NO_POSITION:
                    self._by_position[step.position] = step
        self._task = task
        self._position = 0
        self._uses: dict[str, int] = {}
        self._unpositioned: set[str] = set()
        self._last_position = max(self._by_position, default=NO_POSITION)

    @property
    def stored(self) -> Collection[StepRecord]:
        """The steps of this turn that earlier runs have stored."""
        return self._stored.values()

    @property
    def replaying(self) -> bool:
        """Whether the turn's own code has yet to reach the last step that an earlier run stored."""
        return self._position <= self._last_position

    def begin(self, name: str, now: int, *, own_code: bool) -> StepRecord:
        """The stored step that is called now, or a new one.

        own_code: whether the turn's own code calls it, and not another asyncio task or thread. Raises StepMismatch
        when an earlier run called another step at this position, and ValueError when another asyncio task uses a name
        for the second time: the order of such steps may differ between runs, so a number would not identify them.
        """
        number = self._uses.get(name, 0) + 1
        if (not own_code and number > 1) or name in self._unpositioned:
            raise ValueError(
                f'step "{name}" is called twice by concurrent tasks, whose order may change when the turn runs again; '
                f'give each call a name of its own, such as f"{name} {{item}}"'
            )
        position = self._position if own_code else NO_POSITION
        step = self._stored.get((name, number))
        if own_code:
            there = self._by_position.get(position)
            if there is not None and (there.name, there.number) != (name, number):
                raise StepMismatch(
                    f'step {position + 1} of this turn is "{step_label(name, number)}", and was "{there.label}" in '
                    "its earlier run: the code has changed, or takes another path; cancel the task, or run the code "
                    "with which it began"
                )
            self._position += 1
        else:
            self._unpositioned.add(name)
        if step is not None and step.position != position:
            raise StepMismatch(
                f'step "{step.label}" of this turn was called at another place in its earlier run: the code has '
                "changed, or takes another path; cancel the task, or run the code with which it began"
            )
        self._uses[name] = number
        return step or StepRecord(name, number, position, StepState.RUNNING, started=now)

    def key(self, step: StepRecord) -> str:
        """The idempotency key of a step: 32 hex digits, the same in every run of its turn and in no other turn."""
        parts = (self._task, str(self.turn_number), str(step.number), step.name)
        return sha256("\n".join(parts).encode()).hexdigest()[:32]
