"""What a worker says of itself when it comes, checked by the rules of `@agent`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from dragoman.agents.describe import retry, spec_of
from dragoman.agents.plain import read_object
from dragoman.core.card import DEFAULT_MODES, AgentSpec
from dragoman.core.errors import InvalidParams
from dragoman.core.names import check_agent_id
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

NAME_LENGTH: Final = 200
AGENTS: Final = 100
RETRIES: Final = 100
"""Characters of a worker's name, agents that it may have, and times that a turn is begun again."""

CREDITS: Final = 10_000
"""Unused turns that a worker may have granted for one agent."""

_FIELDS: Final = {
    "input_modes": "card.default_input_modes",
    "output_modes": "card.default_output_modes",
    "extensions": "card.capabilities.extensions",
    "on_crash": "retries",
    **{name: f"card.{name}" for name in ("name", "description", "version", "skills", "provider", "icon_url")},
    "documentation_url": "card.documentation_url",
}
"""Arguments of `@agent`, and where a registration has them."""

_NAMED: Final = re.compile(r"@agent: (?P<argument>[a-z_]+)")


def check_hello(hello: wk.Hello) -> list[AgentSpec]:
    """The agents of a worker. Raises InvalidParams, naming the field and the rule."""
    if len(hello.name) > NAME_LENGTH or not hello.name.isprintable():
        raise InvalidParams.field("hello.name", f"must be printable text of at most {NAME_LENGTH} characters")
    if not 1 <= len(hello.agents) <= AGENTS:
        raise InvalidParams.field("hello.agents", f"has {len(hello.agents)} agents; there must be 1 to {AGENTS}")
    specs = [read(registration, f"hello.agents[{index}]") for index, registration in enumerate(hello.agents)]
    for index, spec in enumerate(specs):
        if spec.id in [earlier.id for earlier in specs[:index]]:
            raise InvalidParams.field(f"hello.agents[{index}].id", f'"{spec.id}" is the id of an earlier one')
    return specs


def read(registration: wk.AgentRegistration, where: str = "registration") -> AgentSpec:
    """The agent as the server knows it. `where` is the field that it came in. Raises InvalidParams."""
    try:
        check_agent_id(registration.id)
    except ValueError as error:
        raise InvalidParams.field(f"{where}.id", str(error).removesuffix("; set id=")) from error
    if registration.retries > RETRIES:
        raise InvalidParams.field(f"{where}.retries", f"{registration.retries} is more than {RETRIES}")
    if registration.turns > CREDITS:
        raise InvalidParams.field(f"{where}.turns", f"{registration.turns} is more than {CREDITS}")
    try:
        return _spec(registration)
    except (TypeError, ValueError) as error:
        named = _NAMED.match(str(error))
        rule = str(error)[named.end() :].lstrip(":") if named else str(error)
        argument = named["argument"] if named else "card"
        raise InvalidParams.field(f"{where}.{_FIELDS.get(argument, argument)}", rule.strip()) from error


def _spec(registration: wk.AgentRegistration) -> AgentSpec:
    card = registration.card
    return spec_of(
        _nameless,
        id=registration.id,
        name=card.name or None,
        description=card.description or card.name or None,
        version=card.version or "1.0.0",
        skills=_skills(card.skills),
        input_modes=card.default_input_modes or DEFAULT_MODES,
        output_modes=card.default_output_modes or DEFAULT_MODES,
        provider={"organization": card.provider.organization, "url": card.provider.url}
        if card.HasField("provider")
        else None,
        icon_url=card.icon_url,
        documentation_url=card.documentation_url,
        extensions=[
            {
                "uri": extension.uri,
                "description": extension.description,
                "required": extension.required,
                "params": read_object(extension.params),
            }
            for extension in card.capabilities.extensions
        ],
        security_schemes={},
        security=(),
        state_transition_history=False,
        extended_skills=_skills(registration.extended_skills),
        default=False,
        streaming=card.capabilities.streaming if card.capabilities.HasField("streaming") else True,
        direct=registration.direct,
        cancelable=not registration.uncancelable,
        while_working="refuse" if registration.refuses_messages else "queue",
        on_crash=retry(registration.retries) if registration.retries else "fail",
        idle_limit=_seconds(registration, "idle_limit"),
        time_limit=_seconds(registration, "time_limit"),
        retention={name: f"{round(age.ToSeconds())}s" for name, age in registration.retention.items()} or None,
    )


def _nameless(turn: object) -> None:
    """Stands for a function that is elsewhere: nothing is to be read from it."""


_nameless.__doc__ = ""


def _skills(skills: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": skill.id,
            "name": skill.name,
            "description": skill.description,
            "tags": tuple(skill.tags),
            "examples": tuple(skill.examples),
            "input_modes": tuple(skill.input_modes),
            "output_modes": tuple(skill.output_modes),
        }
        for skill in skills
    ]


def _seconds(registration: wk.AgentRegistration, field: str) -> float:
    duration = getattr(registration, field)
    return float(duration.seconds + duration.nanos / 1e9)
