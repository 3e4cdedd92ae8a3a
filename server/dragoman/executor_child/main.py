"""The guest process: finds the executor, says what it is, runs its turns, and ends with its server."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO

from .target import InvalidTarget, create_executor, is_executor, load
from .turn import ExecutorTurn, describe_error, failed_status

log = logging.getLogger("dragoman.executor")

EXIT_INVALID_TARGET = 2
"""Exit code of a process whose target gives no executor; its last line on stderr says why."""

STDERR_ERROR_PREFIX = "dragoman: error: "
"""What that line begins with."""

CHILD_STOP_TIMEOUT = 3.0
"""Seconds that turns get to stop once the server is gone or stops us."""


@dataclass
class _ChildTurn:
    turn: ExecutorTurn
    task: asyncio.Task[None]
    canceling: asyncio.Task[None] | None = None


def main(target: str) -> int:
    """Serves TARGET on stdin and stdout. Gives the exit code."""
    line = open_stdio()
    try:
        agent = open_target(target)
        registration = agent.registration("executor")  # the server gives it the id that it is to have
    except InvalidTarget as error:
        print(f"{STDERR_ERROR_PREFIX}{error}", file=sys.stderr, flush=True)
        return EXIT_INVALID_TARGET
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
        raise InvalidTarget(_not_an_executor(found))
    if inspect.isclass(found) and not is_executor(found):
        raise InvalidTarget(_not_an_executor(found))
    given = _fasta2a_dependencies()
    executor = found if is_executor(found) and not inspect.isclass(found) else create_executor(found, given)
    if not is_executor(executor):
        raise InvalidTarget(_not_an_executor(executor))
    return _adapter(module, found, executor, given)


def _adapter(module: ModuleType, target: Any, executor: Any, dependencies: dict[str, Any]) -> Any:
    if callable(getattr(executor, "execute", None)):
        if not _is_installed("a2a"):
            raise InvalidTarget(
                f"{type(executor).__name__} looks like an AgentExecutor, but {sys.executable} has no a2a-sdk"
            )
        if _is_installed("a2a.types.a2a_pb2"):
            from .a2a_sdk_v1 import SdkV1Adapter

            return SdkV1Adapter(module, target, executor)
        from .a2a_sdk_v03 import SdkV03Adapter

        return SdkV03Adapter(module, target, executor)
    if not _is_installed("fasta2a"):
        raise InvalidTarget(
            f"{type(executor).__name__} looks like a Worker of fasta2a, which {sys.executable} does not have"
        )
    from . import fasta2a_adapter

    return fasta2a_adapter.Fasta2aAdapter(module, target, executor, dependencies)


def _fasta2a_dependencies() -> dict[str, Any]:
    if not _is_installed("fasta2a"):
        return {}
    try:
        from . import fasta2a_adapter
    except InvalidTarget:  # said where it matters
        return {}
    return fasta2a_adapter.worker_dependencies()


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its parent is no package, or not there
        return False


def _not_an_executor(target: Any) -> str:
    what = (
        f"the class {target.__name__}"
        if inspect.isclass(target)
        else f"what it names is of type {type(target).__name__}, and"
    )
    return (
        f"{what} is no executor: an AgentExecutor of a2a-sdk has the methods execute and cancel, "
        "a Worker of fasta2a has run_task and cancel_task"
    )


async def _serve(agent: Any, registration: dict[str, Any], pipe: FramePipe) -> None:
    async with AsyncExitStack() as stack:
        if hasattr(agent, "running"):
            await stack.enter_async_context(agent.running())
        await ExecutorChild(agent, pipe).run(registration)
    pipe.close(CHILD_STOP_TIMEOUT)


class ExecutorChild:
    """The turns of one executor on one line."""

    def __init__(self, agent: Any, pipe: FramePipe) -> None:
        """`agent` has `execute(turn)` and `cancel(turn)`."""
        self._agent = agent
        self._pipe = pipe
        self._max_event_bytes = 0
        self._turns: dict[str, _ChildTurn] = {}
        self._task_locks: dict[str, asyncio.Lock] = {}
        """By task: a turn of it begins when execute() of the one before has returned, not just ended the turn."""
        self._endings: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()

    async def run(self, registration: dict[str, Any]) -> None:
        """Serves until the server hangs up; what runs is canceled then."""
        loop = asyncio.get_running_loop()
        name = f"executor {os.getpid()}"
        self._pipe.send(hello={"name": name, "agents": [registration]})
        self._pipe.start_reading(
            lambda frame: _call_soon(loop, self._on_frame, frame),
            lambda: _call_soon(loop, self._ended.set),
        )
        await self._ended.wait()
        for running in tuple(self._turns.values()):
            self._cancel(running, "fenced")
        if self._endings:
            await asyncio.wait(self._endings, timeout=CHILD_STOP_TIMEOUT)

    def _on_frame(self, frame: Frame) -> None:
        if "welcome" in frame:
            self._max_event_bytes = int(frame["welcome"]["maxFrameBytes"])
            self._pipe.heartbeat_interval = float(frame["welcome"]["heartbeat"].removesuffix("s"))
        elif start := frame.get("turnStart"):
            self._start_turn(start)
        else:
            for kind, said in frame.items():
                if (running := self._turns.get(said.get("turnId", ""))) is not None:
                    self._dispatch(running, kind, said)

    def _dispatch(self, running: _ChildTurn, kind: str, content: dict[str, Any]) -> None:
        if kind == "committed":
            running.turn.on_committed(int(content["number"]))
        elif kind == "cancel":
            self._cancel(running, content.get("reason", ""))
        elif kind == "turnOver":
            running.turn.abort()
            self._cancel(running, "fenced")

    # Turns ------------------------------------------------------------------------------------------------------

    def _start_turn(self, start: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        turn = ExecutorTurn(start, self._pipe.send, self._max_event_bytes)
        order = self._task_locks.setdefault(turn.task_id, asyncio.Lock())
        running = _ChildTurn(turn, loop.create_task(self._execute(turn, order), name=f"task {turn.task_id}"))
        self._turns[turn.id] = running
        ending = loop.create_task(self._finish_turn(running, order), name=f"end of task {turn.task_id}")
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _execute(self, turn: ExecutorTurn, lock: asyncio.Lock) -> None:
        async with lock:
            await self._agent.execute(turn)

    async def _finish_turn(self, running: _ChildTurn, lock: asyncio.Lock) -> None:
        turn = running.turn
        await asyncio.wait([running.task])
        if running.canceling is not None:  # it may have more to say, and stands for the same turn
            await asyncio.wait([running.canceling])
        trouble = asyncio.CancelledError() if running.task.cancelled() else running.task.exception()
        if isinstance(trouble, Exception):
            log.error("task %s: the executor failed", turn.task_id, exc_info=trouble)
        try:
            turn.on_returned(trouble)
        except ValueError as error:  # what it says of the end cannot be said
            turn.end(failed_status(describe_error(error)))
        del self._turns[turn.id]
        if not any(one.turn.task_id == turn.task_id for one in self._turns.values()):
            self._task_locks.pop(turn.task_id, None)
        self._pipe.send(credit={"agentId": turn.start["agentId"], "turns": 1})

    def _cancel(self, running: _ChildTurn, reason: str) -> None:
        turn = running.turn
        if turn.cancelled:  # and the server's patience is over
            running.task.cancel()
            if running.canceling is not None:
                running.canceling.cancel()
            return
        turn.cancelled, turn.cancel_reason = True, reason
        running.canceling = asyncio.get_running_loop().create_task(
            self._cancel_executor(running), name=f"cancel {turn.task_id}"
        )

    async def _cancel_executor(self, running: _ChildTurn) -> None:
        """Tells the executor, as its own server would, and then stops execute()."""
        try:
            await self._agent.cancel(running.turn)
        except Exception as error:
            log.info(
                "task %s: cancel() failed (%s); execute() is stopped all the same",
                running.turn.task_id,
                describe_error(error),
            )
        finally:
            running.task.cancel()


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback, *arguments)


Frame = dict[str, Any]
"""A ConnectRequest or ConnectResponse of dragoman.worker.v1, as ProtoJSON."""


class FramePipe:
    """One stream. `read` begins to give what the server says."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self.heartbeat_interval = 1.0
        """Seconds of silence after which a sign of life is due."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="dragoman-executor-writer", daemon=True)
        self._writer.start()

    def send(self, **frame: Any) -> int:
        """Sends a frame; gives its size in bytes. Raises ValueError for what JSON cannot say. From any thread."""
        data = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        self._queue.put(data + b"\n")
        return len(data)

    def start_reading(self, on_frame: Callable[[Frame], None], on_end: Callable[[], None]) -> None:
        """Gives each frame to `hear`, in a thread; `ended` is called once there are no more."""

        def loop() -> None:
            for line in self._incoming:
                on_frame(json.loads(line))
            on_end()

        threading.Thread(target=loop, name="dragoman-executor-reader", daemon=True).start()

    def close(self, timeout: float) -> None:
        """Says no more, once what was said is on its way, or these seconds have passed."""
        self._queue.put(None)
        self._writer.join(timeout)

    def _write(self) -> None:
        alive = b'{"heartbeat":{}}\n'
        silence = None  # until it has said what it is, for which it may have to import for long
        try:
            while True:
                try:
                    data = self._queue.get(timeout=silence)
                except queue.Empty:
                    data = alive
                silence = self.heartbeat_interval
                if data is None:
                    return
                self._outgoing.write(data)
                self._outgoing.flush()
        except OSError:  # nobody reads any more; the reader notices too
            return


def open_stdio() -> FramePipe:
    """The stream on stdin and stdout. What the executor prints goes to stderr from now on, and it reads nothing."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return FramePipe(incoming, outgoing)
