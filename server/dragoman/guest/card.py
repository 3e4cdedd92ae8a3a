"""What an executor's module says of its agent: an agent card if it has one, else what its name and text tell."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

TAKEN = (
    *("name", "description", "version", "iconUrl", "documentationUrl", "provider", "skills"),
    *("defaultInputModes", "defaultOutputModes"),
)
_SKILL = ("id", "name", "description", "tags", "examples", "inputModes", "outputModes")
_SUFFIXES = ("AgentExecutor", "AgentWorker", "Executor", "Worker")


def registration(id: str, found: Any, card: Mapping[str, Any] | None, extended: Mapping[str, Any] | None) -> Any:
    """An AgentRegistration. `found`: what the target named; the cards: in camelCase, of whatever version."""
    said = {key: card[key] for key in TAKEN if card and card.get(key)}
    capabilities = (card or {}).get("capabilities") or {}
    told = {"streaming": capabilities.get("streaming") is not False}
    if extensions := capabilities.get("extensions"):
        told["extensions"] = extensions
    said["skills"] = _skills(said.get("skills"))
    named = found if inspect.isclass(found) or inspect.isroutine(found) else type(found)
    said.setdefault("name", words(named.__name__) or id)
    # Its own text only: what it inherits is about executors in general.
    text = inspect.cleandoc(vars(named).get("__doc__") or "" if inspect.isclass(named) else named.__doc__ or "")
    said.setdefault("description", text.partition("\n\n")[0].replace("\n", " ") or said["name"])
    made = {"id": id, "card": {**said, "capabilities": told}, "direct": True}
    if extended:
        ids = {skill["id"] for skill in said["skills"]}
        made["extendedSkills"] = [one for one in _skills(extended.get("skills")) if one["id"] not in ids]
    return made


def cards(module: ModuleType, executor: Any, kind: type) -> tuple[Any, Any]:
    """The card and the extended card among the values of a kind that a module has, or the executor itself; None for
    what is not there. One whose name says `extended` is that."""
    named = {name: value for name, value in vars(module).items() if isinstance(value, kind)}
    for name in ("agent_card", "card"):
        if isinstance(value := getattr(executor, name, None), kind):
            named = {name: value, **named}
    extended = [value for name, value in named.items() if "extended" in name.lower()]
    public = [value for name, value in named.items() if "extended" not in name.lower()]
    return public[0] if public else None, extended[0] if extended else None


def words(name: str) -> str:
    """`HelloWorldAgentExecutor` as people write it: `Hello World`."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            name = name[: -len(suffix)]
            break
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+", " ", name).strip()
    return " ".join(word[:1].upper() + word[1:] for word in split.split())


def _skills(said: Any) -> list[dict[str, Any]]:
    return [{key: one[key] for key in _SKILL if one.get(key)} for one in said or []]
