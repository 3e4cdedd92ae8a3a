"""Common parts of framework adapters: input, output, conversation, and questions to the caller."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..steps import ExecutorSteps
from ..target import display_name
from ..turn import ExecutorTurn, failed_status

OUTPUT_ARTIFACT = "output"
"""The artifact of streamed text; `output-N` in a task's N-th turn."""

YES = frozenset(("y", "yes", "ok", "okay", "true", "approve", "approved", "allow", "go", "sure"))
NO = frozenset(("n", "no", "false", "deny", "denied", "reject", "rejected", "refuse", "stop"))
"""Texts that answer a request for approval."""


@dataclass(frozen=True)
class InputFile:
    """A file of the caller's message: its bytes, or its URL."""

    name: str
    media_type: str
    data: bytes
    url: str


@dataclass(frozen=True)
class ToolInfo:
    """A tool of an agent, for the skills of its card."""

    name: str
    description: str


class FrameworkTurn:
    """One turn of a framework's agent: what the caller sent, and what the agent answers."""

    def __init__(self, turn: ExecutorTurn, framework: str) -> None:
        """`framework`: the key under which the states of the conversation and of the task are kept."""
        self.turn = turn
        self._framework = framework
        parts = turn.message.get("parts", [])
        self.text = "\n".join(part["text"] for part in parts if "text" in part)
        """The text parts, joined with newlines."""
        self.data = [part["data"] for part in parts if "data" in part]
        """The JSON values of the data parts."""
        self.files = [
            InputFile(
                part.get("filename", ""),
                part.get("mediaType", "") or "application/octet-stream",
                b64decode(part.get("raw", "")),
                part.get("url", ""),
            )
            for part in parts
            if "raw" in part or "url" in part
        ]
        self.conversation: Any = _state(turn.start.get("contextState", "")).get(framework)
        """The framework's state of the conversation; None in its first turn."""
        self.pending: Any = _state(turn.start.get("taskState", "")).get(framework)
        """The state with which the framework continues after its question; None without one."""
        self.steps = ExecutorSteps(turn)
        """The framework's finished work of an earlier attempt of this turn, if it stores any."""
        turns = int(turn.start.get("turnsBefore", 0))
        self._output_id = f"{OUTPUT_ARTIFACT}-{turns + 1}" if turns else OUTPUT_ARTIFACT
        self._chunks: list[str] = []
        self._artifacts = 0

    @property
    def prompt(self) -> str:
        """The text, followed by the data parts as JSON."""
        return "\n\n".join([*([self.text] if self.text else []), *(json.dumps(value) for value in self.data)])

    @property
    def approval(self) -> bool | None:
        """Whether the caller approves: a data part `{"approved": true}`, or a text such as yes or no. None: neither."""
        for value in self.data:
            if isinstance(value, dict) and isinstance(value.get("approved"), bool):
                return bool(value["approved"])
        first = self.text.strip().strip(".!").lower()
        return True if first in YES else False if first in NO else None

    # Output -------------------------------------------------------------------------------------------------------

    async def chunk(self, text: str) -> None:
        """Streams text to the output of this turn."""
        if text:
            append = bool(self._chunks)
            self._chunks.append(text)
            await self.turn.text(self._output_id, text, append=append)

    @property
    def has_output(self) -> bool:
        """Whether text was streamed."""
        return bool(self._chunks)

    @property
    def output(self) -> str:
        """The text that was streamed."""
        return "".join(self._chunks)

    async def data_artifact(self, value: Any, name: str = "result") -> None:
        """Sends a JSON value as an artifact."""
        await self._artifact({"data": value}, name)

    async def file_artifact(self, content: bytes, media_type: str, name: str = "") -> None:
        """Sends a file as an artifact."""
        await self._artifact({"raw": b64encode(content).decode(), "mediaType": media_type, "filename": name}, name)

    async def _artifact(self, part: dict[str, Any], name: str) -> None:
        self._artifacts += 1
        id = f"{self._output_id}.{self._artifacts}"
        await self.turn.artifact({"artifactId": id, "name": name, "parts": [part]})

    async def progress(self, kind: str, name: str, text: str, **details: Any) -> None:
        """Sends a status update: text for people, and for programs metadata with kind, name and details."""
        message = {"parts": [{"text": text}]}
        metadata = {"progress": {"kind": kind, "name": name, **details}}
        await self.turn.status("TASK_STATE_WORKING", message, metadata, merge=False)

    def usage(self, tokens: int, cost: float = 0.0) -> None:
        """Reports tokens, and a cost in the operator's currency."""
        if tokens or cost:
            self.turn.usage(tokens, round(cost * 1e9))

    # The end of the turn ------------------------------------------------------------------------------------------

    def save_states(self, conversation: Any, pending: Any = None) -> None:
        """Stores JSON for the conversation, and for the task what a question needs, with the end of the turn."""
        if conversation is not None:
            self.turn.set_state(context_state=self._merged("contextState", conversation))
        if pending is not None or self.pending is not None:
            self.turn.set_state(task_state=self._merged("taskState", pending))

    def ask(self, text: str, data: Any = None) -> None:
        """Ends the turn as INPUT_REQUIRED with a question, and data that describes it."""
        self._wait_for_caller("TASK_STATE_INPUT_REQUIRED", text, data)

    def require_authorization(self, text: str, data: Any = None) -> None:
        """Ends the turn as AUTH_REQUIRED with what the caller has to do, and data that describes it."""
        self._wait_for_caller("TASK_STATE_AUTH_REQUIRED", text, data)

    def _wait_for_caller(self, state: str, text: str, data: Any) -> None:
        parts: list[dict[str, Any]] = [{"text": text}]
        if data is not None:
            parts.append({"data": data})
        self.turn.end({"state": state, "message": {"parts": parts}})

    def complete(self) -> None:
        """Ends the turn as COMPLETED."""
        self.turn.end({"state": "TASK_STATE_COMPLETED"})

    def fail(self, text: str) -> None:
        """Ends the turn as FAILED."""
        self.turn.end(failed_status(text))

    def _merged(self, name: str, value: Any) -> str:
        state = _state(self.turn.start.get(name, ""))
        state[self._framework] = value
        return json.dumps(state, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class FrameworkAdapter:
    """Base class of the adapters. Implements what `main` expects of one."""

    framework = ""
    """The key of its states."""

    def __init__(self, module: ModuleType, name: str, value: Any) -> None:
        """`value`: what `name` is in `module`."""
        self.value = value
        self._module = module
        self._name = name

    def registration(self, id: str) -> dict[str, Any]:
        """The registration of the agent, from what the object says of itself."""
        name, description, tools = self.describe()
        name = name or display_name(self._name)
        description = description or (self._module.__doc__ or "").strip().partition("\n")[0]
        card = {
            "name": name,
            "description": description or name,
            "skills": [
                {"id": tool.name, "name": tool.name, "description": tool.description or tool.name, "tags": ["tool"]}
                for tool in tools
            ],
            "defaultInputModes": ["text/plain", "application/json", "*/*"],
            "capabilities": {"streaming": True},
        }
        return {"id": id, "card": card}

    def describe(self) -> tuple[str, str, Iterable[ToolInfo]]:
        """The name and the description of the agent, empty for none, and its tools."""
        raise NotImplementedError

    async def execute(self, turn: ExecutorTurn) -> None:
        """Runs a turn. An error ends it as FAILED with the framework's own text."""
        await self.run(FrameworkTurn(turn, self.framework))

    async def run(self, turn: FrameworkTurn) -> None:
        """Runs the agent, and ends the turn."""
        raise NotImplementedError

    async def cancel(self, turn: ExecutorTurn) -> None:
        """Does nothing: the task that runs the turn is canceled afterwards, and what it awaits with it."""


def _state(text: str) -> dict[str, Any]:
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {}
