"""`@on_startup`: the four kinds of functions, their order, and failures."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType

import pytest
from tests.hostile import kinds

from dragoman import agent, on_startup
from dragoman.agents.functions.startup import StartupFailed, started, startup_hooks_in, startup_hooks_of
from dragoman.testing import AgentUnderTest

calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@on_startup
async def opens() -> AsyncIterator[None]:
    calls.append("opens")
    yield
    calls.append("closes")


@on_startup
def reads() -> None:
    calls.append(f"reads, on the loop's thread: {threading.current_thread() is threading.main_thread()}")


@agent
def hello(turn: object) -> str:
    calls.append("turn")
    return "hello"


async def test_functions_run_before_the_first_turn_and_clean_up_after_the_last() -> None:
    async with AgentUnderTest(hello) as kit:
        await kit.send("one")
        await kit.send("two")
    assert calls == ["opens", "reads, on the loop's thread: False", "turn", "turn", "closes"]


async def test_a_new_process_runs_them_again() -> None:
    async with AgentUnderTest(hello) as kit:
        await kit.crash()
    assert [call for call in calls if "reads" not in call] == ["opens", "closes", "opens", "closes"]


async def test_clean_up_runs_in_reverse_order() -> None:
    @on_startup
    def first() -> Iterator[None]:
        calls.append("first")
        yield
        calls.append("first ends")

    @on_startup
    async def second() -> AsyncIterator[None]:
        await asyncio.sleep(0)
        calls.append("second")
        yield
        calls.append("second ends")

    async with started([first, second]):
        calls.append("served")
    assert calls == ["first", "second", "served", "second ends", "first ends"]


async def test_a_failure_names_the_function_and_its_line_and_cleans_up_what_ran() -> None:
    @on_startup
    async def breaks() -> None:
        raise ConnectionError("no database at db:5432")

    line = breaks.__wrapped__.__code__.co_firstlineno + 2
    rule = rf"^{re.escape(__file__)}, line {line}: @on_startup breaks failed: ConnectionError: no database at db:5432$"
    with pytest.raises(StartupFailed, match=rule):
        async with started([opens, breaks, reads]):
            calls.append("served")
    assert calls == ["opens", "closes"]


async def test_a_generator_must_reach_its_yield() -> None:
    @on_startup
    async def returns() -> AsyncIterator[None]:
        if not calls:
            return
        yield

    with pytest.raises(StartupFailed, match="returns failed: RuntimeError: it did not reach its yield"):
        async with started([returns]):
            pass


async def test_a_failed_clean_up_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    @on_startup
    def breaks() -> Iterator[None]:
        yield
        raise OSError("gone")

    @on_startup
    async def twice() -> AsyncIterator[None]:
        yield
        yield

    with caplog.at_level(logging.ERROR):
        async with started([opens, breaks, twice]):
            pass
    assert calls == ["opens", "closes"]
    messages = [record.getMessage() for record in caplog.records]
    assert ["more than one yield" in messages[0], "breaks failed: OSError: gone" in messages[1]] == [True, True]


def test_the_functions_of_a_module_keep_their_order_also_imported_ones() -> None:
    module = ModuleType("app")
    vars(module).update(z=reads, a=opens, again=reads, hello=hello)
    assert startup_hooks_in(module) == [reads, opens]
    assert startup_hooks_of([hello]) == [opens, reads]


def test_a_declared_function_can_be_called() -> None:
    reads()
    assert calls == ["reads, on the loop's thread: True"]


def test_only_functions_without_required_arguments_can_be_declared() -> None:
    with pytest.raises(TypeError, match=r"@on_startup: .*takes\(turn.*\).* cannot be called without arguments"):

        @on_startup
        def takes(turn: object) -> None: ...

    with pytest.raises(TypeError, match="@on_startup: 3 is not a function; write @on_startup above a def"):
        on_startup(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", kinds.EXCEPTIONS.values(), ids=kinds.EXCEPTIONS)
@pytest.mark.parametrize("written_as", ["async", "sync", "async generator", "sync generator"])
async def test_whatever_a_function_raises_is_a_failed_start(make: Callable[[], BaseException], written_as: str) -> None:
    async def is_async() -> None:
        raise make()

    def is_sync() -> None:
        raise make()

    async def is_async_generator() -> AsyncIterator[None]:
        if calls:
            raise make()
        yield

    def is_sync_generator() -> Iterator[None]:
        if calls:
            raise make()
        yield

    hooks = {one.__name__: on_startup(one) for one in (is_async, is_sync, is_async_generator, is_sync_generator)}
    with pytest.raises(StartupFailed, match=rf"^{re.escape(__file__)}.* failed: "):
        async with asyncio.timeout(60), started([opens, hooks[f"is_{written_as.replace(' ', '_')}"]]):
            raise AssertionError
    assert calls == ["opens", "closes"]


@pytest.mark.parametrize("make", kinds.EXCEPTIONS.values(), ids=kinds.EXCEPTIONS)
async def test_whatever_a_clean_up_raises_does_not_keep_others_from_running(make: Callable[[], BaseException]) -> None:
    @on_startup
    async def fails_late() -> AsyncIterator[None]:
        yield
        raise make()

    @on_startup
    def fails_late_in_a_thread() -> Iterator[None]:
        yield
        raise make()

    async with asyncio.timeout(60), started([opens, fails_late, fails_late_in_a_thread]):
        pass
    assert calls == ["opens", "closes"]
