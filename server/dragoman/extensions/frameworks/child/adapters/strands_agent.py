"""Adapter for agents of Strands.

Such an agent holds its conversation and has one invocation at a time, so the turns of one agent run one after another,
each with its own conversation loaded into it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

from strands import Agent
from strands.types.session import decode_bytes_values, encode_bytes_values

from .adapter import FrameworkAdapter, FrameworkTurn, InputFile, ToolInfo


class StrandsAdapter(FrameworkAdapter):
    """Runs an agent: text and tool calls are streamed, interrupts become questions."""

    framework = "strands"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        agent: Agent = self.value
        agent.callback_handler = _print_nothing
        self._fresh = agent.take_snapshot(preset="session")
        """The agent as its author made it, with which each conversation begins."""
        self._running = asyncio.Lock()

    def describe(self) -> tuple[str, str, Iterable[ToolInfo]]:
        agent: Agent = self.value
        specs = agent.tool_registry.get_all_tool_specs()
        tools = [ToolInfo(spec["name"], spec["description"].partition("\n")[0]) for spec in specs]
        return "" if agent.name == "Strands Agents" else agent.name, agent.description or "", tools

    async def run(self, turn: FrameworkTurn) -> None:
        async with self._running:
            await self._run(turn, self.value)

    async def _run(self, turn: FrameworkTurn, agent: Agent) -> None:
        pending = turn.pending or {}
        saved = pending.get("snapshot") or turn.conversation
        agent.load_snapshot(type(self._fresh)(**decode_bytes_values(saved)) if saved else self._fresh)
        tokens = agent.event_loop_metrics.accumulated_usage["totalTokens"]
        given: Any = _answers(turn, pending["interrupts"]) if pending else _content_of(turn)
        blocks = [block for message in agent.messages for block in message["content"] if "toolUse" in block]
        names: dict[str, str] = {block["toolUse"]["toolUseId"]: block["toolUse"]["name"] for block in blocks}
        result = None
        async for event in agent.stream_async(given):
            if "data" in event:
                await turn.chunk(event["data"])
            elif "message" in event:
                await _report_tools(turn, event["message"], names)
            elif "result" in event:
                result = event["result"]
        assert result is not None, "a stream ends with its result"
        turn.usage(agent.event_loop_metrics.accumulated_usage["totalTokens"] - tokens)
        snapshot = encode_bytes_values(vars(agent.take_snapshot(preset="session")))
        if result.interrupts:
            turn.save_states(None, {"snapshot": snapshot, "interrupts": [one.id for one in result.interrupts]})
            data = [{"id": one.id, "name": one.name, "reason": one.reason} for one in result.interrupts]
            turn.ask("\n".join(_question(one.name, one.reason) for one in result.interrupts), {"interrupts": data})
            return
        if result.structured_output is not None:
            await turn.data_artifact(result.structured_output.model_dump(mode="json"))
        turn.save_states(snapshot)
        turn.complete()


def _print_nothing(**_: Any) -> None:
    """In place of the handler that prints what the agent streams."""


async def _report_tools(turn: FrameworkTurn, message: Any, names: dict[str, str]) -> None:
    for block in message["content"]:
        if "toolUse" in block:
            use = block["toolUse"]
            names[use["toolUseId"]] = use["name"]
            details = {"id": use["toolUseId"], "arguments": use["input"]}
            await turn.progress("tool_call", use["name"], f"calls {use['name']}", **details)
        elif "toolResult" in block:
            id = block["toolResult"]["toolUseId"]
            name = names.get(id, "")
            await turn.progress("tool_result", name, f"{name} has answered", id=id)


def _question(name: str, reason: Any) -> str:
    text = reason if isinstance(reason, str) else json.dumps(reason, default=str) if reason is not None else ""
    return f"{name}: {text}" if text else name


def _answers(turn: FrameworkTurn, interrupts: Sequence[str]) -> list[Any]:
    """The caller's answer: a data part, or the text. The same for all interrupts, unless data is keyed by their ids."""
    answer: Any = turn.data[0] if turn.data else turn.text
    keyed = isinstance(answer, dict) and set(interrupts) <= answer.keys()
    answers = {id: answer[id] if keyed else answer for id in interrupts}
    return [{"interruptResponse": {"interruptId": id, "response": value}} for id, value in answers.items()]


def _content_of(turn: FrameworkTurn) -> Any:
    if not turn.files:
        return turn.prompt
    return [*([{"text": turn.prompt}] if turn.prompt else []), *map(_block, turn.files)]


def _block(file: InputFile) -> dict[str, Any]:
    if file.url:
        raise ValueError(f"Strands takes the bytes of a file, not its URL: {file.url}")
    kind, _, subtype = file.media_type.partition("/")
    if kind in ("image", "video"):
        return {kind: {"format": subtype, "source": {"bytes": file.data}}}
    name, _, extension = file.name.rpartition(".")
    return {"document": {"format": extension or subtype, "name": name or "file", "source": {"bytes": file.data}}}
