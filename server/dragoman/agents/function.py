"""Drives a Python function through one turn: calls it, puts what it yields, and says how the turn ended.

| written as            | runs                 | canceled by                                             |
|-----------------------|----------------------|---------------------------------------------------------|
| `async def`           | on the event loop    | CancelledError at its await                             |
| `async def` + `yield` | on the event loop    | CancelledError at its await or yield                    |
| `def`                 | in a thread          | `turn.cancelled`, `turn.check()`                        |
| `def` + `yield`       | in a thread          | the same, and CancelledError at its yield               |

Whatever goes wrong with a yielded value is raised at that `yield`, so the author's `finally` runs and the traceback
has the author's line. The caller sees the error's name and text; the traceback goes to the log only.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Final, cast

from dragoman.agents.blame import describe, leaf, where
from dragoman.agents.output import Output
from dragoman.agents.threads import LeftBehind
from dragoman.agents.turn import Turn, TurnEnded
from dragoman.agents.values import NewId, adopted, change_of
from dragoman.core import delegation, states
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.log import Refused, StatusChange
from dragoman.ports import Desk, Ending, TurnOver
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.agents")

AgentFunction = Callable[[Turn], object]

PATIENCE: Final = 12.0
"""Seconds that a canceled thread may still take; then it is left behind, and its verbs raise TurnOver."""


async def take_turn(
    function: AgentFunction,
    desk: Desk,
    *,
    agent: str,
    new_id: NewId,
    threads: Executor,
    left: LeftBehind | None = None,
    patience: float = PATIENCE,
) -> Ending:
    """One turn of `function`. Its failures become a FAILED ending; a cancel that somebody asked for passes through."""
    output = Output(desk, new_id)
    turn = Turn(output, agent)
    delegation.CURRENT.set(turn.delegation)
    try:
        value = await _result(function, turn, Thread(agent, threads, left or LeftBehind(), patience))
        try:
            return _completed(output, value)
        except InvalidAgentResponse as error:
            raise InvalidAgentResponse(f"the value it returned: {error}") from error.__cause__
    except BaseException as error:
        cause = leaf(error)
        try:
            if isinstance(cause, (KeyboardInterrupt, GeneratorExit)):
                raise
            if isinstance(cause, asyncio.CancelledError) and _asked_to_stop(desk):
                raise
            return _ended(function, output, agent, cause, error)
        except Exception as late:  # the ending itself cannot be said: a state that is not JSON, a failing __str__
            return _failed(function, output, agent, late, late)
        finally:
            del cause  # its traceback leads to where we are


async def _result(function: AgentFunction, turn: Turn, thread: Thread) -> object:
    """What the function returned, after everything it yielded was put."""
    match _kind(function):
        case Kind.ASYNC_GENERATOR:
            await _drain_async(cast("AsyncGenerator[object, None]", function(turn)), turn)
            return None
        case Kind.COROUTINE:
            return await cast("Awaitable[object]", function(turn))
        case Kind.GENERATOR:
            return await thread.run(lambda: _drain(cast("Generator[object, None, object]", function(turn)), turn))
        case Kind.PLAIN:
            return await thread.run(lambda: function(turn))


class Kind(Enum):
    """How a function is called."""

    ASYNC_GENERATOR = 1
    COROUTINE = 2
    GENERATOR = 3
    PLAIN = 4


@lru_cache(maxsize=1024)
def _kind(function: AgentFunction) -> Kind:
    if inspect.isasyncgenfunction(function):
        return Kind.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(function):
        return Kind.COROUTINE
    return Kind.GENERATOR if inspect.isgeneratorfunction(function) else Kind.PLAIN


# Generators --------------------------------------------------------------------------------------------------------


def put(turn: Turn, value: object) -> Awaitable[None]:
    """Puts one yielded value, by the value table."""
    value = adopted(value)
    match value:
        case None:
            raise InvalidAgentResponse("yielded None; yield text, data, bytes, a Part, an Artifact or a Message")
        case pb.Message():
            return turn.status(value)
        case pb.Artifact() | bytes() | bytearray() | memoryview() | PathLike():
            return turn.artifact(value)
        case _:
            return turn.chunk(value)


async def _drain_async(stream: AsyncGenerator[object, None], turn: Turn) -> None:
    try:
        step: Awaitable[object] = anext(stream)
        while True:
            try:
                value = await step
            except StopAsyncIteration:
                return
            try:
                await put(turn, value)
                await asyncio.sleep(0)  # a generator that never waits must not starve everybody else
                step = anext(stream)
            except (TurnOver, Refused):
                raise  # nobody listens any more: no reason for the generator to go on
            except BaseException as error:
                step = stream.athrow(error)
    finally:
        await stream.aclose()


def _drain(stream: Generator[object, None, object], turn: Turn) -> object:
    trouble: BaseException | None = None
    try:
        while True:
            try:
                value = next(stream) if trouble is None else stream.throw(trouble)
            except StopIteration as end:
                return end.value
            trouble = None
            try:
                put(turn, value)
                turn.check()
            except (TurnOver, Refused):
                raise
            except BaseException as error:
                trouble = error
    finally:
        stream.close()


# Threads -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Thread:
    """Where the sync function of an agent runs, and how long a canceled one is waited for."""

    agent: str
    threads: Executor
    left: LeftBehind
    patience: float

    async def run(self, work: Callable[[], object]) -> object:
        """Runs `work` in a thread, with this context's variables.

        A cancel cannot stop a thread: it is given time to notice, so that CANCELED means that it stopped. A second
        cancel, or the end of our patience, leaves it behind.
        """
        context = contextvars.copy_context()
        running = self.threads.submit(context.run, _without_stop_iteration, work)
        result = asyncio.wrap_future(running)
        try:
            await asyncio.wait([result])  # which does not cancel what it waits for
        except asyncio.CancelledError:
            if running.cancel():  # it never began
                raise
            try:
                await asyncio.wait([result], timeout=self.patience)
            finally:
                if not result.done():
                    self._leave(running)
                    result.cancel()  # nobody looks at it any more, whatever it comes to
            if result.cancelled():
                raise
        return result.result()

    def _leave(self, running: Future[object]) -> None:
        self.left.add(running)
        log.warning(
            "agent %s: a thread goes on although its turn is over; threads left behind: %d",
            self.agent,
            self.left.count,
            extra={"agent": self.agent},
        )


def _without_stop_iteration(work: Callable[[], object]) -> object:
    try:
        return work()
    except StopIteration as error:  # a Future cannot carry one
        raise RuntimeError("the function raised StopIteration") from error


# Ends --------------------------------------------------------------------------------------------------------------


def _completed(output: Output, value: object) -> Ending:
    """COMPLETED with what the function returned, by the value table."""
    value = adopted(value)
    if value is None:
        return output.ending(StatusChange(states.COMPLETED))
    if isinstance(value, pb.Message):
        return output.ending(output.status_change(states.COMPLETED, value))
    return output.ending(StatusChange(states.COMPLETED), artifacts=[change_of(output.new_artifact(value))])


def _ended(function: AgentFunction, output: Output, agent: str, cause: BaseException, error: BaseException) -> Ending:
    """The ending that an exception means."""
    if isinstance(cause, TurnEnded):
        return output.ending(cause.status, reply=cause.reply)
    if isinstance(cause, (TurnOver, Refused)):
        # The task went on without this run, and the store refuses whatever we say: no failure of the agent.
        return Ending(StatusChange(states.CANCELED))
    return _failed(function, output, agent, cause, error)


def _failed(function: AgentFunction, output: Output, agent: str, cause: BaseException, error: BaseException) -> Ending:
    file, line = where(cause, function)
    text = describe(cause, error)
    log.error(
        "%s, line %d: agent %s failed: %s", file, line, agent, text,
        exc_info=error, extra={"task": output.desk.task_id, "agent": agent},
    )  # fmt: skip
    if isinstance(cause, InvalidAgentResponse):
        text = f"InvalidAgentResponse: agent {agent}, {Path(file).name} line {line}: {cause}"
    return Ending(output.status_change(states.FAILED, text))


def _asked_to_stop(desk: Desk) -> bool:
    """Whether a CancelledError came from outside, not from something that the agent canceled itself."""
    task = asyncio.current_task()
    return desk.cancelled or (task is not None and task.cancelling() > 0)
