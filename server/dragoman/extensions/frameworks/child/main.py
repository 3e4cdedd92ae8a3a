"""The executor process: loads the executor, registers it, and runs its turns until the server disconnects."""

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
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO

from . import adapters
from .exceptions import is_a, name_of
from .logs import CURRENT_TASK, configure_logging
from .target import InvalidTarget, create_executor, is_executor, load
from .turn import ExecutorTurn, describe_error, failed_status

log = logging.getLogger("dragoman.executor")

EXIT_INVALID_TARGET = 2
"""Exit code for an unusable target. The last line on stderr has the reason."""

STDERR_ERROR_PREFIX = "dragoman: error: "
"""Prefix of that line."""

CHILD_STOP_TIMEOUT = 3.0
"""Seconds that turns get to stop after the server disconnected."""


@dataclass
class _ChildTurn:
    turn: ExecutorTurn
    task: asyncio.Task[BaseException | None]
    canceling: asyncio.Task[None] | None = None


def main(target: str, *, debug: bool = False) -> int:
    """Serves TARGET on stdin and stdout. Returns the exit code. debug: log everything."""
    pipe = open_stdio()
    try:
        agent = open_target(target)
        registration = agent.registration("executor")  # the server replaces the id
        configure_logging(debug=debug)
        run_until_complete(_serve(agent, registration, pipe))
    except InvalidTarget as error:
        text = " ".join(str(error).split())  # the server reads one line
        print(f"{STDERR_ERROR_PREFIX}{text}", file=sys.stderr, flush=True)
        return EXIT_INVALID_TARGET
    # Threads of the executor must not keep the process alive without a server.
    sys.stderr.flush()
    os._exit(0)


def open_target(target: str) -> Any:
    """Returns an adapter for the executor that TARGET names. Raises InvalidTarget."""
    module, value = load(target)
    if type(value).__module__.partition(".")[0] == "dragoman":
        app, _, name = target.rpartition(":")
        raise InvalidTarget(f"{name} is declared with @agent; serve all agents of its file: dragoman serve {app}")
    kind = adapters.recognize(value)
    if kind is not None:
        value = create_executor(value, {}) if inspect.isclass(value) else value
        return adapters.open_adapter(kind, module, target.rpartition(":")[2], value)
    classes = [(cls.__module__.partition(".")[0], cls.__name__) for cls in type(value).__mro__]
    if ("fasta2a", "FastA2A") in classes:
        from .fasta2a_app import Fasta2aAppAdapter

        return Fasta2aAppAdapter(module, value, _fasta2a_dependencies())
    if not callable(value) and not is_executor(value):
        raise InvalidTarget(_not_an_executor(value))
    if inspect.isclass(value) and not is_executor(value):
        raise InvalidTarget(_not_an_executor(value))
    dependencies = _fasta2a_dependencies()
    executor = value if is_executor(value) and not inspect.isclass(value) else create_executor(value, dependencies)
    if not is_executor(executor):
        raise InvalidTarget(_not_an_executor(executor))
    return _adapter(module, value, executor, dependencies)


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
            f"{type(executor).__name__} looks like a fasta2a Worker, but {sys.executable} has no fasta2a"
        )
    from . import fasta2a_adapter

    return fasta2a_adapter.Fasta2aAdapter(module, target, executor, dependencies)


def _fasta2a_dependencies() -> dict[str, Any]:
    if not _is_installed("fasta2a"):
        return {}
    try:
        from . import fasta2a_adapter
    except InvalidTarget:  # reported only if the executor is a fasta2a Worker
        return {}
    return fasta2a_adapter.worker_dependencies()


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its parent is missing or not a package
        return False


def _not_an_executor(target: Any) -> str:
    cls = type(target)
    subject = (
        f"the class {target.__name__}"
        if inspect.isclass(target)
        else f"the value of type {cls.__module__}.{cls.__qualname__}"
    )
    known = ", ".join(kind.label for kind in adapters.KINDS)
    return (
        f"{subject} is not an agent that can be served. Known are: {known}; an AgentExecutor of a2a-sdk, which has the "
        "methods execute and cancel; a Worker of fasta2a, which has run_task and cancel_task; and a FastA2A "
        "application itself, not a function that makes it"
    )


def run_until_complete(main: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine in an event loop of its own, then cancels the other tasks.

    asyncio lets SystemExit and KeyboardInterrupt of any task pass through the loop. Here that ends the task only: other
    turns run in this process.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def serve() -> None:
        await main
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CHILD_STOP_TIMEOUT)

    serving = loop.create_task(serve(), name="serve")
    while not serving.done():
        try:
            loop.run_until_complete(serving)
        except (KeyboardInterrupt, SystemExit) as error:
            if serving.done():
                raise
            log.error("a task of the executor raised %s; the process continues", name_of(error))


async def _serve(agent: Any, registration: dict[str, Any], pipe: FramePipe) -> None:
    async with AsyncExitStack() as stack:
        if hasattr(agent, "running"):
            await stack.enter_async_context(agent.running())
        await ExecutorChild(agent, pipe).run(registration)
    pipe.close(CHILD_STOP_TIMEOUT)


class ExecutorChild:
    """Runs the turns of one executor for one server."""

    def __init__(self, agent: Any, pipe: FramePipe) -> None:
        """`agent` has `execute(turn)` and `cancel(turn)`."""
        self._agent = agent
        self._pipe = pipe
        self._max_event_bytes = 0
        self._turns: dict[str, _ChildTurn] = {}
        self._task_locks: dict[str, asyncio.Lock] = {}
        """One lock per task: its next turn starts only after the previous execute() has returned."""
        self._endings: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()

    async def run(self, registration: dict[str, Any]) -> None:
        """Runs until the server disconnects, then cancels the running turns."""
        loop = asyncio.get_running_loop()
        name = f"executor {os.getpid()}"
        self._pipe.send(hello={"name": name, "agents": [registration]})
        self._pipe.start_reading(
            lambda frame: _call_soon(loop, self._on_frame, frame),
            lambda: _call_soon(loop, self._ended.set),
        )
        await self._ended.wait()
        for running in tuple(self._turns.values()):
            self._cancel(running, "lease_lost")
        if self._endings:
            await asyncio.wait(self._endings, timeout=CHILD_STOP_TIMEOUT)

    def _on_frame(self, frame: Frame) -> None:
        if "welcome" in frame:
            self._max_event_bytes = int(frame["welcome"]["maxFrameBytes"])
            self._pipe.heartbeat_interval = float(frame["welcome"]["heartbeat"].removesuffix("s"))
        elif start := frame.get("turnStart"):
            self._start_turn(start)
        else:
            for kind, content in frame.items():
                if (running := self._turns.get(content.get("turnId", ""))) is not None:
                    self._dispatch(running, kind, content)

    def _dispatch(self, running: _ChildTurn, kind: str, content: dict[str, Any]) -> None:
        if kind == "committed":
            running.turn.on_committed(int(content["number"]))
        elif kind == "taskCallResult":
            running.turn.on_call_result(content)
        elif kind == "cancel":
            self._cancel(running, content.get("reason", ""), content.get("metadata"))
        elif kind == "turnRevoked":
            running.turn.abort()
            self._cancel(running, "lease_lost")

    # Turns --------------------------------------------------------------------------------------------------------

    def _start_turn(self, start: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        turn = ExecutorTurn(start, self._pipe.send, self._max_event_bytes)
        lock = self._task_locks.setdefault(turn.task_id, asyncio.Lock())
        running = _ChildTurn(turn, loop.create_task(self._execute(turn, lock), name=f"task {turn.task_id}"))
        self._turns[turn.id] = running
        ending = loop.create_task(self._finish_turn(running, lock), name=f"end of task {turn.task_id}")
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _execute(self, turn: ExecutorTurn, lock: asyncio.Lock) -> BaseException | None:
        """Returns the error of execute(): some would stop the event loop if this task raised them."""
        CURRENT_TASK.set(turn.task_id)
        async with lock:
            try:
                await self._agent.execute(turn)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                return error
        return None

    async def _finish_turn(self, running: _ChildTurn, lock: asyncio.Lock) -> None:
        turn = running.turn
        await asyncio.wait([running.task])
        if running.canceling is not None:  # cancel() may still send events of this turn
            await asyncio.wait([running.canceling])
        error = asyncio.CancelledError() if running.task.cancelled() else running.task.result()
        is_failure = error is not None and not is_a(error, asyncio.CancelledError)
        error_id = turn.new_error_id(error) if error is not None and is_failure else ""
        try:
            turn.on_returned(error, error_id)
        except Exception as unsendable:  # the end of the turn is too large or has no JSON form
            turn.end(failed_status(describe_error(unsendable)))
        finally:
            del self._turns[turn.id]
            if not any(one.turn.task_id == turn.task_id for one in self._turns.values()):
                self._task_locks.pop(turn.task_id, None)
            self._pipe.send(credit={"agentId": turn.start["agentId"], "turns": 1})
        if is_failure:  # last: a logging configuration of the executor's own may fail
            suffix = f" (error id {error_id})" if error_id else ""
            log.error("the executor failed%s", suffix, exc_info=error, extra={"task": turn.task_id})

    def _cancel(self, running: _ChildTurn, reason: str, metadata: dict[str, Any] | None = None) -> None:
        turn = running.turn
        if turn.canceled:  # the second request: the server's stop timeout is over
            running.task.cancel()
            if running.canceling is not None:
                running.canceling.cancel()
            return
        turn.canceled, turn.cancel_reason, turn.cancel_metadata = True, reason, metadata or {}
        running.canceling = asyncio.get_running_loop().create_task(
            self._cancel_executor(running), name=f"cancel {turn.task_id}"
        )

    async def _cancel_executor(self, running: _ChildTurn) -> None:
        """Calls cancel(), as the SDK's own server does, and then cancels execute()."""
        try:
            await self._agent.cancel(running.turn)
        except BaseException as error:
            log.info(
                "cancel() failed (%s); execute() is stopped anyway",
                describe_error(error),
                extra={"task": running.turn.task_id},
            )
        finally:
            running.task.cancel()


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback, *arguments)


Frame = dict[str, Any]
"""A ConnectRequest or ConnectResponse of dragoman.worker.v1, as ProtoJSON."""


class FramePipe:
    """Frames over a pair of pipes, with a writer and a reader thread."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self.heartbeat_interval = 1.0
        """Seconds without a frame after which a heartbeat is sent."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="dragoman-executor-writer", daemon=True)
        self._writer.start()

    def send(self, **frame: Any) -> int:
        """Queues a frame and returns its bytes. Raises ValueError if it has no JSON form. Thread-safe."""
        data = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        self._queue.put(data + b"\n")
        return len(data)

    def start_reading(self, on_frame: Callable[[Frame], None], on_end: Callable[[], None]) -> None:
        """Calls `on_frame` for each frame and then `on_end` once, both in the reader thread."""

        def loop() -> None:
            for line in self._incoming:
                on_frame(json.loads(line))
            on_end()

        threading.Thread(target=loop, name="dragoman-executor-reader", daemon=True).start()

    def close(self, timeout: float) -> None:
        """Stops writing after all queued frames, or after `timeout` seconds."""
        self._queue.put(None)
        self._writer.join(timeout)

    def _write(self) -> None:
        heartbeat = b'{"heartbeat":{}}\n'
        timeout = None  # no heartbeat before the first frame: the executor may import for long
        try:
            while True:
                try:
                    data = self._queue.get(timeout=timeout)
                except queue.Empty:
                    data = heartbeat
                timeout = self.heartbeat_interval
                if data is None:
                    return
                self._outgoing.write(data)
                self._outgoing.flush()
        except OSError:  # the server has disconnected; the reader notices, too
            return


def open_stdio() -> FramePipe:
    """Takes over stdin and stdout. The executor then prints to stderr and reads an empty stdin."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    null_device = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_device, 0)
    os.close(null_device)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return FramePipe(incoming, outgoing)
