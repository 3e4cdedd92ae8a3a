"""Runs a crew or a flow of CrewAI: its events become chunks and status updates of the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from crewai.events.stream_context import add_stream_sink, reset_stream_sinks

from .adapter import FrameworkTurn, InputFile

FINAL_ANSWER = "Final Answer:"
"""After it comes the answer of a model that calls no functions, but writes its thoughts."""

THOUGHT = "Thought:"


async def run_with_events(turn: FrameworkTurn, run: Coroutine[Any, Any, Any], is_output: Callable[[Any], bool]) -> Any:
    """Awaits `run` and reports its events. `is_output`: whether the text of a chunk is part of the final response."""
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[Any] = asyncio.Queue()

    def report(_source: Any, event: Any) -> None:  # called in the thread of the tool or the model
        loop.call_soon_threadsafe(events.put_nowait, event)

    token = add_stream_sink(report)
    running = asyncio.create_task(run)
    reset_stream_sinks(token)
    running.add_done_callback(lambda _: loop.call_soon(events.put_nowait, None))
    output = OutputFilter()
    try:
        while (event := await events.get()) is not None:
            if event.type != "llm_stream_chunk":
                await _report(turn, event)
            elif is_output(event) and event.tool_call is None:
                await turn.chunk(output.feed(event.call_id, event.chunk))
        return await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class OutputFilter:
    """Leaves out the thoughts of a model that writes `Thought: ... Final Answer: ...`."""

    def __init__(self) -> None:
        self._call = ""
        self._held = ""
        self._is_answer = False

    def feed(self, call: str, text: str) -> str:
        """The part of `text`, a chunk of the model call `call`, that is for the caller."""
        if call != self._call:
            self._call, self._held, self._is_answer = call, "", False
        if self._is_answer:
            return text
        self._held += text
        start = self._held.lstrip()
        if THOUGHT.startswith(start[: len(THOUGHT)]) or FINAL_ANSWER.startswith(start[: len(FINAL_ANSWER)]):
            _, found, answer = self._held.partition(FINAL_ANSWER)
            self._is_answer = bool(found and answer.strip())
            return answer.lstrip() if self._is_answer else ""
        self._is_answer = True
        return self._held


async def _report(turn: FrameworkTurn, event: Any) -> None:
    match event.type:
        case "tool_usage_started":
            text = f"calls {event.tool_name}"
            await turn.progress("tool_call", event.tool_name, text, arguments=event.tool_args)
        case "tool_usage_finished":
            await turn.progress("tool_result", event.tool_name, f"{event.tool_name} has answered")
        case "tool_usage_error":
            await turn.progress("tool_result", event.tool_name, f"{event.tool_name} has failed: {event.error}")
        case "task_started":
            name = event.task_name or "task"
            agent = getattr(event.task, "agent", None)
            await turn.progress("task", name, f"{agent.role if agent else 'an agent'} begins: {name}")
        case "method_execution_started":
            await turn.progress("node", event.method_name, f"runs {event.method_name}")


def files_of(files: list[InputFile]) -> dict[str, Any]:
    """The files of a message, by their names. Raises ValueError if CrewAI has no support for files."""
    if not files:
        return {}
    try:
        from crewai_files import File, FileBytes, FileUrl
    except ImportError:
        raise ValueError('files need more of CrewAI: pip install "crewai[file-processing]"') from None
    named = {}
    for number, file in enumerate(files, 1):
        if file.url:
            source = FileUrl(url=file.url, filename=file.name or None)
        else:
            source = FileBytes(data=file.data, filename=file.name or None)
        source._content_type = file.media_type
        named[file.name or f"file {number}"] = File(source=source)
    return named
