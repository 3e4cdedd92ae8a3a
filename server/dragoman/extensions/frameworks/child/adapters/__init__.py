"""Agents of frameworks, recognized by their classes: one adapter for each framework.

A framework's package is imported only for an object of its own, so nothing here needs one.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class FrameworkKind:
    """A kind of object that can be served."""

    label: str
    """For people: `pydantic-ai Agent`."""
    package: str
    """The package that defines its class."""
    classes: tuple[str, ...]
    """Names of classes of which it is an instance."""
    adapter: str
    """Its adapter: module of this package, and class."""


KINDS = (
    FrameworkKind("CrewAI Crew", "crewai", ("Crew",), "crewai_crew.CrewAdapter"),
    FrameworkKind("CrewAI Flow", "crewai", ("Flow",), "crewai_flow.FlowAdapter"),
    FrameworkKind("Google ADK agent", "google", ("BaseAgent",), "google_adk_agent.GoogleAdkAdapter"),
    FrameworkKind("LangGraph compiled graph", "langgraph", ("Pregel",), "langgraph_graph.LangGraphAdapter"),
    FrameworkKind(
        "Microsoft Agent Framework agent",
        "agent_framework",
        ("BaseAgent",),
        "agent_framework_agent.AgentFrameworkAdapter",
    ),
    FrameworkKind("OpenAI Agents SDK Agent", "agents", ("AgentBase",), "openai_agents_agent.OpenAIAgentsAdapter"),
    FrameworkKind("pydantic-ai Agent", "pydantic_ai", ("AbstractAgent",), "pydantic_ai_agent.PydanticAiAdapter"),
    FrameworkKind("Strands Agent", "strands", ("Agent",), "strands_agent.StrandsAdapter"),
)
"""All kinds, in the order of messages."""


def recognize(value: Any) -> FrameworkKind | None:
    """The kind of an object or of a class; None for one of no known framework. Imports nothing."""
    classes = value.__mro__ if inspect.isclass(value) else type(value).__mro__
    names = {(cls.__module__.partition(".")[0], cls.__name__) for cls in classes}
    for kind in KINDS:
        if any((kind.package, name) in names for name in kind.classes):
            return kind
    return None


def open_adapter(kind: FrameworkKind, module: ModuleType, name: str, value: Any) -> Any:
    """The adapter of an object, `name` in `module`."""
    module_name, _, class_name = kind.adapter.partition(".")
    adapter = getattr(importlib.import_module(f"{__name__}.{module_name}"), class_name)
    return adapter(module, name, value)
