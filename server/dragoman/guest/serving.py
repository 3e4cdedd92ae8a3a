"""The guest process: finds the executor, says what it is, runs its turns, and ends with its server."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from . import line as lines
from .target import Unusable, is_executor, load, made
from .turn import Turn, described, failed

log = logging.getLogger("dragoman.executor")

UNUSABLE = 2
"""Exit code of a process whose target gives no executor; its last line on stderr says why."""

SORRY = "dragoman: error: "
"""What that line begins with."""

LAST_WORDS = 3.0
"""Seconds that turns get to stop once the server is gone or stops us."""


@dataclass
class _Running:
    turn: Turn
    task: asyncio.Task[None]
    canceling: asyncio.Task[None] | None = None


def main(target: str) -> int:
    """Serves TARGET on stdin and stdout. Gives the exit code."""
    line = lines.of_this_process()
    try:
        agent = open_target(target)
        registration = agent.registration("executor")  # the server gives it the id that it is to have
    except Unusable as error:
        print(f"{SORRY}{error}", file=sys.stderr, flush=True)
        return UNUSABLE
    if not logging.getLogger().handlers:  # the executor's module has not said how it likes its log
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    asyncio.run(_serve(agent, registration, line))
    # Threads of the executor must not keep a process that nobody talks to any more.
    sys.stderr.flush()
    os._exit(0)


def open_target(target: str) -> Any:
    """An adapter for what TARGET names. Raises Unusable."""
    module, found = load(target)
    if not callable(found) and not is_executor(found):
        raise Unusable(_not_an_executor(found))
    if inspect.isclass(found) and not is_executor(found):
        raise Unusable(_not_an_executor(found))
    given = _given_to_workers()
    executor = found if is_executor(found) and not inspect.isclass(found) else made(found, given)
    if not is_executor(executor):
        raise Unusable(_not_an_executor(executor))
    return _adapter(module, found, executor, given)


def _adapter(module: ModuleType, found: Any, executor: Any, given: dict[str, Any]) -> Any:
    if callable(getattr(executor, "execute", None)):
        if not _is_there("a2a"):
            raise Unusable(
                f"{type(executor).__name__} looks like an AgentExecutor, but {sys.executable} has no a2a-sdk"
            )
        if _is_there("a2a.types.a2a_pb2"):
            from .sdk1 import Executor
        else:
            from .sdk03 import Executor  # type: ignore[assignment]
        return Executor(module, found, executor)
    if not _is_there("fasta2a"):
        raise Unusable(
            f"{type(executor).__name__} looks like a Worker of fasta2a, which {sys.executable} does not have"
        )
    from . import fasta2a_worker

    return fasta2a_worker.Executor(module, found, executor, given)


def _given_to_workers() -> dict[str, Any]:
    if not _is_there("fasta2a"):
        return {}
    try:
        from . import fasta2a_worker
    except Unusable:  # said where it matters
        return {}
    return fasta2a_worker.given()


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its parent is no package, or not there
        return False


def _not_an_executor(found: Any) -> str:
    what = (
        f"the class {found.__name__}"
        if inspect.isclass(found)
        else f"what it names is of type {type(found).__name__}, and"
    )
    return (
        f"{what} is no executor: an AgentExecutor of a2a-sdk has the methods execute and cancel, "
        "a Worker of fasta2a has run_task and cancel_task"
    )


async def _serve(agent: Any, registration: dict[str, Any], line: lines.Line) -> None:
    async with AsyncExitStack() as stack:
        if hasattr(agent, "running"):
            await stack.enter_async_context(agent.running())
        await Guest(agent, line).run(registration)
    line.finish(LAST_WORDS)


class Guest:
    """The turns of one executor on one line."""

    def __init__(self, agent: Any, line: lines.Line) -> None:
        """`agent` has `execute(turn)` and `cancel(turn)`."""
        self._agent = agent
        self._line = line
        self._limit = 0
        self._turns: dict[str, _Running] = {}
        self._orders: dict[str, asyncio.Lock] = {}
        """By task: a turn of it begins when execute() of the one before has returned, not just ended the turn."""
        self._working: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()

    async def run(self, registration: dict[str, Any]) -> None:
        """Serves until the server hangs up; what runs is canceled then."""
        loop = asyncio.get_running_loop()
        name = f"executor {os.getpid()}"
        self._line.say(hello={"name": name, "agents": [registration]})
        self._line.read(
            lambda frame: _soon(loop, self._hear, frame),
            lambda: _soon(loop, self._ended.set),
        )
        await self._ended.wait()
        for running in tuple(self._turns.values()):
            self._cancel(running, "fenced")
        if self._working:
            await asyncio.wait(self._working, timeout=LAST_WORDS)

    def _hear(self, frame: lines.Frame) -> None:
        if "welcome" in frame:
            self._limit = int(frame["welcome"]["maxFrameBytes"])
            self._line.heartbeat = float(frame["welcome"]["heartbeat"].removesuffix("s"))
        elif start := frame.get("turnStart"):
            self._begin(start)
        else:
            for kind, said in frame.items():
                if (running := self._turns.get(said.get("turnId", ""))) is not None:
                    self._tell(running, kind, said)

    def _tell(self, running: _Running, kind: str, said: dict[str, Any]) -> None:
        if kind == "committed":
            running.turn.committed(int(said["number"]))
        elif kind == "cancel":
            self._cancel(running, said.get("reason", ""))
        elif kind == "turnOver":
            running.turn.drop()
            self._cancel(running, "fenced")

    # Turns ------------------------------------------------------------------------------------------------------

    def _begin(self, start: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        turn = Turn(start, self._line.say, self._limit)
        order = self._orders.setdefault(turn.task_id, asyncio.Lock())
        running = _Running(turn, loop.create_task(self._execute(turn, order), name=f"task {turn.task_id}"))
        self._turns[turn.id] = running
        ending = loop.create_task(self._run(running, order), name=f"end of task {turn.task_id}")
        self._working.add(ending)
        ending.add_done_callback(self._working.discard)

    async def _execute(self, turn: Turn, order: asyncio.Lock) -> None:
        async with order:
            await self._agent.execute(turn)

    async def _run(self, running: _Running, order: asyncio.Lock) -> None:
        turn = running.turn
        await asyncio.wait([running.task])
        if running.canceling is not None:  # it may have more to say, and stands for the same turn
            await asyncio.wait([running.canceling])
        trouble = asyncio.CancelledError() if running.task.cancelled() else running.task.exception()
        if isinstance(trouble, Exception):
            log.error("task %s: the executor failed", turn.task_id, exc_info=trouble)
        try:
            turn.returned(trouble)
        except ValueError as error:  # what it says of the end cannot be said
            turn.end(failed(described(error)))
        del self._turns[turn.id]
        if not any(one.turn.task_id == turn.task_id for one in self._turns.values()):
            self._orders.pop(turn.task_id, None)
        self._line.say(credit={"agentId": turn.start["agentId"], "turns": 1})

    def _cancel(self, running: _Running, reason: str) -> None:
        turn = running.turn
        if turn.cancelled:  # and the server's patience is over
            running.task.cancel()
            if running.canceling is not None:
                running.canceling.cancel()
            return
        turn.cancelled, turn.cancel_reason = True, reason
        running.canceling = asyncio.get_running_loop().create_task(self._stop(running), name=f"cancel {turn.task_id}")

    async def _stop(self, running: _Running) -> None:
        """Tells the executor, as its own server would, and then stops execute()."""
        try:
            await self._agent.cancel(running.turn)
        except Exception as error:
            log.info(
                "task %s: cancel() failed (%s); execute() is stopped all the same",
                running.turn.task_id,
                described(error),
            )
        finally:
            running.task.cancel()


def _soon(loop: asyncio.AbstractEventLoop, what: Callable[..., None], *arguments: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(what, *arguments)
