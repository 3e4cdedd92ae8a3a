"""Background work starts again after a failure, or ends the process; nothing runs in the background beside it."""

from __future__ import annotations

import ast
import asyncio
import errno
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from tests.eventually import eventually

from dragoman import supervision
from dragoman.core.durations import Backoff
from dragoman.core.errors import Unavailable
from dragoman.supervision import (
    EXIT_CODE,
    MAX_FAILURE_REASONS,
    MAX_FAILURES,
    Background,
    BackgroundFailures,
    Component,
    Polling,
    RepeatedFailures,
    describe_fault,
    polling,
    running,
)

PACKAGE: Final = Path(supervision.__file__).parent


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> BackgroundFailures:
    """The failures of this process, whose work starts again at once."""
    found = BackgroundFailures()
    monkeypatch.setattr(supervision, "FAILURES", found)
    monkeypatch.setattr(supervision, "RESTART_BACKOFF", Backoff(0.0, 0.0))
    return found


class Work:
    """Work that fails so many times and then runs until it is told to end."""

    def __init__(self, failures: int, error: BaseException) -> None:
        self.starts = 0
        self._failures, self._error = failures, error
        self.running, self.end = threading.Event(), threading.Event()

    def begin(self) -> None:
        self.starts += 1
        if self.starts <= self._failures:
            raise self._error
        self.running.set()

    async def run(self) -> None:
        self.begin()
        await asyncio.Event().wait()

    def run_blocking(self) -> None:
        self.begin()
        self.end.wait()


async def test_a_task_that_fails_starts_again_with_one_log_line(
    caplog: pytest.LogCaptureFixture, failures: BackgroundFailures
) -> None:
    work = Work(2, MemoryError())
    task = supervision.start_task(Background.REAPER, work.run)
    await eventually(work.running.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.starts == 3
    assert failures.counts[Background.REAPER] == 2
    assert caplog.messages[0] == (
        "background work failed: reaper: memory is used up: raise the memory limit, or lower --message-bytes or "
        "--connections; it starts again in 0 s"
    )
    assert [record.exc_info for record in caplog.records] == [None, None]


@pytest.mark.usefixtures("failures")
async def test_a_cancellation_that_nobody_asked_for_is_a_failure() -> None:
    work = Work(1, asyncio.CancelledError())
    task = supervision.start_task(Background.FEEDS, work.run)
    await eventually(work.running.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_returns_has_ended() -> None:
    async def ends() -> None:
        return None

    task = supervision.start_task(Background.AUDIT, ends, "of one server")
    assert task.get_name() == "audit log of one server"
    await task


@pytest.mark.usefixtures("failures")
async def test_a_thread_that_fails_starts_again() -> None:
    work = Work(2, SystemExit(1))
    thread = supervision.start_thread(Background.SQLITE_CHECKPOINT, work.run_blocking)
    assert thread.name == "dragoman-sqlite-checkpoint"
    await eventually(work.running.is_set)
    work.end.set()
    thread.join()
    assert work.starts == 3


def test_an_error_of_the_code_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    BackgroundFailures().record(Background.PUSH, KeyError("x"), 1)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "memory is used up: raise the memory limit, or lower --message-bytes or --connections"),
        (RuntimeError("can't start new thread"), "memory is used up: raise the memory limit"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files: raise `ulimit -n` (LimitNOFILE)"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device: free some space on the disk"),
        (Unavailable("the store is full"), "the store is full"),
        (ValueError("two\nlines"), "ValueError: two lines"),
        (KeyError(), "KeyError"),
    ],
)
def test_a_failure_is_described_in_one_line(error: Exception, text: str) -> None:
    assert describe_fault(error).startswith(text)


@pytest.mark.parametrize("work", Background)
def test_only_essential_work_that_fails_again_and_again_ends_the_process(work: Background) -> None:
    failures, ended = BackgroundFailures(), list[str]()
    failures.end_process = ended.append
    failures.record(work, MemoryError(), MAX_FAILURES - 1)
    assert not ended
    failures.record(work, MemoryError(), MAX_FAILURES)
    assert ended == ([f"{work.value} failed {MAX_FAILURES} times in a row"] if work in supervision.ESSENTIAL else [])


def test_essential_work_has_failed_too_often_before_a_task_counts_as_stuck() -> None:
    failures = BackgroundFailures()
    assert sum(failures.record(Background.SESSION, MemoryError(), number) for number in range(1, MAX_FAILURES)) < 10


def test_a_process_that_ends_says_so_and_has_a_code_of_its_own() -> None:
    text = "from dragoman.supervision import end_process; end_process('the writer failed')"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert ended.returncode == EXIT_CODE
    assert ended.stderr == "the writer failed; the process ends, start it again (systemd and Kubernetes do)\n"


# Nothing else runs in the background ------------------------------------------------------------------------------

UNSUPERVISED: Final[Mapping[str, str]] = {
    "agents/called/agent.py": "part of a turn, which awaits it",
    "extensions/frameworks/process.py": "reads the errors of one child; ends with it",
    "extensions/frameworks/supervisor.py": "exchanges frames with one child; whoever ends first ends the others",
    "agents/functions/threads.py": "threads of sync agents, which hand every outcome to the turn",
    "extensions/mcp/servers/connection.py": "one connection; whoever calls next opens another",
    "extensions/mcp/servers/open_calls.py": "one call, which its turn awaits, or which ends after an hour",
    "extensions/mcp/servers/transport.py": "reads the errors of one child; ends with it",
    "agents/upstream/follow_ups.py": "part of a turn, which awaits it",
    "agents/upstream/turn.py": "part of a turn, which awaits it",
    "agents/workers/hub.py": "reads the frames of one connection, which ends with it",
    "agents/workers/turn.py": "part of a turn, whose worker counts as lost if it fails",
    "bindings/http/asgi.py": "the request of one exchange, which ends with it",
    "bindings/http/request.py": "keep-alive of one response, which awaits it",
    "bindings/http/listener.py": "one handshake, with a timeout",
    "bindings/grpc/worker_service.py": "one call, which awaits it",
    "bindings/http/connections.py": "one call of a connection, which answers it",
    "bindings/http/websocket.py": "one call of a connection, which answers it",
    "extensions/mcp/endpoint/exchange.py": "the first frames of one response, which awaits them",
    "extensions/mcp/endpoint/listen.py": "parts of one stream, which their failure ends",
    "extensions/mcp/endpoint/services.py": "one cancel of a call that its client gave up; the task goes on if it fails",
    "extensions/nats/connection.py": "one flush, which its callers await",
    "cli/process_setup.py": "awaited by the command",
    "cli/serve/command.py": "awaited by the command, or ends with its supervisor",
    "cli/serve/processes.py": "awaited by the command",
    "cli/serve/reload.py": "awaited by the command, or by the server that it reloads",
    "cli/worker.py": "awaited by the command",
    "bindings/admin/actions.py": "one call of an operator, whose end its caller and the audit log get",
    "client": "runs in the caller's process",
    "extensions/postgres/queries.py": "one group of reads, each of which has its result or error",
    "extensions/frameworks/child": "runs in the executor's process, which its supervisor starts again",
    "fault_proxy.py": "one connection of a tool",
    "runtime/observe/metrics.py": "one read, which its callers await",
    "runtime/push/scheduler.py": "one delivery; a failed one is claimed again by the next poll",
    "runtime/registry.py": "one end of a task; what fails is found by the poll for absent agents",
    "runtime/scheduler.py": "the end of a turn, which is tried again, or one fetch or wake-up, which the poll repeats",
    "runtime/turn/runner.py": "one run, whose end the scheduler handles, or one end of a task, which the run awaits",
    "security/authenticators/api_keys.py": "one write of a last use, written again at the next use",
    "security/authenticators/jwks.py": "one fetch, which its callers await",
    "stores/shared/blobs.py": "one append, whose result has every error",
    "testing": "runs in the tests of agents",
    "worker/stream.py": "reads one connection of a worker, which connects again",
    "worker/worker.py": "one turn, which reports every outcome",
}
"""Files, or folders, that start tasks or threads themselves, and why nothing waits for ever if one of them fails."""


def starts_of(path: Path) -> list[int]:
    """The lines of a file that start a task or a thread."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            own_method = isinstance(owner, ast.Name) and owner.id == "self"
            if name in ("create_task", "ensure_future", "Thread", "TaskGroup") and not own_method:
                lines.append(node.lineno)
    return lines


def test_tasks_and_threads_are_started_by_the_supervisor_or_listed_with_a_reason() -> None:
    started = {
        path.relative_to(PACKAGE).as_posix(): lines
        for path in PACKAGE.rglob("*.py")
        if path.name != "supervision.py" and (lines := starts_of(path))
    }
    listed = {file: place for file in started if (place := next(filter(file.startswith, UNSUPERVISED), None))}
    assert {file: lines for file, lines in started.items() if file not in listed} == {}
    assert set(UNSUPERVISED) == set(listed.values()), "these start nothing any more"


def test_every_background_work_is_started_somewhere() -> None:
    sources = "".join(
        path.read_text("utf-8").replace("\n", "").replace(" ", "")
        for path in PACKAGE.rglob("*.py")
        if path.name != "supervision.py"
    )
    missing = [
        work.name
        for work in Background
        if not any(f"{start}(Background.{work.name}," in sources for start in ("start_task", "Polling", "polling"))
    ]
    assert [name for name in missing if f"start_thread(Background.{name}," not in sources] == []


def test_a_failure_that_comes_again_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    failures = RepeatedFailures(logging.getLogger("dragoman.store"), lambda: now)
    for second in range(90):
        now = float(second)
        failures.log("the disk is full", "%d writes failed: %s", second)
        failures.log("it is locked", "%d writes failed: %s", second)
    texts = [record.getMessage() for record in caplog.records]
    assert texts == [
        "0 writes failed: the disk is full",
        "0 writes failed: it is locked",
        "60 writes failed: the disk is full",
        "60 writes failed: it is locked",
    ]


def test_failures_with_ever_new_texts_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    failures = RepeatedFailures(logging.getLogger("dragoman.store"), lambda: 0.0)
    for number in range(1000):
        failures.log(f"reason {number}", "a write failed: %s")
    assert len(caplog.records) == MAX_FAILURE_REASONS


async def test_components_stop_in_reverse_order_also_if_one_does_not_start() -> None:
    steps: list[str] = []

    async def fail() -> None:
        raise OSError("in use")

    def component(name: str) -> Component:
        return Component(partial(steps.append, f"start {name}"), partial(steps.append, f"stop {name}"))

    async with running([component("a"), component("b")]):
        assert steps == ["start a", "start b"]
    assert steps[2:] == ["stop b", "stop a"]
    steps.clear()
    broken = Component(fail, partial(steps.append, "stop broken"))
    with pytest.raises(OSError, match="in use"):
        async with running([component("a"), broken, component("c")]):
            pass
    assert steps == ["start a", "stop broken", "stop a"]


async def test_background_work_of_a_component_has_ended_before_the_next_one_stops() -> None:
    steps: list[str] = []

    async def poll() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("poll ended")

    store = Component(stop=partial(steps.append, "store closed"))
    async with running([store, Polling(Background.FEEDS, poll)]):
        await asyncio.sleep(0)
    assert steps == ["poll ended", "store closed"]


async def test_a_poll_is_repeated_and_begins_at_once_or_after_its_interval() -> None:
    polled: list[str] = []

    async def poll(name: str) -> None:
        polled.append(name)

    late = polling(Background.FEEDS, 3600.0, partial(poll, "late"))
    often = polling(Background.REAPER, 0.0, partial(poll, "often"), at_once=True)
    async with running([late, often]):
        await eventually(lambda: len(polled) > 2)
    assert set(polled) == {"often"}
