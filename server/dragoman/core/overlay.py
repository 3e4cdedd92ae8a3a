"""What an operator says on cards in an agent's place: words for people, and nothing that changes what the agent does.

A table for each agent, by its id: `name`, `description`, `version`, `documentation_url`, `icon_url`, `provider` (a
table), `skills` and `extended_skills` (lists of tables). What is not said stays as the agent says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any, Final

from dragoman.core.card import AgentSpec, Provider, Skill
from dragoman.core.names import AGENT_ID

Overlay = Mapping[str, Any]
"""Fields of AgentSpec, with their values."""

_TEXTS: Final = ("name", "description", "version", "documentation_url", "icon_url")
_SKILLS: Final = ("skills", "extended_skills")
_KNOWN: Final = (*_TEXTS, "provider", *_SKILLS)
_MAY_BE_EMPTY: Final = ("documentation_url", "icon_url")


def parse(tables: Mapping[str, Any]) -> dict[str, Overlay]:
    """What is said of each agent. Raises ValueError, naming agent and field."""
    found = {}
    for agent, table in tables.items():
        if not AGENT_ID.fullmatch(agent):
            raise ValueError(f'"{agent}" is no agent id')
        try:
            found[agent] = _fields(table)
        except ValueError as error:
            raise ValueError(f"{agent}.{error}" if isinstance(table, Mapping) else f"{agent}: {error}") from error
    return found


def over(spec: AgentSpec, said: Overlay | None) -> AgentSpec:
    """An agent as the operator shows it."""
    return replace(spec, **said) if said else spec


def _fields(table: Any) -> Overlay:
    if not isinstance(table, Mapping):
        raise ValueError(f"must be a table of {', '.join(_KNOWN)}")
    said: dict[str, Any] = {}
    for name, value in table.items():
        if name in _TEXTS:
            said[name] = _text(name, value, empty=name in _MAY_BE_EMPTY)
        elif name == "provider":
            said[name] = _made(name, Provider, value)
        elif name in _SKILLS:
            if not isinstance(value, list):
                raise ValueError(f"{name}: must be a list of tables")
            said[name] = tuple(_made(f"{name}[{number}]", Skill, one) for number, one in enumerate(value))
            if len({skill.id for skill in said[name]}) < len(said[name]):
                raise ValueError(f"{name}: two of them have the same id")
        else:
            raise ValueError(f"{name}: is none of {', '.join(_KNOWN)}")
    return said


def _made(at: str, kind: type[Any], table: Any) -> Any:
    known = {field.name: field for field in fields(kind)}
    if not isinstance(table, Mapping):
        raise ValueError(f"{at}: must be a table of {', '.join(known)}")
    if unknown := [name for name in table if name not in known]:
        raise ValueError(f"{at}.{unknown[0]}: is none of {', '.join(known)}")
    if missing := [name for name, field in known.items() if field.default is MISSING and name not in table]:
        raise ValueError(f"{at}.{missing[0]}: is required")
    return kind(**{name: _value(f"{at}.{name}", known[name].default, value) for name, value in table.items()})


def _value(at: str, default: Any, value: Any) -> Any:
    if not isinstance(default, tuple):
        return _text(at, value)
    if not isinstance(value, list):
        raise ValueError(f"{at}: must be a list of texts")
    return tuple(_text(at, one) for one in value)


def _text(at: str, value: Any, *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value.strip() or empty):
        raise ValueError(f"{at}: must be a text{'' if empty else ', and not empty'}")
    return value
