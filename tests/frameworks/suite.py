"""The contract of framework adapters: which cells it has, on which frameworks it runs, and the page with both.

Each framework has an environment of its own, and a file of agents with a model that follows a script: `agents/` has the
same agents, with the same behavior, for every framework.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.environments import ROOT, Environment

HERE: Final = Path(__file__).parent
PAGE: Final = ROOT / "docs" / "reference" / "frameworks.md"
BEGIN: Final = "<!-- table: written by `python -m tests.frameworks.suite` -->"
END: Final = "<!-- end of table -->"


@dataclass(frozen=True)
class Framework:
    """A framework under test. `name`: of its agents. `label`: what is served, for people. `package`: unless `name`."""

    name: str
    label: str
    package: str = ""

    @property
    def requirements(self) -> Path:
        return HERE / "requirements" / f"{self.package or self.name}.txt"

    @property
    def agents(self) -> Path:
        return HERE / "agents" / f"{self.name}_agents.py"

    @property
    def environment(self) -> Environment:
        return Environment(f"framework_{self.package or self.name}", (self.requirements,))

    @property
    def version(self) -> str:
        """The first requirement, without extras: `pydantic-ai-slim==2.68.0`."""
        return re.sub(r"\[.*\]", "", self.requirements.read_text("utf-8").split()[0])

    @property
    def packages(self) -> set[str]:
        """The required packages without their versions: `pydantic-ai-slim[openai]`."""
        return {one.partition("==")[0] for one in self.requirements.read_text("utf-8").split()}


FRAMEWORKS: Final = (
    Framework("crewai_crew", "CrewAI `Crew`", "crewai"),
    Framework("crewai_flow", "CrewAI `Flow`", "crewai"),
    Framework("google_adk", "Google ADK agent"),
    Framework("langgraph", "LangGraph compiled graph"),
    Framework("agent_framework", "Microsoft Agent Framework `Agent`"),
    Framework("openai_agents", "OpenAI Agents SDK `Agent`"),
    Framework("pydantic_ai", "pydantic-ai `Agent`"),
    Framework("strands", "Strands `Agent`"),
)


def framework(name: str) -> Framework:
    """The framework with this name. Raises ValueError for an unknown one."""
    found = [one for one in FRAMEWORKS if one.name == name]
    if not found:
        raise ValueError(f"tests/frameworks has no {name}")
    return found[0]


CELLS: Final = {
    "text": "text in, text out",
    "streaming": "text is streamed as it is produced",
    "structured": "structured data out, as a data part",
    "files": "files in",
    "progress": "tool calls as status updates",
    "approval": "a tool that needs approval asks the caller; the answer goes on where the run stopped",
    "denial": "a refused approval does not run the tool",
    "session": "the next task of a conversation knows the earlier ones",
    "restart": "the same after the server was killed, and the approval too",
    "steps": "a turn that runs again after a crash does not repeat what was finished",
    "cancel": "a cancel stops the run and what it awaits",
    "usage": "tokens are counted for the task",
    "error": "an error has the framework's own text",
    "card": "name and description on the card",
    "skills": "tools as skills of the card",
}
"""What every adapter has to do: name of the cell, and its meaning."""

NO_PAUSE: Final = "no: a crew cannot be stored while it waits; a Flow can"
NO_CONVERSATION: Final = "no: every kickoff of a crew begins anew; a Flow has a state"

NO_STEPS: Final = "no: it has no place for it, so that the turn is repeated as a whole"

UNSUPPORTED: Final = {
    ("agent_framework", "steps"): NO_STEPS,
    ("crewai_crew", "steps"): NO_STEPS,
    ("crewai_flow", "steps"): NO_STEPS,
    ("google_adk", "steps"): NO_STEPS,
    ("openai_agents", "steps"): NO_STEPS,
    ("strands", "steps"): NO_STEPS,
    ("crewai_crew", "approval"): NO_PAUSE,
    ("crewai_crew", "denial"): NO_PAUSE,
    ("crewai_crew", "session"): NO_CONVERSATION,
    ("crewai_crew", "restart"): NO_CONVERSATION,
    ("crewai_crew", "cancel"): "in part: CrewAI calls models and tools in threads, and the one that runs ends first",
    ("crewai_flow", "skills"): "no: a flow has methods, not tools",
}
"""Framework and cell, with the reason why the framework cannot do it."""


def table() -> str:
    """The table of the page."""
    head = ["| | " + " | ".join(f"{one.label}<br/>{one.version}" for one in FRAMEWORKS) + " |"]
    head.append("|---|" + "---|" * len(FRAMEWORKS))
    rows = [
        f"| {meaning} | " + " | ".join(UNSUPPORTED.get((one.name, cell), "works") for one in FRAMEWORKS) + " |"
        for cell, meaning in CELLS.items()
    ]
    return "\n".join([BEGIN, "", *head, *rows, "", END])


def page_with_table(page: str) -> str:
    """The page with the current table."""
    before, _, rest = page.partition(BEGIN)
    return before + table() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text("utf-8")), "utf-8")
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
