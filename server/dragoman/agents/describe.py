"""The arguments of `@agent`, checked and completed: the AgentSpec from which cards are made (A2A 1.0 §4.4)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dragoman.agents import schemes
from dragoman.agents.arguments import fields, text, texts
from dragoman.core.card import DEFAULT_MODES, AgentSpec, Extension, Provider, Skill
from dragoman.core.names import check_agent_id
from dragoman.core.retention import parse_ages

T = TypeVar("T")

ExtensionLike = Extension | Mapping[str, Any] | str
SkillLike = Skill | Mapping[str, Any] | str
ProviderLike = Provider | Mapping[str, str]
RetentionLike = str | int | Mapping[str, str | int]

URI: Final = re.compile(r"[!-+\--~]+")
"""What callers can name in a list that a header carries: printable ASCII but the comma."""

MEDIA_TYPE: Final = re.compile(r"[\w.+-]+|\*", re.ASCII)


def spec_of(
    function: Callable[..., object],
    *,
    id: str | None,
    name: str | None,
    description: str | None,
    version: str,
    skills: Iterable[SkillLike],
    input_modes: Iterable[str],
    output_modes: Iterable[str],
    provider: ProviderLike | None,
    icon_url: str,
    documentation_url: str,
    extensions: Iterable[ExtensionLike],
    security_schemes: Mapping[str, Mapping[str, Any]],
    security: Iterable[Mapping[str, Iterable[str]]],
    state_transition_history: bool,
    extended_skills: Iterable[SkillLike],
    default: bool,
    streaming: bool,
    direct: bool,
    cancelable: bool,
    while_working: Any,
    on_crash: Any,
    idle_limit: float,
    time_limit: float,
    retention: RetentionLike | None,
) -> AgentSpec:
    """The spec of `function` under these arguments. Raises TypeError or ValueError, naming the argument."""
    for argument, said in {"id": id, "name": name, "description": description}.items():
        if said is not None:
            text(argument, said)
    flags = {
        "default": default,
        "streaming": streaming,
        "direct": direct,
        "cancelable": cancelable,
        "state_transition_history": state_transition_history,
    }
    for argument, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"@agent: {argument}={flag!r} must be True or False")
    if while_working not in ("queue", "refuse"):
        raise ValueError(f'@agent: while_working={while_working!r} must be "queue" or "refuse"')
    id = _id_of(function) if id is None else id
    check_agent_id(id)
    name = _words(id) if name is None else name
    return AgentSpec(
        id=id,
        name=name,
        description=_first_line(function) or name if description is None else description,
        version=text("version", version),
        skills=(shown := _skills(skills)),
        input_modes=_modes("input_modes", input_modes),
        output_modes=_modes("output_modes", output_modes),
        provider=_provider(provider),
        icon_url=text("icon_url", icon_url, empty=True),
        documentation_url=text("documentation_url", documentation_url, empty=True),
        extensions=_extensions(extensions),
        security_schemes=schemes.schemes(security_schemes),
        security=schemes.requirements(security, security_schemes),
        state_transition_history=state_transition_history,
        extended_skills=_skills(extended_skills, "extended_skills", beside=shown),
        default=default,
        streaming=streaming,
        direct=direct,
        cancelable=cancelable,
        while_working=while_working,
        retries=_retries(on_crash),
        idle_limit=_seconds("idle_limit", idle_limit),
        time_limit=_seconds("time_limit", time_limit),
        retention=_retention(retention),
    )


@dataclass(frozen=True, slots=True)
class Retry:
    """A turn whose process died is begun again, so often."""

    times: int


def retry(times: int) -> Retry:
    """`@agent(on_crash=retry(2))`: begins a turn again when its process died, twice at most. Raises ValueError."""
    if times not in range(1, 101):
        raise ValueError(f"retry({times!r}): must be 1 to 100 times")
    return Retry(times)


def _retries(on_crash: object) -> int:
    if isinstance(on_crash, Retry):
        return on_crash.times
    if on_crash != "fail":
        raise ValueError(f'@agent: on_crash={on_crash!r} must be "fail" or retry(n)')
    return 0


def _seconds(argument: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"@agent: {argument}={value!r} must be seconds, 0 for no limit")
    return float(value)


def _retention(said: RetentionLike | None) -> dict[int, int]:
    try:
        return {} if said is None else parse_ages(said)
    except ValueError as error:
        raise ValueError(f"@agent: retention: {error}") from error


def _id_of(function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", "")
    return name.strip("_").replace("_", "-").lower()


def _first_line(function: Callable[..., object]) -> str:
    lines = (function.__doc__ or "").strip().splitlines()
    return lines[0].strip() if lines else ""


def _words(id: str) -> str:
    return id.replace("-", " ").capitalize()


def _skills(
    skills: Iterable[SkillLike], argument: str = "skills", *, beside: tuple[Skill, ...] = ()
) -> tuple[Skill, ...]:
    if isinstance(skills, (str, Mapping, Skill)) or not isinstance(skills, Iterable):
        raise TypeError(f"@agent: {argument}={skills!r} must be a list of Skill, dict or str")
    made = tuple(_skill(f"{argument}[{index}]", skill) for index, skill in enumerate(skills))
    for index, skill in enumerate(made):
        if skill.id in [earlier.id for earlier in (*beside, *made[:index])]:
            raise ValueError(f'@agent: {argument}[{index}] has the id "{skill.id}" of an earlier skill')
    return made


def _skill(argument: str, skill: SkillLike) -> Skill:
    if isinstance(skill, str):
        skill = {"name": skill}
    given = fields(argument, skill, Skill)
    name, id = given.get("name"), given.get("id")
    if not name and not id:
        raise ValueError(f"@agent: {argument} needs a name or an id")
    name = text(f"{argument}.name", name or _words(text(f"{argument}.id", id)))
    id = text(f"{argument}.id", id or re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"))
    return Skill(
        id=id,
        name=name,
        description=text(f"{argument}.description", given.get("description") or name),
        tags=texts(f"{argument}.tags", given.get("tags", ())),
        examples=texts(f"{argument}.examples", given.get("examples", ())),
        input_modes=_modes(f"{argument}.input_modes", given.get("input_modes", ()), empty=True),
        output_modes=_modes(f"{argument}.output_modes", given.get("output_modes", ()), empty=True),
    )


def _extensions(extensions: Iterable[ExtensionLike]) -> tuple[Extension, ...]:
    if isinstance(extensions, (str, Mapping, Extension)) or not isinstance(extensions, Iterable):
        raise TypeError(f"@agent: extensions={extensions!r} must be a list of Extension, dict or str")
    made = tuple(_extension(f"extensions[{index}]", one) for index, one in enumerate(extensions))
    for index, one in enumerate(made):
        if one.uri in [earlier.uri for earlier in made[:index]]:
            raise ValueError(f'@agent: extensions[{index}] has the uri "{one.uri}" of an earlier extension')
    return made


def _extension(argument: str, extension: ExtensionLike) -> Extension:
    given = fields(argument, {"uri": extension} if isinstance(extension, str) else extension, Extension)
    required, params = given.get("required", False), given.get("params", {})
    if not isinstance(required, bool):
        raise TypeError(f"@agent: {argument}.required={required!r} must be True or False")
    if not isinstance(params, Mapping):
        raise TypeError(f"@agent: {argument}.params={params!r} must be a dict")
    try:
        params = json.loads(json.dumps(dict(params), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"@agent: {argument}.params is no JSON: {error}") from None
    uri = text(f"{argument}.uri", given.get("uri"))
    if not URI.fullmatch(uri):
        raise ValueError(
            f'@agent: {argument}.uri: "{uri}" could not be named in a header; use a URI without , and space'
        )
    return Extension(
        uri=uri,
        description=text(f"{argument}.description", given.get("description", ""), empty=True),
        required=required,
        params=params,
    )


def _provider(provider: ProviderLike | None) -> Provider | None:
    if provider is None:
        return None
    given = fields("provider", provider, Provider)
    return Provider(**{name: text(f"provider.{name}", given.get(name)) for name in ("organization", "url")})


def _modes(argument: str, modes: Iterable[str], *, empty: bool = False) -> tuple[str, ...]:
    made = texts(argument, modes)
    if not made and not empty:
        raise ValueError(f"@agent: {argument} is empty; leave it out for {', '.join(DEFAULT_MODES)}")
    for mode in made:
        # Parameters may follow (text/plain;charset=utf-8); the type itself is RFC 2045 §5.1, `*` as in Accept.
        kind, slash, subtype = mode.partition(";")[0].strip().partition("/")
        if not (slash and MEDIA_TYPE.fullmatch(kind) and MEDIA_TYPE.fullmatch(subtype)):
            raise ValueError(f'@agent: {argument}: "{mode}" is no media type; one looks like text/plain')
    return made
