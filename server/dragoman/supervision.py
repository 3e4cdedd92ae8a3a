"""Background work of the process: no task or thread of it ends alone.

Everything that runs without a caller who waits for it is a member of `Background` and is started by `start_task` or
`start_thread`. Work that fails starts again after a backoff, with one log line and a counter. Work whose failures
nothing can wait for (`MAX_FAILURES`) ends the process, if the process has said how: systemd, Kubernetes or an operator
starts it again, and what it acknowledged is on disk. Work that returns has ended on purpose.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NoReturn

from dragoman.core.durations import Backoff
from dragoman.core.errors import Unavailable, lacks_memory
from dragoman.core.exceptions import describe_leaf, format_traceback, is_a, text_of, traceback_of

log = logging.getLogger("dragoman.background")
EXIT_CODE: Final = 70  # EX_SOFTWARE of sysexits.h: the process ends because of its background work
RESTART_BACKOFF: Final = Backoff(0.1, 5.0)  # all restarts up to MAX_FAILURES fit into the 15 s of a stuck task (G3)
MAX_FAILURES: Final = 7  # in a row, of work that everything waits for: the process ends after about 6 s
STABLE_SECONDS: Final = 30.0  # work that ran for so long begins again with the first delay of the backoff


class Background(Enum):
    """All background work. The value is its name in logs and metrics."""

    STORE_WRITER = "store writer"
    SQLITE_CHECKPOINT = "sqlite checkpoint"
    SESSION = "session"
    LEASE = "lease"
    STORE_PROBE = "store probe"
    REAPER = "reaper"
    CLAIM_RECOVERY = "claim recovery"
    SCHEDULER = "scheduler"
    CANCEL_REQUESTS = "cancel requests"
    UNCONFIRMED_CANCELS = "unconfirmed cancels"
    FEEDS = "feeds"
    PUSH = "push scheduler"
    PUSH_RECORDER = "push recorder"
    RETENTION = "retention"
    COMPACTION = "compaction"
    STORED_BYTES = "stored bytes"
    ABSENT_AGENTS = "absent agents"
    AUDIT = "audit log"
    WATCHDOG = "watchdog"
    TRACES = "traces"
    BUS = "bus"
    BUS_SENDER = "bus sender"
    BUS_HEARTBEAT = "bus heartbeat"
    WORKER_REGISTRY = "worker registry"
    UPSTREAMS = "upstreams"
    AGENT_REFRESH = "agent refresh"  # reads what a server says about the agents or tools behind it
    AGENT_PROCESS = "agent process"  # supervises the process that runs the turns of an agent
    SIGNING_KEYS = "signing keys"
    CERTIFICATES = "certificates"
    CARD_FILE = "card file"
    CREDENTIALS = "credentials of streams"
    GRPC_HEALTH = "grpc health"
    HTTP_CONNECTIONS = "http connections"
    TLS_LISTENER = "tls listener"
    MEMORY = "memory"


ESSENTIAL: Final = frozenset({Background.STORE_WRITER, Background.SESSION})
"""Every call, or every claim of this process, waits for these."""


class BackgroundFailures:
    """Counts failures of background work, and decides how its work goes on."""

    def __init__(self) -> None:
        self.counts: Counter[Background] = Counter(dict.fromkeys(Background, 0))  # failures so far
        self.end_process: Callable[[str], None] = lambda _: None
        """Ends the process, for the reason given. A program that embeds the server is never ended."""

    def record(self, work: Background, error: BaseException, in_a_row: int) -> float:
        """Counts and logs a failure. Returns the seconds until the work starts again. Raises nothing."""
        delay = RESTART_BACKOFF.delay(in_a_row)
        with suppress(Exception):  # out of memory, even to write a line
            self.counts[work] += 1
            log.error(
                "background work failed: %s: %s; it starts again in %g s",
                work.value, describe_fault(error), delay, exc_info=None if is_expected(error) else error,
            )  # fmt: skip
        if in_a_row >= MAX_FAILURES and work in ESSENTIAL:
            self.end_process(f"{work.value} failed {in_a_row} times in a row")
        return delay


FAILURES: Final = BackgroundFailures()  # of this process
Run = Callable[[], Coroutine[Any, Any, None]]
Step = Callable[[], Awaitable[object] | None]  # starts or stops a component


def start_task(work: Background, run: Run, detail: str = "") -> asyncio.Task[None]:
    """Runs `run` in a task until it returns or the task is canceled, again after each failure. `detail` tells tasks of
    the same work apart."""
    name = f"{work.value} {detail}" if detail else work.value
    return asyncio.get_running_loop().create_task(_run_task(work, run), name=name)


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Waits for an event, for a limited time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


@dataclass
class Component:
    """A part of the process that starts and stops."""

    start: Step | None = None
    stop: Step | None = None


class Polling(Component):
    """Background work that runs from its start to its stop."""

    def __init__(self, work: Background, run: Run) -> None:
        super().__init__(self._begin, self._end)
        self._work = work
        self._run = run

    def _begin(self) -> None:
        self._task = start_task(self._work, self._run)

    async def _end(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))  # it must not use what stops next


def polling(
    work: Background, seconds: float, step: Callable[[], Awaitable[object]], *, at_once: bool = False
) -> Polling:
    """Background work that takes a step after every so many seconds, and `at_once` before."""

    async def run() -> None:
        if at_once:
            await step()
        while True:
            await asyncio.sleep(seconds)
            await step()

    return Polling(work, run)


@asynccontextmanager
async def running(components: Iterable[Component]) -> AsyncIterator[None]:
    """Starts components in their order, and stops those that were started, one that failed included, in reverse. Not an
    AsyncExitStack: a coroutine that is destroyed must not go on to the next component."""
    begun: list[Component] = []
    try:
        for component in components:
            begun.append(component)
            await _take(component.start)
        yield
    finally:
        for component in reversed(begun):
            await _take(component.stop)


async def _take(step: Step | None) -> None:
    if step is not None and (waits := step()) is not None:
        await waits


async def _run_task(work: Background, run: Run) -> None:
    task, in_a_row, clock = asyncio.current_task(), 0, asyncio.get_running_loop().time
    assert task is not None
    while True:
        started = clock()
        try:
            return await run()
        except Exception as error:
            failure: BaseException = error
        except asyncio.CancelledError as error:
            if task.cancelling():
                raise
            failure = error  # of something that it waited for
        in_a_row = 1 if clock() - started > STABLE_SECONDS else in_a_row + 1
        delay = FAILURES.record(work, failure, in_a_row)
        del failure
        await asyncio.sleep(delay)


def start_thread(work: Background, run: Callable[[], None]) -> threading.Thread:
    """Runs `run` in a daemon thread until it returns, again after each failure."""

    def run_again() -> None:
        in_a_row = 0
        while True:
            started = time.monotonic()
            try:
                return run()
            except BaseException as error:
                in_a_row = 1 if time.monotonic() - started > STABLE_SECONDS else in_a_row + 1
                delay = FAILURES.record(work, error, in_a_row)
            time.sleep(delay)

    thread = threading.Thread(target=run_again, name=f"dragoman-{work.value.replace(' ', '-')}", daemon=True)
    thread.start()
    return thread


def end_process(reason: str) -> NoReturn:
    """Ends this process at once, with one log line. Nothing is cleaned up: what was acknowledged is on disk."""
    with suppress(Exception):
        log.critical("%s; the process ends, start it again (systemd and Kubernetes do)", reason)
    with suppress(Exception):
        sys.stderr.flush()
    os._exit(EXIT_CODE)


FAILURE_LOG_INTERVAL: Final = 60.0  # seconds between two lines about the same failure
MAX_FAILURE_REASONS: Final = 100  # different failures that are logged in that time


class RepeatedFailures:
    """Logs failures that come again and again: each line once in FAILURE_LOG_INTERVAL."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._next: dict[tuple[str, str], float] = {}  # when the lines that were logged may be logged again

    def log(
        self,
        reason: str,
        text: str,
        *arguments: object,
        fields: Mapping[str, str] | None = None,
        level: int = logging.ERROR,
    ) -> None:
        """Logs `text % (*arguments, reason)`, unless the same text and reason were logged a moment ago."""
        now = self._clock()
        self._next = {other: due for other, due in self._next.items() if due > now}
        if (text, reason) not in self._next and len(self._next) < MAX_FAILURE_REASONS:
            self._next[text, reason] = now + FAILURE_LOG_INTERVAL
            self._logger.log(level, text, *arguments, reason, extra=fields)


def log_fault(logger: logging.Logger, text: str, error: BaseException, **fields: str) -> None:
    """Logs a failure: in one line with what to do, if it comes from outside of the code, else with its traceback.
    Raises nothing: what follows, such as the end of a task, must not depend on a log."""
    failure = None if is_expected(error) else error
    log_exception(logger, logging.ERROR, "%s: %s", (text, describe_fault(error)), failure, fields)


def log_exception(
    logger: logging.Logger,
    level: int,
    text: str,
    arguments: tuple[object, ...],
    error: BaseException | None,
    fields: Mapping[str, str],
) -> None:
    """Logs a line with the traceback of an exception whose class we do not know. Raises nothing. The traceback is
    formatted here, within limits: the formatters of programs that embed the server have none."""
    with suppress(BaseException):
        if error is None or not logger.isEnabledFor(level):
            logger.log(level, text, *arguments, extra=fields)
            return
        file, line, function, _ = logger.findCaller(stacklevel=2)
        exc_info = type(error), error, traceback_of(error)
        record = logger.makeRecord(logger.name, level, file, line, text, arguments, exc_info, function, fields)
        record.exc_text = format_traceback(error)
        logger.handle(record)


def is_expected(error: BaseException) -> bool:
    """Whether a failure comes from outside of the code, so that a traceback would explain nothing."""
    return is_a(error, (Unavailable, OSError)) or lacks_memory(error)


def describe_fault(error: BaseException) -> str:
    """A failure in one line, with what to do if it comes from outside of the code."""
    if lacks_memory(error):
        return "memory is used up: raise the memory limit, or lower --message-bytes or --connections"
    code = vars(OSError)["errno"].__get__(error) if is_a(error, OSError) else None  # a subclass may replace it
    if code in (errno.EMFILE, errno.ENFILE):  # too many open files of the process, or of the system
        return f"{os.strerror(code)}: raise `ulimit -n` (LimitNOFILE), or lower --connections"
    if code == errno.ENOSPC:
        return f"{os.strerror(code)}: free some space on the disk"
    return " ".join((text_of(error) if is_a(error, Unavailable) else describe_leaf(error)).split())
