"""Ends a process whose event loop is blocked, and tells the next one where.

Python threads do not run while C code holds the interpreter's lock (`re` with a slow pattern), so a timer of
faulthandler, which needs no lock, writes the tracebacks and ends the process. The loop restarts it every second. Beside
an SQLite store the tracebacks are kept in a file, which names the agents' functions, for the next process.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import logging
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from dragoman.ports import Agent
from dragoman.runtime.observe.watchdog import is_author_file
from dragoman.runtime.sessions import BlockedLoop
from dragoman.settings.settings import Settings
from dragoman.supervision import Background, start_task

log = logging.getLogger("dragoman.runtime")

RESTART_INTERVAL: Final = 1.0  # seconds between two restarts of the timer; each starts a thread of the system

EARLY_SHARE: Final = 0.25
"""Of the time until the end. When the process has computed for so long, its stack is shown on stderr, too: where the
tracebacks go to a file, the process ends in silence. It is a help for whoever watches, and may be missing."""

_TRACEBACK: Final = re.compile(r"^(?=(?:Current thread|Thread) 0x([0-9a-f]+))", re.MULTILINE)
MAX_LOGGED_LINES: Final = 200  # lines of the tracebacks in the log, those of the loop's thread first
_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


class Frame(NamedTuple):
    """One line of a traceback."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}, line {self.line}"


def dump_path(settings: Settings) -> Path | None:
    """The file beside an SQLite store that keeps the tracebacks of a blocked process; None for other stores."""
    if settings.store.kind != "sqlite":
        return None  # others end or repeat the tasks of this process before it ends
    return settings.store.path.with_name(f"{settings.store.path.name}-blocked")


@contextlib.contextmanager
def guarded_loop(seconds: float, agents: Iterable[Agent] = (), dump: Path | None = None) -> Iterator[None]:
    """Ends this process when its loop does not run for so many seconds while the block runs; 0: never.

    Call it on the loop, once in a process. `dump`: the file for the tracebacks; None: stderr.
    """
    if not seconds:
        yield
        return
    try:
        guard = LoopGuard(seconds, agents, dump)
    except OSError as error:
        log.warning("%s cannot be written, so a blocked process writes its tracebacks to stderr: %s", dump, error)
        guard = LoopGuard(seconds, agents)
    task = start_task(Background.WATCHDOG, guard.run, "of the process")
    try:
        yield
    finally:
        task.cancel()
        guard.close()


class LoopGuard:
    """Ends this process, with the tracebacks of all threads, when the loop has not run for so many seconds."""

    def __init__(
        self, seconds: float, agents: Iterable[Agent], dump: Path | None = None, early_share: float = EARLY_SHARE
    ) -> None:
        """`dump`: the file for the tracebacks; None: stderr. Raises OSError if it cannot be written."""
        self._seconds = seconds
        self._dump = dump
        header = {"thread": threading.get_ident(), "seconds": seconds, "agents": functions_of(agents)}
        if dump is None:
            self._file = _open_stderr()
        else:
            self._file = os.fdopen(os.open(dump, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8")
            self._file.write(json.dumps(header) + "\n")
            self._file.flush()
        self._shows_early = dump is not None and _show_stacks_on(signal.SIGVTALRM)
        self._early_cpu = seconds * early_share

    async def run(self) -> None:
        """Restarts the timer as long as the loop runs, until canceled. A debugger stops it."""
        interval, cpu = min(RESTART_INTERVAL, self._seconds / 4), time.process_time()
        while True:
            if sys.gettrace() is None:
                faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._file)
            else:
                faulthandler.cancel_dump_traceback_later()
            if self._shows_early:  # not while threads compute on many cores, so that their time is not the loop's
                cpu, before = time.process_time(), cpu
                signal.setitimer(signal.ITIMER_VIRTUAL, self._early_cpu if cpu - before < self._early_cpu / 2 else 0)
            await asyncio.sleep(interval)

    def close(self) -> None:
        """Stops the timer: the process ends in order."""
        faulthandler.cancel_dump_traceback_later()
        if self._shows_early:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self._file.close()
        if self._dump is not None:
            self._dump.unlink(missing_ok=True)


def _open_stderr() -> IO[str]:
    try:
        return open(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
    except (AttributeError, ValueError, OSError):  # there is none, or it is no file
        return open(os.devnull, "w", encoding="utf-8")


def _show_stacks_on(number: int) -> bool:
    try:
        faulthandler.register(number, all_threads=False)
    except (AttributeError, ValueError, OSError, RuntimeError):  # stderr is no file
        return False
    return True


def functions_of(agents: Iterable[Agent]) -> Mapping[str, tuple[str, str]]:
    """File and name of each agent's function, by agent. Others than functions run in other processes."""
    codes = {agent.spec.id: getattr(getattr(agent, "__wrapped__", None), "__code__", None) for agent in agents}
    return {name: (code.co_filename, code.co_name) for name, code in codes.items() if code is not None}


def read_dump(path: Path | None) -> BlockedLoop | None:
    """Where the previous process of a store blocked its loop, logged with the tracebacks; None if it did not.

    Removes the file: the tasks that it explains end now.
    """
    if path is None:
        return None
    try:
        header, _, dump = path.read_text("utf-8", "replace").partition("\n")
        path.unlink()
        if not dump.strip():
            return None
        fields = json.loads(header)
        frames = frames_of(dump, fields["thread"])
        found = locate(frames, {name: (file, function) for name, (file, function) in fields["agents"].items()})
        seconds = float(fields["seconds"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s cannot be read, so it is not known what blocked the last process: %s", path, error)
        return None
    where = f"agent {found.agent or '(unknown)'}: {found.location}" if found else "no agent: it may have been frozen"
    text = "the last process of this store did not run its event loop for %g s and ended itself; it was blocked by %s"
    # As a stack: formatters of the log write its lines as lines, but escape those of a message.
    tracebacks = _log_lines(dump, fields["thread"])
    log.handle(log.makeRecord(log.name, logging.ERROR, __file__, 0, text, (seconds, where), None, sinfo=tracebacks))
    return found


def _log_lines(dump: str, thread: int) -> str:
    """The tracebacks for the log: that of this thread first, and not too many lines."""
    head, tracebacks = _tracebacks(dump)
    tracebacks.sort(key=lambda one: one[0] != thread)
    lines = [line for line in "".join([head, *(text for _, text in tracebacks)]).splitlines() if line.strip()]
    if len(lines) > MAX_LOGGED_LINES:
        lines[MAX_LOGGED_LINES:] = [f"and {len(lines) - MAX_LOGGED_LINES} more lines"]
    return "\n".join(lines)


def frames_of(dump: str, thread: int) -> Sequence[Frame]:
    """The frames of one thread in faulthandler's output, the innermost first."""
    found = next((text for one, text in _tracebacks(dump)[1] if one == thread), "")
    return [Frame(file, int(line), name) for file, line, name in _FRAME.findall(found)]


def _tracebacks(dump: str) -> tuple[str, list[tuple[int, str]]]:
    """The text before the tracebacks, and each of these with the id of its thread."""
    head, *parts = _TRACEBACK.split(dump)
    return head, [(int(id, 16), text) for id, text in zip(parts[::2], parts[1::2], strict=True)]


def locate(frames: Sequence[Frame], agents: Mapping[str, tuple[str, str]]) -> BlockedLoop | None:
    """The agent and the innermost line of an author's code in a stack; None if there is no such line."""
    own = [frame for frame in frames if is_author_file(frame.file)]
    running = [name for frame in own for name, code in agents.items() if code == (frame.file, frame.function)]
    # Code that an agent started as a task of its own is known by its file only.
    same_file = [name for frame in own for name, (file, _) in agents.items() if file == frame.file]
    if running or len(set(same_file)) == 1:
        return BlockedLoop((running or same_file)[0], str(own[0]))
    return BlockedLoop("", str(own[0])) if own else None


def describe_stack(thread: int) -> str:
    """The innermost line of an author's code that a thread runs now, else its innermost line; empty if it has ended."""
    innermost = sys._current_frames().get(thread)
    stack = traceback.walk_stack(innermost) if innermost else ()
    frames = [Frame(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in stack]
    return str(next((one for one in frames if is_author_file(one.file)), frames[0])) if frames else ""


MAX_NAMED: Final = 10


def describe_running(loop: asyncio.AbstractEventLoop, turns: Callable[[], Sequence[str]]) -> str:
    """The work that keeps this process from ending: turns, tasks of agents, threads. Called from any thread."""
    names = []
    with contextlib.suppress(RuntimeError):  # changed meanwhile
        names += [f"turn of {turn}" for turn in turns()]
    with contextlib.suppress(RuntimeError):
        for task in asyncio.all_tasks(loop):
            stack = task.get_stack(limit=1)
            if stack and is_author_file(stack[0].f_code.co_filename):
                names.append(
                    f"task {task.get_name()} ({Path(stack[0].f_code.co_filename).name}, line {stack[0].f_lineno})"
                )
    main = threading.main_thread()
    names += [
        f"thread {one.name} ({describe_stack(one.ident)})"
        for one in threading.enumerate()
        if one.ident is not None and (one is main or not one.daemon)
    ]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
