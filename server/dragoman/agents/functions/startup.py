"""The `@on_startup` decorator: functions that prepare a process for its agents.

| written as            | runs                 | clean-up, after the last turn  |
|-----------------------|----------------------|--------------------------------|
| `async def`           | on the event loop    |                                |
| `async def` + `yield` | on the event loop    | what is behind the `yield`     |
| `def`                 | in a thread          |                                |
| `def` + `yield`       | in a thread          | what is behind the `yield`     |
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import ModuleType
from typing import Any, Generic, ParamSpec, TypeVar, cast

from dragoman.agents.functions.runner import source_location
from dragoman.agents.functions.threads import outcome_of
from dragoman.core.exceptions import describe_leaf
from dragoman.ports import Agent
from dragoman.supervision import log_exception

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("dragoman.agents")


class StartupFailed(Exception):
    """A start-up function failed. The text has its file, line, name and error."""


class StartupHook(Generic[P, R]):
    """A function declared with `@on_startup`. Calling it calls the function."""

    __name__: str

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<on_startup {self.__wrapped__!r}>"


def on_startup(function: Callable[P, R]) -> StartupHook[P, R]:
    """Declares a function without arguments that runs once per process, before the first turn.

        @on_startup
        async def open_pool() -> AsyncIterator[None]:
            global pool
            pool = await connect()
            yield
            await pool.close()

    It may be `async def` or `def`. With one `yield`, what is behind it runs after the last turn, in the reverse order
    of the start. The functions of a module run in source order wherever an agent of the module runs: in a server, a
    worker, `open_app` and the test kit. If one raises, nothing is served and the process ends with its error.

    Raises TypeError for a function with required arguments.
    """
    if not inspect.isfunction(function):
        raise TypeError(f"@on_startup: {function!r} is not a function; write @on_startup above a def")
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise TypeError(
            f"@on_startup: {function.__qualname__}{inspect.signature(function)} cannot be called without arguments"
        ) from None
    return StartupHook(function)


def startup_hooks_in(module: ModuleType) -> list[StartupHook[..., Any]]:
    """The start-up functions of a module in source order, each once, including imported ones."""
    return list(dict.fromkeys(value for value in vars(module).values() if isinstance(value, StartupHook)))


def startup_hooks_of(agents: Iterable[Agent]) -> list[StartupHook[..., Any]]:
    """The start-up functions of the modules in which agents are declared."""
    names = dict.fromkeys(getattr(agent, "__module__", "") for agent in agents)
    modules = [module for name in names if (module := sys.modules.get(name)) is not None]
    return list(dict.fromkeys(hook for module in modules for hook in startup_hooks_in(module)))


@asynccontextmanager
async def started(hooks: Iterable[StartupHook[..., Any]]) -> AsyncIterator[None]:
    """Runs start-up functions, and their clean-up when the block ends. A failed clean-up is logged.

    Raises StartupFailed for the first that fails, after the clean-up of those before it.
    """
    async with AsyncExitStack() as stack:
        for hook in hooks:
            function = hook.__wrapped__
            try:
                await _start(function, stack)
            except BaseException as error:
                if _is_stopped():
                    raise
                raise StartupFailed(_describe(function, error)) from error
        yield


async def _start(function: Callable[..., Any], stack: AsyncExitStack) -> None:
    if inspect.isasyncgenfunction(function):
        steps = function()
        advance = partial(anext, steps, _END)
    elif inspect.isgeneratorfunction(function):
        generator = await _in_thread(function)
        advance = partial(_in_thread, partial(next, generator, _END))
    else:
        await (function() if inspect.iscoroutinefunction(function) else _in_thread(function))
        return
    if await advance() is _END:
        raise RuntimeError("it did not reach its yield")
    stack.push_async_callback(_clean_up, function, advance)


_END = object()


async def _clean_up(function: Callable[..., object], finish: Callable[[], Awaitable[object]]) -> None:
    """Resumes a generator behind its yield. Errors are logged: the other clean-ups must run, too."""
    try:
        if await finish() is not _END:
            raise RuntimeError("it has more than one yield")
    except BaseException as error:
        if _is_stopped():
            raise
        log_exception(log, logging.ERROR, "clean-up failed: %s", (_describe(function, error),), error, {})


def _is_stopped() -> bool:
    """Whether the start, or the clean-up, is canceled from outside; else a function raised what it raised."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def _in_thread(call: Callable[[], R]) -> R:
    value, error = await asyncio.to_thread(outcome_of, call)
    if error is not None:
        raise error
    return cast("R", value)


def _describe(function: Callable[..., object], error: BaseException) -> str:
    where = source_location(error, function)
    return f"{where}: @on_startup {function.__name__} failed: {describe_leaf(error)}"
