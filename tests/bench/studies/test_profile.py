"""Attribution of CPU time to threads, parts and functions."""

from __future__ import annotations

from collections import Counter

import pytest
from bench.studies.profile import NO_FRAME, StackSample, attribute_cpu, report, stack_samples

LOOP = "serve (dragoman/cli/serve.py:233);Runner.run (asyncio/runners.py:118)"
RAW = f"""\
thread (10): MainThread;{LOOP} 50
thread (10): MainThread;{LOOP};Run.drive (dragoman/runtime/run.py:129);varint (dragoman/core/frames.py:12) 30
thread (10): MainThread;{LOOP};Run.drive (dragoman/runtime/run.py:130) 15
thread (10): MainThread;{LOOP};dumps (json/__init__.py:231) 5
thread (11): dragoman-writer;Thread.run (threading.py:982);Writer._together (dragoman/stores/sqlite/writer.py:207) 10
thread (12): dragoman-reader_0;Thread.run (threading.py:982);_worker (concurrent/futures/thread.py:81) 3
not a stack
"""
SPENT = {"10 python": 0.4, "11 python": 0.2, "12 python": 0.05, "13 event_engine": 0.03}


def test_stack_samples_are_parsed_with_threads_and_frames() -> None:
    found = list(stack_samples(RAW))
    assert [look.count for look in found] == [50, 30, 15, 5, 10, 3]
    assert found[1].tid == 10
    assert found[1].thread == "MainThread"
    assert found[1].frames[-1].name == "varint"


@pytest.mark.parametrize(
    ("at", "part"),
    [
        (0, NO_FRAME),
        (1, "dragoman/core"),
        (2, "dragoman/runtime"),
        (3, "the standard library and others"),
        (4, "dragoman/stores"),
        (5, NO_FRAME),
    ],
)
def test_a_sample_counts_for_its_innermost_frame(at: int, part: str) -> None:
    assert list(stack_samples(RAW))[at].part == part


def test_cpu_seconds_are_divided_within_each_thread() -> None:
    costs = attribute_cpu(SPENT, list(stack_samples(RAW)), 1000)
    assert costs.threads == pytest.approx(
        {"MainThread": 400, "dragoman-writer": 200, "dragoman-reader_0": 50, "event_engine, native": 30}
    )
    assert costs.parts["MainThread", NO_FRAME] == pytest.approx(200)
    assert costs.parts["MainThread", "dragoman/core"] == pytest.approx(120)
    assert costs.parts["dragoman-writer", "dragoman/stores"] == pytest.approx(200)
    assert sum(costs.parts.values()) == pytest.approx(650)  # a thread without samples has no parts
    assert costs.functions["varint (dragoman/core/frames.py)"] == pytest.approx(120)
    assert costs.functions["Run.drive (dragoman/runtime/run.py)"] == pytest.approx(60)
    assert costs.cumulative["Run.drive (dragoman/runtime/run.py)"] == pytest.approx(180)


def test_frames_of_a_library_have_its_package_as_part() -> None:
    raw = "thread (1): t;f (/x/lib/python3.11/site-packages/aiohttp/web.py:3);g (aiohttp/web_protocol.py:4) 1"
    (look,) = stack_samples(raw)
    assert isinstance(look, StackSample)
    assert [frame.part for frame in look.frames] == ["aiohttp", "aiohttp"]


def test_the_profile_sums_up_and_starts_with_the_largest_thread() -> None:
    found = list(stack_samples(RAW))
    text = report(attribute_cpu(SPENT, found, 1000), 1234.0, Counter(look.thread for look in found))
    assert text.startswith("1,234 per second, 680 µs of CPU each")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[2].split("|")[1].strip() == "MainThread"
