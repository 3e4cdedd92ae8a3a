"""Security as `@agent` takes it: OpenAPI security schemes by name, and which of them are needed (0.3 §5.5.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dragoman.agents.arguments import text, texts

PLACES: Final = ("header", "query", "cookie")

SCHEMES: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "apiKey": (("in", "name"), ()),
    "http": (("scheme",), ("bearerFormat",)),
    "oauth2": (("flows",), ("oauth2MetadataUrl",)),
    "openIdConnect": (("openIdConnectUrl",), ()),
    "mutualTLS": ((), ()),
}
"""Types of security schemes: what each must have, and what else it may, `description` aside."""

FLOWS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "authorizationCode": (("authorizationUrl", "tokenUrl"), ("refreshUrl", "scopes", "pkceRequired")),
    "clientCredentials": (("tokenUrl",), ("refreshUrl", "scopes")),
    "implicit": (("authorizationUrl",), ("refreshUrl", "scopes")),
    "password": (("tokenUrl",), ("refreshUrl", "scopes")),
    "deviceCode": (("deviceAuthorizationUrl", "tokenUrl"), ("refreshUrl", "scopes")),
}
"""Flows of OAuth 2, likewise (0.3 §5.5.3; the last is 1.0's)."""


def schemes(given: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Schemes by name: {"bearer": {"type": "http", "scheme": "bearer"}}."""
    if not isinstance(given, Mapping):
        raise TypeError(f"@agent: security_schemes={given!r} must be a dict of schemes by name")
    return {text("security_schemes: a name", name): _scheme(name, scheme) for name, scheme in given.items()}


def requirements(
    given: Iterable[Mapping[str, Iterable[str]]], known: Mapping[str, object]
) -> tuple[Mapping[str, tuple[str, ...]], ...]:
    """Which schemes are needed: any one of these, each the scopes of the schemes it takes."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"@agent: security={given!r} must be a list of dicts, each of scopes by scheme")
    made = []
    for index, one in enumerate(given):
        argument = f"security[{index}]"
        if not isinstance(one, Mapping):
            raise TypeError(f"@agent: {argument}={one!r} must be a dict of scopes by scheme")
        if unknown := [str(name) for name in one if name not in known]:
            raise ValueError(f"@agent: {argument} names {', '.join(unknown)}; security_schemes has no such scheme")
        made.append({name: texts(f"{argument}[{name!r}]", scopes) for name, scopes in one.items()})
    return tuple(made)


def _scheme(name: str, scheme: Mapping[str, Any]) -> dict[str, Any]:
    argument = f"security_schemes[{name!r}]"
    if not isinstance(scheme, Mapping):
        raise TypeError(f"@agent: {argument}={scheme!r} must be a dict")
    form = SCHEMES.get(str(scheme.get("type")))
    if form is None:
        raise ValueError(f"@agent: {argument}.type is {scheme.get('type')!r}; it may be {', '.join(SCHEMES)}")
    needed, more = form
    _check(argument, scheme, needed, ("type", *more, "description"))
    if scheme.get("in", PLACES[0]) not in PLACES:
        raise ValueError(f"@agent: {argument}.in is {scheme['in']!r}; it may be {', '.join(PLACES)}")
    made = dict(scheme)
    if "flows" in made:
        made["flows"] = _flows(f"{argument}.flows", made["flows"])
    return made


def _flows(argument: str, flows: Any) -> dict[str, Any]:
    if not isinstance(flows, Mapping):
        raise TypeError(f"@agent: {argument}={flows!r} must be a dict of flows by name")
    if unknown := [str(name) for name in flows if name not in FLOWS]:
        raise ValueError(f"@agent: {argument} has no flow {', '.join(unknown)}; it may have {', '.join(FLOWS)}")
    for name, flow in flows.items():
        if not isinstance(flow, Mapping):
            raise TypeError(f"@agent: {argument}.{name}={flow!r} must be a dict")
        _check(f"{argument}.{name}", flow, *FLOWS[name])
    return {name: {"scopes": {}, **flow} for name, flow in flows.items()}


def _check(argument: str, given: Mapping[str, Any], needed: tuple[str, ...], more: tuple[str, ...]) -> None:
    if missing := [key for key in needed if not given.get(key)]:
        raise ValueError(f"@agent: {argument} needs {', '.join(missing)}")
    known = (*needed, *more)
    if unknown := [str(key) for key in given if key not in known]:
        raise ValueError(f"@agent: {argument} has no field {', '.join(unknown)}; it may have {', '.join(known)}")
    for key, value in given.items():
        match key:
            case "flows":
                pass  # looked at by themselves
            case "scopes":
                if not isinstance(value, Mapping):
                    raise TypeError(f"@agent: {argument}.scopes={value!r} must be a dict of descriptions by scope")
                for scope, description in value.items():
                    text(f"{argument}.scopes: a scope", scope)
                    text(f"{argument}.scopes[{scope!r}]", description, empty=True)
            case "pkceRequired":
                if not isinstance(value, bool):
                    raise TypeError(f"@agent: {argument}.pkceRequired={value!r} must be True or False")
            case _:
                text(f"{argument}.{key}", value)
