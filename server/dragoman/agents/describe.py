"""The arguments of `@agent`, checked and completed: the AgentSpec from which cards are made (A2A 1.0 §4.4)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from dragoman.core.card import DEFAULT_MODES, AgentSpec, Extension, Provider, Skill
from dragoman.core.names import check_agent_id

T = TypeVar("T")

ExtensionLike = Extension | Mapping[str, Any] | str
SkillLike = Skill | Mapping[str, Any] | str
ProviderLike = Provider | Mapping[str, str]

SCHEMES: Final[Mapping[str, tuple[str, ...]]] = {
    "apiKey": ("in", "name"),
    "http": ("scheme",),
    "oauth2": ("flows",),
    "openIdConnect": ("openIdConnectUrl",),
    "mutualTLS": (),
}
"""Types of security schemes and what each must have (0.3 §5.5.3, after OpenAPI 3.0)."""

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
    direct: bool,
    cancelable: bool,
    while_working: Any,
    on_crash: Any,
    idle_limit: float,
    time_limit: float,
) -> AgentSpec:
    """The spec of `function` under these arguments. Raises TypeError or ValueError, naming the argument."""
    for argument, text in {"id": id, "name": name, "description": description}.items():
        if text is not None:
            _text(argument, text)
    flags = {
        "default": default,
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
        version=_text("version", version),
        skills=_skills(skills),
        input_modes=_modes("input_modes", input_modes),
        output_modes=_modes("output_modes", output_modes),
        provider=_provider(provider),
        icon_url=_text("icon_url", icon_url, empty=True),
        documentation_url=_text("documentation_url", documentation_url, empty=True),
        extensions=tuple(_extension(f"extensions[{n}]", one) for n, one in enumerate(extensions)),
        security_schemes=_schemes(security_schemes),
        security=_security(security, security_schemes),
        state_transition_history=state_transition_history,
        extended_skills=_skills(extended_skills, "extended_skills"),
        default=default,
        direct=direct,
        cancelable=cancelable,
        while_working=while_working,
        retries=_retries(on_crash),
        idle_limit=_seconds("idle_limit", idle_limit),
        time_limit=_seconds("time_limit", time_limit),
    )


@dataclasses.dataclass(frozen=True, slots=True)
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


def _id_of(function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", "")
    return name.strip("_").replace("_", "-").lower()


def _first_line(function: Callable[..., object]) -> str:
    lines = (function.__doc__ or "").strip().splitlines()
    return lines[0].strip() if lines else ""


def _words(id: str) -> str:
    return id.replace("-", " ").capitalize()


def _skills(skills: Iterable[SkillLike], argument: str = "skills") -> tuple[Skill, ...]:
    if isinstance(skills, (str, Mapping, Skill)) or not isinstance(skills, Iterable):
        raise TypeError(f"@agent: {argument}={skills!r} must be a list of Skill, dict or str")
    made = tuple(_skill(f"{argument}[{index}]", skill) for index, skill in enumerate(skills))
    for index, skill in enumerate(made):
        if skill.id in [earlier.id for earlier in made[:index]]:
            raise ValueError(f'@agent: {argument}[{index}] has the id "{skill.id}" of an earlier skill')
    return made


def _skill(argument: str, skill: SkillLike) -> Skill:
    if isinstance(skill, str):
        skill = {"name": skill}
    fields = _fields(argument, skill, Skill)
    name, id = fields.get("name"), fields.get("id")
    if not name and not id:
        raise ValueError(f"@agent: {argument} needs a name or an id")
    name = _text(f"{argument}.name", name or _words(_text(f"{argument}.id", id)))
    id = _text(f"{argument}.id", id or re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"))
    return Skill(
        id=id,
        name=name,
        description=_text(f"{argument}.description", fields.get("description") or name),
        tags=_texts(f"{argument}.tags", fields.get("tags", ())),
        examples=_texts(f"{argument}.examples", fields.get("examples", ())),
        input_modes=_modes(f"{argument}.input_modes", fields.get("input_modes", ()), empty=True),
        output_modes=_modes(f"{argument}.output_modes", fields.get("output_modes", ()), empty=True),
    )


def _extension(argument: str, extension: ExtensionLike) -> Extension:
    fields = _fields(argument, {"uri": extension} if isinstance(extension, str) else extension, Extension)
    required, params = fields.get("required", False), fields.get("params", {})
    if not isinstance(required, bool):
        raise TypeError(f"@agent: {argument}.required={required!r} must be True or False")
    if not isinstance(params, Mapping):
        raise TypeError(f"@agent: {argument}.params={params!r} must be a dict")
    return Extension(
        uri=_text(f"{argument}.uri", fields.get("uri")),
        description=_text(f"{argument}.description", fields.get("description", ""), empty=True),
        required=required,
        params=dict(params),
    )


def _schemes(schemes: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Security schemes as OpenAPI writes them: {"bearer": {"type": "http", "scheme": "bearer"}}."""
    if not isinstance(schemes, Mapping):
        raise TypeError(f"@agent: security_schemes={schemes!r} must be a dict of schemes by name")
    for name, scheme in schemes.items():
        argument = f"security_schemes[{name!r}]"
        if not isinstance(scheme, Mapping):
            raise TypeError(f"@agent: {argument}={scheme!r} must be a dict")
        needed = SCHEMES.get(str(scheme.get("type")))
        if needed is None:
            raise ValueError(f"@agent: {argument}.type is {scheme.get('type')!r}; it may be {', '.join(SCHEMES)}")
        if missing := [key for key in needed if not scheme.get(key)]:
            raise ValueError(f"@agent: {argument} needs {', '.join(missing)}")
    return {name: dict(scheme) for name, scheme in schemes.items()}


def _security(
    needed: Iterable[Mapping[str, Iterable[str]]], schemes: Mapping[str, object]
) -> tuple[Mapping[str, tuple[str, ...]], ...]:
    made = []
    for index, one in enumerate(needed):
        argument = f"security[{index}]"
        if not isinstance(one, Mapping):
            raise TypeError(f"@agent: {argument}={one!r} must be a dict of scopes by scheme")
        if unknown := [str(name) for name in one if name not in schemes]:
            raise ValueError(f"@agent: {argument} names {', '.join(unknown)}; security_schemes has no such scheme")
        made.append({name: _texts(f"{argument}[{name!r}]", scopes) for name, scopes in one.items()})
    return tuple(made)


def _provider(provider: ProviderLike | None) -> Provider | None:
    if provider is None:
        return None
    fields = _fields("provider", provider, Provider)
    return Provider(**{name: _text(f"provider.{name}", fields.get(name)) for name in ("organization", "url")})


def _fields(argument: str, value: object, form: type[Any]) -> dict[str, Any]:
    """The fields of `form` that `value` (one itself, or a mapping) sets."""
    known = [field.name for field in dataclasses.fields(form)]
    if isinstance(value, form):
        return {name: getattr(value, name) for name in known}
    if not isinstance(value, Mapping):
        raise TypeError(f"@agent: {argument}={value!r} must be a {form.__name__} or a dict")
    if unknown := [str(key) for key in value if key not in known]:
        raise ValueError(f"@agent: {argument} has no field {', '.join(unknown)}; it may have {', '.join(known)}")
    return dict(value)


def _modes(argument: str, modes: Iterable[str], *, empty: bool = False) -> tuple[str, ...]:
    made = _texts(argument, modes)
    if not made and not empty:
        raise ValueError(f"@agent: {argument} is empty; leave it out for {', '.join(DEFAULT_MODES)}")
    for mode in made:
        # Parameters may follow (text/plain;charset=utf-8); the type itself is RFC 2045 §5.1, `*` as in Accept.
        kind, slash, subtype = mode.partition(";")[0].strip().partition("/")
        if not (slash and MEDIA_TYPE.fullmatch(kind) and MEDIA_TYPE.fullmatch(subtype)):
            raise ValueError(f'@agent: {argument}: "{mode}" is no media type; one looks like text/plain')
    return made


def _texts(argument: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"@agent: {argument}={values!r} must be a list of texts")
    return tuple(_text(argument, value) for value in values)


def _text(argument: str, value: object, *, empty: bool = False) -> str:
    if not isinstance(value, str):
        raise TypeError(f"@agent: {argument}={value!r} must be text")
    if not value and not empty:
        raise ValueError(f"@agent: {argument} is empty")
    return value
