"""The agents of the contract suite, as crews of CrewAI, with a model that follows a script."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from crewai.events.types.llm_events import LLMCallType
from crewai.tools import tool
from pydantic import BaseModel


class ScriptedModel(BaseLLM):
    """The model: it does what the task says, and answers with what tools have returned."""

    def call(self, messages: Any, *arguments: Any, **options: Any) -> Any:
        return asyncio.run(self.acall(messages, *arguments, **options))

    def supports_function_calling(self) -> bool:
        return True

    def supports_multimodal(self) -> bool:
        return True

    async def acall(self, messages: Any, *_: Any, **options: Any) -> Any:
        answer = await self.answer(messages, **options)
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        self._track_token_usage_internal(usage)
        self._emit_call_completed_event(answer, LLMCallType.LLM_CALL, usage=usage)
        if isinstance(answer, str) and self.stream:
            for piece in answer.splitlines(keepends=True):
                self._emit_stream_chunk_event(piece, options.get("from_task"), options.get("from_agent"))
                await asyncio.sleep(0.01)
        return answer

    async def answer(self, messages: Any, **_: Any) -> Any:
        task = next(one for one in reversed(messages) if one["role"] == "user" and "Current Task:" in one["content"])
        text = task["content"].partition("Current Task:")[2].strip().partition("\n")[0]
        results = [one["content"] for one in messages if one["role"] == "tool"]
        if results:
            return f"the tool returned {results[0]}"
        if text.startswith("stream"):
            return "".join(f"chunk {number}\n" for number in range(3))
        if text.startswith("tool"):
            return [call("double", {"number": 21})]
        if text.startswith("fail"):
            raise ConnectionError("the model is away")
        if text.startswith("hang"):
            Path("hanging").touch()
            try:
                await asyncio.Event().wait()
            finally:
                Path("stopped").touch()
        if text.startswith("file"):
            return ", ".join(f"{len(file.read())} bytes of {file.content_type}" for file in task["files"].values())
        return f"you said: {text}"


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"call-{name}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


@tool
def double(number: int) -> int:
    """Doubles a number."""
    return 2 * number


@tool
def delete(name: str) -> str:
    """Deletes a file."""
    Path("deleted").write_text(name)
    return f"{name} is deleted"


def crew(name: str, model: BaseLLM, goal: str, **task: Any) -> Crew:
    agent = Agent(role="Assistant", goal=goal, backstory="It follows a script.", llm=model, tools=[double, delete])
    return Crew(
        name=name,
        agents=[agent],
        tasks=[Task(description="{prompt}", expected_output="An answer", agent=agent, **task)],
    )


assistant = crew("Assistant", ScriptedModel(model="scripted"), "Follows a script")


class City(BaseModel):
    """A city."""

    name: str
    people: int


class Extractor(ScriptedModel):
    async def answer(self, messages: Any, **_: Any) -> Any:
        return City(name="Rome", people=2_800_000).model_dump_json()


structured = crew("Structured", Extractor(model="scripted"), "Returns structured data", output_pydantic=City)
