"""Runs a Python function for one turn: calls it, sends the values it yields, and returns the result.

| written as            | runs                 | canceled by                                             |
|-----------------------|----------------------|---------------------------------------------------------|
| `async def`           | on the event loop    | CancelledError at its await                             |
| `async def` + `yield` | on the event loop    | CancelledError at its await or yield                    |
| `def`                 | in a thread          | `turn.canceled`, `turn.check()`                        |
| `def` + `yield`       | in a thread          | the same, and CancelledError at its yield               |

An error with a yielded value is raised at that `yield`, so that the author's `finally` runs and the traceback shows
the author's line. The caller sees the text of an AgentError, or any error's name and text where
`turn_context.shows_error_texts`, else a generic text with an id. The log has id, text and traceback.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Executor
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar

from dragoman.agents.functions.declared_types import InputTypes
from dragoman.agents.functions.spec import ONCE, Retry
from dragoman.agents.functions.steps import TurnSuspended
from dragoman.agents.functions.threads import DaemonThreadPool, ThreadRunner
from dragoman.agents.functions.turn import AgentError, Turn, TurnEnded, TurnOutput
from dragoman.agents.values import NewId, artifact_change, text_artifact_change, to_local_type
from dragoman.core import trace
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import InvalidAgentResponse, Unavailable, lacks_memory
from dragoman.core.exceptions import (
    ERROR_ID_BYTES,
    describe,
    describe_leaf,
    failure_fields,
    generic_error_text,
    is_a,
    leaves,
    stack_of,
    text_of,
    walk,
)
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected, StatusChange
from dragoman.core.task.steps import StepMismatch
from dragoman.ids import IDS
from dragoman.ports import AGENT_STOP_TIMEOUT, AgentStillRuns, LeaseLost, Pause, TurnContext, TurnResult
from dragoman.supervision import log_exception
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.agents")

P = ParamSpec("P")
R = TypeVar("R")

THREAD_POOL: Final = DaemonThreadPool(64)
"""Runs sync functions. Starts threads on demand; a turn waits while all of them are busy."""


class DeclaredAgent(Generic[P, R]):
    """A function declared as an agent. Implements `dragoman.ports.Agent`; calling it calls the function.

    retry: how failed turns are tried again. new_id: creates the ids of its messages and artifacts. thread_pool: runs a
    sync function. inputs: the declared inputs by skill, for `turn.input`. clock: milliseconds since the epoch, for
    steps and pauses. stop_timeout: seconds after which the thread of a canceled turn counts as leaked.
    """

    __name__: str

    def __init__(
        self,
        function: Callable[P, R],
        spec: AgentSpec,
        *,
        retry: Retry = ONCE,
        new_id: NewId = IDS.hex,
        thread_pool: Executor = THREAD_POOL,
        inputs: InputTypes = MappingProxyType({}),
        clock: Callable[[], int] | None = None,
        stop_timeout: float = AGENT_STOP_TIMEOUT,
    ) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self.spec = spec
        self.retry = retry
        self.inputs = inputs
        self._new_id = new_id
        self._clock = clock
        self._threads = ThreadRunner(spec.id, thread_pool, stop_timeout)
        self._is_async_generator = inspect.isasyncgenfunction(function)
        self._is_coroutine = inspect.iscoroutinefunction(function)
        self._is_generator = inspect.isgeneratorfunction(function)
        self.is_on_loop = self._is_async_generator or self._is_coroutine  # closing its coroutine ends a turn

    @property
    def leaked_threads(self) -> int:
        """Threads that still run after their turn ended, because the function did not check for a cancel."""
        return self._threads.leaked

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f'<agent "{self.spec.id}": {self.__wrapped__!r}>'

    async def take_turn(self, turn_context: TurnContext) -> TurnResult:
        """Runs the function for one turn. A failure becomes a FAILED result; a requested cancel passes through.

        A failure that `retry` covers becomes a pause until the next attempt. Whatever the agent raises is a failure,
        also GeneratorExit, a CancelledError of its own, SystemExit and KeyboardInterrupt: signals never raise here.
        """
        output = TurnOutput(turn_context, self._new_id, self.spec.id, self._clock)
        turn = Turn(output, self.inputs)
        trace.CURRENT_DELEGATION.set(turn.delegation)
        trace.CURRENT_TURN.set((turn_context.task_id, self.spec.id))
        try:
            value = await self._call(turn, output)
            try:
                return _completed_result(output, value)
            except InvalidAgentResponse as error:
                raise InvalidAgentResponse(f"the returned value: {error}") from error.__cause__
        except BaseException as error:
            # Nobody waits for a result: the coroutine is destroyed, or abandoned after a cancel.
            if output.is_closed or (is_a(error, GeneratorExit) and turn_context.canceled):
                raise
            found = leaves(error)  # of a group, what ends or suspends the turn on purpose is the decisive exception
            cause = next((one for one in found if is_a(one, (TurnEnded, TurnSuspended))), found[0])
            try:
                if is_a(cause, asyncio.CancelledError) and _is_stop_requested(turn_context):
                    raise
                if is_a(cause, AgentStillRuns) and turn_context.canceled:
                    raise
                try:
                    result = _result_without_failure(output, cause)
                    if result is not None:
                        return result
                    attempt = turn_context.attempt
                    fails_again = is_a(cause, (StepMismatch, InvalidAgentResponse))
                    if turn_context.canceled or fails_again or not self.retry.covers(cause, attempt):
                        return self._failed_result(output, cause, error)[0]
                    delay = self.retry.delay(attempt)
                    then = f"; attempt {attempt + 1} of {self.retry.attempts} begins in {delay:g} s"
                    result, text = self._failed_result(output, cause, error, then)
                    result.pause = Pause(output.clock() + round(delay * 1000), text)
                    return result
                except BaseException as late:  # the result cannot be built: a state that is not JSON
                    return self._failed_result(output, late, late)[0]
            finally:
                del cause, found  # their tracebacks reference this frame

    async def _call(self, turn: Turn, output: TurnOutput) -> object:
        """Returns the function's value, after all yielded values were sent."""
        function: Callable[[Turn], Any] = self.__wrapped__  # type: ignore[assignment]  # `agent` has checked that
        if self._is_async_generator:
            await _drain_async(function(turn), turn, output.clock)
            return None
        if self._is_coroutine:
            return await function(turn)

        def in_thread() -> object:
            output.steps.adopt_thread()
            value = function(turn)
            return _drain(value, turn) if self._is_generator else value

        return await self._threads.run(in_thread, output.turn_context)

    def _failed_result(
        self, output: TurnOutput, cause: BaseException, error: BaseException, then: str = ""
    ) -> tuple[TurnResult, str]:
        """FAILED, and its text for the caller. Logs the failure: as a warning with `then`, if the turn runs again."""
        agent, where = self.spec.id, source_location(cause, self.__wrapped__)
        text = describe_exception(cause, error)
        error_id = ""
        if not (output.turn_context.shows_error_texts or is_a(cause, AgentError)):
            error_id = secrets.token_hex(ERROR_ID_BYTES)
        # The store is away or memory is used up: the author's frames would explain nothing.
        is_expected = is_a(cause, Unavailable) or lacks_memory(cause)
        level, line = logging.WARNING if then else logging.ERROR, FAILED_AT_LINE
        logged = {"where": where, "agent": agent, "text": text, "then": then}
        fields = {"task": output.turn_context.task_id, "agent": agent}
        if where.is_declaration:
            line = FAILED_AT_DECLARATION
        if error_id:
            logged["text"] = f"{text} (error id {error_id})"
            fields["error_id"] = error_id
        log_exception(log, level, line, (logged,), None if is_expected else error, fields)
        shown = generic_error_text(error_id) if error_id else text
        failure = wk.Failure(**failure_fields(cause, error, where.file)).SerializeToString()
        if is_a(cause, InvalidAgentResponse):
            place = f"{Path(where.file).name} line {where.line}"
            invalid = InvalidAgentResponse(shown if error_id else f"agent {agent}, {place}: {text_of(cause)}")
            shown = f"InvalidAgentResponse: {invalid}"
            return replace(output.failed_result(shown, failure), error=invalid), shown
        return output.failed_result(shown, failure), shown


# Generators --------------------------------------------------------------------------------------------------------


def send_value(turn: Turn, value: object) -> Awaitable[None]:
    """Sends one yielded value as a status update, an artifact or a chunk."""
    if isinstance(value, str):  # the usual chunk
        return turn.chunk(value)
    value = to_local_type(value)
    match value:
        case None:
            raise InvalidAgentResponse("yielded None; yield a string, data, bytes, a Part, an Artifact or a Message")
        case pb.Message():
            return turn.status(value)
        case pb.Artifact() | bytes() | bytearray() | memoryview() | PathLike():
            return turn.artifact(value)
        case _:
            return turn.chunk(value)


MAX_VALUES_IN_A_ROW: Final = 128
"""Yielded values after which the loop gets its turn, as it does when the clock advances by a millisecond: a generator
that never waits must not block it, and an append for each few values takes a third of a stream's CPU."""


async def _drain_async(stream: AsyncGenerator[object, None], turn: Turn, clock: Callable[[], int]) -> None:
    values, since = 0, clock()
    try:
        step: Awaitable[object] = anext(stream)
        while True:
            try:
                value = await step
            except StopAsyncIteration:
                return
            try:
                await send_value(turn, value)
                values += 1
                if values >= MAX_VALUES_IN_A_ROW or clock() != since:
                    await asyncio.sleep(0)
                    values, since = 0, clock()
                step = anext(stream)
            except (LeaseLost, AppendRejected):
                raise  # the turn is over: no reason to resume the generator
            except BaseException as error:
                step = stream.athrow(error)
    finally:
        await stream.aclose()


def _drain(stream: Generator[object, None, object], turn: Turn) -> object:
    failure: BaseException | None = None
    try:
        while True:
            try:
                value = next(stream) if failure is None else stream.throw(failure)
            except StopIteration as end:
                return end.value
            failure = None
            try:
                send_value(turn, value)
                turn.check()
            except (LeaseLost, AppendRejected):
                raise
            except BaseException as error:
                failure = error
    finally:
        stream.close()


# Results -----------------------------------------------------------------------------------------------------------


def _completed_result(output: TurnOutput, value: object) -> TurnResult:
    """COMPLETED with the returned value as message or artifact."""
    if isinstance(value, str):  # of most agents
        text = text_artifact_change(output.new_id(), value)
        return output.turn_result(StatusChange(states.COMPLETED), artifacts=[text])
    value = to_local_type(value)
    if value is None:
        return output.turn_result(StatusChange(states.COMPLETED))
    if isinstance(value, pb.Message):
        return output.turn_result(output.status_change(states.COMPLETED, value))
    whole = artifact_change(output.new_artifact(value), last=True)
    return output.turn_result(StatusChange(states.COMPLETED), artifacts=[whole])


def _result_without_failure(output: TurnOutput, cause: BaseException) -> TurnResult | None:
    """The result of an exception that ends or suspends a turn on purpose; None for a failure of the agent."""
    if is_a(cause, TurnEnded):
        return output.turn_result(cause.status, reply=cause.reply)
    if is_a(cause, TurnSuspended):
        result = output.turn_result(StatusChange(states.WORKING))
        result.state_update = replace(result.state_update, steps=(cause.step,))
        result.pause = Pause(cause.wake_at)
        return result
    if is_a(cause, (LeaseLost, AppendRejected)):
        # The task continued without this run and the store rejects our writes: not a failure of the agent.
        return TurnResult(StatusChange(states.CANCELED))
    return None


def _is_stop_requested(turn_context: TurnContext) -> bool:
    """Whether a CancelledError is a requested stop, not one that the agent caused."""
    task = asyncio.current_task()
    return turn_context.canceled or (task is not None and task.cancelling() > 0)


FAILED_AT_LINE: Final = "%(where)s: agent %(agent)s failed: %(text)s%(then)s"
FAILED_AT_DECLARATION: Final = "agent %(agent)s, declared at %(where)s, failed: %(text)s%(then)s"
"""Log lines of a failure. `where`: a SourceLocation; `then`: what happens next."""


def describe_exception(cause: BaseException, error: BaseException) -> str:
    """`Name: text` of `cause`, with the number of other exceptions in the group `error`. Always valid UTF-8.

    The text alone of an AgentError: it was written for the caller.
    """
    return describe_leaf(error, (text_of(cause) if is_a(cause, AgentError) else "") or describe(cause))


class SourceLocation(NamedTuple):
    """File and line of a failure. `is_declaration`: the function's first line, because no better one is known."""

    file: str
    line: int
    is_declaration: bool

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def source_location(error: BaseException, function: Callable[..., object]) -> SourceLocation:
    """Where an error happened: the innermost line in the function's file, else the function's first line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    file, first_line = (code.co_filename, code.co_firstlineno) if code else ("<unknown>", 0)
    error_line: int | None = None
    for one in walk(error):
        for frame, line in stack_of(one):
            if frame.f_code.co_filename == file:
                error_line = line
        if error_line is not None:
            break
    return SourceLocation(file, first_line if error_line is None else error_line, error_line is None)
