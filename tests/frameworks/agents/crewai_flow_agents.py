"""The agents of the contract suite, as flows of CrewAI, with a model that follows a script."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from crewai import Agent
from crewai.flow import Flow, HumanFeedbackResult, human_feedback, listen, router, start
from crewai_crew_agents import City, Extractor, ScriptedModel, double
from crewai_crew_agents import assistant as crew
from pydantic import BaseModel


class Talk(BaseModel):
    """The state of a conversation."""

    id: str = ""
    prompt: str = ""
    earlier: list[str] = []


def agent(model: type[ScriptedModel] = ScriptedModel) -> Agent:
    return Agent(
        role="Assistant",
        goal="Follows a script",
        backstory="It follows a script.",
        llm=model(model="scripted", stream=True),
        tools=[double],
    )


class Assistant(Flow[Talk]):
    """Follows a script"""

    @start()
    def read(self) -> str:
        return str(self.state.prompt).partition(" ")[0]

    @router(read)
    def choose(self) -> str:
        word = str(self.state.prompt).partition(" ")[0]
        return word if word in ("delete", "file", "hang", "recall", "remember") else "talk"

    @listen("talk")
    async def answer(self) -> str:
        result = await agent().kickoff_async(self.state.prompt)
        return str(result.raw)

    @listen("file")
    async def look(self) -> str:
        result = await crew.copy().akickoff({"prompt": self.state.prompt})
        return str(result.raw)

    @listen("remember")
    def note(self) -> str:
        self.state.earlier.append(self.state.prompt)
        return "noted"

    @listen("recall")
    def tell(self) -> str:
        return " and ".join(self.state.earlier)

    @listen("hang")
    async def wait(self) -> None:
        Path("hanging").touch()
        try:
            await asyncio.Event().wait()
        finally:
            Path("stopped").touch()

    @listen("delete")
    @human_feedback(message="Shall I delete all.txt?")
    def propose(self) -> str:
        return "all.txt"

    @listen(propose)
    def act(self, feedback: HumanFeedbackResult) -> str:
        if feedback.feedback != "yes":
            return f"the tool returned {feedback.output} stays"
        Path("deleted").write_text(feedback.output)
        return f"the tool returned {feedback.output} is deleted"


class Structured(Flow[Talk]):
    """Returns structured data."""

    @start()
    async def extract(self) -> Any:
        result = await agent(Extractor).kickoff_async("which city?", response_format=City)
        return result.pydantic


assistant, structured = Assistant, Structured
