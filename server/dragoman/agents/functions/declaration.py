"""`@agent`: a Python function becomes an agent, and stays a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from types import MappingProxyType, ModuleType
from typing import Any, Final, Generic, Literal, ParamSpec, TypeVar, overload

from dragoman.agents.functions.runner import DaemonThreadPool, LeakedThreads, take_turn
from dragoman.agents.functions.spec import ExtensionLike, ProviderLike, RetentionLike, Retry, SkillLike, spec_of
from dragoman.agents.values import NewId
from dragoman.core.cards.agent_spec import DEFAULT_MODES, AgentSpec
from dragoman.ids import IDS
from dragoman.ports import Agent, TurnContext, TurnResult

P = ParamSpec("P")
R = TypeVar("R")

THREAD_POOL: Final = DaemonThreadPool(64)
"""Where sync functions run. A turn that finds all of them busy waits; threads begin only when they are needed."""


class DeclaredAgent(Generic[P, R]):
    """A function declared as an agent: an `Agent` to the server, and still the function to everybody else.

    new_id: where the ids of its messages and artifacts come from. threads: where it runs if it is a sync function.
    """

    __name__: str

    def __init__(
        self,
        function: Callable[P, R],
        spec: AgentSpec,
        *,
        new_id: NewId = IDS.hex,
        thread_pool: Executor = THREAD_POOL,
    ) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self._spec = spec
        self._new_id = new_id
        self._thread_pool = thread_pool
        self._leaked = LeakedThreads()

    @property
    def spec(self) -> AgentSpec:
        """What the agent says of itself."""
        return self._spec

    @property
    def leaked_threads(self) -> int:
        """Threads of it that go on although their turn is over: it did not look whether it was canceled."""
        return self._leaked.count

    async def take_turn(self, turn_context: TurnContext) -> TurnResult:
        """Runs the function for one turn. Its failures become a FAILED Ending; CancelledError passes through."""
        function: Callable[..., object] = self.__wrapped__
        return await take_turn(
            function,
            turn_context,
            agent=self._spec.id,
            new_id=self._new_id,
            thread_pool=self._thread_pool,
            leaked=self._leaked,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f'<agent "{self._spec.id}": {self.__wrapped__!r}>'


@overload
def agent(function: Callable[P, R], /) -> DeclaredAgent[P, R]: ...
@overload
def agent(
    *,
    id: str | None = None,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
    skills: Iterable[SkillLike] = (),
    input_modes: Iterable[str] = DEFAULT_MODES,
    output_modes: Iterable[str] = DEFAULT_MODES,
    provider: ProviderLike | None = None,
    icon_url: str = "",
    documentation_url: str = "",
    extensions: Iterable[ExtensionLike] = (),
    security_schemes: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    security: Iterable[Mapping[str, Iterable[str]]] = (),
    state_transition_history: bool = False,
    extended_skills: Iterable[SkillLike] = (),
    default: bool = False,
    streaming: bool = True,
    direct: bool = False,
    cancelable: bool = True,
    while_working: Literal["queue", "refuse"] = "queue",
    on_crash: Literal["fail"] | Retry = "fail",
    idle_limit: float = 0.0,
    time_limit: float = 0.0,
    retention: RetentionLike | None = None,
) -> Callable[[Callable[P, R]], DeclaredAgent[P, R]]: ...
def agent(
    function: Callable[..., Any] | None = None,
    /,
    *,
    id: str | None = None,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
    skills: Iterable[SkillLike] = (),
    input_modes: Iterable[str] = DEFAULT_MODES,
    output_modes: Iterable[str] = DEFAULT_MODES,
    provider: ProviderLike | None = None,
    icon_url: str = "",
    documentation_url: str = "",
    extensions: Iterable[ExtensionLike] = (),
    security_schemes: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    security: Iterable[Mapping[str, Iterable[str]]] = (),
    state_transition_history: bool = False,
    extended_skills: Iterable[SkillLike] = (),
    default: bool = False,
    streaming: bool = True,
    direct: bool = False,
    cancelable: bool = True,
    while_working: Literal["queue", "refuse"] = "queue",
    on_crash: Literal["fail"] | Retry = "fail",
    idle_limit: float = 0.0,
    time_limit: float = 0.0,
    retention: RetentionLike | None = None,
) -> Any:
    """Declares a function of one argument, the `Turn`, as an agent: `@agent` or `@agent(name="Echo", ...)`.

    The function may be `async def` or `def`, with or without `yield`; what it returns or yields is the answer.

    - `id`: its address, `[a-z][a-z0-9-]*`; from the function's name (`csv_profile` is `csv-profile`).
    - `name`, `description`, `version`, `provider`, `icon_url`, `documentation_url`: for its card (A2A 1.0 §4.4.1); the
      name comes from the id and the description from the docstring's first line.
    - `skills`: Skill, dict with Skill's fields, or just a name.
    - `input_modes`, `output_modes`: media types it takes and gives; a part of another type is refused.
    - `extensions`: Extension, dict with Extension's fields, or just a URI; a required one must be activated by callers.
    - `security_schemes`: how callers show who they are, as OpenAPI writes it ({"bearer": {"type": "http", "scheme":
      "bearer"}}); security: which of them are needed, any one of [{"bearer": []}].
    - `state_transition_history`: for the cards of 0.3 and before.
    - `extended_skills`: skills that only callers who have shown who they are get to see.
    - `default`: the root agent, meant when a request names none. Otherwise that is the first of a module.
    - `streaming`: whether clients may stream and subscribe; the card says so.
    - `direct`: may answer with a Message instead of a task (`turn.reply`).
    - `cancelable`: whether clients may cancel its tasks.
    - `on_crash`: "fail" ends a task whose process died as FAILED, retry(n) begins its turn again, n times at most.
    - `idle_limit`, `time_limit`: seconds without an event, and seconds in all, after which a turn is ended as FAILED.
    - `while_working`: "queue" gives messages for a running task to the agent, "refuse" refuses them.
    - `retention`: how long its tasks are kept: "30d" for all that have ended, or {"completed": "1d", "input-required":
      "7d"}; 0 is for ever. What the operator says of this agent counts more, what is said of all agents less.

    Raises TypeError or ValueError, naming the argument, where the agent is declared.
    """

    def declare(function: Callable[P, R]) -> DeclaredAgent[P, R]:
        _check_function(function)
        spec = spec_of(
            function,
            id=id,
            name=name,
            description=description,
            version=version,
            skills=skills,
            input_modes=input_modes,
            output_modes=output_modes,
            provider=provider,
            icon_url=icon_url,
            documentation_url=documentation_url,
            extensions=extensions,
            security_schemes=security_schemes,
            security=security,
            state_transition_history=state_transition_history,
            extended_skills=extended_skills,
            default=default,
            streaming=streaming,
            direct=direct,
            cancelable=cancelable,
            while_working=while_working,
            on_crash=on_crash,
            idle_limit=idle_limit,
            time_limit=time_limit,
            retention=retention,
        )
        return DeclaredAgent(function, spec)

    return declare if function is None else declare(function)


def agents_in(module: ModuleType) -> list[Agent]:
    """The agents of a module in the order of its text, each once; imported ones count.

    Raises ValueError when there is none, when two have one id, or when two want to be the root agent.
    """
    found: list[DeclaredAgent[Any, Any]] = []
    for value in vars(module).values():
        if isinstance(value, DeclaredAgent) and value not in found:
            found.append(value)
    if not found:
        raise ValueError(f"{module.__name__} declares no agent; put @agent from dragoman before a function")
    for index, one in enumerate(found):
        for other in found[:index]:
            if one.spec.id == other.spec.id:
                raise ValueError(
                    f'two agents have the id "{one.spec.id}": {_declared_at(other)} and {_declared_at(one)}; set id= on one of them'
                )
            if one.spec.default and other.spec.default:
                raise ValueError(
                    f"two agents have default=True: {_declared_at(other)} and {_declared_at(one)}; one may be the root"
                )
    return list(found)


def _check_function(function: object) -> None:
    if isinstance(function, DeclaredAgent):
        raise TypeError(f"@agent: {function!r} is declared already")
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        raise TypeError(f"@agent: {function!r} is no function; write @agent or @agent(name=...) before a def")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise TypeError(
            f"@agent: {function.__qualname__}{inspect.signature(function)} cannot be called with one argument, the turn"
        ) from None


def _declared_at(agent: DeclaredAgent[Any, Any]) -> str:
    code = inspect.unwrap(agent.__wrapped__).__code__
    return f"{agent.__wrapped__.__name__} ({code.co_filename}, line {code.co_firstlineno})"
