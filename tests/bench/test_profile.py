"""How the microseconds of a send are shared out."""

from __future__ import annotations

from collections import Counter

import pytest
from bench.profile import NO_FRAME, Look, looks, report, shared_out

LOOP = "serve (dragoman/cli/serve.py:233);Runner.run (asyncio/runners.py:118)"
RAW = f"""\
thread (10): MainThread;{LOOP} 50
thread (10): MainThread;{LOOP};Run.drive (dragoman/runtime/run.py:129);varint (dragoman/core/frames.py:12) 30
thread (10): MainThread;{LOOP};Run.drive (dragoman/runtime/run.py:130) 15
thread (10): MainThread;{LOOP};dumps (json/__init__.py:231) 5
thread (11): dragoman-writer;Thread.run (threading.py:982);Writer._together (dragoman/stores/sqlite/writer.py:207) 10
thread (12): dragoman-reader_0;Thread.run (threading.py:982);_worker (concurrent/futures/thread.py:81) 3
what nobody can read
"""
SPENT = {"10 python": 0.4, "11 python": 0.2, "12 python": 0.05, "13 event_engine": 0.03}


def test_looks_are_read_with_their_threads_and_frames() -> None:
    found = list(looks(RAW))
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
def test_a_look_belongs_to_the_innermost_frame(at: int, part: str) -> None:
    assert list(looks(RAW))[at].part == part


def test_each_thread_shares_out_its_own_seconds() -> None:
    costs = shared_out(SPENT, list(looks(RAW)), 1000)
    assert costs.threads == pytest.approx(
        {"MainThread": 400, "dragoman-writer": 200, "dragoman-reader_0": 50, "event_engine, native": 30}
    )
    assert costs.parts["MainThread", NO_FRAME] == pytest.approx(200)
    assert costs.parts["MainThread", "dragoman/core"] == pytest.approx(120)
    assert costs.parts["dragoman-writer", "dragoman/stores"] == pytest.approx(200)
    assert sum(costs.parts.values()) == pytest.approx(650)  # a thread that nobody looked at has no parts
    assert costs.functions["varint (dragoman/core/frames.py)"] == pytest.approx(120)
    assert costs.functions["Run.drive (dragoman/runtime/run.py)"] == pytest.approx(60)
    assert costs.whole["Run.drive (dragoman/runtime/run.py)"] == pytest.approx(180)


def test_a_library_is_named_by_its_package() -> None:
    raw = "thread (1): t;f (/x/lib/python3.11/site-packages/aiohttp/web.py:3);g (aiohttp/web_protocol.py:4) 1"
    (look,) = looks(raw)
    assert isinstance(look, Look)
    assert [frame.part for frame in look.frames] == ["aiohttp", "aiohttp"]


def test_the_report_adds_up_and_begins_with_the_most() -> None:
    found = list(looks(RAW))
    text = report(shared_out(SPENT, found, 1000), 1234.0, Counter(look.thread for look in found))
    assert text.startswith("1,234 a second, 680 µs of CPU each")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[2].split("|")[1].strip() == "MainThread"
