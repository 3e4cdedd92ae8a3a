"""Process set-up: the open-file limit, memory, and exits that agents raise."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
from types import SimpleNamespace
from typing import Final

import pytest
from tests.eventually import eventually

from dragoman.cli import process_setup
from dragoman.cli.process_setup import EXTRA_OPEN_FILES, Signals, raise_open_file_limit, run_until_complete
from dragoman.ports.extension import StartError

resource = pytest.importorskip("resource")


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits of a simulated system; the current one is last."""
    reported = [(1024, 5000)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: reported[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: reported.append(limit))
    return reported


def test_the_limit_is_raised_for_the_connections(
    limits: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    assert raise_open_file_limit(1000) == 1000
    assert limits[-1] == (2000 + EXTRA_OPEN_FILES, 5000)
    assert raise_open_file_limit(500) == 500  # already high enough
    assert limits[-1] == (2000 + EXTRA_OPEN_FILES, 5000)
    assert not caplog.records


def test_a_limit_that_is_too_low_is_logged(limits: list[tuple[int, int]], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    fitting = (5000 - EXTRA_OPEN_FILES) // 2
    assert raise_open_file_limit(4096) == fitting
    assert limits[-1] == (5000, 5000)
    assert len(caplog.records) == 1
    assert f"may open 5000 files, but 4096 connections per port need {8192 + EXTRA_OPEN_FILES}" in caplog.text
    assert f"at most {fitting} per port are accepted" in caplog.text


def test_a_rejected_limit_is_left_unchanged(
    limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(kind: int, limit: tuple[int, int]) -> None:
        raise OSError

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_open_file_limit(4096) == 256
    assert "may open 1024 files" in caplog.text


@pytest.mark.parametrize("hard", [64, 256, 1024, 2047, 2048, 2049, 5000, 9215])
def test_two_full_ports_leave_a_part_of_few_files_free(limits: list[tuple[int, int]], hard: int) -> None:
    limits.append((min(1024, hard), hard))
    fitting = raise_open_file_limit(4096)
    assert 1 <= fitting < 4096
    assert hard - 2 * fitting >= min(EXTRA_OPEN_FILES, hard // 2)


def test_too_few_files_are_refused_with_the_number_needed(limits: list[tuple[int, int]]) -> None:
    limits.append((24, 24))
    with pytest.raises(StartError, match=r"may open 24 files, .*; raise the limit to at least 64 \(ulimit -n"):
        raise_open_file_limit(4096)


def test_few_connections_fit_few_files(limits: list[tuple[int, int]], caplog: pytest.LogCaptureFixture) -> None:
    limits.append((1024, 1024))
    assert raise_open_file_limit(100) == 100
    assert not caplog.records


# Memory -------------------------------------------------------------------------------------------------------------

MIB: Final = 1024 * 1024


class SimulatedAllocator(process_setup.Allocator):
    """Reports the given MiB as unused, one number after the other, and keeps those that were reported before a trim."""

    def __init__(self, *reports: int) -> None:
        self._reports = iter(reports)
        self._last = 0
        self.trimmed_at: list[int] = []
        self.ended = asyncio.Event()

    def unused_bytes(self) -> int:
        self._last = next(self._reports, -1)
        if self._last < 0:
            self.ended.set()
        return self._last * MIB

    def trim(self) -> int:
        self.trimmed_at.append(self._last)
        return self.unused_bytes()


@pytest.mark.parametrize(
    ("reports", "trimmed_at"),
    [
        ((20, 84, 85, 20, 21, 20, 84), [85, 21]),
        ((20, 85, 30, 30, 30, 94, 95, 30, 30, 30), [85, 30, 95, 30]),  # 30 could not be returned
        ((100, 20, 85, 20, 20, 20), [85, 20]),  # the level before is the lowest one
        ((20, 200, 140, 140, 25, 25, 25, 88), [200, 140, 25]),  # the first trim was in the middle of a burst
        ((20, 200, 140, 140, 140, 200, 200, 200), [200, 140, 200]),  # so was the second
    ],
)
async def test_memory_is_returned_when_more_of_it_lies_unused(reports: tuple[int, ...], trimmed_at: list[int]) -> None:
    allocator = SimulatedAllocator(*reports)
    returning = asyncio.create_task(process_setup.return_unused_memory(allocator, 0))
    await allocator.ended.wait()
    returning.cancel()
    assert allocator.trimmed_at == trimmed_at


@pytest.mark.parametrize("lacks", ["malloc_trim", "mallinfo2", "mallopt", "/proc"])
def test_memory_stays_where_the_system_cannot_be_asked_to_take_it_back(
    lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_proc(path: str) -> None:
        raise FileNotFoundError(path)

    info = process_setup._MallocInfo
    functions = {"malloc_trim": lambda _: 1, "mallinfo2": lambda: info(), "mallopt": lambda *_: 1}
    library = SimpleNamespace(**{name: each for name, each in functions.items() if name != lacks})
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    if lacks == "/proc":
        monkeypatch.setattr(process_setup, "open", no_proc, raising=False)
    assert process_setup.open_allocator() is None


async def test_memory_that_is_freed_while_the_loop_is_late_is_returned_too() -> None:
    class BusyAllocator(SimulatedAllocator):
        """100 MiB are freed between the end of the first trim and the next look of the loop."""

        unused = 0

        def unused_bytes(self) -> int:
            if len(self.trimmed_at) == 2:
                self.ended.set()
            return self.unused * MIB

        def trim(self) -> int:
            self.trimmed_at.append(self.unused)
            self.unused = 100 if len(self.trimmed_at) == 1 else 0
            return 0

    allocator = BusyAllocator()
    returning = asyncio.create_task(process_setup.return_unused_memory(allocator, 0))
    await asyncio.sleep(0)  # it has seen the level before the burst
    allocator.unused = 100
    await eventually(allocator.ended.is_set)
    returning.cancel()
    assert allocator.trimmed_at[:2] == [100, 100]


# The event loop -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_task_that_raises_an_exit_does_not_end_the_process(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def raise_it() -> None:
        raise error

    async def serve() -> list[object]:
        signals = Signals()
        outcomes: list[object] = []
        for _ in range(2):
            outcomes += await asyncio.gather(asyncio.create_task(raise_it()), return_exceptions=True)
        signals.close()
        return outcomes

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert run_until_complete(serve()) == [error, error]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert caplog.text.count(f"a task of an agent raised {type(error).__name__}; the process continues") == 2


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("x")], ids=repr)
def test_an_error_of_the_main_coroutine_is_raised(error: BaseException) -> None:
    async def serve() -> None:
        raise error

    with pytest.raises(type(error)):
        run_until_complete(serve())


# Log lines ----------------------------------------------------------------------------------------------------------
