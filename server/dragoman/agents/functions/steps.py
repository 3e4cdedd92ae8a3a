"""Durable steps of an agent function: `turn.step`, `turn.sleep` and `turn.sleep_until`.

A step's result is stored before its caller gets it. When the turn runs again, after a crash, a failure, a pause or an
answered question, the function is called from its beginning, and its finished steps return what is stored.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from dragoman.agents.functions.spec import ONCE, Retry
from dragoman.agents.functions.step_values import UnstorableResult, decode_result, encode_input, encode_result
from dragoman.agents.functions.threads import DaemonThreadPool, outcome_of
from dragoman.core.exceptions import describe, describe_leaf, failure_fields, is_a, note_step, text_of
from dragoman.core.task.steps import MAX_RESULT_BYTES, MAX_STEP_NAME_CHARS, NO_POSITION, StepRecord, StepState
from dragoman.ports import StateUpdate, TurnContext
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.agents")

T = TypeVar("T")

MAX_ERROR_CHARS: Final = 2_000  # characters of an error that are stored
MAX_EARLIER_TEXT_CHARS: Final = 500  # of an attempt before the last failed one
MAX_FAILURES: Final = 10  # failed attempts of a step that are stored

SHOW_RUNNING_AFTER: Final = 0.25
"""Seconds after which a step that still runs is stored as running, for people. Shorter ones are stored once."""

STEP_THREADS: Final = DaemonThreadPool(64, "dragoman-step")
"""Runs sync functions of steps: not those of sync agents, because all of these may wait for steps."""

NOT_AWAITED: Final = (
    "%s, line %d: agent %s called %s without await, so it did not run. "
    "Write await before the call; in a sync agent, .wait() after it."
)
"""Log line of a step that was called and never awaited. The test kit makes it a warning of the test."""

AUTHOR_FRAME: Final = 3
"""Frames from CalledStep's constructor to the author's line: its subclass's, then that of `turn.step` or a pause."""

SUSPEND_AFTER_MS: Final = 1_000
"""Milliseconds from which a pause releases the turn; during a shorter one it stays in memory."""

_FAILURES: Final = (Exception, GeneratorExit, KeyboardInterrupt, SystemExit)
"""Exceptions of a failed step. A cancel and the end of the turn are not failures."""


class TurnSuspended(BaseException):
    """Raised by a pause that releases the turn. Do not catch it.

    A BaseException, so that an agent's `except Exception` does not swallow it.
    """

    def __init__(self, wake_at: int, step: StepRecord) -> None:
        super().__init__("the turn sleeps")
        self.wake_at = wake_at
        self.step = step


@dataclass(eq=False, repr=False)
class TurnSteps:
    """The steps of one turn."""

    context: TurnContext
    agent: str
    clock: Callable[[], int]  # milliseconds since the epoch
    loop: asyncio.AbstractEventLoop
    loop_thread: int  # which runs the loop
    own_task: weakref.ref[asyncio.Task[Any]]  # of the turn
    running: int = field(default=0, init=False)  # steps under way
    _own_thread: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def repeats_output(self) -> bool:
        """Whether the agent's own code has yet to reach the last stored step of an earlier run, which sent the same.

        Not after an answered question: the code may take another way then.
        """
        return self.context.question is None and self.context.journal.replaying and self._is_own_code

    @property
    def is_on_loop(self) -> bool:
        """Whether the calling thread runs the event loop."""
        return threading.get_ident() == self.loop_thread

    def adopt_thread(self) -> None:
        """The agent's own code runs in the calling thread: it is a sync function."""
        self._own_thread = threading.get_ident()

    def begin(self, name: object) -> StepRecord:
        """The step that is called now. Raises StepMismatch, and ValueError for a name that cannot be used."""
        if not isinstance(name, str) or not 0 < len(name) <= MAX_STEP_NAME_CHARS or not name.isprintable():
            raise ValueError(
                f"turn.step: the name {name!r} must be 1 to {MAX_STEP_NAME_CHARS} printable characters; "
                'write turn.step("search", function, argument)'
            )
        with self._lock:
            return self.context.journal.begin(name, self.clock(), own_code=self._is_own_code)

    def run_from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it on the event loop while the calling thread waits."""
        if self.is_on_loop:
            raise RuntimeError("wait() blocks the event loop: in an async function, await the step instead")
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    @property
    def _is_own_code(self) -> bool:
        thread = threading.get_ident()
        if thread != self.loop_thread:
            return thread == self._own_thread
        return not self._own_thread and asyncio.current_task() is self.own_task()


class CalledStep(Coroutine[Any, Any, T]):
    """A step or pause that was called: a coroutine, which `asyncio.create_task` takes too. In a thread: `wait()`."""

    def __init__(self, steps: TurnSteps, step: StepRecord) -> None:
        self._steps = steps
        self._step = step
        self._used = False
        self._coroutine: Coroutine[Any, Any, T] | None = None
        caller = sys._getframe(AUTHOR_FRAME)
        # Not the frame, which would keep its variables alive, and not the line, which takes longer to find.
        self._code, self._instruction = caller.f_code, caller.f_lasti

    @property
    def name(self) -> str:
        """The name of the step."""
        return self._step.name

    def wait(self) -> T:
        """The result, for a sync agent: blocks the thread until the step has ended."""
        return self._steps.run_from_thread(self)

    def __await__(self) -> Generator[Any, None, T]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        return self._begun().throw(*error)

    def close(self) -> None:
        self._used = True
        if self._coroutine is not None:
            self._coroutine.close()

    def __del__(self) -> None:
        if not self._used:
            steps, code = self._steps, self._code
            line = next(islice(code.co_positions(), self._instruction // 2, None))[0]
            fields = {"task": steps.context.task_id, "agent": steps.agent}
            log.warning(NOT_AWAITED, code.co_filename, line or 0, steps.agent, self._title, extra=fields)

    @property
    def _title(self) -> str:
        return f'the step "{self._step.label}"'

    def _begun(self) -> Coroutine[Any, Any, T]:
        self._used = True
        if self._coroutine is None:
            self._coroutine = self._run()
        return self._coroutine

    async def _run(self) -> T:
        raise NotImplementedError


class StepCall(CalledStep[T]):
    """A step that was called: await it for its result, or use it in `async with`. In a thread: `wait()`, or `with`.

    In a block, `done` tells whether the result is stored already; if it is not, set `result`, which is stored at the
    end of the block. A block that ends without setting it stores None.
    """

    def __init__(
        self,
        steps: TurnSteps,
        step: StepRecord,
        function: Callable[[], Any] | None = None,
        retry: Retry = ONCE,
        timeout: float = 0.0,
    ) -> None:
        super().__init__(steps, step)
        self._function = function
        self._retry = retry
        self._timeout = timeout
        self._shown_running: asyncio.TimerHandle | None = None
        self._thread: Future[Any] | None = None  # the last attempt of a sync function
        self.result: T = None  # type: ignore[assignment]  # the result of a block that sets none

    @property
    def key(self) -> str:
        """An idempotency key for calls to other services: the same in every attempt and every run of this step."""
        return self._steps.context.journal.key(self._step)

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._step.attempt

    @property
    def done(self) -> bool:
        """Whether the result is stored: an earlier run of the turn has finished this step."""
        return self._step.state is StepState.DONE

    # As a block -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> StepCall[T]:
        return self.__enter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if self.done:
            return
        self._steps.running -= 1
        if error is None:
            await self._finish(self.result)
        elif is_a(error, _FAILURES):
            self._fail(error)

    def __enter__(self) -> StepCall[T]:
        self._used = True
        if self._function is not None:
            raise TypeError(f'step "{self.name}" has a function: await it, or leave the function out of the block')
        if self.done:
            self.result = self._stored_result()
        else:
            self._steps.running += 1
            self._step = replace(self._step, state=StepState.RUNNING, started=self._steps.clock())
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._steps.run_from_thread(self.__aexit__(kind, error, traceback))

    # As a call --------------------------------------------------------------------------------------------------

    async def _run(self) -> T:
        if self._function is None:
            raise TypeError(f'step "{self.name}" has no function: pass one, or write async with turn.step(...)')
        if self.done:
            return self._stored_result()
        self._steps.running += 1
        try:
            return await self._attempt()
        finally:
            self._steps.running -= 1
            self._stop_timer()

    async def _attempt(self) -> T:
        steps, number = self._steps, 1
        details = wk.StepDetails.FromString(self._step.details)
        details.input = encode_input(self._function)
        self._step = replace(self._step, details=details.SerializeToString())
        while True:
            self._step = replace(
                self._step, state=StepState.RUNNING, attempt=number, started=self._step.started or steps.clock()
            )
            self._shown_running = steps.loop.call_later(SHOW_RUNNING_AFTER, self._store_soon, self._step)
            try:
                async with asyncio.timeout(self._timeout or None):
                    value: T = await self._call_function()
            except _FAILURES as error:
                self._stop_timer()
                if not self._retry.covers(error, number):
                    self._fail(error)
                    raise
                self._step = replace(self._with_failure(error), attempt=number + 1)
                self._store_soon(self._step)
                await asyncio.sleep(self._retry.delay(number))
                if self._thread is not None:  # a thread goes on after its timeout: attempts do not overlap
                    await asyncio.wait([asyncio.wrap_future(self._thread)])
                number += 1
            else:
                self._stop_timer()
                await self._finish(value)
                return value

    async def _call_function(self) -> Any:
        """Sync functions run in a thread, because they may block."""
        function = self._function
        assert function is not None
        if inspect.iscoroutinefunction(inspect.unwrap(getattr(function, "func", function))):
            return await function()
        call = partial(contextvars.copy_context().run, outcome_of, function)
        value: Any
        self._thread = STEP_THREADS.submit(call)
        value, error = await asyncio.wrap_future(self._thread)
        if error is not None:
            raise error
        return await value if hasattr(type(value), "__await__") else value

    # Storing ----------------------------------------------------------------------------------------------------

    def _stored_result(self) -> T:
        part = pb.Part.FromString(self._step.result)
        value: T = decode_result(part.raw, part.media_type)
        return value

    async def _finish(self, value: object) -> None:
        try:
            data, media_type = encode_result(value)
        except TypeError as error:
            raise self._unstorable(f": {text_of(error)}") from None
        except Exception as error:  # of the result's own class
            raise self._unstorable(f" cannot be stored: {describe(error)}") from error
        if len(data) > MAX_RESULT_BYTES:
            raise self._unstorable(
                f" has {len(data)} bytes; at most {MAX_RESULT_BYTES} can be stored: store it elsewhere, and return "
                "where it is"
            )
        result = pb.Part(raw=data, media_type=media_type).SerializeToString()
        done = replace(
            self._step, state=StepState.DONE, result=result, size=len(data), ended=self._steps.clock(), wake_at=0
        )
        await self._steps.context.store(StateUpdate(steps=(done,)))
        self._step = done

    def _unstorable(self, problem: str) -> UnstorableResult:
        """Fails the step, which has run."""
        error = UnstorableResult(
            f'the result of step "{self._step.label}"{problem}. The step has run, so it is not repeated'
        )
        self._fail(error)
        return error

    def _fail(self, error: BaseException) -> None:
        note_step(error, self._step.label)
        self._step = replace(self._with_failure(error), state=StepState.FAILED, ended=self._steps.clock())
        self._store_soon(self._step)

    def _with_failure(self, error: BaseException) -> StepRecord:
        """The step after a failed attempt."""
        details = wk.StepDetails.FromString(self._step.details)
        for earlier in details.failures:
            earlier.text = earlier.text[:MAX_EARLIER_TEXT_CHARS]
            earlier.ClearField("frames")
        del details.failures[: -(MAX_FAILURES - 1)]
        failure = failure_fields(error, own_file=self._code.co_filename)
        details.failures.add(**failure, attempt=self._step.attempt)
        details.failures[-1].ended.FromMilliseconds(self._steps.clock())
        return replace(self._step, error=describe_leaf(error)[:MAX_ERROR_CHARS], details=details.SerializeToString())

    def _store_soon(self, step: StepRecord) -> None:
        """Stores it for people, without waiting for the commit."""
        with suppress(Exception):  # the turn is over, or its next verb fails with the same error
            self._steps.context.store(StateUpdate(steps=(step,)))

    def _stop_timer(self) -> None:
        if self._shown_running is not None:
            self._shown_running.cancel()
            self._shown_running = None


class Sleep(CalledStep[None]):
    """A durable pause that was called: await it; in a thread: `wait()`."""

    def __init__(self, steps: TurnSteps, step: StepRecord, until: int) -> None:
        """`until`: milliseconds since the epoch; an earlier run's own counts."""
        super().__init__(steps, step)
        self._is_new = step.state is not StepState.SLEEPING
        if self._is_new:
            self._step = replace(step, state=StepState.SLEEPING, wake_at=until)

    @property
    def _title(self) -> str:
        return "a sleep"

    async def _run(self) -> None:
        steps, step = self._steps, self._step
        remaining = step.wake_at - steps.clock()
        if remaining <= 0 and not self._is_new:
            return
        # A pause beside other steps stays in memory: to release the turn would interrupt them.
        if remaining >= SUSPEND_AFTER_MS and step.position != NO_POSITION and not steps.running:
            raise TurnSuspended(step.wake_at, step)
        await steps.context.store(StateUpdate(steps=(step,)))
        if remaining > 0:
            await asyncio.sleep(remaining / 1000)
