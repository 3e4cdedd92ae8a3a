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
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
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
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected, StatusChange
from dragoman.ports import LeaseLost, TurnContext, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.agents")

AgentFunction = Callable[[Turn], object]

THREAD_STOP_TIMEOUT: Final = 12.0
"""Seconds that a canceled thread may still take; then it is left behind, and its verbs raise TurnOver."""


async def take_turn(
    function: AgentFunction,
    turn_context: TurnContext,
    *,
    agent: str,
    new_id: NewId,
    thread_pool: Executor,
    leaked: LeakedThreads | None = None,
    stop_timeout: float = THREAD_STOP_TIMEOUT,
) -> TurnResult:
    """One turn of `function`. Its failures become a FAILED ending; a cancel that somebody asked for passes through."""
    output = TurnOutput(turn_context, new_id)
    turn = Turn(output, agent)
    trace.CURRENT_DELEGATION.set(turn.delegation)
    try:
        value = await _call_function(
            function, turn, ThreadRunner(agent, thread_pool, leaked or LeakedThreads(), stop_timeout)
        )
        try:
            return _completed_result(output, value)
        except InvalidAgentResponse as error:
            raise InvalidAgentResponse(f"the value it returned: {error}") from error.__cause__
    except BaseException as error:
        cause = primary_exception(error)
        try:
            if isinstance(cause, (KeyboardInterrupt, GeneratorExit)):
                raise
            if isinstance(cause, asyncio.CancelledError) and _is_stop_requested(turn_context):
                raise
            return _result_of_exception(function, output, agent, cause, error)
        except Exception as late:  # the ending itself cannot be said: a state that is not JSON, a failing __str__
            return _failed_result(function, output, agent, late, late)
        finally:
            del cause  # its traceback leads to where we are


async def _call_function(function: AgentFunction, turn: Turn, thread: ThreadRunner) -> object:
    """What the function returned, after everything it yielded was put."""
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
    """How a function is called."""

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


def put_value(turn: Turn, value: object) -> Awaitable[None]:
    """Puts one yielded value, by the value table."""
    value = to_local_type(value)
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
                await put_value(turn, value)
                await asyncio.sleep(0)  # a generator that never waits must not starve everybody else
                step = anext(stream)
            except (LeaseLost, AppendRejected):
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
                put_value(turn, value)
                turn.check()
            except (LeaseLost, AppendRejected):
                raise
            except BaseException as error:
                trouble = error
    finally:
        stream.close()


# Threads -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ThreadRunner:
    """Where the sync function of an agent runs, and how long a canceled one is waited for."""

    agent: str
    thread_pool: Executor
    leaked: LeakedThreads
    stop_timeout: float

    async def run(self, work: Callable[[], object]) -> object:
        """Runs `work` in a thread, with this context's variables.

        A cancel cannot stop a thread: it is given time to notice, so that CANCELED means that it stopped. A second
        cancel, or the end of our patience, leaves it behind.
        """
        context = contextvars.copy_context()
        running = self.thread_pool.submit(context.run, _without_stop_iteration, work)
        result = asyncio.wrap_future(running)
        try:
            await asyncio.wait([result])  # which does not cancel what it waits for
        except asyncio.CancelledError:
            if running.cancel():  # it never began
                raise
            try:
                await asyncio.wait([result], timeout=self.stop_timeout)
            finally:
                if not result.done():
                    self._mark_leaked(running)
                    result.cancel()  # nobody looks at it any more, whatever it comes to
            if result.cancelled():
                raise
        return result.result()

    def _mark_leaked(self, running: Future[object]) -> None:
        self.leaked.add(running)
        log.warning(
            "agent %s: a thread goes on although its turn is over; threads left behind: %d",
            self.agent,
            self.leaked.count,
            extra={"agent": self.agent},
        )


def _without_stop_iteration(work: Callable[[], object]) -> object:
    try:
        return work()
    except StopIteration as error:  # a Future cannot carry one
        raise RuntimeError("the function raised StopIteration") from error


# Ends --------------------------------------------------------------------------------------------------------------


def _completed_result(output: TurnOutput, value: object) -> TurnResult:
    """COMPLETED with what the function returned, by the value table."""
    value = to_local_type(value)
    if value is None:
        return output.turn_result(StatusChange(states.COMPLETED))
    if isinstance(value, pb.Message):
        return output.turn_result(output.status_change(states.COMPLETED, value))
    return output.turn_result(StatusChange(states.COMPLETED), artifacts=[artifact_change(output.new_artifact(value))])


def _result_of_exception(
    function: AgentFunction, output: TurnOutput, agent: str, cause: BaseException, error: BaseException
) -> TurnResult:
    """The ending that an exception means."""
    if isinstance(cause, TurnEnded):
        return output.turn_result(cause.status, reply=cause.reply)
    if isinstance(cause, (LeaseLost, AppendRejected)):
        # The task went on without this run, and the store refuses whatever we say: no failure of the agent.
        return TurnResult(StatusChange(states.CANCELED))
    return _failed_result(function, output, agent, cause, error)


def _failed_result(
    function: AgentFunction, output: TurnOutput, agent: str, cause: BaseException, error: BaseException
) -> TurnResult:
    file, line = source_location(cause, function)
    text = describe_exception(cause, error)
    log.error(
        "%s, line %d: agent %s failed: %s", file, line, agent, text,
        exc_info=error, extra={"task": output.turn_context.task_id, "agent": agent},
    )  # fmt: skip
    if isinstance(cause, InvalidAgentResponse):
        text = f"InvalidAgentResponse: agent {agent}, {Path(file).name} line {line}: {cause}"
    return TurnResult(output.status_change(states.FAILED, text))


def _is_stop_requested(turn_context: TurnContext) -> bool:
    """Whether a CancelledError came from outside, not from something that the agent canceled itself."""
    task = asyncio.current_task()
    return turn_context.cancelled or (task is not None and task.cancelling() > 0)


MAX_ERROR_TEXT_CHARS: Final = 4_000
"""Characters of an error's text that its caller sees; the log has all of it."""


def primary_exception(error: BaseException) -> BaseException:
    """The exception that counts: of a group, the end of the turn if there is one, otherwise the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = _flatten_group(error)
    return next((one for one in leaves if isinstance(one, TurnEnded)), leaves[0])


def describe_exception(cause: BaseException, error: BaseException) -> str:
    """`Name: text` of `cause`, and how many more there are in the group `error`. Always has a UTF-8 form."""
    text = str(cause).encode(errors="backslashreplace").decode()
    said = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
    more = len(_flatten_group(error)) - 1 if isinstance(error, BaseExceptionGroup) else 0
    if len(said) > MAX_ERROR_TEXT_CHARS:
        said = f"{said[:MAX_ERROR_TEXT_CHARS]}…"
    return f"{said} (and {more} more)" if more else said


def source_location(error: BaseException, function: Callable[..., object]) -> tuple[str, int]:
    """File and line: the innermost line in the function's own file, else where the function begins."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    file, begins = (code.co_filename, code.co_firstlineno) if code else ("<unknown>", 0)
    found: int | None = None
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and found is None and id(at) not in seen:
        seen.add(id(at))
        for frame, line in walk_tb(at.__traceback__):
            if frame.f_code.co_filename == file:
                found = line
        at = at.__cause__
    return file, begins if found is None else found


def _flatten_group(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for one in group.exceptions:
        found += _flatten_group(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found


P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[], None]


class LeakedThreads:
    """Counts calls that go on although nobody waits for them any more: nothing can stop a thread from outside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    @property
    def count(self) -> int:
        """How many go on now."""
        return self._count

    def add(self, call: Future[T]) -> None:
        """Counts a call until it returns after all."""
        with self._lock:
            self._count += 1
        call.add_done_callback(self._returned)

    def _returned(self, _: Future[T]) -> None:
        with self._lock:
            self._count -= 1


class DaemonThreadPool(Executor):
    """An executor with at most `limit` daemon threads, begun as they are needed; more work than that waits."""

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
        """Lets the threads end when the queue is empty. Never waits for them: see above."""
        with self._lock:
            for _ in range(self._started):
                self._queue.put(None)

    def _run_worker(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work  # holds the agent's values, which must not live on while this thread is idle
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
        del future, error  # or the traceback and the future keep each other alive
    else:
        future.set_result(result)
