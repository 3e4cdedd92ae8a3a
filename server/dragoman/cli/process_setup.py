"""Process set-up of the commands that serve: event loop, signals, drain, open-file limit, memory."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Final, TypeVar

from dragoman.cli import ExitCode, format_count
from dragoman.core.exceptions import is_a, name_of
from dragoman.ports.extension import StartError
from dragoman.supervision import FAILURES, describe_fault, end_process, is_expected, log_fault
from dragoman.wiring.loop_guard import describe_running

T = TypeVar("T")

log = logging.getLogger("dragoman.serve")


def run_until_complete(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a new event loop and returns its result.

    asyncio lets SystemExit and KeyboardInterrupt of any task pass through the loop, which would end the process. Where
    a task that an agent started raises one, only that task ends. Ctrl-C raises KeyboardInterrupt here until `Signals`
    takes it over.
    """
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):  # an installation for workers lacks it
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        while True:
            try:
                return loop.run_until_complete(task)
            except (KeyboardInterrupt, SystemExit) as error:
                if task.done() or signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                    raise
                log.error("a task of an agent raised %s; the process continues", name_of(error))


STOP_GRACE: Final = 5.0  # seconds from the drain, or the second signal, to the end of a process, whatever still runs
LAST_WORDS_TIMEOUT: Final = 1.0  # seconds for the last log line: a blocked thread may hold the lock of a handler


class Signals:
    """SIGINT and SIGTERM as a queue: the first drains, the second stops now, the third exits immediately.

    In a process that runs agents a thread ends it at last: one may block the loop, ignore its cancellation or leave a
    thread that never ends.
    """

    def __init__(self, drain: float | None = None) -> None:
        """`drain`: seconds that running turns get; None for a process without agents.

        Call it on the loop, in the main thread."""
        self.turns: Callable[[], Sequence[str]] = list  # describes the running turns
        self._signals: asyncio.Queue[int] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._limits = ((drain or 0.0) + STOP_GRACE, STOP_GRACE)
        self._deadlines: queue.SimpleQueue[float] = queue.SimpleQueue()  # its `put` may be interrupted by itself
        self._count = 0
        # Not the loop's handlers: it may be blocked.
        self._before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        if drain is not None:
            threading.Thread(target=self._end_late, name="dragoman-stop", daemon=True).start()

    def _on_signal(self, number: int, _frame: object) -> None:
        self._count += 1
        if self._count > len(self._limits):
            os._exit(128 + number)  # committed data is on disk; running turns are ended at the next start
        self._deadlines.put(time.monotonic() + self._limits[self._count - 1])
        with suppress(RuntimeError):  # the loop is closed: the process is ending
            self._loop.call_soon_threadsafe(self._signals.put_nowait, number)

    async def next(self) -> int:
        return await self._signals.get()

    def close(self) -> None:
        """Restores the earlier handlers. A process that runs agents keeps these until its end."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end_late(self) -> None:
        deadline = self._deadlines.get()
        with suppress(queue.Empty):
            while True:
                deadline = min(deadline, self._deadlines.get(timeout=max(deadline - time.monotonic(), 0.0)))
        speaking = threading.Thread(target=self._log_running, name="dragoman-last-words", daemon=True)
        speaking.start()
        speaking.join(LAST_WORDS_TIMEOUT)
        os._exit(ExitCode.FAILED)

    def _log_running(self) -> None:
        running = describe_running(self._loop, self.turns)
        log.error("the stop took too long, so the process ends now; its tasks end at the next start: %s", running)


def end_on_failure() -> None:
    """From now on a failure that cannot be repaired ends the process, and says so on stderr. Call it on the loop."""
    with suppress(AttributeError, ValueError):  # stderr is no file
        faulthandler.enable()  # native code may crash when it gets no memory
    FAILURES.end_process = end_process
    asyncio.get_running_loop().set_exception_handler(handle_loop_error)


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handles an error that the event loop reports: one line for those from outside of the code.

    A callback that got no memory ends the process: nobody knows what waits for it, and nothing repeats it.
    """
    error, message = context.get("exception"), str(context.get("message", "the event loop failed"))
    if error is not None and is_a(error, MemoryError) and message.startswith("Exception in callback"):
        FAILURES.end_process(f"{describe_fault(error)} ({message[:200]})")
    elif error is not None and is_a(error, Exception) and is_expected(error):
        log_fault(log, message[:200], error)
    else:
        loop.default_exception_handler(context)


class StartInterrupted(Exception):
    """A signal arrived during the start."""


async def enter_until_signal(stack: AsyncExitStack, context: AbstractAsyncContextManager[T], signals: Signals) -> T:
    """Enters a context manager that may take long. A signal cancels that; then raises StartInterrupted."""
    task = asyncio.current_task()
    assert task is not None
    entering = True

    def on_signal(_: object) -> None:
        if entering:
            task.cancel()

    waiting = asyncio.create_task(signals.next(), name="signals")
    waiting.add_done_callback(on_signal)
    try:
        entered = await stack.enter_async_context(context)
    except asyncio.CancelledError:
        if not waiting.done():
            raise
        task.uncancel()
        raise StartInterrupted from None
    finally:
        entering = False
        interrupted = waiting.done()
        waiting.cancel()
    if interrupted:
        raise StartInterrupted
    return entered


async def drain_until_signal(
    drain: Callable[[float], Coroutine[Any, Any, None]], limit: float, signals: Signals, running: Callable[[], int],
    *, forced: str, log: logging.Logger,
) -> None:  # fmt: skip
    """Drains for up to `limit` seconds; the next signal stops at once.

    drain: takes its limit in seconds. running: the number of running turns. forced: what a forced stop does to them.
    """
    if running():
        turns = format_count(running(), "turn")
        log.info("stopping: waiting up to %g s for %s to end; press Ctrl-C again to stop now", limit, turns)
    draining = asyncio.create_task(drain(limit))
    next_signal = asyncio.create_task(signals.next())
    await asyncio.wait((draining, next_signal), return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        log.warning("stopping now: %s %s", format_count(running(), "turn"), forced)
        draining.cancel()
        await drain(0)
    next_signal.cancel()
    await asyncio.gather(draining, next_signal, return_exceptions=True)


EXTRA_OPEN_FILES: Final = 1024
"""Open files besides connections: store, blobs, outbound calls, and what agents open. If the system allows few files,
half of them."""
MIN_OPEN_FILES: Final = 64  # with fewer, gRPC aborts the process while it starts


def raise_open_file_limit(connections: int) -> int:
    """Raises the open-file limit to fit two ports full of connections; returns how many connections per port fit.

    Raises StartError if too few files may be opened, and logs a warning if fewer than `connections` fit. A port that
    could take every descriptor would stop the other: gRPC cannot accept a connection then, and HTTP cannot accept one
    to find an idle one to drop.
    """
    import resource  # of POSIX only, as `serve` is, whose store needs `fcntl`

    needed = 2 * connections + EXTRA_OPEN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):
        allowed = soft
    if allowed >= needed:
        return connections
    if allowed < MIN_OPEN_FILES:
        do = f"raise the limit to at least {MIN_OPEN_FILES} (ulimit -n, LimitNOFILE)"
        raise StartError(f"this process may open {allowed} files, which is too few for a server; {do}")
    fitting = min(connections, (allowed - min(EXTRA_OPEN_FILES, allowed // 2)) // 2)
    if fitting < connections:
        log.warning(
            "this process may open %d files, but %d connections per port need %d: at most %d per port are accepted; "
            "raise the limit (ulimit -n, LimitNOFILE) or lower --connections", allowed, connections, needed, fitting,
        )  # fmt: skip
    return fitting


TRIM_INTERVAL: Final = 3.0  # seconds between two looks at the memory of the process
TRIM_BYTES: Final = 64 * 1024 * 1024  # bytes that lie unused in addition before they are returned to the system

SETTLED_BYTES: Final = 16 * 1024 * 1024
"""A trim that changes less ends a burst. After another one, memory may still be in use that is freed a moment later."""

MAPPED_BLOCK_BYTES: Final = 1024 * 1024
"""Larger blocks are mapped one by one and unmapped when freed. By default glibc stops that after the first of them."""


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33: sizes in bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


_M_MMAP_THRESHOLD: Final = -3


class Allocator:
    """glibc's malloc. After a burst of large messages it would keep most of what was freed."""

    def __init__(self) -> None:
        """Maps large blocks one by one from now on. Raises AttributeError or OSError without glibc 2.33 on Linux."""
        library = ctypes.CDLL(None)
        self._trim, self._info = library.malloc_trim, library.mallinfo2
        self._info.restype = _MallocInfo
        self.unused_bytes()
        library.mallopt(_M_MMAP_THRESHOLD, MAPPED_BLOCK_BYTES)

    def unused_bytes(self) -> int:
        """Resident bytes that malloc has not handed out. Some are always in use: Python's own arenas among them."""
        with open("/proc/self/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
        info = self._info()
        return (resident - shared) * os.sysconf("SC_PAGESIZE") - int(info.uordblks) - int(info.hblkhd)

    def trim(self) -> int:
        """Returns free memory to the system, and the unused bytes that are left. Other Python threads run meanwhile."""
        self._trim(0)
        return self.unused_bytes()


def open_allocator() -> Allocator | None:
    """Returns the allocator of this process; None for one that cannot be asked to return memory."""
    try:
        return Allocator()
    except (AttributeError, OSError):
        return None


async def return_unused_memory(allocator: Allocator, interval: float = TRIM_INTERVAL) -> None:
    """Returns memory to the system after bursts. Runs until canceled."""
    kept, settled = allocator.unused_bytes(), True
    while True:
        await asyncio.sleep(interval)
        unused = allocator.unused_bytes()
        if unused > kept + TRIM_BYTES or not settled:
            kept = await asyncio.to_thread(allocator.trim)  # the loop may be late, and free more until it goes on
            settled = abs(kept - unused) < SETTLED_BYTES
        else:
            kept = min(kept - TRIM_BYTES // 16, unused)  # forgotten within 16 looks, if it was measured in a burst
