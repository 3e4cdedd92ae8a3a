"""The `@agent` decorator, and the agents of a module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, Unpack, get_origin, overload

from dragoman.agents.functions.declared_types import with_declared_types
from dragoman.agents.functions.runner import DeclaredAgent
from dragoman.agents.functions.spec import ONCE, AgentOptions, spec_of
from dragoman.agents.functions.turn import Turn
from dragoman.ports import Agent

P = ParamSpec("P")
R = TypeVar("R")


@overload
def agent(function: Callable[P, R], /) -> DeclaredAgent[P, R]: ...
@overload
def agent(**options: Unpack[AgentOptions]) -> Callable[[Callable[P, R]], DeclaredAgent[P, R]]: ...
def agent(function: Callable[..., Any] | None = None, /, **options: Unpack[AgentOptions]) -> Any:
    """Declares a function of one argument, the `Turn`, as an agent: `@agent` or `@agent(name="Echo", ...)`.

    The function may be `async def` or `def`, with or without `yield`. It answers with what it returns or yields.

    - `id`: address of the agent, `[a-z][a-z0-9-]*`. Default: the function's name (`csv_profile` is `csv-profile`).
    - `name`, `description`, `version`, `provider`, `icon_url`, `documentation_url`: fields of the card (A2A 1.0
      §4.4.1). Defaults: the name from the id, the description from the first line of the docstring.
    - `skills`: Skill, dict with Skill's fields, or a name.
    - `input`, `output`: what it takes and returns: a pydantic model, a dataclass, a TypedDict or a JSON Schema (dict).
      `turn.input` is the validated input. An input is an object. Skills may have their own; calls of others have these.
    - `annotations`: hints about what it does: `title`, `readOnlyHint`, `destructiveHint`, `idempotentHint`,
      `openWorldHint` (MCP 2025-11-25, ToolAnnotations). Callers see these three as urn:dragoman:schemas:v1 on the card.
    - `input_modes`, `output_modes`: accepted and produced media types. A part of another type is rejected.
    - `extensions`: Extension, dict with Extension's fields, or a URI. Callers must activate a required one.
    - `security_schemes`: authentication schemes in OpenAPI form ({"bearer": {"type": "http", "scheme": "bearer"}}).
      `security`: alternatives, one of which a caller needs, such as [{"bearer": []}].
    - `extended_skills`: skills that only authenticated callers see.
    - `default`: makes this the root agent, which serves requests that name no agent. Default: the module's first.
    - `streaming`: whether clients may stream and subscribe. Shown on the card.
    - `direct`: whether the agent may answer with a Message instead of a task (`turn.reply`).
    - `cancelable`: whether clients may cancel its tasks.
    - `on_crash`: after the process died, "fail" ends the task as FAILED; retry(n) repeats the turn up to n times.
    - `retry`: a turn that failed runs again after a while, and its finished steps return their stored results:
      Retry(attempts=5, backoff=2.0, on=ConnectionError). Attempts after a crash count, too.
    - `idle_limit`, `time_limit`: seconds without an event, and seconds in total, until a turn ends as FAILED.
    - `while_working`: "queue" passes messages for a running task to the agent, "refuse" rejects them.
    - `retention`: how long to keep tasks: "30d" for all ended tasks, or {"completed": "1d", "input-required": "7d"};
      0 keeps them forever. An operator's setting for this agent overrides it; it overrides the setting for all agents.

    Raises TypeError or ValueError that names the argument, at the declaration.
    """

    def declare(function: Callable[P, R]) -> DeclaredAgent[P, R]:
        _check_function(function)
        spec, inputs = with_declared_types(
            spec_of(function, options),
            input=options.get("input"),
            output=options.get("output"),
            annotations=options.get("annotations"),
        )
        return DeclaredAgent(function, spec, retry=options.get("retry") or ONCE, inputs=inputs)

    return declare if function is None else declare(function)


def agents_in(module: ModuleType) -> list[Agent]:
    """The agents of a module in source order, each once, including imported ones.

    Raises ValueError if there is none, if two share an id, or if two have default=True.
    """
    found: list[DeclaredAgent[Any, Any]] = []
    for value in vars(module).values():
        if isinstance(value, DeclaredAgent) and value not in found:
            found.append(value)
    if not found:
        raise ValueError(
            f"module {module.__name__} declares no agent; put @agent (from dragoman import agent) above a function"
        )
    for index, one in enumerate(found):
        for other in found[:index]:
            if one.spec.id == other.spec.id:
                raise ValueError(
                    f'two agents have the id "{one.spec.id}": {_declared_at(other)} and {_declared_at(one)}; '
                    "set id= on one of them"
                )
            if one.spec.default and other.spec.default:
                raise ValueError(
                    f"two agents have default=True: {_declared_at(other)} and {_declared_at(one)}; "
                    "only one can be the root agent"
                )
    return list(found)


def _check_function(function: object) -> None:
    if isinstance(function, DeclaredAgent):
        raise TypeError(f"@agent: {function!r} is already declared as an agent; remove one @agent")
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        raise TypeError(f"@agent: {function!r} is not a function; write @agent or @agent(name=...) above a def")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise TypeError(
            f"@agent: {function.__qualname__}{inspect.signature(function)} cannot be called with one argument, the turn"
        ) from None
    try:
        evaluated = inspect.signature(function, eval_str=True)
    except Exception:  # a name that only type checkers can see
        evaluated = inspect.signature(function)
    first = next(iter(evaluated.parameters.values()))
    if not _accepts_turn(first.annotation):
        raise TypeError(
            f"@agent: {function.__qualname__}: the argument {first.name} is annotated as "
            f"{inspect.formatannotation(first.annotation)}, but an agent is called with the turn; "
            f"write {first.name}: Turn, and read turn.text, turn.data or turn.files"
        )


def _accepts_turn(annotation: Any) -> bool:
    """False only for a type that certainly cannot be a Turn."""
    kind = get_origin(annotation) or annotation
    if not isinstance(kind, type) or kind is inspect.Parameter.empty:
        return True
    try:
        return issubclass(Turn, kind) or issubclass(kind, Turn)
    except TypeError:  # a protocol
        return True


def _declared_at(agent: DeclaredAgent[Any, Any]) -> str:
    code = inspect.unwrap(agent.__wrapped__).__code__
    return f"{agent.__wrapped__.__name__} ({code.co_filename}, line {code.co_firstlineno})"
