"""Tests wait for events: none fails because a machine is slow. See "How we write" in CONTRIBUTING.md.

What is found: an assertion that little time has passed, a poll that ends after a number of looks, and a wait that is
over within seconds although nothing else ends it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
CLOCKS: Final = ("monotonic", "perf_counter", "time")
"""Names of functions that tell the time. CPU time (`thread_time`) is another matter."""
MAY_WAIT: Final = re.compile(r"(monotonic|perf_counter|\btime)\(\)|asyncio\.timeout\(\d|\.sleep\(")
"""In the text of every file of which something is found; others are not parsed."""
SHORTEST_WAIT: Final = 30.0
"""Seconds that a wait has at least: on a slow machine everything takes ten times as long."""

EXCUSED: Final = {
    "chaos/chains/load.py": "a cancel waits for a fault for some time only",
    "chaos_checker/test_clock_steps.py": "two clocks are compared",
    "runtime/test_timings.py": "two clocks are compared",
}


def tells_time(node: ast.AST) -> bool:
    return any(
        isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in CLOCKS
        for call in ast.walk(node)
    )


def is_duration(node: ast.AST) -> bool:
    """Whether it subtracts a time from another."""
    return any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) and tells_time(part) for part in ast.walk(node)
    )


def short_durations(function: ast.AST) -> Iterator[int]:
    """Yields the lines that assert that little time has passed."""
    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and is_duration(node.value)]
    targets = [target for node in assigned for target in node.targets]
    names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    for node in ast.walk(function):
        if not (isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare)):
            continue
        measured = node.test.left
        if isinstance(node.test.ops[0], ast.Lt | ast.LtE) and (
            is_duration(measured) or (isinstance(measured, ast.Name) and measured.id in names)
        ):
            yield node.lineno


def sleeps(node: ast.AST) -> bool:
    """Whether it sleeps; `sleep(0)` only lets others run."""
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "sleep"
        and isinstance(call.func.value, ast.Name)
        and not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)
        for call in ast.walk(node)
    )


def counted_polls(function: ast.AST) -> Iterator[int]:
    """Yields the lines of polls that end after a number of looks."""
    for node in ast.walk(function):
        if not (isinstance(node, ast.For) and ast.unparse(node.iter).startswith("range(") and sleeps(node)):
            continue
        if any(isinstance(part, ast.Break | ast.Return) for part in ast.walk(node)):
            yield node.lineno


def short_waits(function: ast.AST) -> Iterator[int]:
    """Yields the lines of waits that are over within seconds, where the timeout is not what is expected."""
    for node in ast.walk(function):
        if not isinstance(node, ast.AsyncWith):
            continue
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "asyncio.timeout" and call.args:
                seconds = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
                if isinstance(seconds, int | float) and seconds < SHORTEST_WAIT:
                    yield node.lineno


def expects_timeout(function: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Name) and part.id in ("TimeoutError", "CancelledError") for part in ast.walk(function)
    )


def impatient(source: str) -> list[int]:
    """The lines of a test file that fail on a slow machine."""
    if not MAY_WAIT.search(source):
        return []
    lines: set[int] = set()
    for statement in ast.parse(source).body:
        for function in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            lines.update(short_durations(function), counted_polls(function))
            if not expects_timeout(function):
                lines.update(short_waits(function))
    return sorted(lines)


def test_no_test_fails_because_a_machine_is_slow() -> None:
    found = {
        name: lines
        for path in sorted(TESTS.rglob("*.py"))
        if (name := str(path.relative_to(TESTS))) not in EXCUSED and not name.startswith("simulation/")
        if (lines := impatient(path.read_text("utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("assert time.monotonic() - began < 5", True),
        ("took = loop.time() - began; assert took <= LIMIT", True),
        ("assert time.monotonic() - began > 5", False),
        ("assert time.thread_time() - began < 5", False),
        ("assert time.monotonic() < deadline", False),
        ("for _ in range(100):\n        if ready(): break\n        await asyncio.sleep(0.02)", True),
        ("for _ in range(100):\n        if ready(): break\n        await asyncio.sleep(0)", False),
        ("async with asyncio.timeout(20): await event.wait()", True),
        ("async with asyncio.timeout(60): await event.wait()", False),
        ("with raises(TimeoutError):\n        async with asyncio.timeout(0.1): await event.wait()", False),
    ],
)
def test_a_planted_wait_is_found(line: str, found: bool) -> None:
    assert bool(impatient(f"async def test() -> None:\n    {line}\n")) is found


def test_every_excused_file_would_be_found() -> None:
    assert [name for name in EXCUSED if not impatient((TESTS / name).read_text("utf-8"))] == []
