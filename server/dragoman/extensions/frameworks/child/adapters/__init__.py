"""Agents of frameworks, recognized by their classes: one adapter for each framework.

A framework's package is imported only for an object of its own, so nothing here needs one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..exceptions import describe
from ..target import InvalidTarget


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
    supported: str
    """Its distribution, and the oldest version that the adapter runs with."""


KINDS = (
    FrameworkKind("CrewAI Crew", "crewai", ("Crew",), "crewai_crew.CrewAdapter", "crewai 1.15"),
    FrameworkKind("CrewAI Flow", "crewai", ("Flow",), "crewai_flow.FlowAdapter", "crewai 1.15"),
    FrameworkKind("Google ADK agent", "google", ("BaseAgent",), "google_adk_agent.GoogleAdkAdapter", "google-adk 2"),
    FrameworkKind(
        "LangGraph compiled graph", "langgraph", ("Pregel",), "langgraph_graph.LangGraphAdapter", "langgraph 1"
    ),
    FrameworkKind(
        "Microsoft Agent Framework agent",
        "agent_framework",
        ("BaseAgent",),
        "agent_framework_agent.AgentFrameworkAdapter",
        "agent-framework-core 1",
    ),
    FrameworkKind(
        "OpenAI Agents SDK Agent",
        "agents",
        ("AgentBase",),
        "openai_agents_agent.OpenAIAgentsAdapter",
        "openai-agents 0.24",
    ),
    FrameworkKind(
        "pydantic-ai Agent",
        "pydantic_ai",
        ("AbstractAgent",),
        "pydantic_ai_agent.PydanticAiAdapter",
        "pydantic-ai-slim 2",
    ),
    FrameworkKind("Strands Agent", "strands", ("Agent",), "strands_agent.StrandsAdapter", "strands-agents 1"),
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
    """The adapter of an object, `name` in `module`. Raises InvalidTarget for an unsupported version."""
    module_name, _, class_name = kind.adapter.partition(".")
    try:
        adapter = getattr(importlib.import_module(f"{__name__}.{module_name}"), class_name)
    except ImportError as error:
        distribution, _, version = kind.supported.partition(" ")
        try:
            found = f"{distribution} {importlib.metadata.version(distribution)}"
        except importlib.metadata.PackageNotFoundError:
            found = f"{distribution}, whose version is unknown,"
        raise InvalidTarget(
            f"{name} is a {kind.label}, and {found} cannot be served ({describe(error)}); install {distribution} "
            f"{version} or newer"
        ) from error
    return adapter(module, name, value)
