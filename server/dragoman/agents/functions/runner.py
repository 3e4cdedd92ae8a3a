"""Runs a Python function for one turn: calls it, sends the values it yields, and returns the result.

| written as            | runs                 | canceled by                                             |
|-----------------------|----------------------|---------------------------------------------------------|
| `async def`           | on the event loop    | CancelledError at its await                             |
| `async def` + `yield` | on the event loop    | CancelledError at its await or yield                    |
| `def`                 | in a thread          | `turn.canceled`, `turn.check()`                        |
| `def` + `yield`       | in a thread          | the same, and CancelledError at its yield               |

An error with a yielded value is raised at that `yield`, so that the author's `finally` runs and the traceback shows
the author's line. The caller sees the error's name and text; only the log has the traceback.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from queue import SimpleQueue
from traceback import walk_tb
from typing import Final, ParamSpec, TypeVar, cast

from dragoman.agents.functions.output import TurnOutput
from dragoman.agents.functions.turn import Turn, TurnEnded
from dragoman.agents.values import NewId, artifact_change, to_local_type
from dragoman.core import trace
from dragoman.core.errors import InvalidAgentResponse, Unavailable, lacks_memory
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected, StatusChange
from dragoman.ports import AGENT_STOP_TIMEOUT, AgentStillRuns, LeaseLost, TurnContext, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.agents")

AgentFunction = Callable[[Turn], object]


async def take_turn(
    function: AgentFunction,
    turn_context: TurnContext,
    *,
    agent: str,
    new_id: NewId,
    thread_pool: Executor,
    leaked: LeakedThreads | None = None,
    stop_timeout: float = AGENT_STOP_TIMEOUT,
) -> TurnResult:
    """Runs one turn of `function`. A failure becomes a FAILED result; a requested cancel passes through.

    SystemExit and KeyboardInterrupt are failures of the agent, too: signals never raise here.
    """
    output = TurnOutput(turn_context, new_id)
    turn = Turn(output, agent)
    trace.CURRENT_DELEGATION.set(turn.delegation)
    try:
        value = await _call_function(
            function, turn, ThreadRunner(agent, thread_pool, leaked or LeakedThreads(), stop_timeout, turn_context)
        )
        try:
            return _completed_result(output, value)
        except InvalidAgentResponse as error:
            raise InvalidAgentResponse(f"the returned value: {error}") from error.__cause__
    except BaseException as error:
        cause = primary_exception(error)
        try:
            if isinstance(cause, (GeneratorExit, AgentStillRuns)):
                raise
            if isinstance(cause, asyncio.CancelledError) and _is_stop_requested(turn_context):
                raise
            return _result_of_exception(function, output, agent, cause, error)
        except AgentStillRuns:
            raise
        except Exception as late:  # the result cannot be built: a state that is not JSON, a failing __str__
            return _failed_result(function, output, agent, late, late)
        finally:
            del cause  # its traceback references this frame


async def _call_function(function: AgentFunction, turn: Turn, thread: ThreadRunner) -> object:
    """Returns the function's value, after all yielded values were sent."""
    match _function_kind(function):
        case FunctionKind.ASYNC_GENERATOR:
            await _drain_async(cast("AsyncGenerator[object, None]", function(turn)), turn)
            return None
        case FunctionKind.COROUTINE:
            return await cast("Awaitable[object]", function(turn))
        case FunctionKind.GENERATOR:
            return await thread.run(lambda: _drain(cast("Generator[object, None, object]", function(turn)), turn))
        case FunctionKind.PLAIN:
            return await thread.run(lambda: function(turn))


class FunctionKind(Enum):
    """The four ways to call an agent function."""

    ASYNC_GENERATOR = 1
    COROUTINE = 2
    GENERATOR = 3
    PLAIN = 4


@lru_cache(maxsize=1024)
def _function_kind(function: AgentFunction) -> FunctionKind:
    if inspect.isasyncgenfunction(function):
        return FunctionKind.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(function):
        return FunctionKind.COROUTINE
    return FunctionKind.GENERATOR if inspect.isgeneratorfunction(function) else FunctionKind.PLAIN


# Generators --------------------------------------------------------------------------------------------------------


def send_value(turn: Turn, value: object) -> Awaitable[None]:
    """Sends one yielded value as a status update, an artifact or a chunk."""
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


async def _drain_async(stream: AsyncGenerator[object, None], turn: Turn) -> None:
    try:
        step: Awaitable[object] = anext(stream)
        while True:
            try:
                value = await step
            except StopAsyncIteration:
                return
            try:
                await send_value(turn, value)
                await asyncio.sleep(0)  # a generator that never waits must not block the event loop
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


# Threads -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ThreadRunner:
    """Runs an agent's sync function in a thread. After `stop_timeout` seconds a canceled one counts as leaked."""

    agent: str
    thread_pool: Executor
    leaked: LeakedThreads
    stop_timeout: float
    turn_context: TurnContext

    async def run(self, work: Callable[[], object]) -> object:
        """Runs `work` in a thread, with a copy of the current context.

        A cancel cannot stop a thread, and CANCELED means that it stopped: for a client, and for a process that lost its
        lease, this waits as long as it takes. For other reasons it returns after the timeout or a second cancel. Raises
        AgentStillRuns when the process shuts down before the thread of a canceled turn has stopped.
        """
        context = contextvars.copy_context()
        running = self.thread_pool.submit(context.run, _without_stop_iteration, work)
        result = asyncio.wrap_future(running)
        try:
            await asyncio.wait([result])  # does not cancel the future
        except asyncio.CancelledError:
            if running.cancel():  # it had not started
                raise
            try:
                await self._wait_until_stopped(running, result)
            finally:
                if not result.done():
                    result.cancel()  # its outcome is ignored from here on
            if result.cancelled():
                raise
        return result.result()

    async def _wait_until_stopped(self, running: Future[object], result: asyncio.Future[object]) -> None:
        context, timeout, counted = self.turn_context, self.stop_timeout, False
        while not result.done():
            stopped_waiting = False
            try:
                await asyncio.wait([result], timeout=None if counted else timeout)
            except asyncio.CancelledError:
                if context.cancel_reason == "client" and not context.stopping:
                    continue
                stopped_waiting = True
            if result.done():
                return
            if not counted:
                self._mark_leaked(running)
                counted = True
            if stopped_waiting and context.cancel_reason == "client":
                raise AgentStillRuns
            if stopped_waiting or context.cancel_reason not in ("client", "fenced"):
                return

    def _mark_leaked(self, running: Future[object]) -> None:
        self.leaked.add(running)
        log.warning(
            "agent %s: a thread still runs after its turn ended; call turn.check() in long loops; leaked threads: %d",
            self.agent,
            self.leaked.count,
            extra={"agent": self.agent},
        )


def _without_stop_iteration(work: Callable[[], object]) -> object:
    try:
        return work()
    except StopIteration as error:  # a Future cannot hold it
        raise RuntimeError("the function raised StopIteration") from error


# Results -----------------------------------------------------------------------------------------------------------


def _completed_result(output: TurnOutput, value: object) -> TurnResult:
    """COMPLETED with the returned value as message or artifact."""
    value = to_local_type(value)
    if value is None:
        return output.turn_result(StatusChange(states.COMPLETED))
    if isinstance(value, pb.Message):
        return output.turn_result(output.status_change(states.COMPLETED, value))
    return output.turn_result(StatusChange(states.COMPLETED), artifacts=[artifact_change(output.new_artifact(value))])


def _result_of_exception(
    function: AgentFunction, output: TurnOutput, agent: str, cause: BaseException, error: BaseException
) -> TurnResult:
    """Converts an exception to the result of the turn."""
    if isinstance(cause, TurnEnded):
        return output.turn_result(cause.status, reply=cause.reply)
    if isinstance(cause, (LeaseLost, AppendRejected)):
        # The task continued without this run and the store rejects our writes: not a failure of the agent.
        return TurnResult(StatusChange(states.CANCELED))
    return _failed_result(function, output, agent, cause, error)


def _failed_result(
    function: AgentFunction, output: TurnOutput, agent: str, cause: BaseException, error: BaseException
) -> TurnResult:
    file, line = source_location(cause, function)
    text = describe_exception(cause, error)
    # The store is away or memory is used up: the author's frames would explain nothing.
    is_expected = isinstance(cause, Unavailable) or lacks_memory(cause)
    log.error(
        "%s, line %d: agent %s failed: %s", file, line, agent, text,
        exc_info=None if is_expected else error, extra={"task": output.turn_context.task_id, "agent": agent},
    )  # fmt: skip
    if not isinstance(cause, InvalidAgentResponse):
        return output.failed_result(text)
    invalid = InvalidAgentResponse(f"agent {agent}, {Path(file).name} line {line}: {cause}")
    return replace(output.failed_result(f"InvalidAgentResponse: {invalid}"), error=invalid)


def _is_stop_requested(turn_context: TurnContext) -> bool:
    """Whether a CancelledError is a requested stop, not one that the agent caused."""
    task = asyncio.current_task()
    return turn_context.canceled or (task is not None and task.cancelling() > 0)


MAX_ERROR_TEXT_CHARS: Final = 4_000
"""Characters of an error text that the caller sees; the log has the full text."""


def primary_exception(error: BaseException) -> BaseException:
    """The decisive exception: of a group, its TurnEnded if there is one, otherwise the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = _flatten_group(error)
    return next((one for one in leaves if isinstance(one, TurnEnded)), leaves[0])


def describe_exception(cause: BaseException, error: BaseException) -> str:
    """`Name: text` of `cause`, with the number of other exceptions in the group `error`. Always valid UTF-8."""
    text = str(cause).encode(errors="backslashreplace").decode()
    description = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
    more = len(_flatten_group(error)) - 1 if isinstance(error, BaseExceptionGroup) else 0
    if len(description) > MAX_ERROR_TEXT_CHARS:
        description = f"{description[:MAX_ERROR_TEXT_CHARS]}…"
    return f"{description} (and {more} more)" if more else description


def source_location(error: BaseException, function: Callable[..., object]) -> tuple[str, int]:
    """File and line of an error: the innermost line in the function's file, else the function's first line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    file, first_line = (code.co_filename, code.co_firstlineno) if code else ("<unknown>", 0)
    error_line: int | None = None
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and error_line is None and id(current) not in seen:
        seen.add(id(current))
        for frame, line in walk_tb(current.__traceback__):
            if frame.f_code.co_filename == file:
                error_line = line
        current = current.__cause__
    return file, first_line if error_line is None else error_line


def _flatten_group(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _flatten_group(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[], None]


class LeakedThreads:
    """Counts calls that still run after their turn ended. A thread cannot be stopped from outside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    @property
    def count(self) -> int:
        """Calls that still run."""
        return self._count

    def add(self, call: Future[T]) -> None:
        """Counts a call until it returns."""
        with self._lock:
            self._count += 1
        call.add_done_callback(self._returned)

    def _returned(self, _: Future[T]) -> None:
        with self._lock:
            self._count -= 1


class DaemonThreadPool(Executor):
    """An executor with at most `limit` daemon threads, started on demand. Other work waits."""

    def __init__(self, limit: int, name: str = "dragoman-agent") -> None:
        self._limit = limit
        self._name = name
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._idle = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._queue.put(partial(_run_call, future, partial(fn, *args, **kwargs)))
            if self._idle > 0:
                self._idle -= 1
            elif self._started < self._limit:
                self._started += 1
                threading.Thread(target=self._run_worker, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Lets the threads end when the queue is empty. Never waits: a thread may run forever."""
        with self._lock:
            for _ in range(self._started):
                self._queue.put(None)

    def _run_worker(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work  # frees the agent's values while this thread is idle
            with self._lock:
                if self._queue.empty():
                    self._idle += 1


def _run_call(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
        del future, error  # breaks the cycle of traceback and future
    else:
        future.set_result(result)
