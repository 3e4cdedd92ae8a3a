"""The end checker: only ends that a fault explains pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.chaos.history import Cut, Entry, Fault
from tests.chaos_checker.checker import StoredEvent, StoredTask
from tests.chaos_checker.end_checker import DRAIN, drained, judge_ends

from dragoman.core.task import states

LOG = (StoredEvent(1, "d1", states.SUBMITTED), StoredEvent(2, "d2", states.FAILED))
LOST = StoredTask(
    "t", states.FAILED, 2, LOG, ["m"], "sleep 3000 #1", agent="once", reason="INTERRUPTED", times=(10, 23)
)
LONG = replace(LOST, reason="DRAINED", times=(10, 40.2))
FAR = replace(LOST, agent="far")
FAILED = replace(LOST, text="fail #1", reason="")
CUT = Cut(follower=7, at=12)

KILL = Fault(how="kill", at=11, seconds=2)
PAUSE = Fault(how="pause", at=11, seconds=11.5)
STEP = Fault(how="step", part="clock", at=20, seconds=8)
OVER = Fault(how="drain", at=40.2 - DRAIN, seconds=DRAIN + 2)
STOP = Fault(how="drain", at=11, seconds=3)
OPEN_WRITE = Fault(how="commit", part="store", task="t", at=10)


@pytest.mark.parametrize(
    ("task", "history"),
    [
        pytest.param(LOST, [KILL], id="lost with its server"),
        pytest.param(LOST, [PAUSE], id="taken from a server that was held still"),
        pytest.param(LOST, [replace(KILL, part="postgres", seconds=10)], id="stopped during a long outage"),
        pytest.param(
            replace(LOST, reason="NOT_WRITTEN"),
            [replace(KILL, part="postgres", seconds=10)],
            id="events not written during a long outage",
        ),
        pytest.param(replace(LOST, reason="NOT_WRITTEN"), [replace(KILL, how="fill", part="disk")], id="a full disk"),
        pytest.param(LOST, [replace(KILL, at=31), STEP], id="lost while a clock was off"),
        pytest.param(LOST, [OPEN_WRITE, STOP], id="claimed without an answer by a server that stops"),
        pytest.param(LONG, [OVER], id="longer than a drain"),
        pytest.param(FAR, [replace(KILL, part="worker")], id="lost with its worker"),
        pytest.param(FAR, [replace(KILL, part="worker", at=23.0004)], id="lost with its worker, within a millisecond"),
        pytest.param(FAILED, [], id="told to fail"),
        pytest.param(FAILED, [CUT, STOP], id="cut by a server that stops"),
        pytest.param(replace(LOST, state=states.COMPLETED, reason=""), [], id="completed"),
    ],
)
def test_failures_explained_by_a_fault_pass(task: StoredTask, history: list[Entry]) -> None:
    assert list(judge_ends(history, {"t": task})) == []


@pytest.mark.parametrize(
    ("task", "history", "problem"),
    [
        pytest.param(LOST, [], "nothing was struck", id="lost without a fault"),
        pytest.param(LOST, [replace(KILL, at=24)], "nothing was struck", id="lost before the fault"),
        pytest.param(LOST, [replace(KILL, how="fill", part="disk")], "nothing was struck", id="lost with a full disk"),
        pytest.param(LOST, [STEP], "nothing was struck", id="lost while a clock was off"),
        pytest.param(replace(LOST, times=(60, 61)), [KILL], "nothing was struck", id="begun long after the fault"),
        pytest.param(LOST, [STOP], "nothing was struck", id="lost in an orderly end"),
        pytest.param(LOST, [replace(OPEN_WRITE, task="u"), STOP], "nothing was struck", id="another without an answer"),
        pytest.param(LOST, [replace(OPEN_WRITE, at=15), STOP], "nothing was struck", id="without an answer afterwards"),
        pytest.param(LOST, [replace(KILL, part="worker")], "nothing was struck", id="not at that worker"),
        pytest.param(LOST, [replace(KILL, part="nats")], "nothing was struck", id="lost with NATS"),
        pytest.param(LONG, [STOP], "DRAINED", id="cut short by a drain"),
        pytest.param(
            replace(LOST, reason="NOT_WRITTEN"),
            [replace(KILL, part="postgres", seconds=2)],
            "NOT_WRITTEN",
            id="events not written in a short outage",
        ),
        pytest.param(
            replace(FAR, times=(10, 13)),
            [replace(STOP, part="worker")],
            "nothing was struck",
            id="cut short by a worker's drain",
        ),
        pytest.param(replace(LOST, reason="NO_WORKER"), [KILL], "NO_WORKER", id="ended for another reason"),
        pytest.param(replace(FAILED, text="echo #1"), [KILL], "echo #1", id="failed without being told to"),
        pytest.param(FAILED, [CUT], "follower 7", id="cut though nobody stops"),
        pytest.param(FAILED, [CUT, replace(STOP, at=13)], "follower 7", id="cut before anybody stops"),
    ],
)
def test_unexplained_failures_are_reported(task: StoredTask, history: list[Entry], problem: str) -> None:
    (text,) = judge_ends(history, {"t": task})
    assert problem in text


def test_tasks_longer_than_a_drain_are_counted() -> None:
    assert drained({"t": LONG, "u": LOST}) == 1
