"""Validates the arguments of `@agent`, with its retries, and builds the AgentSpec for the card (A2A 1.0 §4.4)."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, TypeVar

from dragoman.agents.functions.step_values import UnstorableResult
from dragoman.core.cards.agent_spec import DEFAULT_MODES, AgentSpec, Extension, Provider, Skill
from dragoman.core.durations import Backoff, is_seconds
from dragoman.core.exceptions import is_a
from dragoman.core.names import check_agent_id
from dragoman.core.task.maintenance import parse_retention_ages

T = TypeVar("T")

ExtensionLike = Extension | Mapping[str, Any] | str
SkillLike = Skill | Mapping[str, Any] | str
ProviderLike = Provider | Mapping[str, str]
RetentionLike = str | int | Mapping[str, str | int]

EXTENSION_URI_PATTERN: Final = re.compile(r"[!-+\--~]+")
"""URIs that callers can list in a header: printable ASCII without comma and space."""

MEDIA_TYPE_PATTERN: Final = re.compile(r"[\w.+-]+|\*", re.ASCII)

MAX_ATTEMPTS: Final = 1_000  # how often a turn or a step may be tried


@dataclass(frozen=True, slots=True)
class Retry:
    """When and how often something that failed runs again.

    attempts: how often it runs in all, 1 to 1,000. backoff: seconds before the second attempt, doubled for each later
    one up to max_backoff. on: the exceptions that are tried again.
    """

    attempts: int = 3
    backoff: float = 1.0
    max_backoff: float = 60.0
    on: type[Exception] | tuple[type[Exception], ...] = Exception

    def __post_init__(self) -> None:
        if self.attempts not in range(1, MAX_ATTEMPTS + 1):
            raise ValueError(f"Retry: attempts={self.attempts!r} must be 1 to {MAX_ATTEMPTS}")
        for name in ("backoff", "max_backoff"):
            value = getattr(self, name)
            if not is_seconds(value):
                raise ValueError(f"Retry: {name}={value!r} must be seconds, 0 or more")

    def delay(self, failures: int) -> float:
        """Seconds to wait after this many failures."""
        return Backoff(self.backoff, max(self.max_backoff, self.backoff)).delay(failures)

    def covers(self, error: BaseException, attempt: int) -> bool:
        """Whether to try again after this error of an attempt. Never after a step that has run: it would run again."""
        return attempt < self.attempts and is_a(error, self.on) and not is_a(error, UnstorableResult)


ONCE: Final = Retry(attempts=1)


@dataclass(frozen=True, slots=True)
class CrashRetry:
    """Repeats a turn whose process died, up to `times` times."""

    times: int


class AgentOptions(TypedDict, total=False):
    """The arguments of `@agent`, which explains them."""

    id: str | None
    name: str | None
    description: str | None
    version: str
    skills: Iterable[SkillLike]
    input: object
    output: object
    annotations: Mapping[str, Any] | None
    input_modes: Iterable[str]
    output_modes: Iterable[str]
    provider: ProviderLike | None
    icon_url: str
    documentation_url: str
    extensions: Iterable[ExtensionLike]
    security_schemes: Mapping[str, Mapping[str, Any]]
    security: Iterable[Mapping[str, Iterable[str]]]
    extended_skills: Iterable[SkillLike]
    default: bool
    streaming: bool
    direct: bool
    cancelable: bool
    while_working: Literal["queue", "refuse"]
    on_crash: Literal["fail"] | CrashRetry
    retry: Retry | None
    idle_limit: float
    time_limit: float
    retention: RetentionLike | None


_FLAGS: Final[Mapping[str, bool]] = {"default": False, "streaming": True, "direct": False, "cancelable": True}
"""Arguments that are True or False, with their defaults."""


def spec_of(function: Callable[..., object], options: AgentOptions) -> AgentSpec:
    """Builds the spec of `function`. Raises TypeError or ValueError that names the argument."""
    given: dict[str, Any] = dict(options)
    if unknown := given.keys() - AgentOptions.__annotations__.keys():
        raise TypeError(f"@agent: got an unexpected keyword argument {min(unknown)!r}")
    for argument in ("id", "name", "description"):
        if given.get(argument) is not None:
            check_string(argument, given[argument])
    flags = {argument: given.get(argument, default) for argument, default in _FLAGS.items()}
    for argument, flag in flags.items():
        check_type(argument, flag, bool, "True or False")
    while_working = options.get("while_working", "queue")
    if while_working not in ("queue", "refuse"):
        raise ValueError(f'@agent: while_working={while_working!r} must be "queue" or "refuse"')
    if (id := options.get("id")) is None:
        id = getattr(function, "__name__", "").strip("_").replace("_", "-").lower()
    check_agent_id(id)
    if (name := options.get("name")) is None:
        name = _display_name(id)
    if (description := options.get("description")) is None:
        description = (function.__doc__ or "").strip().partition("\n")[0].strip() or name
    try:
        retention = {} if (given_ages := options.get("retention")) is None else parse_retention_ages(given_ages)
    except ValueError as error:
        raise ValueError(f"@agent: retention: {error}") from error
    retry = ONCE if (given_retry := options.get("retry")) is None else given_retry
    check_type("retry", retry, Retry, "a Retry, such as Retry(attempts=3)")
    skills = _parse_each("skills", options.get("skills", ()), Skill, _skill, "id")
    schemes = options.get("security_schemes", {})
    return AgentSpec(
        id=id,
        name=name,
        description=description,
        version=check_string("version", options.get("version", "1.0.0")),
        skills=skills,
        input_modes=_media_types("input_modes", options.get("input_modes", DEFAULT_MODES)),
        output_modes=_media_types("output_modes", options.get("output_modes", DEFAULT_MODES)),
        provider=_provider(options.get("provider")),
        icon_url=check_string("icon_url", options.get("icon_url", ""), allow_empty=True),
        documentation_url=check_string("documentation_url", options.get("documentation_url", ""), allow_empty=True),
        extensions=_parse_each("extensions", options.get("extensions", ()), Extension, _extension, "uri"),
        security_schemes=parse_security_schemes(schemes),
        security=parse_security_requirements(options.get("security", ()), schemes),
        extended_skills=_parse_each(
            "extended_skills", options.get("extended_skills", ()), Skill, _skill, "id", existing=skills
        ),
        while_working=while_working,
        crash_retries=_crash_retries(options.get("on_crash", "fail")),
        max_attempts=retry.attempts,
        idle_limit=_seconds("idle_limit", options.get("idle_limit", 0.0)),
        time_limit=_seconds("time_limit", options.get("time_limit", 0.0)),
        retention=retention,
        **flags,
    )


def _display_name(id: str) -> str:
    return id.replace("-", " ").capitalize()


def retry(times: int) -> CrashRetry:
    """`@agent(on_crash=retry(2))` repeats a turn whose process died, up to twice. Raises ValueError."""
    if times not in range(1, 101):
        raise ValueError(f"retry({times!r}): must be 1 to 100")
    return CrashRetry(times)


def _crash_retries(on_crash: object) -> int:
    if isinstance(on_crash, CrashRetry):
        return on_crash.times
    if on_crash != "fail":
        raise ValueError(f'@agent: on_crash={on_crash!r} must be "fail" or retry(n)')
    return 0


def _seconds(argument: str, value: object) -> float:
    if not is_seconds(value):
        raise ValueError(f"@agent: {argument}={value!r} must be seconds, 0 for no limit")
    return float(value)


def _parse_each(
    argument: str, values: Any, kind: type[T], parse: Callable[[str, Any], T], key: str, existing: tuple[T, ...] = ()
) -> tuple[T, ...]:
    """Parses a list of skills or extensions. `key`: the field that no two of them share."""
    _check_list(argument, values, f"a list of {kind.__name__}, dict or str", but_not=kind)
    parsed = tuple(parse(f"{argument}[{index}]", value) for index, value in enumerate(values))
    for index, one in enumerate(parsed):
        if (value := getattr(one, key)) in [getattr(earlier, key) for earlier in (*existing, *parsed[:index])]:
            noun = kind.__name__.lower()
            raise ValueError(f'@agent: {argument}[{index}] has the {key} "{value}" of an earlier {noun}')
    return parsed


def _skill(argument: str, skill: SkillLike) -> Skill:
    if isinstance(skill, str):
        skill = {"name": skill}
    given = dataclass_fields(argument, skill, Skill)
    name, id = given.get("name"), given.get("id")
    if not name and not id:
        raise ValueError(f"@agent: {argument} needs a name or an id")
    name = check_string(f"{argument}.name", name or _display_name(check_string(f"{argument}.id", id)))
    id = check_string(f"{argument}.id", id or re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"))
    return Skill(
        id=id,
        name=name,
        description=check_string(f"{argument}.description", given.get("description") or name),
        tags=check_strings(f"{argument}.tags", given.get("tags", ())),
        examples=check_strings(f"{argument}.examples", given.get("examples", ())),
        input_modes=_media_types(f"{argument}.input_modes", given.get("input_modes", ()), allow_empty=True),
        output_modes=_media_types(f"{argument}.output_modes", given.get("output_modes", ()), allow_empty=True),
        input=given.get("input"),  # with_declared_types reads these three
        output=given.get("output"),
        annotations=given.get("annotations"),
    )


def _extension(argument: str, extension: ExtensionLike) -> Extension:
    given = dataclass_fields(argument, {"uri": extension} if isinstance(extension, str) else extension, Extension)
    required, params = given.get("required", False), given.get("params", {})
    check_type(f"{argument}.required", required, bool, "True or False")
    check_type(f"{argument}.params", params, Mapping, "a dict")
    uri = check_string(f"{argument}.uri", given.get("uri"))
    if not EXTENSION_URI_PATTERN.fullmatch(uri):
        raise ValueError(
            f'@agent: {argument}.uri: "{uri}" cannot be sent in a header; use printable ASCII without comma and space'
        )
    return Extension(
        uri=uri,
        description=check_string(f"{argument}.description", given.get("description", ""), allow_empty=True),
        required=required,
        params=checked_json(f"{argument}.params", params),
    )


def _provider(provider: ProviderLike | None) -> Provider | None:
    if provider is None:
        return None
    given = dataclass_fields("provider", provider, Provider)
    return Provider(**{name: check_string(f"provider.{name}", given.get(name)) for name in ("organization", "url")})


def _media_types(argument: str, modes: Iterable[str], *, allow_empty: bool = False) -> tuple[str, ...]:
    checked = check_strings(argument, modes)
    if not checked and not allow_empty:
        raise ValueError(f"@agent: {argument} is empty; omit it for {', '.join(DEFAULT_MODES)}")
    for mode in checked:
        # Parameters may follow (text/plain;charset=utf-8); the type itself is RFC 2045 §5.1, `*` as in Accept.
        kind, slash, subtype = mode.partition(";")[0].strip().partition("/")
        if not (slash and MEDIA_TYPE_PATTERN.fullmatch(kind) and MEDIA_TYPE_PATTERN.fullmatch(subtype)):
            raise ValueError(f'@agent: {argument}: "{mode}" is not a media type such as text/plain')
    return checked


def dataclass_fields(argument: str, value: Any, dataclass_type: type[Any]) -> dict[str, Any]:
    """The fields of `dataclass_type` that `value` sets: an instance of it, or a mapping."""
    known = [field.name for field in dataclasses.fields(dataclass_type)]
    if isinstance(value, dataclass_type):
        return {name: getattr(value, name) for name in known}
    article = "an" if dataclass_type.__name__[0] in "AEIO" else "a"
    check_type(argument, value, Mapping, f"{article} {dataclass_type.__name__} or a dict")
    check_known(argument, value, known)
    return dict(value)


def check_known(argument: str, names: Iterable[object], known: Collection[str], noun: str = "field") -> None:
    """Raises ValueError for names that are not known."""
    if unknown := [str(name) for name in names if name not in known]:
        raise ValueError(f"@agent: {argument} has no {noun} {', '.join(unknown)}; known {noun}s: {', '.join(known)}")


def checked_json(argument: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that JSON can represent. Raises ValueError."""
    try:
        checked = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"@agent: {argument} is not JSON: {error}") from None
    assert isinstance(checked, dict)
    return checked


def check_strings(argument: str, values: Iterable[str]) -> tuple[str, ...]:
    """Returns a tuple of non-empty strings. Raises TypeError or ValueError."""
    _check_list(argument, values, "a list of strings")
    return tuple(check_string(argument, value) for value in values)


def check_string(argument: str, value: Any, *, allow_empty: bool = False) -> str:
    """Returns a string, non-empty unless `allow_empty`. Raises TypeError or ValueError."""
    check_type(argument, value, str, "a string")
    if not value and not allow_empty:
        raise ValueError(f"@agent: {argument} is empty")
    text: str = value
    return text


def check_type(argument: str, value: object, kind: Any, rule: str) -> None:
    """Raises TypeError for a value of another type. `rule`: what it must be."""
    if not isinstance(value, kind):
        raise TypeError(f"@agent: {argument}={value!r} must be {rule}")


def _check_list(argument: str, values: object, rule: str, but_not: type[Any] = str) -> None:
    if isinstance(values, (str, Mapping, but_not)) or not isinstance(values, Iterable):
        raise TypeError(f"@agent: {argument}={values!r} must be {rule}")


API_KEY_LOCATIONS: Final = ("header", "query", "cookie")

SECURITY_SCHEME_FIELDS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "apiKey": (("in", "name"), ()),
    "http": (("scheme",), ("bearerFormat",)),
    "oauth2": (("flows",), ("oauth2MetadataUrl",)),
    "openIdConnect": (("openIdConnectUrl",), ()),
    "mutualTLS": ((), ()),
}
"""By type of security scheme: required and optional fields, apart from `description`."""

OAUTH_FLOW_FIELDS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "authorizationCode": (("authorizationUrl", "tokenUrl"), ("refreshUrl", "scopes", "pkceRequired")),
    "clientCredentials": (("tokenUrl",), ("refreshUrl", "scopes")),
    "implicit": (("authorizationUrl",), ("refreshUrl", "scopes")),
    "password": (("tokenUrl",), ("refreshUrl", "scopes")),
    "deviceCode": (("deviceAuthorizationUrl", "tokenUrl"), ("refreshUrl", "scopes")),
}
"""By OAuth 2 flow: required and optional fields (0.3 §5.5.3; deviceCode is from 1.0)."""


def parse_security_schemes(value: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Checks schemes by name, such as {"bearer": {"type": "http", "scheme": "bearer"}}."""
    check_type("security_schemes", value, Mapping, "a dict of schemes by name")
    return {
        check_string("a key of security_schemes", name): _parse_scheme(name, scheme) for name, scheme in value.items()
    }


def parse_security_requirements(
    value: Iterable[Mapping[str, Iterable[str]]], known_schemes: Mapping[str, object]
) -> tuple[Mapping[str, tuple[str, ...]], ...]:
    """Checks the alternative requirements; each maps the names of its schemes to scopes."""
    _check_list("security", value, "a list of dicts, each of scopes by scheme")
    requirements = []
    for index, requirement in enumerate(value):
        argument = f"security[{index}]"
        check_type(argument, requirement, Mapping, "a dict of scopes by scheme")
        if unknown := [str(name) for name in requirement if name not in known_schemes]:
            raise ValueError(f"@agent: {argument} names {', '.join(unknown)}; security_schemes has no such scheme")
        requirements.append(
            {name: check_strings(f"{argument}[{name!r}]", scopes) for name, scopes in requirement.items()}
        )
    return tuple(requirements)


def _parse_scheme(name: str, scheme: Mapping[str, Any]) -> dict[str, Any]:
    argument = f"security_schemes[{name!r}]"
    check_type(argument, scheme, Mapping, "a dict")
    fields = SECURITY_SCHEME_FIELDS.get(str(scheme.get("type")))
    if fields is None:
        raise ValueError(
            f"@agent: {argument}.type is {scheme.get('type')!r}; use one of {', '.join(SECURITY_SCHEME_FIELDS)}"
        )
    required, optional = fields
    _check_fields(argument, scheme, required, ("type", *optional, "description"))
    if scheme.get("in", API_KEY_LOCATIONS[0]) not in API_KEY_LOCATIONS:
        raise ValueError(f"@agent: {argument}.in is {scheme['in']!r}; use one of {', '.join(API_KEY_LOCATIONS)}")
    if "flows" not in scheme:
        return dict(scheme)
    return {**scheme, "flows": {name: {"scopes": {}, **flow} for name, flow in scheme["flows"].items()}}


def _check_fields(
    argument: str, mapping: Mapping[str, Any], required: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    if missing := [key for key in required if not mapping.get(key)]:
        raise ValueError(f"@agent: {argument} needs {', '.join(missing)}")
    check_known(argument, mapping, (*required, *optional))
    for key, value in mapping.items():
        match key:
            case "flows":
                check_type(f"{argument}.flows", value, Mapping, "a dict of flows by name")
                check_known(f"{argument}.flows", value, OAUTH_FLOW_FIELDS, "flow")
                for name, flow in value.items():
                    check_type(f"{argument}.flows.{name}", flow, Mapping, "a dict")
                    _check_fields(f"{argument}.flows.{name}", flow, *OAUTH_FLOW_FIELDS[name])
            case "scopes":
                check_type(f"{argument}.scopes", value, Mapping, "a dict of descriptions by scope")
                for scope, description in value.items():
                    check_string(f"a key of {argument}.scopes", scope)
                    check_string(f"{argument}.scopes[{scope!r}]", description, allow_empty=True)
            case "pkceRequired":
                check_type(f"{argument}.pkceRequired", value, bool, "True or False")
            case _:
                check_string(f"{argument}.{key}", value)
