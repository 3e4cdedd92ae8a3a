"""Adapter for crews of CrewAI."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crewai import Crew
from crewai.core.providers.human_input import SyncHumanInputProvider, reset_provider, set_provider

from .adapter import FrameworkAdapter, FrameworkTurn, ToolInfo
from .crewai_events import files_of, run_with_events


class CrewAdapter(FrameworkAdapter):
    """Runs a copy of a crew for each turn. Its placeholders come from the message."""

    framework = "crewai"

    def describe(self) -> tuple[str, str, Iterable[ToolInfo]]:
        crew: Crew = self.value
        tools = {tool.name: tool for agent in crew.agents for tool in agent.tools or ()}
        tools |= {tool.name: tool for task in crew.tasks for tool in task.tools or ()}
        infos = [ToolInfo(name, _description(tool.description)) for name, tool in tools.items()]
        goals = [agent.goal.strip() for agent in crew.agents]
        if len(goals) > 1:
            goals = [f"{agent.role.strip()}: {goal}" for agent, goal in zip(crew.agents, goals, strict=True)]
        return "" if crew.name == "crew" else crew.name or "", "; ".join(goals), infos

    async def run(self, turn: FrameworkTurn) -> None:
        crew: Crew = self.value.copy()
        needed = crew.fetch_inputs()
        inputs: dict[str, Any] = dict((turn.pending or {}).get("inputs", {}))
        for value in turn.data:
            if isinstance(value, dict):
                inputs.update(value)
        missing = sorted(needed - inputs.keys())
        if turn.text and len(missing) == 1:
            inputs[missing.pop()] = turn.text
        if missing:
            turn.save_states(None, {"inputs": inputs})
            turn.ask(f"Send {' and '.join(missing)}, as the fields of a data part.", {"missing": missing})
            return
        for agent in crew.agents:
            agent.llm.stream = True
        last = str(crew.tasks[-1].id)
        token = set_provider(NoHuman())
        try:
            run = crew.akickoff(inputs=inputs, input_files=files_of(turn.files) or None)
            result = await run_with_events(turn, run, lambda event: event.task_id == last)
        finally:
            reset_provider(token)
            turn.usage(crew.calculate_usage_metrics().total_tokens)
        if result.pydantic is not None or result.json_dict is not None:
            value = result.json_dict if result.pydantic is None else result.pydantic.model_dump(mode="json")
            await turn.data_artifact(value)
        elif not turn.has_output:
            await turn.chunk(result.raw)
        turn.save_states(None)
        turn.complete()


class NoHuman(SyncHumanInputProvider):
    """Refuses `human_input=True` of a task: a crew that waits cannot be stored."""

    def handle_feedback(self, *_: Any) -> Any:
        raise NotImplementedError(
            "a task of this crew has human_input=True, and a crew cannot be stored while it waits; "
            "serve a Flow with @human_feedback instead"
        )

    async def handle_feedback_async(self, *_: Any) -> Any:
        self.handle_feedback()


def _description(text: str) -> str:
    """The author's own words: CrewAI puts the tool's name and arguments before them."""
    return text.partition("Tool Description:")[2].strip() or text.strip()
